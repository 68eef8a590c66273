"""The bytes of chunks: what goes in comes out, a changed bit is found, a cut chunk is a chunk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.errors import CorruptStore
from folkmoot.store.chunk import cut_chunk, decode_chunk, decode_head, encode_chunk, fault
from folkmoot.store.record import Entry, Record, encode_record

records = st.builds(
    encode_record,
    topic=st.binary(min_size=1, max_size=40),
    payload=st.binary(max_size=300),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    publisher=st.binary(max_size=30),
    properties=st.binary(max_size=50),
)
batches = st.lists(st.tuples(records, st.integers(0, 10**6)), min_size=1, max_size=30)


def parts(record: Record) -> tuple[object, ...]:
    return record.topic, record.payload, record.qos, record.retain, record.publisher, record.properties


def lay(first: int, batch: list[tuple[Record, int]], position: int = 0) -> tuple[bytes, list[int]]:
    times: list[int] = []
    now = 1_700_000_000_000_000
    for _, step in batch:
        now += step
        times.append(now)
    return encode_chunk(first, position, times, [record for record, _ in batch]), times


@given(batches, st.integers(0, 2**62), st.integers(0, 2**50))
def test_what_goes_in_comes_out(batch: list[tuple[Record, int]], first: int, position: int) -> None:
    chunk, times = lay(first, batch, position)
    entries = decode_chunk(b"before" + chunk + b"after", 6)
    assert [entry.offset for entry in entries] == list(range(first, first + len(batch)))
    assert [entry.time_us for entry in entries] == times
    assert [parts(entry.record) for entry in entries] == [parts(record) for record, _ in batch]


@given(batches, st.integers(0, 2**40))
def test_the_head_says_what_the_chunk_holds(batch: list[tuple[Record, int]], first: int) -> None:
    chunk, times = lay(first, batch, position=77)
    head = decode_head(chunk, 0)
    assert head is not None
    assert (head.first, head.end, head.position) == (first, first + len(batch), 77)
    assert (head.base_us, head.last_us, head.length) == (times[0], times[-1], len(chunk))


@given(batches, st.data())
def test_every_changed_bit_is_found(batch: list[tuple[Record, int]], data: st.DataObject) -> None:
    chunk = bytearray(lay(5, batch)[0])
    bit = data.draw(st.integers(0, len(chunk) * 8 - 1))
    chunk[bit // 8] ^= 1 << bit % 8
    assert fault(bytes(chunk), 0) is not None
    with pytest.raises(CorruptStore):
        decode_chunk(bytes(chunk))


@given(batches, st.data())
def test_a_chunk_cut_short_is_found(batch: list[tuple[Record, int]], data: st.DataObject) -> None:
    chunk = lay(5, batch)[0]
    length = data.draw(st.integers(0, len(chunk) - 1))
    assert fault(chunk[:length], 0) is not None


@given(batches, st.data())
def test_a_cut_has_the_records_of_its_range(batch: list[tuple[Record, int]], data: st.DataObject) -> None:
    chunk = lay(10, batch)[0]
    start = data.draw(st.integers(0, 10 + len(batch) - 1))
    end = data.draw(st.integers(max(start, 10) + 1, 60))
    whole: list[Entry] = decode_chunk(chunk)
    wanted = [(entry.offset, entry.time_us, parts(entry.record)) for entry in whole if start <= entry.offset < end]
    got = decode_chunk(cut_chunk(chunk, start, end))
    assert [(entry.offset, entry.time_us, parts(entry.record)) for entry in got] == wanted


@given(batches, st.integers(0, 2**40), st.integers(-3, 20), st.integers(-3, 20))
def test_a_part_of_a_chunk_can_be_read(batch: list[tuple[Record, int]], first: int, low: int, high: int) -> None:
    chunk, _ = lay(first, batch)
    start, end = max(first + low, 0), max(first + high, 0)
    expected = [entry for entry in decode_chunk(chunk) if start <= entry.offset < end]
    got = decode_chunk(b"xyz" + chunk, 3, start, end)
    assert [(one.offset, one.time_us, parts(one.record)) for one in got] == [
        (one.offset, one.time_us, parts(one.record)) for one in expected
    ]


def test_bytes_that_are_no_chunk_are_named() -> None:
    assert fault(b"", 0) is not None
    assert fault(b"FMC1" + bytes(200), 0) is not None
    assert fault(b"XXXX" + bytes(200), 0) is not None
