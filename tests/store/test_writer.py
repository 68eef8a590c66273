"""The Writer: versions that only grow, a change per partition and turn, batches in order. And the store in memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.store.batch import DELETE, DELETE_RANGE, PUT, Batch
from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import VERSION_BYTES, Writer, body_of, version_of

KEYS = st.binary(max_size=2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2)),
        st.tuples(st.just("delete"), st.integers(0, 2)),
        st.tuples(st.just("range"), st.integers(0, 2)),
        st.tuples(st.just("split"), st.just(0)),
        st.tuples(st.just("take"), st.just(0)),
    ),
    max_size=40,
)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just(PUT), KEYS, KEYS),
        st.tuples(st.just(DELETE), KEYS),
        st.tuples(st.just(DELETE_RANGE), KEYS, KEYS),
    ),
    max_size=30,
)


@given(STEPS, st.integers(1, 2**60))
def test_versions_grow_with_every_change_and_only_then(steps: list[tuple[str, int]], epoch: int) -> None:
    """A change is what one turn, or the part of it before a split, does to one partition."""
    writer = Writer(3, epoch)
    sequences, begun, tokens = [0, 0, 0], set[int](), []
    for what, partition in steps:
        if what in ("split", "take"):
            begun.clear()
            if what == "split":
                writer.split()
            elif (batch := writer.take()) is not None:
                tokens.append(batch.token)
            assert writer.dirty is False or what == "split"
            continue
        if partition not in begun:
            begun.add(partition)
            sequences[partition] += 1
        if what == "put":
            writer.put(partition, b"k", b"value")
            key, value = writer.batch.ops[-1][1:]
            assert (key, version_of(value), body_of(value)) == (b"k", (epoch, sequences[partition]), b"value")
            assert len(value) == VERSION_BYTES + 5
        elif what == "delete":
            writer.delete(partition, b"k")
        else:
            writer.delete_range(partition, b"a", b"b")
        assert writer.dirty
        assert [writer.sequence(number) for number in range(3)] == sequences
    assert tokens == list(range(1, len(tokens) + 1))
    assert writer.token == len(tokens) + 1


def test_an_empty_turn_leaves_its_token_to_the_next() -> None:
    writer = Writer(1, 1)
    assert writer.take() is None
    writer.split()
    assert writer.token == 1
    writer.put(0, b"a", b"")
    batch = writer.take()
    assert batch is not None
    assert batch.token == 1
    assert writer.token == 2
    assert writer.take() is None


def test_a_version_that_was_only_asked_for_is_not_used_twice() -> None:
    writer = Writer(2, 9)
    first = writer.version(0)
    assert writer.version(0) == first
    writer.split()
    assert version_of(writer.version(0)) == (9, 2)
    assert writer.sequence(1) == 0


@given(st.lists(OPERATIONS, max_size=6), KEYS, KEYS, st.integers(0, 5))
def test_the_store_is_a_sorted_dictionary(
    batches: list[list[tuple[int, bytes] | tuple[int, bytes, bytes]]], start: bytes, end: bytes, limit: int
) -> None:
    store, model = MemoryStore(), dict[bytes, bytes]()
    for token, operations in enumerate(batches, 1):
        batch, size = Batch(token), 0
        for operation in operations:
            size += sum(map(len, operation[1:]))
            if operation[0] == PUT:
                batch.put(operation[1], operation[2])  # type: ignore[misc]
                model[operation[1]] = operation[2]  # type: ignore[misc]
            elif operation[0] == DELETE:
                batch.delete(operation[1])
                model.pop(operation[1], None)
            else:
                batch.delete_range(operation[1], operation[2])  # type: ignore[misc]
                model = {k: v for k, v in model.items() if not operation[1] <= k < operation[2]}  # type: ignore[misc]
        assert batch.bytes == size
        store.apply(batch)
    assert store.items() == sorted(model.items())
    within = [(k, v) for k, v in sorted(model.items()) if start <= k < end]
    assert store.scan(start, end, limit) == within[:limit]
    assert store.last(start, end) == (within[-1] if within else None)
    assert store.get(start) == model.get(start)


def test_a_copy_is_independent() -> None:
    store, batch = MemoryStore(), Batch(1)
    batch.put(b"a", b"1")
    store.apply(batch)
    copy, change = store.copy(), Batch(2)
    change.put(b"a", b"2")
    change.put(b"b", b"3")
    copy.apply(change)
    assert store.items() == [(b"a", b"1")]
    assert copy.items() == [(b"a", b"2"), (b"b", b"3")]
