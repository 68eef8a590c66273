"""Which addresses to dial, and when: those of seeds and members, each retried with growing pauses.

Owns the wanted addresses and what was learned about them. Opens no connection and knows no link: the caller says which
nodes are connected.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.rng import Rng
from folkmoot.peer.config import ClusterConfig

__all__ = ["Dials", "Target"]


class Target:
    """A wanted address; `node_id`: the node that answered there last, "" if none has."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.node_id = ""
        self.itself = False  # the address is this node's own: a seed list may contain it
        self.busy = False  # it is being dialled, or connected
        self.backoff_us = 0
        self.due_us = 0

    def __repr__(self) -> str:
        return f"Target({self.address} node={self.node_id!r} busy={self.busy} due={self.due_us})"


class Dials:
    """All wanted addresses, in the order in which they were first wanted."""

    def __init__(self, config: ClusterConfig, rng: Rng) -> None:
        self._config = config
        self._rng = rng
        self.targets: dict[str, Target] = {}

    def want(self, address: str) -> Target:
        """Keep a connection to the node at `address`."""
        target = self.targets.get(address)
        if target is None:
            target = self.targets[address] = Target(address)
        return target

    def unwant(self, address: str) -> None:
        """Stop dialling an address."""
        self.targets.pop(address, None)

    def met(self, address: str, node_id: str) -> None:
        """Note which node answered at an address."""
        target = self.targets.get(address)
        if target is not None:
            target.node_id = node_id

    def residents(self, own_id: str) -> dict[str, str]:
        """Return by address the id of the node that has answered there last."""
        found = {one.address: own_id if one.itself else one.node_id for one in self.targets.values()}
        return {address: node_id for address, node_id in found.items() if node_id}

    def ended(self, address: str, lived_us: int, now: int) -> Target | None:
        """Note that a dial failed or its connection ended. A connection that ended soon counts as a failed dial."""
        target = self.targets.get(address)
        if target is None:
            return None
        target.busy = False
        if lived_us >= self._config.dial_us_max:
            target.backoff_us = 0
            target.due_us = now
            return target
        doubled = max(2 * target.backoff_us, self._config.dial_us_min)
        target.backoff_us = min(doubled, self._config.dial_us_max)
        # Jitter: nodes that lost each other at the same moment must not keep dialling at the same moment.
        target.due_us = now + target.backoff_us - self._rng.below(target.backoff_us // 4 + 1)
        return target

    def hurry(self, node_id: str, now: int) -> None:
        """Dial at once after the end of a long-lived connection: the answer shows whether the node is alive."""
        for target in self.targets.values():
            if target.node_id == node_id and not target.busy:
                target.backoff_us = 0
                target.due_us = now

    def take(self, connected: dict[str, bool], now: int) -> list[str]:
        """Return the addresses to dial at `now`; they count as busy until `ended`."""
        found: list[str] = []
        for target in self.targets.values():
            if target.busy or target.itself or target.due_us > now or target.node_id in connected:
                continue
            target.busy = True
            found.append(target.address)
        return found

    def next_due(self, connected: dict[str, bool]) -> int:
        """Return when `take` has something at the earliest, or NEVER."""
        due: int = NEVER
        for target in self.targets.values():
            if target.due_us < due and not (target.busy or target.itself or target.node_id in connected):
                due = target.due_us
        return due
