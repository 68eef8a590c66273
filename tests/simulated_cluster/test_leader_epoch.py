"""Whether a partition begins anew is told by the number of its leadership, whichever views a node has skipped."""

from __future__ import annotations

from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 4


class Follower:
    """A node that leads some partitions and follows others; views are installed at its MQTT half alone."""

    def __init__(self) -> None:
        cluster = SimulatedCluster(3, partitions=PARTITIONS)
        self.site: Site = cluster["n2"]
        self.fabric = self.site.cluster_node.fabric
        self.partition = next(p for p in range(PARTITIONS) if self.fabric.leaders[p] != "n2")
        self.members = {node_id: self.site.cluster_node._members[node_id] for node_id in self.fabric.others}

    def install(self, leader_epochs: list[int], merging: list[int]) -> None:
        leaders = list(self.fabric.leaders)
        epoch = self.fabric.epoch + (1 << 24)
        leadership = self.site.node._broker.leadership
        leadership.install(epoch, self.members, leaders, leader_epochs, self.members, merging, {})

    @property
    def is_open(self) -> bool:
        return self.fabric.open[self.partition]


def test_a_partition_whose_leader_goes_on_stays_open_while_its_branch_is_still_listed() -> None:
    """Its leader may have skipped that view: it would not ask for the clients of this node again (seed 105104)."""
    follower = Follower()
    assert follower.is_open
    follower.install(list(follower.fabric.leader_epochs), [follower.partition])
    assert follower.is_open


def test_another_leadership_of_the_same_node_closes_the_partition_until_it_opens() -> None:
    follower = Follower()
    leader_epochs = list(follower.fabric.leader_epochs)
    leader_epochs[follower.partition] += 1
    follower.install(leader_epochs, [])
    assert not follower.is_open
    others = [p for p in range(PARTITIONS) if p != follower.partition]
    assert all(follower.fabric.open[p] for p in others)
