"""Messages of configurations to come wait in bounded memory: of too many the newest ones."""

from __future__ import annotations

from folkmoot.replica.early import BYTES_MAX, Early

MESSAGE = bytes(1 << 20)


def test_messages_of_the_newest_view_wait() -> None:
    early = Early()
    early.keep("a", 1, 7, b"old")
    early.keep("a", 1, 8, b"one")
    early.keep("a", 1, 7, b"late")
    early.keep("b", 2, 9, b"later")
    assert early.take(8) == [("a", 1, b"one")]
    assert not early.is_cut
    assert early.take(9) == [("b", 2, b"later")]


def test_of_too_many_bytes_the_newest_wait() -> None:
    early = Early()
    for number in range(40):
        early.keep("a", number, 8, MESSAGE)
    early.keep("b", 1, 8, b"small")
    found = early.take(8)
    kept = [kind for node_id, kind, _ in found if node_id == "a"]
    assert kept[-1] == 39
    assert len(kept) == BYTES_MAX // (len(MESSAGE) + 64)
    assert early.dropped == 40 - len(kept)
    assert early.is_cut, "the caller has to see that some are missing"
    assert ("b", 1, b"small") in found


def test_small_messages_cost_something_too() -> None:
    early = Early()
    for _ in range(400_000):
        early.keep("a", 1, 8, b"")
    assert len(early.take(8)) <= BYTES_MAX // 64


def test_nodes_are_bounded() -> None:
    early = Early()
    for number in range(2000):
        early.keep(f"n{number}", 1, 8, b"x")
    found = early.take(8)
    assert len(found) == 1024
    assert found[-1][0] == "n1999"
    assert early.dropped == 2000 - 1024
