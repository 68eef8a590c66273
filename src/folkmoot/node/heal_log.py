"""The receipts of heals between one node, its store and the others: stored, told to all, learned from all."""

from __future__ import annotations

from folkmoot.kernel.event import ERROR
from folkmoot.merge.heals import Heals, encode_heals
from folkmoot.node.rows import put_heals, read_heals
from folkmoot.peer.kind import HEALS
from folkmoot.peer.peers import Peers
from folkmoot.replica.replication import Replication
from folkmoot.turn.state import State

__all__ = ["HealLog"]


class HealLog:
    """What one node knows of heals."""

    def __init__(self, node_id: str, state: State, peers: Peers, replication: Replication) -> None:
        self.heals = Heals(node_id)
        self._state = state
        self._peers = peers
        self._replication = replication

    def open(self) -> None:
        """Read what is stored; raises CorruptStore."""
        read_heals(self._state.reader, self.heals)

    def greet(self, node_id: str) -> None:
        """A node is connected: tell it all."""
        if self.heals.known:
            self._peers.send(node_id, HEALS, encode_heals(self.heals.known))

    def learn(self, node_id: str, body: bytes) -> None:
        """A node tells what it knows."""
        try:
            self.heals.learn(body)
        except ValueError as fault:
            self._state.event(ERROR, "peer_nonsense", {"node": node_id, "why": str(fault)})

    def step(self) -> None:
        """Store what is new, and tell the others of this node's own."""
        self.heals.note(self._replication.heals)
        if self.heals.fresh:
            body = encode_heals(self.heals.fresh)
            self.heals.fresh.clear()
            for node_id in self._peers.up_ids():
                self._peers.send(node_id, HEALS, body)
        if self.heals.changed:
            put_heals(self._state.writer, self.heals)
