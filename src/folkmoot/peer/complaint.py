"""Peers that cannot be reached and connections that are refused: reported as events, and kept by address.

A fault that lasts is reported again after `COMPLAINT_US`, not at each attempt.
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
    """What was reported when. `Complaints(events)` appends to the events of its owner."""

    def __init__(self, events: list[Event]) -> None:
        self.unanswered: dict[str, str] = {}  # addresses without a connection, and why
        self._events = events
        self._said: dict[str, int] = {}

    def refused(self, level: str, kind: str, peer: PeerConnection, why: str, now: int) -> None:
        """Report that one end of a connection has refused the other."""
        name = peer.address if peer.outgoing else peer.address.rpartition(":")[0]
        fields: dict[str, object] = {"address": peer.address, "reason": why}
        if peer.hello is not None:
            name = peer.hello.node_id
            fields["node"] = name
        self._say(level, kind, f"{kind} {name} {why}", fields, now)

    def unreachable(self, address: str, why: str, now: int) -> None:
        """Report that no connection to an address could be made."""
        self.note(address, why)
        self._say(INFO, "peer_unreachable", f"peer_unreachable {address}", {"address": address, "reason": why}, now)

    def note(self, address: str, why: str) -> None:
        """Keep why there is no connection to an address, without an event."""
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
