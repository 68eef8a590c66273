"""The settings of one member: times in nanoseconds of its monotonic clock, sizes in bytes."""

from __future__ import annotations

from typing import Final

__all__ = ["Options"]

_MILLISECOND: Final = 1_000_000


class Options:
    """Times and limits; the defaults fit a log of small entries between machines of one site.

    Args:
        heartbeat_ns: The leader sends each follower something at least this often.
        learner_heartbeat_ns: The same for a member that only learns, has confirmed everything, and knows what is
            committed. It has no part in elections, so it can wait: what is new is sent to it at once all the same.
        election_ns: A voter that has heard no leader for this long may vote for another; its own timeout is drawn
            from one to two times as much. At least four heartbeats.
        hurry_ns: A voter with the proof that its leader has ended asks again this often, because others may have it a
            little later; a few round trips.
        write_ns: A write of a term or a vote that takes longer makes no election wait longer. A leader whose disk lacks
            the first entry of its term for so long after it was committed hands over.
        proposal_bytes: The largest proposal.
        uncommitted_bytes: What a leader accepts before it is committed; beyond that it refuses.
        message_bytes: Entries in one message (one entry may be larger).
        inflight_messages: Messages with entries to one follower that are not answered yet.
        inflight_bytes: The same in bytes.
        chunk_bytes: The part of a snapshot in one message.
        snapshot_bytes: The largest snapshot that is accepted from another member.
        kept_entries: How many entries stay in the log before a snapshot, for followers that lag.
        kept_bytes: How large these may be together.
        apply_bytes: How much one `Ready` gives out for applying (at least one entry).
        reads: Reads that wait at one member.
        drift_percent: How much faster than another member's clock a clock may run.
    """

    def __init__(self) -> None:
        self.heartbeat_ns: int = 50 * _MILLISECOND
        self.learner_heartbeat_ns: int = 1000 * _MILLISECOND
        self.election_ns: int = 500 * _MILLISECOND
        self.hurry_ns: int = 20 * _MILLISECOND
        self.write_ns: int = 2000 * _MILLISECOND
        self.proposal_bytes: int = 1 << 20
        self.uncommitted_bytes: int = 16 << 20
        self.message_bytes: int = 256 << 10
        self.inflight_messages: int = 64
        self.inflight_bytes: int = 4 << 20
        self.chunk_bytes: int = 256 << 10
        self.snapshot_bytes: int = 1 << 30
        self.kept_entries: int = 1000
        self.kept_bytes: int = 4 << 20
        self.apply_bytes: int = 4 << 20
        self.reads: int = 10_000
        self.drift_percent: int = 1

    def patience_ns(self) -> int:
        """Return after how long without a word a learner and its leader take each other for unreachable."""
        return self.election_ns + self.learner_heartbeat_ns

    def check(self) -> None:
        """Assert that the settings fit each other."""
        assert self.heartbeat_ns > 0, "there are heartbeats"
        assert self.learner_heartbeat_ns >= self.heartbeat_ns, "members that only learn hear no more than voters"
        assert self.election_ns >= 4 * self.heartbeat_ns, "one lost heartbeat ends no leadership"
        assert self.hurry_ns >= 4, "there is something to draw from"
        assert self.write_ns >= 0, "a time"
        assert 0 < self.proposal_bytes <= self.uncommitted_bytes, "the largest proposal can be accepted"
        assert self.message_bytes > 0, "a message carries something"
        assert self.inflight_messages > 0, "a message can be in flight"
        assert self.inflight_bytes > 0, "bytes can be in flight"
        assert self.chunk_bytes > 0, "a chunk carries something"
        assert self.kept_entries >= 0, "a number of entries"
        assert self.kept_bytes >= 0, "a number of bytes"
        assert self.reads > 0, "a read can wait"
        assert 0 <= self.drift_percent < 50, "a share of a clock's rate"
