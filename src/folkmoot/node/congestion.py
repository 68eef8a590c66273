"""How much is under way to each other node, and how long: a slow node gets only what must not be dropped or delayed.

Messages for its clients wait in their queues, on the disk, and publishers are slowed (A13), by bytes and by time: what
has waited for a link with too little bandwidth is late, however few bytes they are.
"""

from __future__ import annotations

from folkmoot.broker.broker import Broker
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.peers import Peers
from folkmoot.turn.fabric import Fabric

__all__ = ["Congestion"]


class Congestion:
    """Owns `Fabric.choked`, the nodes that are too slow."""

    def __init__(self, config: ClusterConfig, fabric: Fabric, broker: Broker, peers: Peers) -> None:
        self.fabric = fabric
        self.broker = broker
        self.peers = peers
        self._most = config.link_buffer_bytes_max
        fabric.lane_bytes = self._most // 8
        fabric.flood_bytes = self._most // 4 * 3
        broker.turn.overload.link_bytes_full = self._most // 2
        # Below half of the time after which voters elect another leader (`membership`: four heartbeats).
        broker.turn.overload.link_queue_us_full = 2 * config.heartbeat_us * 9 // 10

    def weigh(self, members: dict[str, int]) -> None:
        """Look how much each link holds, at the end of a turn; members: the other nodes of the view."""
        heaviest = 0
        longest_us = 0
        now = self.broker.state.now
        for node_id in members:
            size = self.peers.backlog_bytes(node_id)
            heaviest = max(heaviest, size)
            longest_us = max(longest_us, self.peers.queue_us(node_id, now))
            if size > self._most // 4 or node_id in self.fabric.choked:
                self._choke(node_id, size)
            self.broker.leadership.hosting.refill(node_id, self.fabric.flood_bytes - size)
        self.broker.turn.overload.link_bytes = heaviest
        self.broker.turn.overload.link_queue_us = longest_us

    def _choke(self, node_id: str, size: int) -> None:
        known = self.fabric.choked
        choked = size > (self._most // 8 if node_id in known else self._most // 4)
        if choked != (node_id in known):
            if choked:
                known[node_id] = size
            else:
                del known[node_id]
            self.broker.leadership.hosting.choke(node_id)
        elif choked:
            known[node_id] = size

    def installed(self, members: dict[str, int]) -> None:
        """A view with these other members was installed."""
        known = self.fabric.choked
        for node_id in list(known):
            if node_id not in members:
                del known[node_id]
        # All that waits at all nodes may be in partitions of one leader, which must send it to each follower.
        waiting_max = self._most // (2 * (len(members) + 1))
        self.broker.turn.throttle.backlog_bytes_max = min(self.broker.state.limits.write_backlog_bytes_max, waiting_max)
