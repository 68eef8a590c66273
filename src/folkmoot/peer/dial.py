"""Where to dial, and when again: addresses of seeds and members, each tried with growing pauses.

Owns the addresses that are wanted and what was learned about them. Opens no connection and knows no link: whether a
node is connected is told by the caller.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.rng import Rng
from folkmoot.peer.config import ClusterConfig

__all__ = ["Dials", "DialedAddress"]


class DialedAddress:
    """A wanted address; `node_id`: who answered there last, "" when nobody has."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.node_id = ""
        self.itself = False  # the address is this node's own, as a seed list may have it
        self.busy = False  # it is being dialled, or the connection to it stands
        self.backoff_us = 0
        self.due_us = 0

    def __repr__(self) -> str:
        return f"DialedAddress({self.address} node={self.node_id!r} busy={self.busy} due={self.due_us})"


class Dials:
    """All wanted addresses, in the order in which they were first wanted."""

    def __init__(self, config: ClusterConfig, rng: Rng) -> None:
        self._config = config
        self._rng = rng
        self.entries: dict[str, DialedAddress] = {}

    def want(self, address: str) -> DialedAddress:
        """Keep a connection to whoever lives at `address`."""
        entry = self.entries.get(address)
        if entry is None:
            entry = self.entries[address] = DialedAddress(address)
        return entry

    def unwant(self, address: str) -> None:
        """Dial an address no more."""
        self.entries.pop(address, None)

    def met(self, address: str, node_id: str) -> None:
        """A node has been found at an address."""
        entry = self.entries.get(address)
        if entry is not None:
            entry.node_id = node_id

    def residents(self, own_id: str) -> dict[str, str]:
        """Return by address the id of the node that has answered there last."""
        found = {one.address: own_id if one.itself else one.node_id for one in self.entries.values()}
        return {address: node_id for address, node_id in found.items() if node_id}

    def ended(self, address: str, lived_us: int, now: int) -> DialedAddress | None:
        """A dial has failed or its connection is gone; one that did not live long was no success."""
        entry = self.entries.get(address)
        if entry is None:
            return None
        entry.busy = False
        if lived_us >= self._config.dial_us_max:
            entry.backoff_us = 0
            entry.due_us = now
            return entry
        doubled = max(2 * entry.backoff_us, self._config.dial_us_min)
        entry.backoff_us = min(doubled, self._config.dial_us_max)
        # Nodes that lost each other at one moment must not meet again and again at one moment.
        entry.due_us = now + entry.backoff_us - self._rng.below(entry.backoff_us // 4 + 1)
        return entry

    def hurry(self, node_id: str, now: int) -> None:
        """A connection to a node that has lived for long is gone: dial at once, it tells whether the node lives."""
        for entry in self.entries.values():
            if entry.node_id == node_id and not entry.busy:
                entry.backoff_us = 0
                entry.due_us = now

    def take(self, connected: dict[str, bool], now: int) -> list[str]:
        """Return the addresses to dial at `now`; they count as busy until `ended`."""
        found: list[str] = []
        for entry in self.entries.values():
            if entry.busy or entry.itself or entry.due_us > now or entry.node_id in connected:
                continue
            entry.busy = True
            found.append(entry.address)
        return found

    def next_due(self, connected: dict[str, bool]) -> int:
        """Return when `take` has something at the earliest, or NEVER."""
        due: int = NEVER
        for entry in self.entries.values():
            if entry.due_us < due and not (entry.busy or entry.itself or entry.node_id in connected):
                due = entry.due_us
        return due
