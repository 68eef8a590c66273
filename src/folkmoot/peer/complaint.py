"""What is told of peers that cannot be reached, or do not want each other: as events, and by address.

What stays wrong is told again after `COMPLAINT_US`, not at each attempt.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.event import INFO, Event
from folkmoot.peer.peer import PeerConnection

__all__ = ["COMPLAINTS_MAX", "COMPLAINT_US", "Complaints"]

COMPLAINTS_MAX: Final = 256  # texts and addresses that are remembered
COMPLAINT_US: Final = 60 * SECOND


class Complaints:
    """What was told when: `Complaints(events)` adds to the events of its owner."""

    def __init__(self, events: list[Event]) -> None:
        self.unanswered: dict[str, str] = {}  # addresses at which nobody is connected, and why
        self._events = events
        self._said: dict[str, int] = {}

    def refused(self, level: str, kind: str, peer: PeerConnection, why: str, now: int) -> None:
        """One of the two ends of a connection does not want the other."""
        name = peer.address if peer.outgoing else peer.address.rpartition(":")[0]
        fields: dict[str, object] = {"address": peer.address, "reason": why}
        if peer.hello is not None:
            name = peer.hello.node_id
            fields["node"] = name
        self._say(level, kind, f"{kind} {name} {why}", fields, now)

    def unreachable(self, address: str, why: str, now: int) -> None:
        """No connection to an address could be made."""
        self.note(address, why)
        self._say(INFO, "peer_unreachable", f"peer_unreachable {address}", {"address": address, "reason": why}, now)

    def note(self, address: str, why: str) -> None:
        """Remember why nobody is connected at an address, without an event."""
        if len(self.unanswered) >= COMPLAINTS_MAX:
            self.unanswered.clear()
        self.unanswered[address] = why

    def _say(self, level: str, kind: str, key: str, fields: dict[str, object], now: int) -> None:
        said_us = self._said.get(key, -COMPLAINT_US)
        if now - said_us < COMPLAINT_US:
            return
        if len(self._said) >= COMPLAINTS_MAX:
            self._said.clear()
        self._said[key] = now
        self._events.append(Event(level, kind, fields))
