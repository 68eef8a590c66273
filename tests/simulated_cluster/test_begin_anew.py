"""A leader that begins anew shows nothing that is not committed (A9), and opens each partition as soon as it may.

It begins anew with all its partitions when a link to a member has lost messages. Its copies stay as they are, changes
that no follower has confirmed included. What it restores from them counts as committed.
"""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.planted import Planted
from folkmoot.mqtt.packet import Publish
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.log import StreamLog
from folkmoot.streams.table import store_partition
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 8
STREAM = StreamConfig("st", b"t/#", 1, 0, 0)
PARTITION = store_partition("st", 0, PARTITIONS)


class Scene:
    """A stream of two copies with one record, and a second one that only its leader has; the link loses messages."""

    def __init__(self, bug: str = "", min_in_sync: int = 1) -> None:
        self.cluster = cluster = SimulatedCluster(
            3,
            partitions=PARTITIONS,
            replicas=2,
            streams=[STREAM],
            split_policy="majority",
            min_in_sync=min_in_sync,
        )
        view = cluster["n1"].cluster_node.view
        assert view is not None
        replicas = view.replicas[PARTITION]
        self.leader, self.follower = cluster[replicas[0]], cluster[replicas[1]]
        self.other = next(site for site in cluster.live() if site.name not in replicas)
        cluster.hand_log_to(self.other.name)
        self.leader.cluster_node.fabric.planted = Planted([bug] if bug else [])
        publisher = self.leader.client(self.leader.names_led("p")[0])
        publisher.connect()
        publisher.publish("t/1", b"first", qos=1)
        cluster.advance(SECOND)
        cluster.held = {(self.leader.name, self.follower.name)}
        publisher.send(Publish(b"t/1", b"second", 1, False, False, 9))
        assert (log_of(self.leader).readable_end, log_of(self.leader).next_offset) == (1, 2)
        epoch = self.epoch()
        self.leader.cluster_node.peers.overflow(self.follower.name)
        cluster.held = set()  # the link begins anew
        self.step_until_view(epoch)
        # The follower has heard that the leader begins anew, and answers; what it lacks is on its way to it.
        cluster.held = {(self.follower.name, self.leader.name)}
        cluster.run()
        cluster.held = {(self.leader.name, self.follower.name)}
        cluster.run()

    def epoch(self) -> int:
        view = self.leader.cluster_node.view
        assert view is not None
        return view.epoch

    def step_until_view(self, epoch: int) -> None:
        """Let time pass until the leader has begun anew."""
        for _ in range(10_000):
            if self.epoch() > epoch:
                return
            if not self.cluster.step():
                self.cluster.now += MILLISECOND
        raise AssertionError("there is no new view")


def log_of(site: Site) -> StreamLog:
    """Return the log of the stream as a node has it open."""
    return site.node.streams.streams[0].logs[0]


def is_open(site: Site, partition: int) -> bool:
    return site.cluster_node.fabric.open[partition]


def test_what_no_follower_has_is_not_shown() -> None:
    scene = Scene()
    assert not is_open(scene.leader, PARTITION)
    assert log_of(scene.leader).readable_end <= 1
    scene.cluster.held = set()
    scene.cluster.run()
    assert is_open(scene.leader, PARTITION)
    assert log_of(scene.leader).readable_end == 2
    replica, copy = [site.cluster_node.replication.replicas[PARTITION] for site in (scene.leader, scene.follower)]
    assert copy.durable_seq == replica.durable_seq


def test_without_the_rule_the_record_is_seen_before_anybody_else_has_it() -> None:
    """The planted bug."""
    scene = Scene("dirty_anew")
    assert log_of(scene.leader).readable_end == 2
    replica, copy = [site.cluster_node.replication.replicas[PARTITION] for site in (scene.leader, scene.follower)]
    assert copy.durable_seq < replica.durable_seq


def test_partitions_in_which_all_is_committed_wait_for_no_other() -> None:
    scene = Scene()
    fabric = scene.leader.cluster_node.fabric
    replicas = scene.leader.cluster_node.replication.replicas
    led = [number for number in range(PARTITIONS) if fabric.leaders[number] == scene.leader.name]
    assert [number for number in led if not fabric.open[number]] == [PARTITION]
    assert [number for number in led if replicas[number].uncommitted] == [PARTITION]


def test_it_does_not_wait_for_a_follower_that_is_no_more() -> None:
    """The configuration takes it out of the ISR: then what the leader has is committed."""
    scene = Scene()
    scene.follower.kill()
    scene.cluster.held = set()
    scene.cluster.advance(5 * SECOND)
    assert is_open(scene.leader, PARTITION)
    assert log_of(scene.leader).readable_end == 2


def test_with_too_few_copies_it_waits_until_there_are_enough() -> None:
    scene = Scene(min_in_sync=2)
    scene.follower.kill()
    scene.cluster.held = set()
    scene.cluster.settle()
    assert is_open(scene.leader, PARTITION)
    view = scene.leader.cluster_node.view
    assert view is not None
    leader = scene.cluster[view.leader_of(PARTITION)]
    assert log_of(leader).readable_end == 2


@pytest.mark.parametrize("site", ["leader", "follower"])
def test_offsets_are_given_out_once(site: str) -> None:
    """Whoever dies before the follower has the record: it is the record of its offset then, or nobody has read it."""
    scene = Scene()
    before = log_of(scene.leader).readable_end
    victim = scene.leader if site == "leader" else scene.follower
    victim.kill()
    scene.cluster.held = set()
    scene.cluster.advance(5 * SECOND)
    view = scene.other.cluster_node.view
    assert view is not None
    heir = scene.cluster[view.leader_of(PARTITION)]
    assert before <= log_of(heir).readable_end == (1 if site == "leader" else 2)
