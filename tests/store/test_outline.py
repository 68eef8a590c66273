"""Outlines: what is found in frames is what was said of each batch, and nothing else is a change."""

from __future__ import annotations

import pytest

from folkmoot.kernel.pack import u64
from folkmoot.store.batch import PUT, Batch, encode_ops
from folkmoot.store.key import QUEUE, kind_prefix, outline_key, partition_start, position_key
from folkmoot.store.outline import Outline, Outlined, outlined
from folkmoot.store.writer import Writer

Op = tuple[int, bytes, bytes]


def row(partition: int, name: bytes) -> Op:
    return PUT, kind_prefix(partition, QUEUE) + name, bytes(16)


def put_all(batch: Batch, ops: list[Op]) -> None:
    for _kind, key, value in ops:
        batch.put(key, value)


def shown(one: Outlined) -> tuple[int, ...]:
    return one.partition, one.prev_epoch, one.prev_seq, one.epoch, one.seq


def mixed() -> tuple[Batch, list[bytes]]:
    """A batch with changes of another node, a page of a copy between them, and own changes of two partitions."""
    first, second, page = [row(3, b"a"), row(3, b"b")], [row(3, b"c")], [row(4, b"page"), row(1, b"page")]
    outline, batch = Outline(), Batch(7)
    put_all(batch, [row(1, b"own 1"), *first, *page, *second, row(2, b"own 2"), row(1, b"own 3")])
    batch.put(position_key(0), bytes(25))
    batch.delete(partition_start(2) + b"late")
    outline.followed(3, (8, 4), (8, 5), 0)
    outline.broken(4)
    outline.followed(3, (8, 5), (9, 6), 2)
    outline.own(1, (8, 1), (10, 3))
    outline.own(2, (0, 0), (10, 300))
    assert outline
    outline.write(batch, [1, 3, 3, 5, 5, 6])
    assert not outline
    own = [[row(1, b"own 1"), row(1, b"own 3")], [row(2, b"own 2"), (1, partition_start(2) + b"late", b"")]]
    return batch, [encode_ops(ops) for ops in (first, [], second, *own)]


def test_changes_are_found_where_frames_have_several_batches() -> None:
    batch, bodies = mixed()
    other = Batch(8)
    put_all(other, [row(3, b"d")])
    found = outlined([*other.ops, *batch.ops, *other.ops, *batch.ops])
    assert len(found) == 10
    for part in (found[:5], found[5:]):
        assert [one.is_break for one in part] == [False, True, False, False, False]
        assert [one.body for one in part] == bodies
        assert [shown(one) for one in part if not one.is_break] == [
            (3, 8, 4, 8, 5),
            (3, 8, 5, 9, 6),
            (1, 8, 1, 10, 3),
            (2, 0, 0, 10, 300),
        ]
        assert part[1].partition == 4


def test_ranges_keep_their_numbers_when_own_changes_are_dropped() -> None:
    writer, outline = Writer(8, 9), Outline()
    first, page, second = [row(3, b"a")], [row(1, b"page")], [row(3, b"b"), row(3, b"c")]
    writer.put(1, *row(1, b"own")[1:])
    outline.followed(3, (8, 4), (8, 5), writer.raw(first, 0))
    writer.put(1, *row(1, b"own too")[1:])
    writer.put(2, *row(2, b"stays")[1:])
    writer.raw(page, 0)
    writer.raw([], 0)
    writer.drop({1: True})
    outline.broken(1)
    outline.followed(3, (8, 5), (8, 6), writer.raw(second, 0))
    batch = writer.take()
    assert batch is not None
    outline.own(2, (0, 0), writer.position(2))
    outline.write(batch, writer.raw_ranges)
    found = outlined(batch.ops)
    assert [(one.partition, one.is_break) for one in found] == [(3, False), (1, True), (3, False), (2, False)]
    stays = (PUT, row(2, b"stays")[1], u64(9) + u64(1) + bytes(16))
    assert [one.body for one in found] == [encode_ops(first), b"", encode_ops(second), encode_ops([stays])]


def test_a_batch_without_changes_has_no_outline() -> None:
    batch, outline = Batch(1), Outline()
    outline.write(batch, [])
    assert batch.ops == []
    put_all(batch, [row(3, b"page")])
    outline.write(batch, [0, 1])
    assert len(batch.ops) == 1
    assert outlined(batch.ops) == []


def test_an_outline_that_does_not_fit_is_refused() -> None:
    batch, _bodies = mixed()
    with pytest.raises(ValueError, match="not in its frame"):
        outlined(batch.ops[1:])
    value = batch.ops[-1][2]
    for size in range(16, len(value)):
        try:
            found = outlined([*batch.ops[:-1], (PUT, outline_key(), value[:size])])
        except ValueError:
            continue
        assert len(found) < 5
    with pytest.raises(ValueError, match="has format 9"):
        outlined([*batch.ops[:-1], (PUT, outline_key(), value[:16] + b"\x09" + value[17:])])
    outline = Outline()
    outline.followed(3, (8, 4), (8, 5), 1)
    batch = Batch(1)
    put_all(batch, [row(3, b"a")])
    outline.write(batch, [0, 1])
    with pytest.raises(ValueError, match="does not have"):
        outlined(batch.ops)
    batch = Batch(1)
    put_all(batch, [row(3, b"a")])
    outline.own(3, (8, 5), (8, 5))
    outline.write(batch, [])
    with pytest.raises(ValueError, match="forward"):
        outlined(batch.ops)
