"""Positions: one row per turn, all of them at a restart, nothing that is damaged taken for true."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.errors import CorruptStore
from folkmoot.store.batch import Batch
from folkmoot.store.key import META, kind_prefix, plain_key, position_key
from folkmoot.store.memory import MemoryStore
from folkmoot.store.position import SLOTS, Positions, read_positions
from folkmoot.store.writer import Writer, version_of

PARTITIONS = 3
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("adopt"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("enter"), st.just(0)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=60,
)


def opened(store: MemoryStore, epoch: int) -> Writer:
    writer = Writer(PARTITIONS, epoch)
    writer.restore(read_positions(store, PARTITIONS))
    return writer


def commit(store: MemoryStore, writer: Writer) -> None:
    batch = writer.take()
    if batch is not None:
        store.apply(batch)


@given(STEPS)
def test_a_restart_goes_on_where_the_last_written_turn_ended(steps: list[tuple[str, int]]) -> None:
    store, epoch = MemoryStore(), 1
    writer = opened(store, epoch)
    durable = [(0, 0, 0)] * PARTITIONS
    current = list(durable)
    for what, partition in steps:
        if what == "put":
            writer.put(partition, kind_prefix(partition, 3) + b"k", b"value")
            current[partition] = (current[partition][0], *writer.position(partition))
        elif what == "adopt":
            writer.adopt(partition, epoch, current[partition][2] + 5, 2)
            current[partition] = (2, epoch, current[partition][2] + 5)
        elif what == "enter":
            epoch += 1
            writer.enter(epoch)
        elif what == "take":
            commit(store, writer)
            durable = list(current)
        else:
            writer = opened(store, epoch)
            current = list(durable)
        assert [(writer.states[p], *writer.position(p)) for p in range(PARTITIONS)] == current
        assert [writer.sequence(p) for p in range(PARTITIONS)] == [entry[2] for entry in current]


def test_rounds_of_slots_are_read_in_their_order() -> None:
    for turns in (1, SLOTS - 1, SLOTS, SLOTS + 1, 3 * SLOTS + 7):
        store = MemoryStore()
        writer = opened(store, 1)
        for turn in range(turns):
            writer.put(turn % PARTITIONS, kind_prefix(turn % PARTITIONS, 3) + b"k", b"")
            commit(store, writer)
        again = opened(store, 2)
        assert [again.position(p) for p in range(PARTITIONS)] == [writer.position(p) for p in range(PARTITIONS)]
        rows = store.scan(kind_prefix(0, META), kind_prefix(0, META + 1), 1000)
        assert len(rows) == min(turns, SLOTS)


def test_a_store_without_positions_opens() -> None:
    positions = read_positions(MemoryStore(), PARTITIONS)
    assert not positions.found
    assert positions.sequences == [0] * PARTITIONS


def test_without_restore_nothing_is_kept() -> None:
    writer = Writer(PARTITIONS, 1)
    writer.put(0, kind_prefix(0, 3), b"")
    batch = writer.take()
    assert batch is not None
    assert len(batch.ops) == 1


def test_rows_of_the_node_itself_belong_to_no_change() -> None:
    writer = Writer(PARTITIONS, 7)
    writer.restore(Positions(PARTITIONS))
    writer.private(plain_key(0, META, b"x"), b"body")
    batch = writer.take()
    assert batch is not None
    assert [(key, version_of(value), value[16:]) for _kind, key, value in batch.ops] == [
        (plain_key(0, META, b"x"), (7, 0), b"body")
    ]
    assert writer.sequence(0) == 0


def test_rows_of_others_are_told_apart() -> None:
    writer = Writer(PARTITIONS, 1)
    writer.put(0, b"\0\0\3a", b"")
    writer.raw([(0, b"\0\1\3b", b"v" * 16), (1, b"\0\1\3c", b"")], 24)
    writer.put(0, b"\0\0\3d", b"")
    writer.raw([(1, b"\0\1\3e", b"")], 4)
    batch = writer.take()
    assert batch is not None
    assert writer.raw_ranges == [1, 3, 4, 5]
    assert writer.taken == [0]
    assert batch.bytes == 2 * (4 + 16) + 28
    writer.put(1, b"\0\1\3f", b"")
    writer.take()
    assert (writer.raw_ranges, writer.taken) == ([], [1])


def test_a_position_alone_makes_a_batch() -> None:
    writer = Writer(PARTITIONS, 1)
    writer.restore(Positions(PARTITIONS))
    writer.adopt(2, 4, 9, 1)
    batch = writer.take()
    assert batch is not None
    store = MemoryStore()
    store.apply(batch)
    found = read_positions(store, PARTITIONS)
    assert (found.states[2], found.epochs[2], found.sequences[2]) == (1, 4, 9)
    assert writer.take() is None


def rows_of(turns: int) -> MemoryStore:
    store = MemoryStore()
    writer = opened(store, 1)
    for _ in range(turns):
        writer.put(0, b"\0\0\3k", b"")
        commit(store, writer)
    return store


def change(store: MemoryStore, slot: int, value: bytes | None) -> None:
    batch = Batch(0)
    if value is None:
        batch.delete(position_key(slot))
    else:
        batch.put(position_key(slot), value)
    store.apply(batch)


@pytest.mark.parametrize("slot", [0, 1])
def test_a_missing_row_is_noticed(slot: int) -> None:
    store = rows_of(5)
    change(store, slot, None)
    with pytest.raises(CorruptStore, match="none of them tells all" if slot == 0 else "number 1 is missing"):
        read_positions(store, PARTITIONS)


@pytest.mark.parametrize("cut", [1, 19, 25, 40])
def test_a_row_that_is_cut_short_is_noticed(cut: int) -> None:
    store = rows_of(3)
    value = store.get(position_key(1))
    assert value is not None
    change(store, 1, value[:cut])
    if (cut - 25) % 19 or cut < 25:
        with pytest.raises(CorruptStore, match="damaged"):
            read_positions(store, PARTITIONS)


def test_a_row_in_the_wrong_slot_or_of_no_partition_is_noticed() -> None:
    store = rows_of(3)
    value = store.get(position_key(1))
    assert value is not None
    change(store, 2, value)
    with pytest.raises(CorruptStore, match="it has number 1"):
        read_positions(store, PARTITIONS)
    change(store, 2, None)
    change(store, 1, value[:25] + b"\0\7" + value[27:])
    with pytest.raises(CorruptStore, match="there is no 7"):
        read_positions(store, PARTITIONS)
