"""Messages of a process that is not a member yet wait in bounded memory."""

from __future__ import annotations

from folkmoot.broker.dispatch import EARLY_BYTES_MAX
from folkmoot.turn.message import FORWARD_ACK
from tests.harness.simulated_cluster import SimulatedCluster


def test_of_too_many_messages_the_newest_wait_and_then_all_begin_anew() -> None:
    cluster = SimulatedCluster(2)
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    dispatch = cluster_node.broker.cluster.dispatch
    for _ in range(80):
        dispatch.receive("n9", FORWARD_ACK, bytes(1 << 20))
    waiting = dispatch._early["n9"].messages
    assert sum(len(body) for _, body in waiting) <= EARLY_BYTES_MAX
    dropped = cluster["n1"].node._state.counters.cluster_messages_dropped
    assert dropped == 80 - len(waiting) > 0
    dispatch.installed({**dispatch._members, "n9": 1})
    assert dispatch.renew, "what is left would hide what was dropped"
    assert "n9" in dispatch.fabric.out_of_sync
    assert "n9" not in dispatch._early
