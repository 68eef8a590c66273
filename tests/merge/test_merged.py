"""Rows MERGED, and up to where the records of a copy are known because of them."""

from __future__ import annotations

import pytest

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import u64
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.merge.merged import (
    TakenBranch,
    as_taken,
    decode_mark,
    encode_mark,
    ends_of,
    known_ends,
    mark_key,
    note_ends,
)
from folkmoot.store.batch import Batch
from folkmoot.store.chunk import encode_chunk
from folkmoot.store.key import ABSORBED, LEFTOVER, chunk_key, leftover_key, log_of_chunk
from folkmoot.store.memory import MemoryStore
from folkmoot.store.record import Record

KEY = chunk_key(0, b"s", 0, 0)
LOG = log_of_chunk(KEY)


def chunk(epoch: int, seq: int, first: int, count: int) -> tuple[bytes, bytes]:
    record = Record(b"t", b"x", 0, b"p", b"")
    body = encode_chunk(first, 0, [1] * count, [record] * count)
    return chunk_key(0, b"s", 0, first), u64(epoch) + u64(seq) + body


def test_a_row_tells_what_was_written() -> None:
    taken = TakenBranch(Holding(COMPLETE, 7, 30, [(5, 0), (7, 20)]), b"cursor")
    taken.ends = {LOG: [(20, 4), (30, 9)], b"other": [(25, 1)]}
    read = decode_mark(mark_key(0, taken.holding), bytes(16) + encode_mark(taken))
    assert (repr(read.holding), read.cursor, read.ends) == (repr(taken.holding), taken.cursor, taken.ends)


@pytest.mark.parametrize("form", [1, 2, 4])
def test_a_row_of_another_build_is_refused(form: int) -> None:
    taken = TakenBranch(Holding(COMPLETE, 7, 30, [(5, 0), (7, 20)]), b"")
    with pytest.raises(ValueError, match="format"):
        decode_mark(mark_key(0, taken.holding), bytes(16) + bytes([form]) + encode_mark(taken)[1:])


def test_of_each_epoch_the_newest_end_is_kept_and_that_of_earlier_copies() -> None:
    newest: dict[bytes, dict[int, tuple[int, int]]] = {}
    for page in ([chunk(5, 11, 3, 2)], [chunk(5, 12, 5, 1), chunk(7, 30, 6, 3)]):
        note_ends(newest, page)
    assert ends_of(newest, {LOG: [(9, 3)], b"other": [(4, 4)]}) == {LOG: [(9, 3), (12, 6), (30, 9)], b"other": [(4, 4)]}


def test_what_two_copies_have_in_common_is_known() -> None:
    taken = TakenBranch(Holding(COMPLETE, 7, 30, [(5, 0), (7, 20)]), b"")
    taken.ends = {LOG: [(20, 4), (30, 9)]}
    assert known_ends([taken], Holding(COMPLETE, 8, 40, [(5, 0), (7, 20), (8, 35)])) == {LOG: [(20, 4), (30, 9)]}
    assert known_ends([taken], Holding(COMPLETE, 8, 40, [(5, 0), (8, 20)])) == {LOG: [(20, 4)]}
    assert known_ends([taken], Holding(COMPLETE, 8, 40, [(5, 0), (8, 19)])) == {}


@pytest.mark.parametrize("kind", [ABSORBED, LEFTOVER])
@pytest.mark.parametrize(("parted", "end"), [(9, 0), (10, 7), (19, 7), (20, 60), (40, 61)])
def test_this_side_knows_what_it_had_when_it_parted_from_another_one(kind: int, parted: int, end: int) -> None:
    store = MemoryStore()
    batch = Batch(1)
    for key, value in [chunk(5, 10, 5, 2), chunk(5, 20, 7, 53), chunk(5, 25, 60, 1)]:  # retention has removed others
        batch.put(key, value)
    store.apply(batch)
    mine = Holding(COMPLETE, 5, 50, [(5, 0)])
    theirs = Holding(COMPLETE, 6, 60, [(5, 0), (6, parted)])
    row = KEY[:2] + bytes([ABSORBED]) + KEY[3:] if kind == ABSORBED else leftover_key(KEY, 6, of_trunk=False)
    own = as_taken(mine, [theirs, mine], {row: b""}, store)
    assert known_ends([own], theirs)[LOG][-1] == (parted, end)
    assert as_taken(mine, [theirs], {KEY: b""}, store).ends == {}, "a log without records from elsewhere"


def test_a_chunk_that_cannot_be_read_is_a_fault_of_this_side() -> None:
    store = MemoryStore()
    batch = Batch(1)
    batch.put(KEY, u64(5) + u64(10) + b"?")
    store.apply(batch)
    mine = Holding(COMPLETE, 5, 50, [(5, 0)])
    with pytest.raises(CorruptStore):
        as_taken(mine, [mine], {leftover_key(KEY, 6, of_trunk=False): b""}, store)
