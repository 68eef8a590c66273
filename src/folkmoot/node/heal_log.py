"""The summaries of heals on one node: stored, sent to all nodes, received from all nodes."""

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
    """The summaries of heals that one node knows."""

    def __init__(self, node_id: str, state: State, peers: Peers, replication: Replication) -> None:
        self.heals = Heals(node_id)
        self._state = state
        self._peers = peers
        self._replication = replication

    def open(self) -> None:
        """Read the stored summaries; raises CorruptStore."""
        read_heals(self._state.reader, self.heals)

    def greet(self, node_id: str) -> None:
        """Send all summaries to a node that has connected."""
        if self.heals.known:
            self._peers.send(node_id, HEALS, encode_heals(self.heals.known))

    def learn(self, node_id: str, body: bytes) -> None:
        """Take the summaries that a node sends."""
        try:
            self.heals.learn(body)
        except ValueError as fault:
            self._state.event(ERROR, "peer_nonsense", {"node": node_id, "why": str(fault)})

    def step(self) -> None:
        """Store new summaries, and send this node's own to the others."""
        self.heals.note(self._replication.heals)
        if self.heals.fresh:
            body = encode_heals(self.heals.fresh)
            self.heals.fresh.clear()
            for node_id in self._peers.up_ids():
                self._peers.send(node_id, HEALS, body)
        if self.heals.changed:
            put_heals(self._state.writer, self.heals)
