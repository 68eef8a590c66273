"""A node dies that led many rows: its successor reads them over many turns, and does everything else meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.leadership.recovery import ROWS_PER_TURN
from folkmoot.store.batch import Batch
from folkmoot.store.key import QUEUE, SESSION, name_prefix, numbered_key, plain_key, sequence_of
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 4
ROWS = 8 * ROWS_PER_TURN
PAGE_ROWS = 1024 + 8  # a turn ends with the page that spends what it may read


def leader_of(cluster: SimulatedCluster, partition: int) -> str:
    cluster_node = cluster.live()[0].node.cluster_node
    assert cluster_node is not None
    return cluster_node.fabric.leaders[partition]


def client_in(partition: int) -> str:
    return f"c{next(number for number in range(999) if hash64(b'c%d' % number) % PARTITIONS == partition)}"


class Heap:
    """Three nodes; a partition led by `old` where one client that is away has `ROWS` messages waiting."""

    def __init__(self, cluster: SimulatedCluster | None = None) -> None:
        self.cluster = SimulatedCluster(3, partitions=PARTITIONS) if cluster is None else cluster
        self.partition = 0
        self.client_id = client_in(0)
        self.old = self.cluster[leader_of(self.cluster, 0)]
        others = [site for site in self.cluster.live() if site is not self.old]
        publisher = others[0].client("publisher")
        publisher.connect()
        client = self.old.client(self.client_id)
        client.connect(session_expiry=EVER)
        client.subscribe("t", qos=1)
        client.disconnect()
        publisher.publish("t", b"x", qos=1)
        replicas = replicas_of(self.cluster, self.partition)
        for name in replicas:
            self.multiply(self.cluster[name])

    def multiply(self, site: Site) -> None:
        """Let a store have the message many times, as if it had been published so often."""
        prefix = name_prefix(self.partition, QUEUE, self.client_id.encode())
        key, value = site.store.scan(prefix, prefix + b"\xff" * 9, 1)[0]
        batch = Batch(0)
        for count in range(1, ROWS):
            batch.put(numbered_key(prefix, sequence_of(key) + count), value)
        site.alter(batch)

    def read_at(self, site: Site) -> int:
        """How many rows of the partition a node has read in order to lead it."""
        arrival = site.node._broker.leadership.recovery.arrivals.get(self.partition)
        return 0 if arrival is None else arrival.loader.rows

    def is_led_at(self, site: Site) -> bool:
        return site.node._state.leads[self.partition]

    def after_turns(self, site: Site, look: Callable[[], None]) -> None:
        """Look after each turn of a node."""
        turn = site.turn

        def and_look() -> bool:
            moved = turn()
            look()
            return moved

        site.turn = and_look  # type: ignore[method-assign]


def test_many_rows_are_read_over_many_turns_and_other_partitions_open_meanwhile() -> None:
    heap = Heap()
    cluster = heap.cluster
    read: dict[str, list[int]] = {site.name: [0] for site in cluster.live()}
    opened_before: list[int] = []

    def look_at(site: Site) -> Callable[[], None]:
        def look() -> None:
            read[site.name].append(heap.read_at(site))
            if heap.read_at(site) < ROWS and not heap.is_led_at(site):
                opened_before[:] = [
                    partition for partition in range(1, PARTITIONS) if site.node._state.leads[partition]
                ]

        return look

    for site in cluster.live():
        heap.after_turns(site, look_at(site))
    heap.old.kill()
    cluster.settle()
    successor = cluster[leader_of(cluster, heap.partition)]
    assert successor is not heap.old
    assert heap.is_led_at(successor)
    steps = [after - before for before, after in zip(read[successor.name], read[successor.name][1:], strict=False)]
    assert 0 < max(steps) <= ROWS_PER_TURN + PAGE_ROWS
    assert len([step for step in steps if step > 0]) >= ROWS // (ROWS_PER_TURN + PAGE_ROWS)
    assert successor.node.counters.queue_messages == ROWS
    assert opened_before  # they did not wait for the large one
    reader = successor.client(heap.client_id)
    reader.connect(clean_start=False, session_expiry=EVER)
    assert len(reader.publishes()) > 0


def replicas_of(cluster: SimulatedCluster, partition: int) -> list[str]:
    cluster_node = cluster.live()[0].node.cluster_node
    assert cluster_node is not None
    assert cluster_node.view is not None
    return cluster_node.view.replicas[partition]


def test_a_partition_that_is_lost_while_it_is_read_leaves_nothing_behind() -> None:
    heap = Heap()
    cluster = heap.cluster
    replicas = replicas_of(cluster, heap.partition)
    successor, other = cluster[replicas[1]], cluster[replicas[2]]
    lost: list[int] = []

    def take_away() -> None:
        assert successor.node.counters.queue_messages == (ROWS if heap.is_led_at(successor) else 0)
        if not lost and ROWS // 4 < heap.read_at(successor) < ROWS:
            lost.append(heap.read_at(successor))
            cluster_node = successor.node.cluster_node
            assert cluster_node is not None
            members = {other.name: 1}
            leaders = [other.name] * PARTITIONS
            leader_epochs = [number + 1 for number in cluster_node.fabric.leader_epochs]
            successor.node._broker.leadership.install(
                cluster_node.fabric.epoch + 1, members, leaders, leader_epochs, members, [], {}
            )

    heap.after_turns(successor, take_away)
    heap.old.kill()
    for _ in range(100):  # it may have been the controller: then another one is elected first
        if not lost:
            cluster.advance(SECOND // 20)
    assert lost
    assert not any(successor.node._state.leads)
    assert not successor.node._state.sessions
    assert not len(successor.node._broker.leadership.recovery)
    assert successor.node.counters.queue_messages == successor.node.counters.sessions_persistent == 0


def test_a_row_that_one_copy_has_wrong_takes_no_node_down_and_another_leads() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    replicas = replicas_of(cluster, 1)
    client_id = client_in(1)
    key = plain_key(1, SESSION, client_id.encode())
    client = cluster[replicas[2]].client(client_id)
    client.connect(session_expiry=EVER)
    client.subscribe("t", qos=1)
    batch = Batch(0)
    batch.put(key, bytes(16))
    cluster[replicas[1]].alter(batch)
    cluster[replicas[0]].kill()
    cluster.settle()
    assert [site.name for site in cluster.live() if "replica_damaged" in site.kinds()] == [replicas[1]]
    assert sorted(replicas_of(cluster, 1)) == sorted(replicas[1:])  # and it was filled again
    assert cluster[replicas[1]].store.get(key) == cluster[replicas[2]].store.get(key)
    client.publish("t", b"x", qos=1)
    assert [message.payload for message in client.publishes()] == [b"x"]


def test_a_row_that_all_copies_have_wrong_closes_its_partition_and_no_other() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    replicas = replicas_of(cluster, 1)
    key = plain_key(1, SESSION, client_in(1).encode())
    cluster[replicas[0]].node._state.writer.put(1, key, b"")
    cluster.advance(SECOND)
    assert all(site.store.get(key) is not None for site in cluster.live())
    cluster[replicas[0]].kill()
    cluster.advance(5 * SECOND)
    assert not any(site.cluster_node.fabric.open[1] for site in cluster.live())
    cluster[replicas[0]].revive()
    cluster.advance(10 * SECOND)
    assert not any(site.cluster_node.fabric.open[1] for site in cluster.live())
    views = [site.cluster_node.view for site in cluster.live()]
    (last,) = {view.losses.damaged[1] for view in views if view is not None}  # nothing else has what it has
    assert all("copies_damaged" in site.kinds() for site in cluster.live() if site.name != replicas[0])
    assert last in replicas[1:]
    for name in replicas[1:]:  # each has tried, and none is filled from another that is damaged too
        assert cluster[name].kinds().count("replica_damaged") == 1
    assert all(site.store.get(key) is not None for site in cluster.live()), "nothing is removed"
    assert sum(site.node._state.leads.count(True) for site in cluster.live()) == PARTITIONS - 1
    client = cluster["n1"].client(client_in(2))
    client.connect(session_expiry=EVER)
    client.subscribe("t", qos=1)
    entries = max(site.control.log.index for site in cluster.live())  # type: ignore[union-attr]
    cluster.advance(60 * SECOND)
    assert max(site.control.log.index for site in cluster.live()) == entries, "it is not tried again and again"  # type: ignore[union-attr]


def test_a_client_of_a_third_node_stays_when_the_view_changes_during_a_takeover() -> None:
    """The new leader asks who is connected in each of two views, and reads on: a client that is told twice is one."""
    cluster = SimulatedCluster(5, partitions=PARTITIONS)  # all vote: three of them go on
    replicas = replicas_of(cluster, 0)
    heap = Heap(cluster)
    third = next(site for site in cluster.live() if site.name not in replicas)
    client = third.client(next(f"d{number}" for number in range(999) if hash64(b"d%d" % number) % PARTITIONS == 0))
    client.connect(session_expiry=EVER)
    client.subscribe("u", qos=1)
    successor, other = cluster[replicas[1]], cluster[replicas[2]]

    def kill_another() -> None:
        if other.up and ROWS // 4 < heap.read_at(successor) < ROWS:
            other.kill()

    heap.after_turns(successor, kill_another)
    heap.old.kill()
    cluster.settle()
    assert not other.up
    assert any(heap.is_led_at(site) for site in cluster.live())
    assert client.receive() == []
    client.publish("u", b"x", qos=1)
    assert [message.payload for message in client.publishes()] == [b"x"]
