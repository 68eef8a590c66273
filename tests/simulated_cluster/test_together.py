"""Members that go together, and what is left of a partition whose last copy was given up: whole nodes."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.feature import FEATURES, TOGETHER
from folkmoot.membership.configuration import ClusterConfiguration
from tests.harness.simulated_cluster import SimulatedCluster


def configuration_of(cluster: SimulatedCluster) -> ClusterConfiguration:
    found = cluster.controller().control.configuration
    assert found is not None
    return found


def test_an_older_node_is_refused_once_all_have_had_the_feature() -> None:
    """A node tells its features by name, and the log has those that last as bits: an entry may need them for ever."""
    cluster = SimulatedCluster(3)
    cluster.hand_log_to("n1")
    cluster.advance(SECOND)
    assert configuration_of(cluster).goes_together()
    node = cluster["n3"]
    node.kill()
    node.settings.features = [feature for feature in FEATURES if feature != TOGETHER]
    node.revive()
    cluster.advance(10 * SECOND)
    assert "start_refused" in cluster["n1"].kinds()
    assert configuration_of(cluster).goes_together()
    assert not cluster["n3"].cluster_node.membership.may_write
    node.kill()
    node.settings.features = list(FEATURES)
    node.revive()
    cluster.settle()
    assert cluster["n3"].cluster_node.membership.may_write
