"""Swarm testing: each seed switches features on and off and draws its own limits, so that no feature hides another.

Source: Groce et al., Swarm Testing, ISSTA 2012. Owns the draws that describe a run; the workload draws its actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from folkmoot.kernel.clock import HOUR, MILLISECOND, SECOND
from folkmoot.kernel.feature import AGES, DEFERS, LOGINS
from folkmoot.kernel.limits import Limits
from folkmoot.kernel.rng import Rng
from folkmoot.node import NodeConfig
from folkmoot.peer.config import ClusterConfig
from folkmoot.sim.site import peer_address
from folkmoot.streams.config import StreamConfig

__all__ = [
    "ASKED_FOR",
    "CLUSTER_FAULTS",
    "FAULTS",
    "FEATURES",
    "LATER",
    "QUOTA_MESSAGES",
    "TOPOLOGY_FAULTS",
    "Shape",
    "Swarm",
]

FEATURES = (
    "aliases",
    "clears",
    "disconnects",
    "expiring messages",
    "finite sessions",
    "no local",
    "overlaps",
    "own limits",
    "producers",
    "qos 0",
    "retained",
    "shared",
    "slow acks",
    "streams",
    "replays",
    "takeovers",
    "transients",
    "unsubscribes",
    "version 3",
    "wills",
)

LATER = ("bursts", "impatience", "quotas", "small memory", "transactions")
"""Features that were added later: drawn without the generator, so that a seed remains the same run."""

FAULTS = (
    "clock steps",
    "clogs",
    "crashes",
    "cuts",
    "disk full",
    "disk stalls",
    "half-open",
    "restarts",
    "vandals",
)


# Only where there is more than one node.
CLUSTER_FAULTS = (
    "bad checksums",
    "bad links",
    "bit flips",
    "blackouts",
    "clock drift",
    "empty restarts",
    "evictions",
    "flapping",
    "hangs",
    "joins",
    "leaves",
    "losses",
    "mass crashes",
    "one-way splits",
    "peer resets",
    "power loss",
    "slow links",
    "splits",
    "swizzles",
    "sync failures",
)

QUOTA_MESSAGES = 100
"""Messages that may wait for all sessions of one user at a node, where there are quotas."""

ASKED_FOR = ("incomplete disks", "lost links")
"""Faults of a cluster that no seed draws: they were added later, and seeds remain the same runs."""

TOPOLOGY_FAULTS = (
    "clones",
    "emptied disks",
    "joins at once",
    "kills",
    "leaves at once",
    "link matrices",
    "old folders",
    "orders",
    "restart loops",
    "slow clocks",
    "stutters",
    "uneven power loss",
    "upgrades",
    "wrong clocks",
)
"""Faults that only the family `--topologies` draws."""

_DRAWN: Final = tuple(name for name in TOPOLOGY_FAULTS if name not in ("orders", "restart loops", "slow clocks"))
"""Those that are drawn one by one; slow clocks come with wrong ones, the others were added later."""

_WITH_TOPOLOGIES = ("crashes", "disk stalls", "restarts")
_WITH_TOPOLOGIES_CLUSTER = ("hangs", "joins", "leaves", "mass crashes", "peer resets", "power loss", "slow links")
"""Faults of the other family that this one draws too, less often."""

_OLD_BUILD: Final = (LOGINS, AGES, DEFERS)
"""Features that the older one of two builds lacks. It has those that last: nobody goes back behind one that is on."""

SPLITTING = ("flapping", "one-way splits", "splits", "swizzles")
"""Faults after which the checkers must excuse much: a run has either some of them or none."""

Shape = Callable[["Swarm"], None]


class Swarm:
    """The description of one run: `has(name)` for the features and faults above, and the drawn numbers.

    `shape` may change what was drawn; the limits of the node are drawn after it. `later`: the generator of what was
    added later, so that a seed that does not draw it remains the same run; None: nothing of it.
    """

    def __init__(
        self,
        rng: Rng,
        shape: Shape | None = None,
        nodes: int = 1,
        family: Rng | None = None,
        later: Rng | None = None,
    ) -> None:
        self.nodes = nodes
        self.family = family  # the generator of the family `--topologies`; None: the other one
        self.topologies = family is not None
        self.splits = False  # machines may be cut off from each other
        self.witnesses = 0  # voters without data, the last ones of the machines but for spares
        calm = rng.chance(1, 12)  # now and then a run without any fault, to isolate the effect of faults
        self.on: dict[str, bool] = {}
        for name in FEATURES:
            self.on[name] = rng.chance(2, 3)
        for name in FAULTS:
            self.on[name] = not calm and rng.chance(1, 2)
        self.clients = rng.between(3, 9)
        self.topics = rng.between(2, 12)
        self.depth = rng.between(1, 3)
        self.fault_every = rng.between(15, 120)  # steps
        # The mean time between steps.
        self.pace_us = [300, 2 * MILLISECOND, 10 * MILLISECOND, 50 * MILLISECOND][rng.below(4)]
        self.latency_us = [50, 500, 5 * MILLISECOND][rng.below(3)]
        self.split = rng.below(3)
        self.sync_us = [100, 1 * MILLISECOND, 15 * MILLISECOND][rng.below(3)]
        self.turn_us = [1, 100, 2 * MILLISECOND][rng.below(3)]
        self.payload_bytes = [20, 200, 4000][rng.below(3)]
        self.partitions = [1, 4, 16][rng.below(3)]
        self.short_queues = rng.chance(1, 8)
        self.rounds = rng.between(1, 3)
        self.replicas = 1
        self.min_in_sync = 1
        self.retained_wills = False
        self.restless_replays = False  # their clients leave and come back in the middle
        self.majority = False
        self.stands = False  # in the end the links stay as they are for a while
        self.spares = 0  # machines that may join later
        self.lean = False  # before everything heals, the live nodes must serve all clients
        self.mesh_latency_us = 0  # between machines; 0: as to clients
        self.planted: list[str] = []  # bugs of the nodes, by tests of the checkers
        # How often nodes send heartbeats; most of the cost of a quiet cluster.
        self.heartbeat_us = 100 * MILLISECOND
        self.ack_delay_us = 25 * MILLISECOND
        self.digest_us = 100 * MILLISECOND
        # How copies are made: a copy, small in a run, must sometimes take time and many pages
        self.page_bytes = 1 << 18
        self.copy_bytes_per_s = 64 << 20
        self.recent_bytes_max = 32 << 20
        if nodes > 1:
            self._draw_cluster(rng, calm=calm)
        drawn = self.clients + 3 * self.topics + self.depth + self.rounds + self.payload_bytes // 20
        self.on["quotas"] = drawn % 4 == 1
        self.on["small memory"] = drawn % 5 == 2
        self.on["transactions"] = (self.clients + self.topics + self.depth + self.rounds) % 3 == 0
        self.on["impatience"] = (self.clients + 2 * self.topics + self.partitions) % 4 == 2
        self.on["bursts"] = (self.clients + self.topics + self.rounds) % 4 == 0
        # Of a turn: usually so few that input often waits. Small enough that a burst of a client exceeds them.
        self.turn_steps = [192, 1_536, 65_536][(self.clients + self.depth) % 3]
        if family is not None and nodes > 1:
            self._draw_topologies(family)
        if later is not None:
            self._draw_later(later)
        if shape is not None:
            shape(self)
        self.min_in_sync = min(self.min_in_sync, self.replicas)
        if self.has("empty restarts"):
            self.majority = False  # an id that is lost with its disk counts until an operator forgets it
        self.config = self._config(rng)

    def node_config(self, node_id: str, number: int, build: int = 1, *, founded: bool = False) -> NodeConfig:
        """Return the settings of one node of the cluster; `number` of its machine, from 1; `build`: see `Machine`.

        founded: there is a cluster already.
        """
        common = self.config
        config = NodeConfig()
        config.node_id = node_id
        config.partitions = common.partitions
        config.limits = common.limits
        config.streams = common.streams
        config.check_passwords = common.check_passwords
        cluster = ClusterConfig()
        cluster.peer_address = peer_address(number)
        cluster.seeds = [peer_address(other) for other in range(1, self.nodes + 1)]
        cluster.gone_us = SECOND
        cluster.replicas = self.replicas
        cluster.min_in_sync = self.min_in_sync
        cluster.zone = node_id
        cluster.partitions = common.partitions
        cluster.split_policy = "majority" if self.majority else "available"
        cluster.planted = self.planted
        cluster.history_epochs = 2 if self.rounds == 1 else 16  # no node may need more than what is remembered
        # Short, as the faults are: other nodes lead the partitions of a full disk, and give them back.
        cluster.full_wait_us = 200 * MILLISECOND
        cluster.full_hold_us = SECOND
        cluster.heartbeat_us = self.heartbeat_us
        cluster.ack_delay_us = self.ack_delay_us
        cluster.digest_us = cluster.digest_pause_us = self.digest_us
        cluster.page_bytes = self.page_bytes
        cluster.copy_bytes_per_s = self.copy_bytes_per_s
        cluster.recent_bytes_max = self.recent_bytes_max
        # Where disks are lost, an operator says how many nodes there are: with an empty disk, and nobody in reach, the
        # first of the seeds would found another cluster (docs/cluster.md).
        if self.has("emptied disks") or self.has("power loss") or self.has("empty restarts"):
            cluster.expect = self.nodes
        if founded and self.spares:
            # Nodes that come later are told of all machines, and that they are not the first (docs/configure.md): those
            # that founded the cluster may have left, and be among them.
            cluster.expect = self.nodes + self.spares
            cluster.seeds = [peer_address(other) for other in range(1, cluster.expect + 1)]
        cluster.witness = self.is_witness(number)
        if build == 0:
            cluster.features = [feature for feature in cluster.features if feature not in _OLD_BUILD]
        config.cluster = cluster
        return config

    def _draw_cluster(self, rng: Rng, *, calm: bool) -> None:
        united = rng.chance(1, 2)
        self.on.update(dict.fromkeys(ASKED_FOR, False))
        for name in CLUSTER_FAULTS:
            self.on[name] = not calm and rng.chance(1, 3) and not (united and name in SPLITTING)
        self.replicas = min(self.nodes, 3 if rng.chance(2, 3) else rng.between(1, 4))
        self.majority = rng.chance(1, 3)
        self.spares = rng.between(0, 1) if self.on["joins"] else 0
        self.lean = rng.chance(1, 2)
        self.fault_every = rng.between(8, 50)
        # Slower than for one node: faults of a cluster last for seconds, and it must be able to recover between them.
        self.pace_us = [5, 20, 60][rng.below(3)] * MILLISECOND
        self.rounds = rng.between(1, 2)
        self.heartbeat_us = [100, 150, 240][rng.below(3)] * MILLISECOND
        self.ack_delay_us = [25, 200][rng.below(2)] * MILLISECOND
        self.digest_us = [100, 500, 2_000][rng.below(3)] * MILLISECOND
        self.page_bytes = [1 << 18, 2_000][rng.below(2)]
        self.copy_bytes_per_s = [64 << 20, 4 << 20][rng.below(2)]
        self.recent_bytes_max = [32 << 20, 5_000][rng.below(2)]
        if self.on["bit flips"] or self.on["bad checksums"]:
            self.digest_us = 100 * MILLISECOND  # comparisons find damage: they must cover everything within a healing

    def _draw_topologies(self, rng: Rng) -> None:
        """Draw a run of the family: half of them have splits, and half of those the policy "majority"."""
        self.splits = rng.chance(1, 2)
        self.majority = rng.chance(1, 2)
        for name in ("clock steps", "disk full", *CLUSTER_FAULTS, *ASKED_FOR):
            self.on[name] = False
        for name in _WITH_TOPOLOGIES:
            self.on[name] = self.on[name] and rng.chance(1, 3)
        for name in _WITH_TOPOLOGIES_CLUSTER:
            self.on[name] = rng.chance(1, 5)
        for name in _DRAWN:
            self.on[name] = rng.chance(1, 4)
        self.on["slow clocks"] = self.on["wrong clocks"]
        self.on["link matrices"] = self.splits
        self.on["blackouts"] = self.splits and rng.chance(1, 4)
        if not any(self.on[name] for name in _DRAWN):
            others = [name for name in _DRAWN if name != "link matrices"]
            self.on[others[rng.below(len(others))]] = True
        # Full queues and small memory lose messages by right: the other family has them.
        self.short_queues = False
        for name in LATER:
            self.on[name] = False
        self.on["transactions"] = rng.chance(1, 3)
        if not self.majority and (self.splits or self.on["kills"] or self.on["uneven power loss"]):
            # Two sides excuse much of what these need: they are judged where there are none.
            self.on["wills"] = self.on["wills"] and rng.chance(1, 10)
            self.on["retained"] = self.on["retained"] and rng.chance(1, 3)
        self.replicas = min(self.nodes, 2 if rng.chance(1, 4) else self.nodes // 2 + 1 if rng.chance(1, 4) else 3)
        self.spares = 2 if self.on["joins at once"] or self.on["clones"] else int(self.on["joins"])
        self.lean = rng.chance(1, 4)
        self.fault_every = rng.between(4, 10)
        self.pace_us = (150, 300, 400)[rng.below(3)] * MILLISECOND
        self.heartbeat_us = (100, 240, 240)[rng.below(3)] * MILLISECOND
        if self.on["stutters"]:
            self.heartbeat_us = 100 * MILLISECOND  # a stop of its double is noticed
        self.rounds = rng.between(1, 2)
        if self.nodes == 3 and rng.chance(1, 3):  # two nodes and a witness
            self.witnesses = 1
            self.replicas = min(self.replicas, 2)
            for name in ("leaves", "leaves at once"):
                self.on[name] = False  # one of two leaves the last one, which may not
        if self.splits and rng.chance(1, 6):
            self.replicas = 1  # each side lacks partitions
        self.stands = self.splits and rng.chance(1, 3)

    def _draw_later(self, rng: Rng) -> None:
        """Draw what was added later, with a generator of its own."""
        if rng.chance(1, 6) and self.nodes > 1:
            self.min_in_sync = 2
        if self.topologies:
            self.on["orders"] = rng.chance(1, 4)
            self.on["restart loops"] = rng.chance(1, 6)
        self.retained_wills = rng.chance(1, 3)
        self.restless_replays = rng.chance(1, 3)

    def is_witness(self, number: int) -> bool:
        """Whether a machine, by its number from 1, runs a witness."""
        return self.nodes - self.witnesses < number <= self.nodes

    def has(self, name: str) -> bool:
        """Whether the feature or fault `name` is on."""
        return self.on.get(name, False)

    @property
    def names(self) -> list[str]:
        """Everything that can be switched on or off in this run."""
        return list(self.on)

    def _config(self, rng: Rng) -> NodeConfig:
        config = NodeConfig()
        config.partitions = self.partitions
        config.check_passwords = rng.chance(1, 3)
        if self.has("streams"):
            for number in range(rng.between(1, 2)):
                topic_filter = [b"#", b"t/0/#", b"t/+/#"][rng.below(3)]
                size = rng.between(1, 8) * 2048 if rng.chance(1, 6) else 0
                # What the retention of one side has removed, no reader can demand of the other.
                size = 0 if self.topologies or any(self.has(name) for name in SPLITTING) else size
                # Only a clock that is set wrong can remove a record of a run.
                retention_us = HOUR // 2 if self.has("wrong clocks") else 0
                config.streams.append(StreamConfig(f"s{number}", topic_filter, rng.between(1, 4), retention_us, size))
        self._limit(config.limits, rng)
        self._tighten(config.limits)
        return config

    def _tighten(self, limits: Limits) -> None:
        """Set what was added later, without the generator."""
        if self.has("quotas"):  # what a client needs to come back must be there; everything else may be short
            limits.user_connections_max = 2 * self.clients
            limits.user_sessions_max = 2 * self.clients
            limits.user_subscriptions_max = 1000
            limits.user_queue_bytes_max = QUOTA_MESSAGES * (self.payload_bytes + 200)
            limits.user_publish_rate_max = 500
            limits.user_publish_bytes_max = 500 * (self.payload_bytes + 200)
        if self.has("small memory"):
            limits.memory_bytes_max = 60_000 + 20_000 * self.clients
            limits.queue_memory_bytes_max = 100 * (self.payload_bytes + 500)

    def _limit(self, limits: Limits, rng: Rng) -> None:
        limits.turn_steps_max = self.turn_steps
        limits.page_rows = [2, 8, 128][rng.below(3)]
        limits.sys_interval_us = SECOND if rng.chance(1, 5) else 0
        if self.short_queues:
            limits.queue_messages_max = rng.between(5, 40)
            limits.queue_full_drops_oldest = rng.chance(1, 2)
        if self.has("own limits"):
            limits.receive_max = rng.between(1, 30)
            limits.inflight_max = rng.between(1, 30)
            limits.topic_alias_max = rng.between(0, 3)
            limits.topic_alias_out_max = rng.between(0, 3)
            limits.write_backlog_bytes_max = [4_096, 1 << 20][rng.below(2)]
            limits.route_cache_max = rng.between(1, 20)
            limits.shared_bodies_max = rng.between(0, 10)
            limits.keep_alive_max_s = rng.between(1, 10)
            limits.queue_qos0_offline = rng.chance(1, 2)

    def lines(self) -> list[str]:
        """Return what was drawn, for readers."""
        on = [name for name in self.on if self.on[name]]
        off = [name for name in self.on if not self.on[name]]
        numbers = [f"{name}={value}" for name, value in sorted(vars(self).items()) if isinstance(value, int)]
        limits = Limits()
        changed = [
            f"{name}={getattr(self.config.limits, name)}"
            for name in LIMIT_NAMES
            if getattr(self.config.limits, name) != getattr(limits, name)
        ]
        return [
            "on: " + ", ".join(on),
            "off: " + ", ".join(off),
            "numbers: " + " ".join(numbers),
            "limits: " + " ".join(changed),
            "streams: " + ", ".join([repr(stream) for stream in self.config.streams]),
        ]


LIMIT_NAMES = (
    "turn_steps_max",
    "page_rows",
    "sys_interval_us",
    "queue_messages_max",
    "queue_full_drops_oldest",
    "receive_max",
    "inflight_max",
    "topic_alias_max",
    "memory_bytes_max",
    "queue_memory_bytes_max",
    "user_connections_max",
    "user_sessions_max",
    "user_queue_bytes_max",
    "user_publish_rate_max",
    "topic_alias_out_max",
    "write_backlog_bytes_max",
    "route_cache_max",
    "shared_bodies_max",
    "keep_alive_max_s",
    "queue_qos0_offline",
)
