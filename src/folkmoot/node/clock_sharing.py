"""How nodes learn what the clocks of others show: each asks a few others every few seconds.

Owns the messages and whom to ask; what follows from the answers is decided by `folkmoot.kernel.node_clock`. The answer
is dated at the middle of the round trip, so an opinion is wrong by half of that at most. A slow answer counts for
nothing: it says more about the link than about the clock.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.node_clock import NodeClock, Opinion
from folkmoot.kernel.pack import get_u64, u64
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import CLOCK
from folkmoot.peer.peers import Peers

__all__ = ["ASKED_MAX", "ClockSharing"]

ASKED_MAX: Final = 8
"""Nodes that one node asks: those that follow it in the order of ids, so that each is also asked by so many."""

_ASK: Final = 1
_ANSWER: Final = 2
_ANSWER_BYTES: Final = 26


class ClockSharing:
    """Asks and answers."""

    def __init__(self, config: ClusterConfig, node_id: str, clock: NodeClock, peers: Peers) -> None:
        self.config = config
        self.node_id = node_id
        self.clock = clock
        self.peers = peers
        self._round_trip_us_max: int = clock.bound_us // 4
        self._due_us: int = 0

    def up(self, node_id: str) -> None:
        """A link to a node is there."""
        if node_id in self._chosen():
            self._ask(node_id)

    def down(self, node_id: str) -> None:
        """A link to a node is gone; what it said is out of date soon."""
        self.clock.forget(node_id)

    def step(self) -> None:
        """Ask, when it is time to."""
        clock = self.clock
        if clock.now < self._due_us:
            return
        self._due_us = clock.now + self.config.clock_us
        chosen = self._chosen()
        for node_id in list(clock.opinions()):
            if node_id not in chosen:  # a nearer one has joined
                clock.forget(node_id)
        for node_id in chosen:
            self._ask(node_id)
        clock.look()

    def due_us(self) -> int:
        """Return when `step` is due."""
        return self._due_us

    def receive(self, node_id: str, body: bytes) -> None:
        """Take a question or an answer; one that cannot be read, or is too late, is ignored."""
        clock = self.clock
        if len(body) == 9 and body[0] == _ASK:
            shown = u64(clock.now + clock.own_us) + u64(clock.time) + bytes([clock.settled])
            self.peers.send(node_id, CLOCK, bytes([_ANSWER]) + body[1:] + shown)
        elif len(body) == _ANSWER_BYTES and body[0] == _ANSWER:
            asked_us = get_u64(body, 1)
            round_trip_us = clock.now - asked_us
            if 0 <= round_trip_us <= self._round_trip_us_max:
                middle_us = asked_us + round_trip_us // 2
                wall_us = get_u64(body, 9) - middle_us
                clock.hear(node_id, Opinion(wall_us, get_u64(body, 17) - middle_us, body[25] != 0, clock.now))

    def _ask(self, node_id: str) -> None:
        self.peers.send(node_id, CLOCK, bytes([_ASK]) + u64(self.clock.now))

    def _chosen(self) -> list[str]:
        """Return the nodes to ask: linked ones, in the order of ids, from the own one on."""
        linked = sorted(self.peers.up_ids())
        later = [node_id for node_id in linked if node_id > self.node_id]
        return (later + linked)[: min(ASKED_MAX, len(linked))]
