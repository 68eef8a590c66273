"""A client that wants in while the leader of its partition does not lead yet is let in when it does."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import Connack, Connect
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster


def test_after_a_time_without_a_majority_nobody_waits_for_a_leader_that_was_thought_to_lead() -> None:
    cluster = SimulatedCluster(3, split_policy="majority")
    cluster.cut("n1", "n2", "n3")
    cluster.cut("n2", "n3")
    cluster.advance(4 * SECOND)
    knocking: list[Peer] = []
    turn = cluster["n1"].turn

    def knock_as_soon_as_possible() -> bool:
        moved = turn()
        site = cluster["n1"]
        if not knocking and not site.cut and not site.node.silence(site.steady_ns()):
            for number in range(20):
                knocking.append(cluster["n1"].client(f"c{number}").open())
                knocking[-1].send(Connect(5, f"c{number}", False, 60, properties=properties(session_expiry=EVER)))
        return moved

    cluster["n1"].turn = knock_as_soon_as_possible  # type: ignore[method-assign]
    cluster.heal()
    cluster.advance(5 * SECOND)
    assert knocking
    assert [peer.expect(Connack).code for peer in knocking] == [0] * 20
