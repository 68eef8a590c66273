"""Removals that need no write of their own: rows of messages that subscribers have acknowledged (CORE 2.3).

Losing such a removal costs a repetition that MQTT allows: PUBLISH with DUP under the same packet id, or PUBREL once
more. So they wait for the next batch, which anything else makes, and at most `LAZY_US`. They go in their order, and
all at once: the body of a message never goes before the row that names it.

Not lazy: the row of a PUBREC, which has to be there before PUBREL goes out (the client may forget the id then), and
the end of a publisher's QoS 2 flow before PUBCOMP (it may use the id again).
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.session.connection import Connection
from folkmoot.session.session import Session
from folkmoot.store.writer import Writer

__all__ = ["LAZY_US", "UNWRITTEN", "LazyRemovals"]

LAZY_US: Final = 20 * MILLISECOND
UNWRITTEN: Final = 1 << 62
"""The token of an acknowledgement in `Session.taken` whose removal is in no batch yet."""


class LazyRemovals:
    """The removals that wait, and who has to hear when they are committed."""

    def __init__(self, writer: Writer) -> None:
        self.since_us = 0  # of the oldest one
        self.urgent = False  # they must be in the batch of this turn
        self.handled: list[tuple[Connection, int]] = []  # packets of other nodes that are handled with them
        self._writer = writer
        self._rows: list[tuple[int, bytes]] = []
        self._sessions: dict[Session, bool] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def remove(self, partition: int, key: bytes, session: Session, now: int) -> bool:
        """Remove a row later; return whether it is the first one that waits."""
        first = not self._rows
        if first:
            self.since_us = now
        self._rows.append((partition, key))
        self._sessions[session] = True
        return first

    def concerns(self, session: Session | None) -> bool:
        """Whether removals of a session wait."""
        return session is not None and session in self._sessions

    def is_due(self, now: int) -> bool:
        """Whether they have waited for long enough, or must wait no longer."""
        return self.urgent or now - self.since_us >= LAZY_US

    def flush(self) -> list[tuple[Connection, int]]:
        """Put all that waits into the batch of this turn; return the packets that are handled with it."""
        for partition, key in self._rows:
            self._writer.delete(partition, key)
        token = self._writer.token
        for session in self._sessions:
            taken = session.taken
            if taken is not None:
                session.taken = [(min(at, token), first, rest, sequence) for at, first, rest, sequence in taken]
        handled = self.handled
        self._clear()
        return handled

    def forget(self, partition: int) -> None:
        """This node does not lead the partition any more: whoever does sees the rows, and repeats the messages."""
        self._rows = [row for row in self._rows if row[0] != partition]
        self._sessions = {session: True for session in self._sessions if session.partition != partition}
        self.handled = [one for one in self.handled if one[0].session is None or one[0].session.partition != partition]
        if not self._rows:
            self._clear()

    def _clear(self) -> None:
        self._rows = []
        self._sessions = {}
        self.handled = []
        self.urgent = False
