"""Write docs/conformance.md: every normative statement of MQTT with its tests and its places in the code.

Statements are in tests/spec/statements-*.toml, reasons for those without a test in tests/spec/untested.toml, tests are
found by their mark `spec`, places in the code by tags such as [MQTT-3.1.2-24] (of MQTT 5.0) or [MQTT-3.1.2-24 v3.1.1].

    python scripts/conformance.py            write the page
    python scripts/conformance.py --check    exit with 1 if it would change
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "conformance.md"
VERSIONS = ("5.0", "3.1.1")
TAG = re.compile(r"\[(MQTT-[0-9.]+-[0-9]+)(?: v?(3\.1\.1|5\.0))?\]")
SHORTENED = 4  # tests or files that a cell names; the rest is counted

INTRODUCTION = """\
# Conformance

This page lists every normative statement of MQTT 5.0 and MQTT 3.1.1, by its number, with the tests that prove it and
the places in the code that name it. `scripts/conformance.py` writes the page from the tests themselves: `make check`
fails when the page is out of date, or when a test or a reason is missing. The short wording is ours; the standards are
the authority ([5.0](https://docs.oasis-open.org/mqtt/mqtt/v5.0/mqtt-v5.0.html),
[3.1.1](https://docs.oasis-open.org/mqtt/mqtt/v3.1.1/mqtt-v3.1.1.html)).

In addition to these tests, the rules of `tests/harness/rule.py` check every packet that the server sends in any of
them: order, reserved bits, reason codes, packet identifiers, Receive Maximum, Maximum Packet Size, topic aliases.
"""


class Mark:
    """One statement that one test proves."""

    def __init__(self, statement: str, version: str, path: Path, test: str) -> None:
        self.statement = statement
        self.version = version
        self.path = path
        self.test = test


def statements(version: str) -> dict[str, str]:
    """Return the statements of a version with their texts, those of unofficial lists at the end."""
    with (ROOT / "tests" / "spec" / f"statements-{version}.toml").open("rb") as file:
        tables = tomllib.load(file)
    return {**tables["statements"], **tables.get("unofficial", {})}


def same_as(version: str) -> dict[str, list[str]]:
    """Return for statements of MQTT 3.1.1 those of MQTT 5.0 that say the same; one tag is enough."""
    with (ROOT / "tests" / "spec" / f"statements-{version}.toml").open("rb") as file:
        table = tomllib.load(file).get("same", {})
    return {statement: numbers.split() for statement, numbers in table.items()}


def reasons(version: str) -> dict[str, str]:
    """Return the statements of a version that have no test, with the reasons."""
    with (ROOT / "tests" / "spec" / "untested.toml").open("rb") as file:
        table: dict[str, str] = tomllib.load(file)[version]
    return table


def marks() -> list[Mark]:
    """Find the marks of all tests by reading, so that none has to run."""
    found: list[Mark] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text()
        if "mark.spec" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    found.extend(_marks_of(decorator, path, node.name))
    return found


def _marks_of(decorator: ast.expr, path: Path, test: str) -> list[Mark]:
    if not isinstance(decorator, ast.Call) or ast.unparse(decorator.func) != "pytest.mark.spec":
        return []
    (version,) = [ast.literal_eval(keyword.value) for keyword in decorator.keywords if keyword.arg == "version"]
    return [Mark(ast.literal_eval(argument), version, path, test) for argument in decorator.args]


def tags() -> dict[tuple[str, str], list[Path]]:
    """Return the files of the source that name a (version, statement)."""
    found: dict[tuple[str, str], list[Path]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        if path.parent.name == "sim":
            continue  # it checks the statements and does not implement them
        for statement, version in TAG.findall(path.read_text()):
            files = found.setdefault((version or "5.0", statement), [])
            if path not in files:
                files.append(path)
    return found


def render() -> str:
    """Return the page."""
    by_statement: dict[tuple[str, str], list[Mark]] = {}
    for mark in marks():
        by_statement.setdefault((mark.version, mark.statement), []).append(mark)
    places = tags()
    parts = [INTRODUCTION, _summary(by_statement)]
    for version in VERSIONS:
        parts.append(f"\n## MQTT {version}\n\n| number | statement | tests | code |\n|---|---|---|---|\n")
        equals, why = same_as(version), reasons(version)
        for statement, text in statements(version).items():
            files = list(places.get((version, statement), []))
            for other in equals.get(statement, []):
                files += [path for path in places.get(("5.0", other), []) if path not in files]
            tests = _tests(by_statement.get((version, statement), []), why.get(statement, "**missing**"))
            parts.append(f"| {statement[5:]} | {text} | {tests} | {_files(files)} |\n")
    return "".join(parts)


def _summary(by_statement: dict[tuple[str, str], list[Mark]]) -> str:
    lines = ["\n| version | statements | with tests | with a reason why not |\n|---|---|---|---|\n"]
    for version in VERSIONS:
        every = statements(version)
        tested = sum((version, statement) in by_statement for statement in every)
        lines.append(f"| {version} | {len(every)} | {tested} | {len(reasons(version))} |\n")
    return "".join(lines)


def _tests(found: list[Mark], reason: str) -> str:
    if not found:
        return f"*{reason}*"
    links = [f"[{mark.test.removeprefix('test_')}]({_link(mark.path)})" for mark in found]
    return _cell(links)


def _files(files: list[Path]) -> str:
    return _cell([f"[{path.parent.name}/{path.name}]({_link(path)})" for path in files])


def _cell(links: list[str]) -> str:
    more = f", {len(links) - SHORTENED} more" if len(links) > SHORTENED else ""
    return ", ".join(links[:SHORTENED]) + more


def _link(path: Path) -> str:
    return "../" + quote(path.relative_to(ROOT).as_posix())


def main() -> int:
    page = render()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == page:
            return 0
        print(f"{PAGE} is not up to date: run `python scripts/conformance.py`", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page)
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
