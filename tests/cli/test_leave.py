"""`folkmoot leave`, as a user runs it."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.cli import leave, main
from folkmoot.peer.member import LEAVING, Member
from folkmoot.status.status import NodeStatus
from tests.harness.picture import Drawn, Roles, Shown

FULL: Roles = [["a", "b", "c"], ["b", "c", "a"]]


class Leaving(Drawn):
    """A node that hands over a role each time somebody looks, and is gone at last."""

    def leave(self, node_id: str, now: int) -> str:
        member = next(member for member in self.members if member.node_id == node_id)
        member.state = LEAVING
        return super().leave(node_id, now)

    def figures(self) -> dict[str, int]:
        if self.orders:
            name = self.orders[0][1]
            held = [replicas for replicas in self.roles if name in replicas]
            if held:
                held[0].remove(name)
            else:
                self.members = [member for member in self.members if member.node_id != name]
                self.known_ids = [one for one in self.known_ids if one != name]
        return super().figures()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leave, "POLL_S", 0.0)


def test_it_shows_how_far_the_node_is_until_it_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    with Shown(Leaving([list(replicas) for replicas in FULL])) as shown:
        assert main(["leave", "b", "--admin", shown.place]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "only a, c will be left: there will be fewer copies than the 3 that are wanted",
        "b leads 1 partitions and follows 0",
        "b has handed over everything and says goodbye to its clients",
        "b has left: nothing depends on it any more",
    ]


def test_the_order_can_be_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Drawn(FULL)
    picture.members[1].state = LEAVING
    with Shown(picture) as shown:
        assert main(["leave", "b", "--undo", "--admin", shown.place]) == 0
        assert main(["leave", "a", "--undo", "--admin", shown.place]) == 2
    told = capsys.readouterr()
    assert "b stays" in told.out
    assert "a was not told to leave" in told.err
    assert picture.orders == [("stay", "b")]


def test_the_order_alone_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Drawn(FULL)
    with Shown(picture) as shown:
        assert main(["leave", "b", "--no-wait", "--admin", shown.place]) == 0
        assert main(["leave", "x", "--no-wait", "--admin", shown.place]) == 2
    told = capsys.readouterr()
    assert "b: told to leave" in told.out
    assert "no node 'x'" in told.err
    assert picture.orders == [("leave", "b")]


def told(picture: Drawn, node: str, began: bool = True) -> tuple[str, bool]:
    found: Any = NodeStatus(picture).status()
    return leave.progress(found, next(one for one in found["nodes"] if one["id"] == node), began)


def test_every_obstacle_has_its_words() -> None:
    away = Drawn(FULL, members="ab", known="abc")
    away.members[1].state = LEAVING
    assert told(away, "b") == ("b leads 1 partitions and follows 1; it keeps what only it and c (away) have", False)
    line, over = told(away, "c")
    assert over
    assert "folkmoot forget c" in line
    away.absent = [Member("c", 1, "c:1", "c", LEAVING)]
    away.reasons = {"c": "its process has ended"}
    assert told(away, "c") == ("c has handed over everything and says goodbye to its clients", False)
    away.losses.missing = {0: ["c"], 1: ["c"]}
    line, over = told(away, "c")
    assert over
    assert "c is away (its process has ended), and nobody else has what 2 partitions had" in line
    assert told(Drawn(FULL), "b") == ("b stays: nobody would be left, or the order was taken back", True)
    assert told(Drawn(FULL), "b", began=False) == ("b is told", False)
    busy = Drawn(FULL)
    busy.members[1].state = LEAVING
    busy.loads = {"c": {"copy_left": 2048, "copy_rate": 1024}}
    assert told(busy, "b") == ("b leads 1 partitions and follows 1; 2.0 KiB to copy, 1.0 KiB a second", False)
    busy.loads = {"c": {"copy_left": 2048, "copy_rate": 0}}
    assert told(busy, "b") == ("b leads 1 partitions and follows 1; 2.0 KiB to copy", False)
