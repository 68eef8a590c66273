"""What the present core gets wrong: each scenario and seed breaks a promise until it is mended, and then says so here.

When a scenario passes, move its file up to the others; when a seed passes, take it out of the list.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from folkmoot.cli.version import is_compiled
from folkmoot.sim import Options, parse_scenario

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


class Found:
    """A seed that shows a defect: the fault that stays on, the options, and what it shows."""

    def __init__(self, what: str, fault: str, nodes: int, seed: int, steps: int = 100, **numbers: int) -> None:
        self.what = what
        self.fault = fault
        self.nodes = nodes
        self.seed = seed
        self.steps = steps
        self.numbers = numbers

    @property
    def options(self) -> Options:
        options = Options(self.seed, self.steps, self.nodes, topologies=True)
        options.switch("faults", on=False)
        options.switch(self.fault, on=True)
        options.numbers = {"splits": 1, "majority": 1, **self.numbers}
        return options


FOUND = [
    Found("a node that is ready answers nobody", "link matrices", 5, 4, replicas=3),
    Found("two majorities after two joins at once", "joins at once", 3, 41, 40, replicas=3, spares=2),
    Found("an empty disk under a known id votes", "emptied disks", 3, 1, splits=0, replicas=3),
    Found("a majority without a copy begins a partition empty", "link matrices", 5, 5, 60, replicas=2),
    Found("a stale copy wins after a loss of all power", "uneven power loss", 3, 8, splits=0, replicas=3),
]
"""The first seeds that show a defect with no other fault; docs/simulation.md has the same table."""


@pytest.mark.skipif(not is_compiled(), reason="all runs are the same interpreted, and take longer")
@pytest.mark.parametrize(
    "found",
    [pytest.param(found, id=found.what, marks=pytest.mark.xfail(strict=True, reason=found.what)) for found in FOUND],
)
def test_a_seed_breaks_no_promise(found: Found) -> None:
    assert found.options.simulation().run().violations == []


def test_the_table_of_the_documentation_is_this_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*) \| `(.*)` \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert rows == [(found.what, found.fault, str(found.nodes), str(found.steps), str(found.seed)) for found in FOUND]
