"""A node that comes up again while its branch is merged, and its copy is not in sync yet."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 4


def filled_by(site: Site) -> list[int]:
    """The partitions of which a node has what their leader has, while its copy is still listed as a branch."""
    view = site.cluster_node.view
    assert view is not None
    leaders = {number: site.cluster.sites[view.leader_of(number)] for number in view.branches}
    return [number for number in leaders if position_of(site, number) == position_of(leaders[number], number)]


def position_of(site: Site, number: int) -> tuple[int, int]:
    return site.cluster_node.replication.context.writer.position(number)


def test_a_leader_that_has_merged_a_branch_goes_on_when_the_node_of_the_branch_comes_up_again() -> None:
    """The configuration lists the branch until the copy is in sync; the leadership is the one that has merged it."""
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    cluster.hand_log_to("n1")
    n1, n3 = cluster["n1"], cluster["n3"]
    cluster.cut("n3", "n1", "n2")
    cluster.advance(10 * SECOND)
    for site in (n1, n3):
        client = site.client(f"at {site.name}")
        client.connect(session_expiry=EVER)
        client.disconnect()
    found: list[int] = []
    turn = n3.turn

    def and_die_when_filled() -> bool:
        moved = turn()
        if n3.up and not found:
            found.extend(filled_by(n3))
            if found:
                n3._end()
        return moved

    n3.turn = and_die_when_filled  # type: ignore[method-assign]
    cluster.heal()
    healed = cluster.now
    while not found and cluster.now < healed + 5 * SECOND:
        cluster.advance(SECOND // 10)
    assert found, "a copy that is listed as a branch is filled"
    cluster.advance(SECOND // 10)  # it is away, and its copies are not made anew elsewhere yet
    n3.revive()
    cluster.settle()
    for number in found:
        client_id = next(f"c{count}" for count in range(99) if hash64(b"c%d" % count) % PARTITIONS == number)
        client = n1.client(client_id)
        client.connect(session_expiry=EVER)
        client.subscribe("s", qos=1)
        assert client.publish("s", b"x", qos=1) == 0
