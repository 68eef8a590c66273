"""Schedules: the same seed draws the same faults, every fault ends, and what it does is undone."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any, cast

import pytest

from tests.jepsen.history import Recorder
from tests.jepsen.nemesis import NEMESES, Fault, draw
from tests.jepsen.rig import Rig
from tests.jepsen.run import Options, faults

NODES = ["n1", "n2", "n3", "n4", "n5"]


class Board:
    """A rig that only notes what is done to it, and what is still broken."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.resets: list[bool] = []
        self.down: set[str] = set()
        self.frozen: set[str] = set()
        self.slowed: set[str] = set()
        self.full: set[str] = set()
        self.clocks: dict[str, int] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.deaf: set[str] = set()
        self.kept: set[str] = set()
        self.nodes: dict[str, Any] = dict.fromkeys(NODES, self)

    def wait(self, wait_s: float) -> bool:
        return True

    def kill(self, *names: str) -> None:
        self.down |= set(names)
        self.done.append(f"kill {' '.join(names)}")

    terminate = leave = kill

    def start(self, *names: str, faketime: str = "") -> None:
        assert set(names) <= self.down, f"{names} run already"
        self.down -= set(names)
        self.done.append(f"start {' '.join(names)} {faketime}".strip())

    def freeze(self, name: str) -> None:
        assert name not in self.frozen
        self.frozen.add(name)
        self.done.append(f"freeze {name}")

    def thaw(self, name: str) -> None:
        self.frozen.remove(name)

    def wipe(self, name: str) -> None:
        assert name in self.down, "only of a node that does not run"
        self.done.append(f"wipe {name}")

    def keep(self, name: str) -> None:
        assert name in self.down
        self.kept.add(name)

    def restore(self, name: str) -> None:
        assert name in self.down
        assert name in self.kept
        self.done.append(f"restore {name}")

    def fill(self, name: str) -> None:
        self.full.add(name)
        self.done.append(f"fill {name}")

    def free(self, name: str) -> None:
        self.full.remove(name)

    def set_clock(self, name: str, offset_s: int) -> None:
        self.clocks[name] = offset_s
        self.done.append(f"clock {name} {offset_s}")

    def cut(self, pairs: list[tuple[str, str]], *, reset: bool = False) -> None:
        assert all(one != other for one, other in pairs)
        self.resets.append(reset)
        self.cuts |= set(pairs)
        self.done.append(f"cut {len(pairs)}")

    def mend(self) -> None:
        self.cuts.clear()
        self.deaf.clear()

    def part_clients(self, name: str) -> None:
        self.deaf.add(name)
        self.done.append(f"part {name}")

    def slow(self, name: str, words: list[str]) -> None:
        self.slowed.add(name)
        self.done.append(f"slow {name}")

    def lose(self, name: str, percent: int) -> None:
        self.cuts.add((name, f"{percent} %"))
        self.done.append(f"lose {name} {percent}")

    def fast(self, name: str) -> None:
        self.slowed.remove(name)

    def watch(self) -> None:
        """No process ends by itself here."""

    def broken(self) -> list[Any]:
        left = [self.down, self.frozen, self.slowed, self.full, self.cuts, self.deaf]
        return [one for one in [*left, {name for name, at in self.clocks.items() if at}] if one]


def played(name: str, seed: int) -> Board:
    """The faults of a run of one nemesis, done one after the other."""
    board = Board()
    # What calls methods of the class itself (`Rig.mend`) must reach this board too.
    rig = cast("Rig", board)
    for fault in draw(seed, NODES, 120.0, [name]):
        for _, step in fault.steps:
            board.mend() if step is Rig.mend else step(rig)
        assert board.broken() == [], f"{fault} leaves something broken"
        assert board.done, f"{fault} does nothing"
    return board


@pytest.mark.parametrize("name", NEMESES)
def test_every_fault_does_something_and_is_undone(name: str) -> None:
    for seed in range(20):
        played(name, seed)


def test_the_same_seed_draws_the_same_schedule() -> None:
    one, other = (draw(7, NODES, 300.0, list(NEMESES)) for _ in range(2))
    assert [str(fault) for fault in one] == [str(fault) for fault in other]
    assert [str(fault) for fault in draw(8, NODES, 300.0, list(NEMESES))] != [str(fault) for fault in one]


def test_the_order_of_the_names_changes_nothing() -> None:
    names = list(NEMESES)
    one, other = (draw(7, NODES, 300.0, wanted) for wanted in (names, names[::-1]))
    assert [str(fault) for fault in one] == [str(fault) for fault in other]


def test_all_nemeses_that_are_wanted_come_before_one_comes_twice() -> None:
    found = [fault.name for fault in draw(3, NODES, 10_000.0, list(NEMESES))]
    assert set(found[: len(NEMESES)]) == set(NEMESES)


def test_faults_follow_one_another_and_end_with_the_run() -> None:
    for seed in range(30):
        schedule = draw(seed, NODES, 300.0, list(NEMESES))
        for before, after in pairwise(schedule):
            assert before.begin_s + before.seconds < after.begin_s
        assert schedule[-1].begin_s + schedule[-1].seconds <= 300.0
        assert all([at for at, _ in fault.steps] == sorted(at for at, _ in fault.steps) for fault in schedule)


def test_a_bridge_leaves_one_node_that_sees_all() -> None:
    for seed in range(20):
        board, reset = Board(), bool(seed % 2)
        draw(seed, NODES, 10.0, ["bridge-reset" if reset else "bridge"])[0].steps[0][1](cast("Rig", board))
        assert board.resets == [reset]
        free = [name for name in NODES if not any(name in pair for pair in board.cuts)]
        assert len(free) == 1
        assert len(board.cuts) == 8, "two by two, both ways"


def test_old_folders_come_back_once_or_twice() -> None:
    assert played("old-folder", 1).done.count("restore n1") <= 2
    for name, times in (("old-folder", 1), ("old-folder-twice", 2)):
        board = Board()
        for _, step in draw(5, NODES, 10.0, [name])[0].steps:
            board.mend() if step is Rig.mend else step(cast("Rig", board))
        assert len([done for done in board.done if done.startswith("restore")]) == times


def test_few_nodes_are_enough_for_every_nemesis() -> None:
    for name in NEMESES:
        assert draw(1, NODES[:3], 10.0, [name])[0].seconds > 0


@pytest.mark.parametrize("whole", [True, False])
def test_no_disk_is_taken_before_all_copies_are_in_sync(whole: bool) -> None:
    done: list[str] = []
    said: list[str] = []

    def step(what: str) -> tuple[float, Any]:
        return (0.0, lambda _rig: done.append(what))

    def waits() -> bool:
        done.append("wait")
        return whole

    taking = Fault("old-folder", "n1", [step("keep"), step("restore"), step("start")], takes=(1,))
    options = Options(seconds=0.0)
    rig = cast("Rig", Board())
    rig.nodes.clear()
    faults(options, [taking, Fault("kill", "n2", [step("kill")])], rig, Recorder(io.StringIO(), 0), waits, said.append)
    assert done == ["keep", "wait", *(["restore", "start"] if whole else []), "kill"]
    assert [text for text in said if "LEFT OUT" in text] == ([] if whole else said[1:2])


@pytest.mark.parametrize("name", [name for name in NEMESES if name != "leave-join"])  # its nodes have left before
def test_every_step_that_takes_a_disk_is_marked(name: str) -> None:
    for seed in range(20):
        board = Board()
        for fault in draw(seed, NODES, 120.0, [name]):
            for number, (_, step) in enumerate(fault.steps):
                before = len(board.done)
                board.mend() if step is Rig.mend else step(cast("Rig", board))
                taken = [what for what in board.done[before:] if what.startswith(("wipe", "restore"))]
                assert bool(taken) == (number in fault.takes), f"{fault}, step {number}"
