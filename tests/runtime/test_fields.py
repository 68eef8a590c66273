"""All fields of all events of the program, as its sources name them: one type for each name, and arrays in JSON."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.kernel.event import INFO, Event
from folkmoot.runtime.log import Log
from tests.harness.field import TYPES, check_fields

SOURCES = Path(__file__).parents[2] / "src" / "folkmoot"
OTHERS = ("cli", "client", "config", "demo", "sim", "torture")  # packages that tell no events
MAKERS = ("event", "_say", "say", "Event")
EXAMPLES: dict[type, object] = {str: "x", int: 7, bool: True, list: ["a", "b"], dict: {"a b": 1}}
CALLS = {"len": int, "int": int, "sorted": list, "list": list, "str": str, "dict": dict, "counter_of": int}


def kind_of(value: ast.expr) -> type | None:
    """The type of an expression as far as one can see it."""
    if isinstance(value, ast.Constant):
        return type(value.value)
    if isinstance(value, ast.JoinedStr):
        return str
    if isinstance(value, ast.List | ast.ListComp):
        return list
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return CALLS.get(value.func.id)
    return None


def named(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names and values of fields in a function that makes events, or that is called `fields`."""
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            target = node.targets[0]
            if isinstance(target.value, ast.Name) and target.value.id == "fields":
                assert isinstance(target.slice, ast.Constant)
                yield str(target.slice.value), node.value
        elif isinstance(node, ast.Call) and maker(node) == "say":
            yield from [(word.arg, word.value) for word in node.keywords if word.arg is not None]


def maker(node: ast.AST) -> str:
    """The name of what a call calls, if it makes an event."""
    if not isinstance(node, ast.Call):
        return ""
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    return name if name in MAKERS else ""


def all_fields() -> list[tuple[str, str, type | None]]:
    """Where, name and type of every field."""
    found = []
    for folder in sorted(SOURCES.iterdir()):
        if folder.name in OTHERS:
            continue
        for path in sorted(folder.glob("*.py")):
            for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(function, ast.FunctionDef) and any(maker(node) for node in ast.walk(function)):
                    place = f"{folder.name}/{path.name}:{function.lineno}"
                    found += [(place, name, kind_of(value)) for name, value in named(function)]
    return found


def test_every_field_of_the_program_has_the_type_of_its_name() -> None:
    found = all_fields()
    assert len({name for _, name, _ in found}) > 30, "fields are not found any more"
    unknown = [f"{place} {name}" for place, name, _ in found if name not in TYPES and not name.isupper()]
    assert unknown == []
    other = [
        f"{place} {name} is {seen.__name__}"
        for place, name, seen in found
        if seen is not None and seen is not type(None) and seen is not TYPES[name]
    ]
    assert other == []


@pytest.mark.parametrize("name", sorted(TYPES))
def test_json_keeps_the_type_of_a_field(name: str) -> None:
    stream = io.StringIO()
    value = EXAMPLES[TYPES[name]]
    Log("info", "json", stream).write_all([Event(INFO, "any", {name: value})], 0)
    assert json.loads(stream.getvalue())[name] == value


def test_another_type_is_noticed() -> None:
    check_fields([Event(INFO, "connected", {"expiry_s": None, "client": "c"})])
    for fields in ({"members": "n1"}, {"partitions": [1]}, {"nobody_knows": 1}, {"client": None}):
        with pytest.raises(AssertionError):
            check_fields([Event(INFO, "any", dict(fields))])
