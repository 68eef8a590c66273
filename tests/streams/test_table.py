"""The streams of a node: which take a topic, what a turn makes readable, names."""

from __future__ import annotations

import pytest

from folkmoot.kernel.hash import hash64
from folkmoot.store.memory import MemoryStore
from folkmoot.store.record import encode_record
from folkmoot.store.writer import Writer
from folkmoot.streams.config import StreamConfig, check_name
from folkmoot.streams.table import Streams


def make(store: MemoryStore) -> Streams:
    streams = Streams(
        [StreamConfig("a", b"x/#", 4), StreamConfig("b", b"+/y", 2), StreamConfig("c", b"other", 1)], 16, store
    )
    streams.open()
    return streams


def test_a_topic_goes_to_one_partition_of_each_matching_stream() -> None:
    streams = make(MemoryStore())
    logs = streams.match(b"x/y")
    assert [(log.config.name, log.index) for log in logs] == [
        ("a", hash64(b"x/y") % 4),
        ("b", hash64(b"x/y") % 2),
    ]
    assert streams.match(b"$SYS/y") == []
    assert streams.match(b"none") == []


def test_written_makes_batches_readable_in_order() -> None:
    store = MemoryStore()
    streams = make(store)
    writer = Writer(16, 1)
    record = encode_record(b"x/y", b"1", 1, False, b"", b"")
    first, second = streams.match(b"x/y")
    tokens: list[int] = []
    for logs in ([first], [first, second], [second]):
        for log in logs:
            log.append(record, 5)
        assert streams.dirty
        streams.flush(writer)
        assert not streams.dirty
        batch = writer.take()
        assert batch is not None
        store.apply(batch)
        tokens.append(batch.token)
    assert streams.written(tokens[0]) == [first]
    assert (first.readable_end, second.readable_end, streams.growth) == (1, 0, 1)
    assert streams.written(tokens[2]) == [first, second, second]
    assert (first.readable_end, second.readable_end) == (2, 2)
    assert streams.written(tokens[2]) == []


def test_the_description_names_ranges() -> None:
    store = MemoryStore()
    streams = make(store)
    writer = Writer(16, 1)
    log = streams.match(b"other")[0]
    log.append(encode_record(b"other", b"1", 1, False, b"", b""), 5)
    streams.flush(writer)
    batch = writer.take()
    assert batch is not None
    store.apply(batch)
    streams.written(batch.token)
    stream = streams.get("c")
    assert stream is not None
    described = stream.describe()
    assert described["filter"] == "other"
    assert described["retention_us"] is None
    ranges = described["ranges"]
    assert isinstance(ranges, list)
    (range_,) = ranges
    assert (range_["oldest"], range_["next"], range_["oldest_time_us"]) == (0, 1, 5)
    assert streams.get("d") is None


def test_trim_goes_round_all_partitions_in_steps() -> None:
    streams = Streams([StreamConfig("a", b"#", 40, retention_us=1)], 16, MemoryStore())
    streams.open()
    writer = Writer(16, 1)
    assert [streams.trim(0, writer) for _ in range(4)] == [True, True, False, True]
    assert not Streams([], 16, MemoryStore()).trim(0, writer)


@pytest.mark.parametrize("name", ["", "a/b", "a b", ".a", "-a", "a" * 65, "ä", "a\n"])
def test_names_that_cannot_be(name: str) -> None:
    assert check_name(name) is not None


@pytest.mark.parametrize("name", ["a", "nyc", "A_b-c.9", "0", "_x", "a" * 64])
def test_names_that_can_be(name: str) -> None:
    assert check_name(name) is None
