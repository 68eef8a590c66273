"""The settings of a cluster node: plain values, made by the configuration package or by a test."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.feature import FEATURES
from folkmoot.kernel.node_clock import BOUND_US

__all__ = ["ClusterConfig"]


class ClusterConfig:
    """Settings of one node's part in a cluster."""

    def __init__(self) -> None:
        self.peer_address: str = ""  # HOST:PORT at which other nodes reach this one
        self.seeds: list[str] = []  # HOST:PORT of nodes to ask first
        self.seeds_unknown: bool = False  # discovery has not answered yet: a node without a cluster founds none
        self.replicas: int = 3  # copies of each partition, the leader's included
        self.min_in_sync: int = 1  # with fewer copies in sync a partition is not served
        self.witness: bool = False  # this node votes on the configuration, and holds no data
        self.zone: str = ""  # replicas are in different zones if there are enough zones; empty = the node's id
        self.secret: bytes = b""  # shared by all nodes; empty = peers need no proof
        self.secrets_accepted: list[bytes] = []  # others that a peer may prove, while the secret is being replaced
        self.split_policy: str = "available"  # or "majority"
        # Membership
        self.expect: int = 0  # so many nodes found the cluster together; 0: the first of the seeds does
        self.gone_us: int = 30 * SECOND  # the copies of a member that is away for so long are made anew elsewhere
        self.lease_us: int = SECOND  # how long a member serves after a heartbeat that was answered; the same at all
        self.heartbeat_us: int = 100 * MILLISECOND
        self.silence_us: int = 2 * SECOND  # a connection on which nothing came for this long is broken
        self.join_wait_us: int = 2 * SECOND  # the first of the seeds waits so long for the others
        self.refusal_us: int = 10 * SECOND  # a node that was refused by another one founds no cluster for so long
        self.link_patience_us: int = 500 * MILLISECOND  # then a bad link between live nodes costs one its place
        self.stall_us: int = 2 * SECOND  # a node whose disk stalls for this long gets no lease
        self.slow_us: int = 200 * MILLISECOND  # a batch that takes longer to become durable is late
        self.slow_wait_us: int = 3 * SECOND  # after this time with many late batches a node gives its leaderships away
        self.slow_hold_us: int = 30 * SECOND  # it leads again after this time with few of them; longer if it flaps
        self.full_wait_us: int = 3 * SECOND  # after this time with a full disk a node gives its leaderships to others
        self.full_hold_us: int = 10 * SECOND  # it leads again after this time with room; longer if it flaps
        # Time
        self.clock_us: int = 2 * SECOND  # between questions for the clocks of others
        self.clock_offset_max_us: int = BOUND_US  # a clock that is further from the time of the cluster is wrong
        # Links
        self.link_buffer_bytes_max: int = 64 << 20  # sent to a peer and not acknowledged
        self.link_keep_us: int = 60 * SECOND  # how long that is kept in memory for a peer without a connection
        self.handshake_us: int = 5 * SECOND  # a connection that has not proved itself by then is closed
        self.dial_us_min: int = 20 * MILLISECOND  # pause before dialling again, doubled each time
        self.dial_us_max: int = SECOND  # the longest pause: a node that comes back is found within it
        self.ack_delay_us: int = 200 * MILLISECOND  # acknowledge with the next frame, or after this
        # What nodes must agree on
        self.name: str = "folkmoot"  # of the cluster
        self.partitions: int = 256
        self.streams: str = ""  # a short digest of the declared streams, equal where the declarations are
        self.features: list[str] = list(FEATURES)  # what this node can do beyond the wire version
        # What the driver found at the start: rows that were acknowledged may be missing in this store
        self.incomplete: bool = False
        self.succeeds: bool = False  # the process that had this folder last has certainly ended
        # Replication
        self.recent_bytes_max: int = 32 << 20  # changes kept in memory: a replica that lacks only these is not copied
        self.copy_bytes_per_s: int = 64 << 20  # that this node gives to those it fills, at most
        self.page_bytes: int = (
            1 << 18
        )  # of rows that are sent, compared or dropped at a time; a turn stands still so long
        self.copy_parallel: int = 4  # partitions that are being copied to this node at a time
        self.copy_latency_us: int = 20 * MILLISECOND  # copying yields while it makes commits take longer
        self.digest_us: int = 100 * MILLISECOND  # between comparisons of a page of rows with other copies; 0 = none
        self.digest_pause_us: int = SECOND  # instead, after the last page of a partition
        self.drop_wait_us: int = (
            10 * SECOND
        )  # after a change of roles, before a copy that is not needed goes: disk space
        self.history_epochs: int = 16  # of each partition that are surely remembered, and as many for each node away
        self.planted: list[str] = []  # bugs of tests of the checkers (`planted`); nothing else sets it
