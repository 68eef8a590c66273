"""Members that go together, and what is left of a partition whose last copy was given up: whole nodes."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.feature import FEATURES, TOGETHER
from folkmoot.kernel.hash import hash64
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


class GivenUp:
    """Seven nodes; the copies of a partition went one after the other, and the last one will not come back.

    Each has acknowledged a message that the ones before it have not: `old` only the first, `newer` the second.
    """

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(7, split_policy="majority")
        self.cluster.hand_log_to("n1")
        self.cluster.advance(3 * SECOND)
        self.number, disks = self._find()
        names = {site.cluster_node.me.disk: name for name, site in self.cluster.sites.items()}
        self.old, self.newer, self.last = [names[disk] for disk in disks]
        self.reader = self._client_of(self.number)
        self.publisher = self._client_of(self._other())
        reader = self.cluster["n1"].client(self.reader)
        reader.resume()
        reader.subscribe("t/#", qos=1)
        reader.disconnect()
        self.cluster.advance(SECOND)
        for payload, name in ((b"first", self.old), (b"second", self.newer), (b"third", self.last)):
            self.publish(payload)
            self.cluster[name].kill()
            self.cluster.advance(3 * SECOND)
        for name in (self.old, self.newer):
            self.cluster[name].revive()
            self._expect_all()
            self.cluster.advance(4 * SECOND)

    def _expect_all(self) -> None:
        """Nobody is taken for gone: copies are made nowhere else."""
        for site in self.cluster.live():
            site.control.options.gone_ns = 10**15

    def _find(self) -> tuple[int, list[int]]:
        """Find a partition without a copy at n1, and without which most voters are there; and its copies."""
        self._expect_all()
        log = self.cluster["n1"].control.log
        assert log is not None
        for number, state in enumerate(configuration_of(self.cluster).partitions):
            others = [disk for disk in log.voters if disk not in state.replicas]
            if self.cluster["n1"].cluster_node.me.disk not in state.replicas and 2 * len(others) > len(log.voters):
                return number, state.replicas
        raise AssertionError("there is such a partition")

    def _other(self) -> int:
        """Find a partition of which no copy is at the nodes that go."""
        partitions = configuration_of(self.cluster).partitions
        mine = partitions[self.number].replicas
        return next(n for n, state in enumerate(partitions) if not set(state.replicas) & set(mine))

    def _client_of(self, number: int) -> str:
        return next(f"c{n}" for n in range(999) if hash64(f"c{n}".encode()) % self.cluster.partitions == number)

    def publish(self, payload: bytes) -> None:
        peer = self.cluster["n1"].client(self.publisher)
        peer.connect()
        peer.publish("t/a", payload, qos=1)
        peer.disconnect()
        self.cluster.advance(SECOND)

    def give_up(self) -> None:
        """Forget the last one, and stop when what is left is in sync."""
        self.cluster["n1"].cluster_node.membership.forget(self.last, self.cluster.now, True)
        for _ in range(2000):
            self.cluster.advance(MILLISECOND // 2)
            if configuration_of(self.cluster).partitions[self.number].isr:
                return
        raise AssertionError("it is placed")

    def in_sync(self) -> list[str]:
        """Return the names of those in sync."""
        names = {site.cluster_node.me.disk: name for name, site in self.cluster.sites.items()}
        return [names[disk] for disk in configuration_of(self.cluster).partitions[self.number].isr]

    def leader(self) -> int:
        return configuration_of(self.cluster).partitions[self.number].leader

    def read(self) -> list[bytes]:
        reader = self.cluster["n1"].client(self.reader)
        reader.resume()
        self.cluster.advance(SECOND)
        return sorted(reader.payloads())


def test_the_newest_of_what_is_left_leads_though_it_goes_before_it_was_compared() -> None:
    """The older one would lead alone, and overwrite what the newer one has acknowledged, when that comes back."""
    case = GivenUp()
    case.cluster.held = {(case.newer, case.old)}
    case.give_up()
    assert case.in_sync() == [case.old, case.newer]
    case.cluster[case.newer].kill()
    case.cluster.held = set()
    case.cluster.advance(4 * SECOND)
    assert case.in_sync() == [case.old, case.newer]
    assert case.leader() == 0
    case.cluster[case.newer].revive()
    case.cluster.settle()
    assert configuration_of(case.cluster).recovering == {}
    assert case.read() == [b"first", b"second"]


def test_what_is_left_is_in_sync_one_by_one_again_when_it_was_compared() -> None:
    case = GivenUp()
    case.give_up()
    case.cluster.settle()
    assert configuration_of(case.cluster).recovering == {}
    case.cluster[case.newer].kill()
    case.cluster.advance(4 * SECOND)
    assert case.leader()
    assert case.newer not in case.in_sync()
    assert case.read() == [b"first", b"second"]


def test_an_older_copy_goes_on_when_the_newer_one_is_forgotten_too() -> None:
    case = GivenUp()
    case.cluster.held = {(case.newer, case.old)}
    case.give_up()
    case.cluster[case.newer].kill()
    case.cluster.held = set()
    case.cluster.advance(4 * SECOND)
    case.cluster["n1"].cluster_node.membership.forget(case.newer, case.cluster.now, True)
    case.cluster.settle()
    assert case.read() == [b"first"]
