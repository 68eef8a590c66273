"""A record: one message in a stream, before and after it has an offset. For the byte layout see `chunk`."""

from __future__ import annotations

from typing import Final

__all__ = ["RECORD_BYTES", "Entry", "Record", "encode_record", "is_same"]

RECORD_BYTES: Final = 17
"""Overhead of a record in a chunk: time, flags and four lengths."""

_RETAIN: Final = 4


class Record:
    """One message without offset and time, so that several streams can share the object.

    `flags` holds the QoS in bits 0 and 1 and the RETAIN flag in bit 2; `properties` are MQTT 5 property bytes without
    their length, as `mqtt.encode.forward_properties` gives them.
    """

    def __init__(self, topic: bytes, payload: bytes, flags: int, publisher: bytes, properties: bytes) -> None:
        self.topic = topic
        self.payload = payload
        self.flags = flags
        self.publisher = publisher
        self.properties = properties

    @property
    def qos(self) -> int:
        """The QoS with which the message was published."""
        return self.flags & 3

    @property
    def retain(self) -> bool:
        """Whether the message was published with RETAIN."""
        return self.flags & _RETAIN != 0

    @property
    def size(self) -> int:
        """The bytes of the record in a chunk."""
        return RECORD_BYTES + len(self.topic) + len(self.payload) + len(self.publisher) + len(self.properties)

    def __repr__(self) -> str:
        return (
            f"Record({self.topic!r}, {self.payload!r}, flags={self.flags}, "
            f"publisher={self.publisher!r}, properties={self.properties!r})"
        )


class Entry:
    """A record with its offset in the stream partition and its broker time in microseconds."""

    def __init__(self, offset: int, time_us: int, record: Record) -> None:
        self.offset = offset
        self.time_us = time_us
        self.record = record

    def __repr__(self) -> str:
        return f"Entry({self.offset}, {self.time_us}, {self.record!r})"


def encode_record(topic: bytes, payload: bytes, qos: int, retain: bool, publisher: bytes, properties: bytes) -> Record:
    """Return the record of a message. Nothing is copied: the bytes are laid out once, in the chunk of the turn.

    `publisher` is the client id in UTF-8; `properties` as `mqtt.encode.forward_properties` returns them (b"" for none).
    """
    return Record(topic, payload, qos | _RETAIN if retain else qos, publisher, properties)


def is_same(mine: Entry, other: Entry) -> bool:
    """Tell whether what two copies have at one offset is the same record."""
    if mine.time_us != other.time_us:
        return False
    one, two = mine.record, other.record
    return (one.topic, one.payload, one.flags, one.publisher, one.properties) == (
        two.topic,
        two.payload,
        two.flags,
        two.publisher,
        two.properties,
    )
