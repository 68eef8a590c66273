"""What only `make soak` runs is listed with its reason in CONTRIBUTING.md; the order of the inner loop."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

from tests.harness.selection import INTERPRETED_IN_SOAK, ROOT, changed_packages, in_order, is_pure, package_of

MARKS = ("soak", "soak_interpreted")


def reasons(path: Path) -> list[str]:
    """The reasons of the marks in a file of tests."""
    found = []
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "mark.soak" in text else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MARKS:
            assert isinstance(node.args[0], ast.Constant), f"{path}: the reason is a text"
            found.append(str(node.args[0].value))
    return found


def test_what_only_the_soak_runs_is_listed_with_its_reason() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    given = [reason for path in sorted((ROOT / "tests").rglob("test_*.py")) for reason in reasons(path)]
    assert given
    assert [reason for reason in (*given, *INTERPRETED_IN_SOAK.values()) if reason not in page] == []


def test_the_pure_half_is_that_of_the_build() -> None:
    assert is_pure("mqtt")
    assert is_pure("spec")
    assert not is_pure("runtime")
    assert not is_pure("e2e")
    assert package_of(ROOT / "tests" / "spec" / "test_ack.py") == "spec"


def test_tests_of_what_has_changed_come_first() -> None:
    changed = [
        ROOT / "src" / "folkmoot" / "mqtt" / "varint.py",
        ROOT / "src" / "pyspark_folkmoot" / "offset.py",
        ROOT / "src" / "folkmoot" / "__main__.py",
        ROOT / "tests" / "topics" / "test_tree.py",
        ROOT / "pyproject.toml",
    ]
    assert changed_packages(changed) == {"mqtt", "pyspark_folkmoot", "topics"}
    names = [
        "auth/test_acl",
        "mqtt/test_text",
        "mqtt/test_varint",
        "topics/test_name",
        "topics/test_tree",
        "auth/test_policy",
    ]
    items = [SimpleNamespace(path=ROOT / "tests" / f"{name}.py") for name in names]
    ordered = [f"{item.path.parent.name}/{item.path.stem}" for item in in_order(items, changed)]
    assert ordered == [
        "mqtt/test_varint",
        "topics/test_tree",
        "mqtt/test_text",
        "topics/test_name",
        "auth/test_acl",
        "auth/test_policy",
    ]
