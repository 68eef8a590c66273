"""The row that says whose store this is: starts are counted, and the store of another node is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.errors import CorruptStore, StoreError
from folkmoot.node import Node, NodeConfig
from folkmoot.node.birth import Birth, read_birth, write_birth
from folkmoot.store.batch import Batch
from folkmoot.store.memory import MemoryStore
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


def test_incarnations_are_told() -> None:
    assert Birth(5).incarnation == 5
