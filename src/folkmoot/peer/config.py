"""What a node is told of its cluster: plain values, made by the configuration package or by a test."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.feature import FEATURES

__all__ = ["ClusterConfig"]


class ClusterConfig:
    """Settings of one node's part in a cluster."""

    def __init__(self) -> None:
        self.peer_address: str = ""  # HOST:PORT at which other nodes reach this one
        self.seeds: list[str] = []  # HOST:PORT of nodes to ask first
        self.seeds_unknown: bool = False  # nobody could be asked yet: without a view of old, no first one is made
        self.replicas: int = 3  # copies of each partition, this node's own included
        self.zone: str = ""  # replicas stand in different zones as far as there are enough; empty = the node's id
        self.secret: bytes = b""  # shared by all nodes; empty = peers need no proof
        self.split_policy: str = "available"  # or "majority"
        # Membership
        self.heartbeat_us: int = 100 * MILLISECOND
        self.silence_us: int = 2 * SECOND  # a peer that is silent for so long is suspect
        self.join_wait_us: int = 2 * SECOND  # how long a fresh or restarted node waits to be taken in
        self.refusal_us: int = 10 * SECOND  # so long after a refusal by others a node does not begin to serve alone
        self.view_pause_us: int = 500 * MILLISECOND  # between planned changes of the view: joins are taken together
        self.link_patience_us: int = 2 * SECOND  # a bad link between two that live costs one its place after this
        self.stall_us: int = 2 * SECOND  # a node whose disk stands still for so long counts as dead
        self.full_wait_us: int = 3 * SECOND  # a node whose disk is full for so long leads no more, if another can
        self.full_hold_us: int = 10 * SECOND  # and so long after it has room again it leads again; longer if it flaps
        self.promise_us: int = 3 * SECOND  # who is heard but does not answer a proposal for so long is left out
        # Links
        self.link_buffer_bytes_max: int = 64 << 20  # sent to a peer and not acknowledged by its link
        self.link_keep_us: int = 60 * SECOND  # how long that is kept for a peer without a connection; memory
        self.handshake_us: int = 5 * SECOND  # a connection that has not proved itself by then is closed
        self.dial_us_min: int = 20 * MILLISECOND  # before dialling again, doubled each time
        self.dial_us_max: int = SECOND  # a node that comes back is found this much later
        self.ack_delay_us: int = 25 * MILLISECOND  # what was received is acknowledged with the next frame, or then
        # What nodes must agree on
        self.name: str = "folkmoot"  # of the cluster
        self.partitions: int = 256
        self.streams: str = ""  # those that are declared, in a few characters: equal where the declarations are
        self.features: list[str] = list(FEATURES)  # what this node can do beyond the wire version
        # What the driver found at the start: rows that were acknowledged may be missing in this store
        self.incomplete: bool = False
        # Replication
        self.recent_bytes_max: int = 32 << 20  # changes kept in memory: a replica that lacks only these is not copied
        self.copy_bytes_per_s: int = 64 << 20  # that this node gives to those it fills, at most
        self.page_bytes: int = (
            1 << 18
        )  # of rows that are sent, compared or dropped at a time; a turn stands still so long
        self.copy_parallel: int = 4  # partitions that are being copied to this node at a time
        self.copy_latency_us: int = 20 * MILLISECOND  # copying yields while it makes commits take longer
        self.digest_us: int = 100 * MILLISECOND  # between comparisons of a page of rows with other copies; 0 = none
        self.drop_wait_us: int = (
            10 * SECOND
        )  # after a view or a promise, before a copy that is not needed goes: disk space
        self.history_epochs: int = 16  # of each partition that are surely remembered, and as many for each node away
        self.planted: list[str] = []  # bugs of tests of the checkers (`planted`); nothing else sets it
