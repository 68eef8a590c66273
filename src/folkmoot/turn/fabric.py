"""What the broker knows of the other nodes, and what it has to send to them.

Data only: the node puts in what membership and replication decide, and takes out the messages. A node that is alone
leads everything and sends nothing.
"""

from __future__ import annotations

from folkmoot.kernel.planted import Planted

__all__ = ["Fabric"]


class Fabric:
    """The cluster as the MQTT half sees it.

    others: ids of the other members of the view; leaders: per partition the id of the node that leads it (empty: no
    copy is sound; leaderless: there is such a partition); leader_epochs: the numbers of their leaderships; open: per
    partition, whether its leader takes requests; since: per partition, the view in which its leader got it, or opens it
    anew; began: the first view of this process, 0 for none; holds: per partition, whether this node's copy is complete;
    full: nodes without room on their disks; out_of_sync: members that miss messages of this node; features: what all
    members can do; may_fork: the policy is "available"; defers: what is for a partition without a leader waits in
    an outbox, and is not refused; out: messages to send, in order, as (node id, kind, body); withheld: those that
    go before them, and wait for a lease, each with the time since which it does; planted: bugs of tests, none else.
    """

    def __init__(self, node_id: str, partitions: int, alone: bool) -> None:
        self.node_id = node_id
        self.alone = alone
        self.epoch = 0
        self.began = 0
        self.others: list[str] = []
        self.leaders: list[str] = [node_id if alone else ""] * partitions
        self.leader_epochs: list[int] = [0] * partitions
        self.leaderless = False
        self.away = False  # somebody who is known is absent, and may return with changes of its own
        self.absent: dict[int, None] = {}  # partitions that nobody can lead: all copies in sync are away, or damaged
        self.scarce_us = 0  # since when there are any, see below
        self.scarce: dict[int, None] = {}  # partitions that nobody serves, because too few copies are in sync
        self.open: list[bool] = [alone] * partitions
        self.since: list[int] = [0] * partitions
        self.holds: list[bool] = [alone] * partitions
        self.idle = ""  # why this node serves no client
        self.full: dict[str, None] = {}  # nodes whose disk is full
        self.out_of_sync: dict[str, None] = {}
        self.entered: dict[str, int] = {}  # by node: the view in which it sent what comes now
        self.choked: dict[str, int] = {}  # slow nodes for which much waits: bytes
        self.lane_bytes = 1 << 20  # which the clients of one node may get in a turn
        self.flood_bytes = 0  # more than this waits: a message that may be dropped is not sent
        self.features: list[str] = []
        self.may_fork = False
        self.defers = False
        self.out: list[tuple[str, int, bytes]] = []
        self.withheld: list[tuple[int, str, int, bytes]] = []
        self.planted = Planted([])

    def decides(self, speaks: bool) -> bool:
        """Whether this node may decide who gets a message; speaks: whether it has a lease."""
        return speaks or self.alone or self.planted.stale_routes

    def can(self, feature: str) -> bool:
        """Whether all members have a feature, see `folkmoot.kernel.feature`."""
        return self.alone or feature in self.features

    def is_flooded(self, node_id: str) -> bool:
        """Whether so much waits for a node that messages are dropped that may be."""
        return self.choked.get(node_id, 0) > self.flood_bytes

    def send(self, node_id: str, kind: int, body: bytes) -> None:
        """Send a message to a node, after all that were sent to it before; not to one that is out of sync."""
        if node_id not in self.out_of_sync:
            self.out.append((node_id, kind, body))

    def lose_sync(self, node_id: str) -> None:
        """Messages to a member were lost: it gets no more until both begin anew (RENEW).

        A message behind the lost ones would hide them, because a mark holds only the newest number.
        """
        self.out_of_sync[node_id] = None
        self.out[:] = [message for message in self.out if message[0] != node_id]
        self.withheld[:] = [message for message in self.withheld if message[1] != node_id]

    def resync(self) -> list[str]:
        """Start anew with the nodes that are out of sync; return them."""
        out_of_sync = list(self.out_of_sync)
        self.out_of_sync.clear()
        return out_of_sync
