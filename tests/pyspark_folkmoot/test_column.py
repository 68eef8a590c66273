"""Chunks to Arrow against the decoder that goes record by record."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.client.entry import properties_of
from folkmoot.client.streams import ChunkPage
from folkmoot.mqtt.packet import Properties
from folkmoot.mqtt.property_encode import forward_properties
from folkmoot.store.chunk import decode_head, encode_chunk
from folkmoot.store.record import Record, encode_record
from pyspark_folkmoot.column import COLUMNS, batches

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("qos", pa.int32()),
        ("retain", pa.bool_()),
        ("publisher", pa.string()),
        ("content_type", pa.string()),
        ("user_properties", pa.map_(pa.string(), pa.string())),
        ("response_topic", pa.string()),
        ("correlation_data", pa.binary()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


@st.composite
def records(draw: st.DrawFn) -> Record:
    properties = Properties()
    if draw(st.booleans()):
        properties.content_type = draw(st.none() | texts)
        properties.response_topic = draw(st.none() | st.just(b"re/ply"))
        properties.correlation_data = draw(st.none() | st.binary(max_size=5))
        properties.user_properties = draw(st.lists(st.tuples(texts, texts), max_size=3, unique_by=lambda pair: pair[0]))
    return encode_record(
        draw(st.sampled_from([b"a/1", b"a/2", "ä/".encode(), b"b"])),
        draw(st.binary(max_size=40)),
        draw(st.integers(0, 2)),
        draw(st.booleans()),
        draw(texts).encode(),
        forward_properties(properties),
    )


def row(offset: int, time_us: int, record: Record) -> dict[str, object]:
    properties = properties_of(record.properties)
    return {
        "partition": 3,
        "offset": offset,
        "topic": record.topic.decode(),
        "payload": record.payload,
        "qos": record.qos,
        "retain": record.retain,
        "publisher": record.publisher.decode(),
        "content_type": properties.content_type,
        "user_properties": properties.user_properties,
        "response_topic": None if properties.response_topic is None else properties.response_topic.decode(),
        "correlation_data": properties.correlation_data,
        "timestamp": time_us,
    }


@given(
    st.lists(st.lists(records(), min_size=1, max_size=6), min_size=1, max_size=5),
    st.integers(0, 3),
    st.data(),
    st.sampled_from([None, "a/", "ä"]),
)
def test_columns_are_those_of_the_records(
    groups: list[list[Record]], overlap: int, data: st.DataObject, prefix: str | None
) -> None:
    body = b""
    chunks = []
    log: list[Record] = []
    for group in groups:
        # A chunk may begin with the last records of the one before, as a small chunk does that has grown meanwhile.
        repeated = min(overlap, len(log))
        log.extend(group)
        first = 100 + len(log) - len(group) - repeated
        kept_records = log[first - 100 :]
        chunk = encode_chunk(first, 0, [time_of(first + i) for i in range(len(kept_records))], kept_records)
        head = decode_head(chunk, 0)
        assert head is not None
        chunks.append((len(body), head))
        body += chunk
    wanted = {100 + i: row(100 + i, time_of(100 + i), record) for i, record in enumerate(log)}
    last = max(wanted) + 1
    start = data.draw(st.integers(100, min(last - 1, 100 + len(groups[0]) - 1)))
    end = data.draw(st.integers(start + 1, last + 2))
    columns = data.draw(st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True))
    schema = pa.schema([field for field in SCHEMA if field.name in columns])
    page = ChunkPage(body, chunks, last, 0, last)
    got = [found for batch in batches(3, page, start, end, schema, prefix) for found in typed(batch, schema)]
    kept = [
        wanted[offset]
        for offset in range(start, min(end, last))
        if prefix is None or str(wanted[offset]["topic"]).startswith(prefix)
    ]
    assert got == [{name: found[name] for name in schema.names} for found in kept]


def time_of(offset: int) -> int:
    return 1_700_000_000_000_000 + 7 * offset


def typed(batch: pa.RecordBatch, schema: pa.Schema) -> list[dict[str, object]]:
    batch.validate(full=True)
    assert batch.schema == schema
    if "timestamp" in schema.names:
        index = schema.names.index("timestamp")
        batch = batch.set_column(index, "timestamp", batch.column(index).cast(pa.int64()))
    found: list[dict[str, object]] = batch.to_pylist()
    return found
