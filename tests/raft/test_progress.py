"""What a leader may send to a follower, and what its answers mean."""

from __future__ import annotations

from folkmoot.raft.entry import founding
from folkmoot.raft.progress import PROBE, REPLICATE, SNAPSHOT, Progress


def replicating() -> Progress:
    """A follower that matches up to 10."""
    progress = Progress(2, 10, 0)
    progress.sent(10, 0)
    progress.matched(10)
    assert progress.state == REPLICATE
    return progress


def test_one_probe_at_a_time() -> None:
    progress = Progress(2, 10, 0)
    assert not progress.is_full(9, 999)
    progress.sent(11, 30)
    assert progress.is_full(9, 999)
    assert (progress.state, progress.next) == (PROBE, 11)


def test_the_window_has_messages_and_bytes() -> None:
    progress = replicating()
    progress.sent(12, 30)
    progress.sent(14, 30)
    assert not progress.is_full(3, 61)
    assert progress.is_full(2, 999)
    assert progress.is_full(9, 60)
    progress.matched(13)
    assert not progress.is_full(2, 999), "the first message is answered, the second is not"
    assert (progress.match, progress.next) == (13, 15)


def test_a_late_answer_changes_nothing() -> None:
    progress = replicating()
    assert not progress.matched(7)
    assert not progress.rejected(8, 5)
    assert (progress.match, progress.next, progress.state) == (10, 11, REPLICATE)


def test_a_refusal_goes_back_to_what_matches() -> None:
    progress = replicating()
    progress.sent(14, 30)
    assert progress.rejected(14, 12)
    assert (progress.state, progress.next) == (PROBE, 13)
    assert not progress.rejected(14, 11), "it was probed somewhere else since"
    assert progress.rejected(12, 3)
    assert progress.next == 11, "never before the match"


def test_nothing_is_sent_besides_a_snapshot() -> None:
    progress = replicating()
    progress.offer(founding([1]), b"x")
    assert progress.state == SNAPSHOT
    assert progress.is_full(9, 999)
    assert not progress.rejected(14, 12)
    progress.replicate()
    assert (progress.snapshot, progress.next) == (None, 11)
