"""What a node waits for that others have to say: it asks again, and says whom it waits for."""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.pack import u64
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.membership.view import View
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import FETCH, READY, SHIP
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.replica.change import Change, encode_change
from folkmoot.replica.notice import Report, encode_report
from folkmoot.replica.replication import Replication
from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import Writer

EPOCH = 7


class Node:
    """One of two members of a view, with one partition; what the other one says is made by the test."""

    def __init__(self, leader: str) -> None:
        self.replication = Replication("n0", 1, ClusterConfig(), MemoryStore(), Writer(1, 0))
        self.replication.open(0)
        members = [Member(node_id, 1, "", node_id, ACTIVE) for node_id in ("n0", "n1")]
        other = "n1" if leader == "n0" else "n0"
        self.replication.install(View(EPOCH, members, [[leader, other]], [[]]), 0)
        self.now = 0
        self.advance(0)
        self.sent()

    def advance(self, us: int) -> None:
        """Let time pass, with all that is due on the way."""
        end = self.now + us
        while True:
            due = self.replication.next_wake()
            self.now = min(max(due, self.now + 1), end)
            self.replication.wake(self.now)
            self.replication.seal(self.replication.context.writer.take(), self.now)
            if self.now >= end:
                return

    def say(self, kind: int, *entries: bytes) -> None:
        self.replication.receive("n1", kind, u64(EPOCH) + b"".join(entries), self.now)

    def sent(self) -> list[int]:
        kinds = [kind for _node, kind, _body in self.replication.out]
        self.replication.out.clear()
        return kinds

    def waits(self) -> list[dict[str, object]]:
        found = [event.fields for event in self.replication.events if event.kind == "takeover_waits"]
        self.replication.events.clear()
        return found


def test_what_is_missing_is_asked_for_again_without_another_change() -> None:
    node = Node("n1")
    node.say(SHIP, encode_change(0, Change(EPOCH, 4, EPOCH, 5, b"")))
    assert node.sent() == [FETCH]
    node.say(SHIP, encode_change(0, Change(EPOCH, 5, EPOCH, 6, b"")))
    assert node.sent() == [], "it has been asked for"
    for _ in range(3):
        node.advance(SECOND)
        assert node.sent() == [FETCH]
    node.say(SHIP, encode_change(0, Change(0, 0, EPOCH, 1, b"")))
    node.advance(5 * SECOND)
    assert node.sent() == []


def test_a_new_leader_says_whose_report_it_waits_for_and_has_all_begin_anew() -> None:
    node = Node("n0")
    assert node.waits() == []
    node.advance(2 * SECOND)
    assert [(waits["for"], waits["partitions"]) for waits in node.waits()] == [(["n1"], 1)]
    assert not node.replication.renew
    node.advance(7 * SECOND)
    assert node.waits() == []
    node.advance(SECOND)
    assert [waits["waited_us"] for waits in node.waits()] == [10 * SECOND]
    assert node.replication.renew
    node.say(READY)
    node.advance(20 * SECOND)
    assert node.waits() == []


def test_a_new_leader_asks_again_for_the_changes_that_it_lacks() -> None:
    node = Node("n0")
    node.say(READY, encode_report(Report(0, Holding(COMPLETE, 3, 9, [(3, 0)]), 9)))
    assert node.sent() == [FETCH]
    node.advance(2 * SECOND)
    assert node.sent() == [FETCH]
    assert [waits["for"] for waits in node.waits()] == [["n1"]]


def test_who_waits_for_nobody_has_nothing_to_look_at() -> None:
    assert Node("n1").replication.takeover.due_us() == Node("n1").replication.gaps.due_us() == NEVER
