"""What the present core gets wrong: each scenario and seed breaks a promise until it is mended, and then says so here.

When a scenario passes, move its file up to the others; when a seed passes, take it out of the list.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.sim import parse_scenario

FOLDER = Path(__file__).resolve().parent.parent / "scenarios" / "defects"
FILES = sorted(FOLDER.glob("*.txt"))


def sentence(path: Path) -> str:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    return first[2:]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=pytest.mark.xfail(strict=True, reason=sentence(path))) for path in FILES],
)
def test_no_promise_is_broken(path: Path) -> None:
    assert parse_scenario(path.read_text(encoding="utf-8")).simulation().run().violations == []


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_promise_is_broken_and_not_the_script(path: Path) -> None:
    found = parse_scenario(path.read_text(encoding="utf-8")).simulation().run().violations
    assert {violation.promise for violation in found} <= {"A1", "A9", "A11"}
