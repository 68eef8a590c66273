"""Summaries of heals: what a heal did with a partition, or with all of a node; for the log and for people."""

from __future__ import annotations

from typing import Final

__all__ = ["REASONS_MAX", "REASON_CHARACTERS_MAX", "HealSummary"]

REASONS_MAX: Final = 64  # that are told apart; beyond them there is one for all others
REASON_CHARACTERS_MAX: Final = 240  # a fault may name a key, and what is stored and told has limits (`heals`)

_OTHERS: Final = "of other reasons"


class HealSummary:
    """Counts of what happened to the rows of the side that did not go on; `dropped`: why, and how often.

    sessions: whose rows were touched; sessions_taken: those that go on as the other side had them; messages: appended
    behind queues, or brought with their session; acknowledged: queued here, and acknowledged or ended there.
    """

    def __init__(self) -> None:
        self.partitions = 0
        self.sessions = 0
        self.sessions_taken = 0
        self.sessions_ended = 0
        self.messages = 0
        self.acknowledged = 0
        self.subscribed = 0
        self.unsubscribed = 0
        self.retained = 0
        self.retained_cleared = 0
        self.outbox = 0
        self.chunks = 0
        self.dropped: dict[str, int] = {}

    def drop(self, why: str, count: int) -> None:
        """Note something that was not kept."""
        if not count:
            return
        why = why[:REASON_CHARACTERS_MAX]
        if why not in self.dropped and len(self.dropped) >= REASONS_MAX:
            why = _OTHERS
        self.dropped[why] = self.dropped.get(why, 0) + count

    def add(self, other: HealSummary) -> None:
        """Add the counts of another summary."""
        self.partitions += other.partitions
        self.sessions += other.sessions
        self.sessions_taken += other.sessions_taken
        self.sessions_ended += other.sessions_ended
        self.messages += other.messages
        self.acknowledged += other.acknowledged
        self.subscribed += other.subscribed
        self.unsubscribed += other.unsubscribed
        self.retained += other.retained
        self.retained_cleared += other.retained_cleared
        self.outbox += other.outbox
        self.chunks += other.chunks
        for why, count in other.dropped.items():
            self.drop(why, count)

    def is_empty(self) -> bool:
        """Whether the other side had nothing of its own, so that nothing was taken in and nothing dropped."""
        counts = self.sessions + self.sessions_taken + self.sessions_ended + self.messages + self.acknowledged
        counts += self.subscribed + self.unsubscribed + self.retained + self.retained_cleared
        return not counts + self.outbox + self.chunks and not self.dropped

    def fields(self) -> dict[str, object]:
        """Return the counts by name."""
        return {
            "partitions": self.partitions,
            "sessions": self.sessions,
            "sessions_taken": self.sessions_taken,
            "sessions_ended": self.sessions_ended,
            "messages_kept": self.messages,
            "messages_acknowledged": self.acknowledged,
            "subscribed": self.subscribed,
            "unsubscribed": self.unsubscribed,
            "retained_kept": self.retained,
            "retained_cleared": self.retained_cleared,
            "outbox_kept": self.outbox,
            "stream_chunks": self.chunks,
            "dropped": dict(self.dropped),
        }
