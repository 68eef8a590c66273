"""What a new leader has read of a partition counts in the next views, unless it has changed; then it is read again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.kernel.planted import Planted
from folkmoot.leadership.loader import PartitionLoader
from folkmoot.leadership.recovery import ROWS_PER_TURN, Arrival
from folkmoot.membership.command import Lead
from folkmoot.store.batch import Batch
from folkmoot.store.key import QUEUE, name_prefix, numbered_key, sequence_of
from folkmoot.store.writer import body_of
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 4
ROWS = 8 * ROWS_PER_TURN
EVERY = 6
"""So many steps after one configuration comes the next: not enough to report, to take over and to read so many rows."""


class Move:
    """A partition with a session for which much waits, which `heir` is to lead and `silent` says nothing about."""

    def __init__(self, rows: int = ROWS) -> None:
        self.cluster = SimulatedCluster(3, partitions=PARTITIONS, split_policy="majority")
        self.heir = self.cluster["n3"]
        self.client_id = self.cluster["n2"].names_led("r")[0]
        self.partition = hash64(self.client_id.encode()) % PARTITIONS
        reader = self.cluster["n1"].client(self.client_id)
        reader.connect(session_expiry=EVER)
        reader.subscribe("t", qos=1)
        reader.disconnect()
        publisher = self.cluster["n1"].client(self.cluster["n1"].names_led("p")[0])
        publisher.connect()
        publisher.publish("t", b"x", qos=1)
        self.cluster.advance(200 * MILLISECOND)
        self.prefix = name_prefix(self.partition, QUEUE, self.client_id.encode())
        self.rows = rows
        self.holds = False
        for site in self.cluster.live():
            self._multiply(site)

    def _multiply(self, site: Site) -> None:
        """Let a store have the message many times, as if it had been published so often."""
        key, value = site.store.scan(self.prefix, self.prefix + b"\xff" * 9, 1)[0]
        batch = Batch(0)
        for count in range(1, self.rows):
            batch.put(numbered_key(self.prefix, sequence_of(key) + count), value)
        site.alter(batch)

    def give(self, partition: int, name: str, ahead: int = 0) -> None:
        """Have the controller give a partition to a node, after so many other changes of it that are under way."""
        control = self.cluster.controller().control
        assert control.log is not None
        assert control.configuration is not None
        version = control.configuration.partitions[partition].version + ahead
        command = Lead(partition, version, self.cluster[name].cluster_node.me.disk)
        assert control.log.propose(command, self.cluster.now * 1000).handle

    def other(self) -> int:
        """Return another partition, which the heir does not lead."""
        view = self.heir.cluster_node.view
        assert view is not None
        return next(p for p in range(PARTITIONS) if p != self.partition and view.leader_of(p) != "n3")

    def configure(self) -> None:
        """Change the leader of another partition."""
        other = self.other()
        self.give(other, "n1" if self.heir.cluster_node.fabric.leaders[other] == "n2" else "n2")

    def step(self) -> None:
        if not self.cluster.step():
            self.cluster.now += MILLISECOND // 4
        if self.holds and self.is_opening():
            self.arrival.awaited["nobody"] = None  # a view has all asked anew

    def hold(self) -> None:
        """Have the heir read all of the partition, and not open it."""
        self.holds = True
        self.give(self.partition, "n3")
        self.until(lambda: self.is_opening() and self.arrival.loader.whole)

    def release(self) -> None:
        self.holds = False
        del self.arrival.awaited["nobody"]
        self.until(self.is_open)

    def until_next_view(self) -> None:
        """Let time pass until the heir has the next view, and has gone on in it."""
        epoch = self.epoch()
        self.until(lambda: self.epoch() > epoch)
        self.until(lambda: self.arrival.loader.whole and list(self.arrival.awaited) == ["nobody"])

    def until(self, done: Callable[[], bool]) -> None:
        for _ in range(1000):
            if done():
                return
            self.step()
        raise AssertionError("it does not come to that")

    def epoch(self) -> int:
        return self.heir.cluster_node.fabric.epoch

    @property
    def arrival(self) -> Arrival:
        return self.heir.node._broker.leadership.recovery.arrivals[self.partition]

    def is_open(self) -> bool:
        return self.heir.node._state.leads[self.partition]

    def is_opening(self) -> bool:
        return self.partition in self.heir.node._broker.leadership.recovery.arrivals


def test_a_partition_opens_however_often_others_change_their_leaders() -> None:
    move = Move()
    control = move.cluster.controller().control
    assert control.configuration is not None
    other = move.other()
    turns = ["n1", "n2"] if move.heir.cluster_node.fabric.leaders[other] == "n2" else ["n2", "n1"]
    first = control.configuration.partitions[other].version
    epochs: dict[int, None] = {}
    proposed = 0
    move.give(move.partition, "n3")
    for step in range(100 * EVERY):
        if move.is_open():
            break
        if step % EVERY == 0:
            move.give(other, turns[proposed % 2], first + proposed - control.configuration.partitions[other].version)
            proposed += 1
        if move.is_opening():
            epochs[move.epoch()] = None
        move.step()
    assert move.is_open()
    assert len(epochs) > 2
    assert move.heir.node.counters.queue_messages == move.rows


@pytest.mark.parametrize("views", [1, 3])
def test_what_is_read_is_not_read_again_in_the_next_view(views: int) -> None:
    move = Move(rows=50)
    move.hold()
    loader = move.arrival.loader
    for _ in range(views):
        move.configure()
        move.until_next_view()
        assert move.arrival.loader is loader
    move.release()
    assert move.heir.node.counters.queue_messages == 50


def write(move: Move) -> None:
    """Write another message into the partition, while its heir has read it and does not serve it."""
    rows = move.heir.store.scan(move.prefix, move.prefix + b"\xff" * 9, move.rows)
    key, value = rows[-1]
    writer = move.heir.node._state.writer
    writer.put(move.partition, numbered_key(move.prefix, sequence_of(key) + 1), body_of(value))
    replica = move.heir.cluster_node.replication.replicas[move.partition]
    move.step()
    move.until(replica.is_written)
    move.step()


@pytest.mark.parametrize("views", [0, 1])
def test_a_partition_that_was_written_to_is_read_again(views: int) -> None:
    move = Move(rows=50)
    move.hold()
    write(move)
    for _ in range(views):
        move.configure()
        move.until_next_view()
    move.release()
    assert move.heir.node.counters.queue_messages == 51


@pytest.mark.parametrize("views", [0, 1])
def test_without_the_rule_what_was_written_is_missing(views: int) -> None:
    """The planted bug."""
    move = Move(rows=50)
    move.heir.cluster_node.fabric.planted = Planted(["read_before"])
    move.hold()
    write(move)
    for _ in range(views):
        move.configure()
        move.until_next_view()
    move.release()
    assert move.heir.node.counters.queue_messages == 50


def test_another_leadership_of_the_same_node_reads_again() -> None:
    """Between the two another node may have led, in views that this one has skipped."""
    move = Move(rows=50)
    move.hold()
    loader = move.arrival.loader
    move.heir.cluster_node.fabric.leader_epochs[move.partition] += 1
    assert move.heir.node._broker.leadership.recovery.installed() == [move.partition]
    assert move.arrival.loader is not loader
    assert move.arrival.position is None


def test_a_partition_that_goes_and_comes_back_is_read_again() -> None:
    move = Move(rows=50)
    move.hold()
    move.give(move.partition, "n2")
    move.until(lambda: not move.is_opening())
    move.cluster.settle()
    publisher = move.cluster["n1"].client(move.cluster["n1"].names_led("q")[0])
    publisher.connect()
    publisher.publish("t", b"y", qos=1)
    move.hold()
    move.release()
    assert move.heir.node.counters.queue_messages == 51


def test_what_is_read_after_a_merge_counts_while_the_other_side_is_filled() -> None:
    """Until the copy of the other side is in sync, each view takes over anew, and notes that in the copies."""
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    client_id = cluster["n2"].names_led("r")[0]
    partition = hash64(client_id.encode()) % PARTITIONS
    reader = cluster["n1"].client(client_id)
    reader.connect(session_expiry=EVER)
    reader.subscribe("t", qos=1)
    reader.disconnect()
    cluster.advance(SECOND)
    cluster.cut("n3", "n1", "n2")
    cluster.advance(10 * SECOND)
    for name in ("n1", "n3"):
        publisher = cluster[name].client("p" + name)
        publisher.connect()
        publisher.publish("t", b"x", qos=1)
        publisher.disconnect()
    cluster.heal()
    loaders: list[PartitionLoader] = []
    sequences: dict[int, None] = {}
    merged = ended = False
    for _ in range(5000):
        if not cluster.step():
            cluster.now += MILLISECOND // 2
        for site in cluster.live():
            arrival = site.node._broker.leadership.recovery.arrivals.get(partition)
            view = site.cluster_node.view
            assert view is not None
            if arrival is None or not site.cluster_node.replication.may_start(partition):
                continue
            arrival.awaited["nobody"] = None
            merged = merged or partition in view.branches
            ended = merged and partition not in view.branches
            if merged and arrival.loader.whole:
                sequences[site.node._state.writer.sequence(partition)] = None
                if arrival.loader not in loaders:
                    loaders.append(arrival.loader)
        if ended:
            break
    (loader,) = loaders
    assert loader.queue_messages == 2
    assert len(sequences) > 1
