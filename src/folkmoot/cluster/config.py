"""What a node is told of its cluster: plain values, made by the configuration package or by a test."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND, SECOND

__all__ = ["ClusterConfig"]


class ClusterConfig:
    """Settings of one node's part in a cluster."""

    def __init__(self) -> None:
        self.peer_address: str = ""  # HOST:PORT at which other nodes reach this one
        self.seeds: list[str] = []  # HOST:PORT of nodes to ask first
        self.replicas: int = 3  # copies of each partition, this node's own included
        self.zone: str = ""  # replicas stand in different zones as far as there are enough; empty = the node's id
        self.secret: bytes = b""  # shared by all nodes; empty = peers need no proof
        self.split_policy: str = "available"  # or "majority"
        # Membership
        self.heartbeat_us: int = 100 * MILLISECOND
        self.silence_us: int = 2 * SECOND  # a peer that is silent for so long is suspect
        self.join_wait_us: int = 2 * SECOND  # how long a fresh or restarted node waits to be taken in
        # Links
        self.link_buffer_bytes_max: int = 64 << 20  # sent to a peer and not acknowledged by its link
