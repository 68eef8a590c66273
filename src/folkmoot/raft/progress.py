"""What the leader knows of one follower, and how much it may send to it.

    PROBE      one message with entries until an answer: it is not known where the logs match
    REPLICATE  messages one after another, up to the window
    SNAPSHOT   nothing but heartbeats: the follower reads a snapshot in chunks

Always: match < next; match never falls within a term.
"""

from __future__ import annotations

from typing import Final

from folkmoot.raft.entry import Snapshot

__all__ = ["PROBE", "Progress", "REPLICATE", "SNAPSHOT", "STATES"]

PROBE: Final = 0
REPLICATE: Final = 1
SNAPSHOT: Final = 2
STATES: Final[list[str]] = ["probe", "replicate", "snapshot"]


class Progress:
    """One follower, as its leader sees it."""

    def __init__(self, peer: int, last_index: int, now: int) -> None:
        self.peer = peer
        self.match: int = 0  # the log up to here is durable at the follower, and the same
        self.next: int = last_index + 1  # the next entry to send
        self.state: int = PROBE
        self.paused: bool = False  # PROBE: a message is under way
        self.sent_commit: int = 0  # the newest commit index that was sent
        self.sent_ns: int = 0  # when something was sent last
        self.attended_ns: int = 0  # until then it gets heartbeats like a voter
        self.contact_ns: int = now  # the follower has answered something that was sent at this time
        self.promised_ns: int = 0  # until then the follower votes for nobody else; 0: it may do so at any time
        self.void_ns: int = -1  # what was sent up to then was answered by a process that was taken for ended since
        self.acked_round: int = 0
        self.snapshot: Snapshot | None = None  # what is offered in state SNAPSHOT: kept until it is there
        self.encoded: bytes = b""
        self.asked_ns: int = 0  # when the follower asked for a chunk last
        self._inflight: list[tuple[int, int]] = []  # last index and size of messages that are not answered
        self._inflight_bytes: int = 0

    def check(self) -> None:
        """Assert the invariants."""
        assert 0 <= self.match < self.next, "match < next"
        assert (self.snapshot is not None) == (self.state == SNAPSHOT), "there is a snapshot in state SNAPSHOT"
        assert self._inflight_bytes >= 0, "no bytes are answered twice"

    def is_full(self, messages: int, size: int) -> bool:
        """Tell whether nothing more may be sent until an answer comes."""
        assert messages > 0, "a window lets something pass"
        assert size > 0, "a window lets something pass"
        if self.state == PROBE:
            return self.paused
        return self.state == SNAPSHOT or len(self._inflight) >= messages or self._inflight_bytes >= size

    def sent(self, last: int, size: int) -> None:
        """Note a message with entries up to `last`."""
        assert self.state != SNAPSHOT, "no entries are sent besides a snapshot"
        if self.state == PROBE:
            self.paused = True
            return
        assert last >= self.next, "entries are sent once, in their order"
        self.next = last + 1
        self._inflight.append((last, size))
        self._inflight_bytes += size

    def matched(self, index: int) -> bool:
        """Note that the follower matches up to `index`; True if that is news."""
        assert index >= 0, "an index"
        news = index > self.match
        if news:
            self.match = index
            self.next = max(self.next, index + 1)
        inflight = self._inflight
        answered = 0
        for last, size in inflight:
            if last > index:
                break
            answered += 1
            self._inflight_bytes -= size
        del inflight[:answered]
        if self.state == PROBE and index >= self.match:
            self.replicate()
        self.check()
        return news

    def rejected(self, index: int, hint: int) -> bool:
        """Note that the entry at `index` does not match, but the one at `hint` may; False if the answer is old."""
        if self.state == SNAPSHOT or index <= self.match:
            return False
        if self.state == PROBE and index != self.next - 1:
            return False
        self.probe(max(min(index, hint + 1), self.match + 1))
        return True

    def probe(self, following: int) -> None:
        """Ask where the logs match, beginning with the entry before `following`."""
        assert following > self.match, "what matches is not asked for"
        self._enter(PROBE)
        self.next = following
        self.sent_commit = min(self.sent_commit, following - 1)
        self.check()

    def replicate(self) -> None:
        """Send entries one after another from behind the match."""
        self._enter(REPLICATE)
        self.next = self.match + 1
        self.check()

    def offer(self, snapshot: Snapshot, encoded: bytes) -> None:
        """Let the follower read a snapshot."""
        self._enter(SNAPSHOT)
        self.snapshot = snapshot
        self.encoded = encoded
        self.check()

    def _enter(self, state: int) -> None:
        self.state = state
        self.paused = False
        self.snapshot = None
        self.encoded = b""
        self._inflight = []
        self._inflight_bytes = 0

    def __repr__(self) -> str:
        return f"{self.peer}: {STATES[self.state]} match {self.match} next {self.next}"
