"""The row that says whose store this is: starts are counted, and the store of another node is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.errors import CorruptStore, StoreError
from folkmoot.kernel.pack import u16, u64
from folkmoot.node import Node, NodeConfig
from folkmoot.node.birth import read_birth, write_birth
from folkmoot.peer.config import ClusterConfig
from folkmoot.store.batch import Batch
from folkmoot.store.key import SESSION, plain_key
from folkmoot.store.memory import MemoryStore
from folkmoot.store.position import read_positions
from folkmoot.store.writer import VERSION_BYTES, Writer


def config_of(node_id: str = "node1", partitions: int = 16) -> NodeConfig:
    config = NodeConfig()
    config.node_id, config.partitions = node_id, partitions
    return config


def born(config: NodeConfig, starts: int = 1) -> MemoryStore:
    store = MemoryStore()
    for _ in range(starts):
        birth = read_birth(store, config, 1)
        writer = Writer(config.partitions, birth.incarnation)
        write_birth(writer, birth, config)
        batch = writer.take()
        assert batch is not None
        store.apply(batch)
    return store


def with_row(body: bytes) -> MemoryStore:
    """A store whose only row is the one of the birth, with these bytes behind its version."""
    (key, _), store, batch = born(config_of()).items()[0], MemoryStore(), Batch(1)
    batch.put(key, bytes(VERSION_BYTES) + body)
    store.apply(batch)
    return store


def test_an_empty_store_is_a_first_start() -> None:
    assert read_birth(MemoryStore(), config_of(), 1).incarnation == 1


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=10), st.sampled_from([1, 256, 65_535, 65_536]))
def test_each_start_is_counted(node_id: str, partitions: int) -> None:
    config = config_of(node_id, partitions)
    assert read_birth(born(config, 3), config, 1).incarnation == 4


def test_a_start_is_an_epoch() -> None:
    config, store = config_of(), MemoryStore()
    for epoch in (1, 2, 3):
        node = Node(config, store, 1)
        node.open(1)
        write = node.drain(1).write
        assert write is not None
        store.apply(write)
        assert (node.birth.incarnation, node.view.epoch) == (epoch, epoch)


def test_a_node_says_its_disk_to_others() -> None:
    config = config_of()
    assert Node(config, MemoryStore(), 1).view.members[0].disk == read_birth(MemoryStore(), config, 1).disk
    config.cluster = ClusterConfig()
    node = Node(config, MemoryStore(), 1)
    assert node.cluster_node is not None
    me = node.cluster_node.me
    assert me.disk == node.birth.disk
    assert read_birth(MemoryStore(), config_of("node2"), 1).disk != me.disk


def test_another_number_of_partitions_is_refused_with_advice() -> None:
    with pytest.raises(StoreError, match=r"node\.partitions = 16"):
        read_birth(born(config_of()), config_of(partitions=32), 1)


def test_the_store_of_another_node_is_refused_with_advice() -> None:
    with pytest.raises(StoreError, match=r"node\.id = 'node1'"):
        Node(config_of("node2"), born(config_of()), 1)


@given(st.binary(max_size=40))
def test_a_damaged_row_is_corrupt_or_another_nodes(body: bytes) -> None:
    with pytest.raises(StoreError):
        read_birth(with_row(body), config_of("no such node"), 1)


@pytest.mark.parametrize(
    "body", [b"", b"\x02" + bytes(20), b"\x01\0\x10", b"\x01\0\x10" + bytes(8) + b"n", b"\x01\0\x10" + b"\xff" * 9]
)
def test_what_no_version_wrote_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptStore):
        read_birth(with_row(body), config_of(), 1)


def old_row(partitions: int = 16, incarnation: int = 7, node_id: str = "node1") -> bytes:
    """The row as version 0.1 has written it."""
    return b"\x01" + u16(partitions) + u64(incarnation) + node_id.encode()


def positions_in(store: MemoryStore) -> None:
    """Write a row that every copy of a cluster has."""
    writer = Writer(16, 1)
    writer.restore(read_positions(store, 16))
    writer.put(0, plain_key(0, SESSION, b"x"), b"")
    batch = writer.take()
    assert batch is not None
    store.apply(batch)


def clustered() -> NodeConfig:
    config = config_of()
    config.cluster = ClusterConfig()
    return config


def test_a_folder_keeps_its_disk() -> None:
    config, store = config_of(), MemoryStore()
    disks = set()
    for seed in (1, 2, 3):
        birth = read_birth(store, config, seed)
        disks.add(birth.disk)
        writer = Writer(config.partitions, 1)
        write_birth(writer, birth, config)
        batch = writer.take()
        assert batch is not None
        store.apply(batch)
    assert len(disks) == 1


def test_disks_differ_and_tell_nothing_of_the_seed() -> None:
    disks = [read_birth(MemoryStore(), config_of(), seed).disk for seed in range(1000)]
    assert len(set(disks)) == 1000
    assert all(0 < disk < 1 << 62 for disk in disks)
    # Half of the bits differ between neighbours, on average: 31 of 62.
    changed = sum((disks[at] ^ disks[at + 1]).bit_count() for at in range(999)) / 999
    assert 29 < changed < 33


def test_another_disk_keeps_the_number_of_starts() -> None:
    config = config_of()
    store = born(config, 3)
    birth = read_birth(store, config, 1)
    before = birth.disk
    birth.renew(1, config)
    assert birth.disk != before
    assert birth.incarnation == 4
    writer = Writer(config.partitions, 1)
    write_birth(writer, birth, config)
    batch = writer.take()
    assert batch is not None
    store.apply(batch)
    assert read_birth(store, config, 2).disk == birth.disk


def test_the_former_disk_is_the_last_one_that_came_up() -> None:
    config = clustered()
    store = born(config, 3)
    birth = read_birth(store, config, 1)
    before = birth.disk
    birth.renew(1, config)
    birth.renew(2, config)
    writer = Writer(config.partitions, 1)
    write_birth(writer, birth, config)
    batch = writer.take()
    assert batch is not None
    store.apply(batch)
    birth = read_birth(store, config, 2)
    birth.renew(3, config)
    assert birth.former == before, "the disks between had nothing that the cluster could have lost"
    birth.former = 0
    before = birth.disk
    birth.renew(4, config)
    assert birth.former == before


def test_a_node_alone_goes_on_with_a_folder_of_version_0_1() -> None:
    birth = read_birth(with_row(old_row()), config_of(), 1)
    assert birth.incarnation == 8
    assert birth.disk > 0


def test_a_folder_of_a_cluster_of_version_0_1_is_refused_with_advice() -> None:
    store = with_row(old_row())
    positions_in(store)
    with pytest.raises(StoreError, match=r"cluster of version 0\.1.*empty data directory"):
        read_birth(store, clustered(), 1)


def test_a_node_alone_of_version_0_1_may_begin_a_cluster() -> None:
    assert read_birth(with_row(old_row()), clustered(), 1).disk > 0


@pytest.mark.parametrize("at", range(VERSION_BYTES, VERSION_BYTES + 28))
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_flipped_bit_never_gives_another_disk(at: int, bit: int) -> None:
    key, value = born(config_of()).items()[0]
    damaged = bytearray(value)
    damaged[at] ^= 1 << bit
    store, batch = MemoryStore(), Batch(1)
    batch.put(key, bytes(damaged))
    store.apply(batch)
    with pytest.raises(CorruptStore):
        read_birth(store, config_of(), 1)
