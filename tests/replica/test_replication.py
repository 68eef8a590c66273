"""Replication of one node and of a few: copies, damage, speeds, changes of leader, and what comes from elsewhere.

`test_logged` draws whole runs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import u64
from folkmoot.kernel.rng import Rng
from folkmoot.membership.command import Lead, Place, PlaceItem, Renew
from folkmoot.membership.holding import COMPLETE, DAMAGED, NONE, Holding
from folkmoot.membership.view import View
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import DURABLE, OPENED, PULL, SHIP
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.replica.copy import _Copy
from folkmoot.replica.notice import PullNotice, decode_sequences
from folkmoot.replica.replication import Replication
from folkmoot.store.batch import Batch
from folkmoot.store.epoch import make_epoch
from folkmoot.store.key import (
    HISTORY,
    QUEUE,
    history_key,
    kind_of,
    kind_prefix,
    outline_key,
    partition_end,
    partition_start,
)
from folkmoot.store.memory import MemoryStore
from folkmoot.store.position import read_positions
from folkmoot.store.reader import Reader, Snapshot
from folkmoot.store.writer import Writer
from tests.replica.logged import LoggedCell, LoggedWorld
from tests.replica.replica import Cell, Fault

# -- one node ---------------------------------------------------------------------------------------------------------


class Solo:
    """A node without others."""

    def __init__(self, store: MemoryStore, epoch: int, partitions: int = 4) -> None:
        self.store = store
        self.writer = Writer(partitions, 0)
        self.replication = Replication("n0", partitions, ClusterConfig(), store, self.writer)
        self.replication.open(0)
        self.replication.install(View(epoch, [Member("n0", 1, "", "n0", ACTIVE)]), 0)
        self.turn()

    def turn(self) -> Batch | None:
        for partition in self.replication.ready:
            self.replication.start(partition, 0)
        self.replication.ready.clear()
        batch = self.writer.take()
        self.replication.seal(batch, 0)
        if self.replication.more():
            self.replication.wake(0)
            return batch or self.turn()
        return batch

    def put(self, partition: int) -> Batch:
        self.writer.put(partition, kind_prefix(partition, QUEUE) + b"k", b"body")
        batch = self.turn()
        assert batch is not None
        return batch


def test_a_node_alone_leads_all_at_once_and_commits_what_is_written() -> None:
    node = Solo(MemoryStore(), 7)
    assert [node.replication.leads(p) for p in range(4)] == [True] * 4
    assert [node.replication.leader_open(p) for p in range(4)] == [True] * 4
    first, second = node.put(1), node.put(1)
    assert node.replication.committed_token == 0
    node.replication.written(first.token, 0)
    assert node.replication.committed_token == first.token
    node.replication.written(second.token, 0)
    assert node.replication.committed_token == second.token
    assert node.replication.out == []
    assert node.replication.next_wake() == NEVER


def test_the_first_change_of_an_epoch_writes_the_history_and_no_other() -> None:
    store = MemoryStore()
    node = Solo(store, 7)
    kinds = []
    for _ in range(3):
        batch = node.put(2)
        kinds.append([kind_of(key) for _op, key, _value in batch.ops].count(HISTORY))
        store.apply(batch)
    assert kinds == [1, 0, 0]
    again = Solo(store, 9)
    holding = again.replication.holdings()[2]
    assert (holding.state, holding.epoch, holding.seq, holding.history) == (COMPLETE, 7, 3, [(7, 0)])
    again.put(2)
    assert again.replication.holdings()[2].history == [(7, 0), (9, 3)]
    assert again.writer.position(2) == (9, 4)
    assert again.replication.holdings()[1].seq == 0


def test_a_store_of_an_older_version_has_a_position_that_no_other_has() -> None:
    stores = []
    for _ in range(2):
        store, batch = MemoryStore(), Batch(1)
        batch.put(kind_prefix(1, QUEUE) + b"k", b"v" * 16)
        store.apply(batch)
        stores.append(store)
    found = []
    for node_id, store in zip(("a", "b"), stores, strict=True):
        replication = Replication(node_id, 2, ClusterConfig(), store, Writer(2, 0))
        replication.open(0)
        empty, holding = replication.holdings()
        assert (empty.state, empty.seq) == (NONE, 0)
        assert (holding.state, holding.seq, holding.history) == (COMPLETE, 1, [(holding.epoch, 0)])
        found.append(holding.epoch)
    assert found[0] != found[1]
    assert max(found) < make_epoch(1, "anybody")


# -- two and more -----------------------------------------------------------------------------------------------------


def settled(nodes: int, partitions: int, replicas: int = 3, row_bytes: int = 60) -> LoggedWorld:
    """A world at rest, with some rows everywhere."""
    world = LoggedWorld(1, nodes, partitions, row_bytes=row_bytes)
    world.config.replicas = replicas
    world.begin(nodes)
    for _ in range(40):
        world.look()
        world.run(world.now + 50 * MILLISECOND)
    for _ in range(20):
        world.write_everywhere()
        world.run(world.now + 10 * MILLISECOND)
    world.run(world.now + 200 * MILLISECOND)
    assert world.at_rest(), world.why_not()
    return world


@pytest.mark.parametrize("longest", range(3))
def test_a_start_of_all_fills_no_copy_that_lacks_the_newest_changes(longest: int) -> None:
    """A loss of power at all nodes: one of them has on its disk what nobody was told of."""
    world = settled(3, 2)
    world.quiet = True
    for site in world.sites:
        site.disk_busy = site is not world.sites[longest]
    for _ in range(5):
        world.write_everywhere()
        world.run(world.now + 50 * MILLISECOND)
    before = world.commits
    ends = [read_positions(site.store, 2).sequences for site in world.sites]
    assert min(ends[longest]) > max([max(end) for end in ends if end is not ends[longest]]), "copies differ"
    world.restart_all(keeps=True)
    world.settle()
    assert world.commits > before
    assert [len(state.isr) for state in world.configuration.partitions] == [3, 3]
    assert not [line for line in world.log if "Withdraw" in line or "replica_filled" in line]


def test_copies_are_filled_after_a_start_of_all_when_the_changes_are_too_many() -> None:
    world = settled(3, 1)
    world.quiet = True
    world.config.recent_bytes_max = 2_000
    leader, _follower = leader_and_follower(world)
    for site in world.sites:
        site.disk_busy = site is not leader
    for _ in range(50):
        leader.write(0, world.rng)
        leader.turn()
        world.run(world.now + 10 * MILLISECOND)
    world.restart_all(keeps=False)
    world.settle()
    assert len([line for line in world.log if "replica_filled" in line]) >= 2


def test_changes_without_an_outline_are_not_remembered() -> None:
    """Another build may write without outlines: what they name is remembered only if it leads to the position."""
    world = settled(2, 1, replicas=2)
    leader, _follower = leader_and_follower(world)

    def remembered() -> tuple[int, int]:
        replication = Replication(leader.node_id, 1, world.config, leader.store, Writer(1, 0))
        replication.open(world.now)
        changes = replication.replicas[0].recent._changes
        return len(changes), replication.replicas[0].head_seq - (changes[-1].seq if changes else 0)

    count, behind = remembered()
    assert count > 10
    assert behind == 0
    for _ in range(2):
        leader.write(0, world.rng)
        leader.turn()
        world.run(world.now + 100 * MILLISECOND)
    assert remembered() == (count + 2, 0)
    log = leader.store._log
    outlines = [index for index, entry in enumerate(log) if any(key == outline_key() for _op, key, _value in entry[0])]
    newest, size = log[outlines[-1]]
    log[outlines[-1]] = [op for op in newest if op[1] != outline_key()], size
    assert remembered()[0] == 0
    log[outlines[-1]] = newest, size
    older, size = log[outlines[-2]]
    log[outlines[-2]] = [op for op in older if op[1] != outline_key()], size
    assert remembered() == (1, 0)


def leader_and_follower(world: LoggedWorld, partition: int = 0) -> tuple[LoggedCell, LoggedCell]:
    assert world.view is not None
    replicas = world.view.replicas[partition]
    return world.site(replicas[0]), world.site(replicas[1])


def damage(cell: Cell, partition: int) -> None:
    """Change a row behind the node's back."""
    key, value = cell.rows(partition)[1]
    batch = Batch(0)
    batch.put(key, value[:-1] + bytes([value[-1] ^ 1]))
    cell.store.apply(batch)


# Of two copies that differ nobody knows which is right: the leader's is taken.
@pytest.mark.parametrize(("who", "replicas"), [(1, 2), (0, 3), (1, 3)])
def test_a_damaged_copy_is_found_never_leads_and_is_repaired(who: int, replicas: int) -> None:
    world = settled(3, 2, replicas)
    victim = leader_and_follower(world)[who]
    damage(victim, 0)
    for _ in range(100):
        world.run(world.now + 10 * MILLISECOND)
        if victim.replication.holdings()[0].state == DAMAGED:
            break
    else:
        pytest.fail("the damage was not found")
    world.settle()
    assert victim.replication.holdings()[0].state in (COMPLETE, NONE)
    assert any("replica_damaged" in line for line in world.log)


@pytest.mark.parametrize(("who", "replicas"), [(1, 2), (0, 3), (2, 3)])
def test_damage_is_found_in_a_partition_that_never_rests(who: int, replicas: int) -> None:
    world = settled(3, 2, replicas)
    assert world.view is not None
    victim = world.cells[world.view.replicas[0][who]]
    key, value = victim.rows(0)[1]
    damage(victim, 0)

    def write_on(us: int) -> None:
        for _ in range(us // MILLISECOND):
            world.look()
            world.write_everywhere()
            world.run(world.now + MILLISECOND)

    for _ in range(100):
        write_on(10 * MILLISECOND)
        if victim.store.get(key) in (None, value):
            damage(victim, 0)  # it was overwritten in time: another row
            key, value = victim.rows(0)[1]
        if victim.replication.holdings()[0].state == DAMAGED:
            break
    else:
        pytest.fail("the damage was not found")
    leaders = [cell for cell in world.living() if cell.replication.leads(0)]
    assert not leaders or leaders[0].replication.digests.passed_over < leaders[0].replication.digests.compared
    write_on(300 * MILLISECOND)
    world.settle()
    assert victim.replication.holdings()[0].state in (COMPLETE, NONE)


def test_nothing_is_found_where_nothing_is_damaged() -> None:
    world = settled(3, 2)
    for _ in range(1_000):
        world.look()
        world.write_everywhere()
        world.run(world.now + MILLISECOND)
    assert sum(cell.replication.digests.compared for cell in world.living()) > 40
    assert sum(cell.replication.digests.different for cell in world.living()) == 0


class BrokenReader(Reader):
    """Cannot read some range, as a store whose block has a wrong checksum."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.broken = (partition_start(0), partition_end(0))

    def get(self, key: bytes) -> bytes | None:
        return self.store.get(key)

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        if start < self.broken[1] and end > self.broken[0]:
            raise CorruptStore("a block is damaged")
        return self.store.scan(start, end, limit)

    def snapshot(self) -> Snapshot:
        return self.store.snapshot()

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        return self.store.last(start, end)


@pytest.mark.parametrize("who", [0, 1])
def test_a_copy_that_cannot_be_read_is_filled_anew(who: int) -> None:
    world = settled(3, 1)
    victim = leader_and_follower(world)[who]
    store = BrokenReader(victim.store)
    victim.replication.context.reader = store
    for _ in range(100):
        world.look()
        world.run(world.now + 10 * MILLISECOND)
        if victim.replication.holdings()[0].state == DAMAGED:
            store.broken = (b"", b"") if who == 0 else store.broken
        world.write_everywhere()
    store.broken = (b"", b"")
    world.settle()
    assert victim.replication.holdings()[0].state == COMPLETE


@pytest.mark.parametrize("who", [0, 1])
def test_damage_that_is_found_while_a_configuration_is_on_its_way_is_mended(who: int) -> None:
    world = settled(3, 1)
    victim = leader_and_follower(world)[who]
    before = victim.base
    assert world.append(Renew(victim.disk_id, victim.incarnation))
    victim.replication.replicas[0].spoil("a test says so")
    victim.turn()
    while victim.base is before:
        world.run(world.now + 100)
    world.settle()
    assert victim.replication.holdings()[0].state == COMPLETE


class NoHistory(BrokenReader):
    """Cannot read the history of a partition."""

    def get(self, key: bytes) -> bytes | None:
        if key == history_key(0):
            raise CorruptStore("a block is damaged")
        return super().get(key)


def test_a_node_starts_with_a_history_that_cannot_be_read_and_gets_that_copy_anew() -> None:
    world = settled(3, 2)
    _, victim = leader_and_follower(world)
    world.crash(victim)
    for _ in range(3):
        world.look()
        world.run(world.now + 100 * MILLISECOND)
    store = victim.store
    victim.store = NoHistory(store)  # type: ignore[assignment]
    world.start(victim.node_id)
    victim.store = store
    victim.replication.context.reader = store
    states = [holding.state for holding in victim.replication.holdings()]
    assert states == [DAMAGED, COMPLETE]
    world.settle()
    assert victim.replication.holdings()[0].state == COMPLETE


def test_a_restarted_node_gets_only_what_it_lacks() -> None:
    world = settled(2, 1, 2, row_bytes=2_000)
    _, follower = leader_and_follower(world)
    world.crash(follower)
    for _ in range(3):
        world.look()
        world.run(world.now + 100 * MILLISECOND)
    world.write_everywhere()
    world.start(follower.node_id)
    world.settle()
    assert follower.replication.copies.pages_different <= 1
    copied = follower.replication.copies.bytes_copied
    assert copied < sum(len(value) for _, value in follower.rows(0)) // 2


def test_a_copy_skips_what_is_equal() -> None:
    """A copy begun anew for lack of memory compares digests; only pages that differ are sent."""
    world = settled(2, 1, 2)
    leader, follower = leader_and_follower(world)
    batch = Batch(0)
    for number in range(3000):
        batch.put(kind_prefix(0, QUEUE) + b"\x09" + number.to_bytes(4, "big"), b"v" * 400)
    leader.store.apply(batch)
    follower.store.apply(batch)
    follower.replication.replicas[0].spoil("a test says so")
    follower.turn()
    world.settle()
    assert follower.replication.copies.pages_equal >= 4
    assert follower.replication.copies.pages_different == 0


def speeds(latency_of: Callable[[int], int], quiet_us: int, commits: int = 1) -> list[int]:
    """By how much copying is slowed when commits take so long at each speed; before, they took `quiet_us`."""
    world = settled(2, 1, 2)
    leader, _ = leader_and_follower(world)
    replication = leader.replication
    source, context = replication.source, replication.context
    context.pending.latency_us = quiet_us
    source.pull(replication.replicas[0], "nobody", PullNotice(0, b"", b"", b""))
    found = []
    for _ in range(400):
        context.now += 50 * MILLISECOND
        context.pending.latency_us = latency_of(source.slow)
        context.pending.measured += commits
        source._refill()
        found.append(source.slow)
        assert source._credit <= max(world.config.copy_bytes_per_s // source.slow // 20, 1 << 18)
    return found[200:]


def test_copies_yield_while_they_slow_commits_down() -> None:
    """The speed follows the latency of commits, and what is sent follows the speed."""
    found = speeds(lambda slow: 5 * MILLISECOND + 160 * MILLISECOND // slow, 5 * MILLISECOND)
    assert set(found) == {8, 16}  # 25 ms and 15 ms: around the 20 ms that are allowed
    assert set(speeds(lambda slow: SECOND // slow, 1)) == {16, 32}  # what the lowest speed costs is put up with
    assert set(speeds(lambda slow: 5 * MILLISECOND, 5 * MILLISECOND)) == {1}


def test_copies_do_not_wait_for_a_machine_that_is_slow_by_itself() -> None:
    assert set(speeds(lambda slow: 200 * MILLISECOND, 200 * MILLISECOND)) == {1}
    assert set(speeds(lambda slow: 200 * MILLISECOND, 5 * MILLISECOND)) == {1}  # it became slow meanwhile
    found = speeds(lambda slow: 200 * MILLISECOND + 1600 * MILLISECOND // slow, 200 * MILLISECOND)
    assert {4, 8} <= set(found) <= {4, 8, 16, 32}
    assert sum(found) / len(found) < 10


def test_copies_are_at_full_speed_when_nobody_writes() -> None:
    assert set(speeds(lambda slow: SECOND, 1, commits=0)) == {1}


@pytest.mark.parametrize(
    ("sources", "expected"),
    [("aaaaaaaa", "aaaa"), ("aaaaabbbbb", "aabb"), ("aaaaab", "aab"), ("abcdefg", "abcd"), ("ab", "ab"), ("", "")],
)
def test_copies_come_from_all_who_give_at_the_same_time(sources: str, expected: str) -> None:
    world = settled(2, len(sources) or 1, 2)
    leader, _ = leader_and_follower(world)
    copies = leader.replication.copies
    context = leader.replication.context
    for partition, source in enumerate(sources):
        context.pending.written_token = 1
        replica = leader.replication.replicas[partition]
        copies.active[replica] = _Copy(replica, source, 0, Holding(COMPLETE, 1, 1, []))
    context.out.clear()
    copies.step()
    copies.step()  # what was asked for is not asked for again
    assert "".join(sorted(node_id for node_id, kind, _ in context.out if kind == PULL)) == expected


def test_a_stale_leader_commits_nothing() -> None:
    world = settled(3, 1)
    old, follower = leader_and_follower(world)
    world.isolate(old, keeps=False)
    for _ in range(10):
        world.look()
        world.run(world.now + 50 * MILLISECOND)
    assert old.replication.leads(0), "it has not heard of it"
    before = old.replication.committed_token
    old.write(0, Rng(1))
    old.turn()
    world.run(world.now + 500 * MILLISECOND)
    assert old.written > before
    assert old.replication.committed_token == before
    assert [cell.node_id for cell in world.living() if cell is not old and cell.replication.leads(0)]
    world.settle()
    assert follower.replication.holdings()[0].state == COMPLETE


def test_the_leader_that_goes_hears_what_became_of_its_last_changes() -> None:
    """A planned change of leader: what is on its way commits when the new set has it, and no sooner."""
    world = settled(3, 1, 2)
    old, follower = leader_and_follower(world)
    third = next(site for site in world.sites if site is not old and site is not follower)

    def place(replicas: list[LoggedCell]) -> None:
        version = world.configuration.partitions[0].version
        assert world.append(Place([PlaceItem(0, version, [site.disk_id for site in replicas])]))

    place([old, follower, third])
    world.run(world.now + 300 * MILLISECOND)
    assert third.disk_id in world.configuration.partitions[0].isr, "its leader has asked for it"
    old.write(0, Rng(2))
    old.turn()
    assert old.waiting
    assert world.append(Lead(0, world.configuration.partitions[0].version, third.disk_id))
    place([third, follower])
    while old.replication.leads(0):
        world.run(world.now + 100)
    assert old.waiting
    world.run(world.now + 500 * MILLISECOND)
    assert not old.waiting  # the oracle has looked whether the new replicas have it
    assert third.replication.leads(0)


# -- what comes from elsewhere ----------------------------------------------------------------------------------------


def test_nonsense_is_logged_and_changes_nothing() -> None:
    world = settled(2, 1, 2)
    leader, follower = leader_and_follower(world)
    epoch = u64(follower.replication.context.epoch)
    rows = follower.rows(0)
    rng = Rng(3)
    for kind in range(16, 32):
        for body in (b"", b"\1", epoch, epoch + b"\xff" * 30, epoch + bytes([rng.below(256) for _ in range(60)])):
            follower.replication.receive(leader.node_id, kind, body, world.now)
    assert any(event.kind == "replica_nonsense" for event in follower.replication.events)
    follower.turn()
    assert follower.rows(0) == rows
    world.settle()


def test_messages_of_other_configurations_and_of_strangers_are_dropped() -> None:
    world = settled(2, 1, 2)
    leader, follower = leader_and_follower(world)
    now, epoch = world.now, follower.replication.context.epoch
    before = follower.replication.dropped_frames
    follower.replication.receive(leader.node_id, SHIP, u64(epoch - 1) + b"anything", now)
    follower.replication.receive("stranger", SHIP, u64(epoch) + b"anything", now)
    assert follower.replication.dropped_frames == before + 2
    follower.replication.receive(leader.node_id, OPENED, u64(epoch + 1), now)
    assert follower.replication.dropped_frames == before + 2


def test_a_follower_answers_when_its_disk_has_the_rows() -> None:
    world = settled(2, 1, 2)
    leader, follower = leader_and_follower(world)
    leader.writer.put(0, kind_prefix(0, QUEUE) + b"new", b"")
    batch = leader.writer.take()
    leader.replication.seal(batch, world.now)
    ships = [body for _node, kind, body in leader.replication.out if kind == SHIP]
    assert len(ships) == 1
    follower.replication.receive(leader.node_id, SHIP, ships[0], world.now)
    taken = follower.writer.take()
    assert taken is not None
    follower.replication.seal(taken, world.now)
    assert follower.replication.out == []
    follower.replication.written(taken.token, world.now)
    ((node_id, kind, body),) = follower.replication.out
    assert (node_id, kind) == (leader.node_id, DURABLE)
    assert decode_sequences(body, 1) == [(0, leader.writer.sequence(0))]
    assert batch is not None
    leader.replication.written(batch.token, world.now)
    assert leader.replication.committed_token < batch.token
    leader.replication.receive(follower.node_id, DURABLE, body, world.now)
    assert leader.replication.committed_token == batch.token


def test_the_oracle_sees_a_row_that_is_missing() -> None:
    world = settled(2, 1, 2)
    _, follower = leader_and_follower(world)
    batch = Batch(0)
    batch.delete(follower.rows(0)[0][0])
    follower.store.apply(batch)
    with pytest.raises(Fault):
        world.check_equal(0)
