"""A record of a stream as a JSON object, for the lines of the HTTP API and `folkmoot stream read --json`."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from folkmoot.mqtt.kind import PUBLISH
from folkmoot.mqtt.packet import Properties
from folkmoot.mqtt.property_decode import decode_properties
from folkmoot.mqtt.varint import encode_varint
from folkmoot.store.record import Entry

__all__ = ["entry_object", "properties_of", "rfc3339"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(time_us: int) -> str:
    """Return a time in microseconds since 1970 as RFC 3339 text in UTC."""
    return (_EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def properties_of(encoded: bytes) -> Properties:
    """Return the MQTT properties of a record, decoded from `Record.properties`."""
    if not encoded:
        return Properties()
    return decode_properties(encode_varint(len(encoded)) + encoded, 0, PUBLISH)[0] or Properties()


def entry_object(partition: int, entry: Entry) -> dict[str, Any]:
    """Return `entry` as an object for JSON: `payload` if it is UTF-8, else `payload_base64`; properties if present."""
    record = entry.record
    found: dict[str, Any] = {
        "partition": partition,
        "offset": entry.offset,
        "time": rfc3339(entry.time_us),
        "time_us": entry.time_us,
        "topic": record.topic.decode("utf-8", "replace"),
        "qos": record.qos,
        "retain": record.retain,
        "publisher": record.publisher.decode("utf-8", "replace"),
    }
    try:
        found["payload"] = record.payload.decode()
    except UnicodeDecodeError:
        found["payload_base64"] = b64encode(record.payload).decode()
    properties = properties_of(record.properties)
    if properties.content_type is not None:
        found["content_type"] = properties.content_type
    if properties.user_properties:
        found["user_properties"] = [list(pair) for pair in properties.user_properties]
    if properties.response_topic is not None:
        found["response_topic"] = properties.response_topic.decode()
    if properties.correlation_data is not None:
        found["correlation_data_base64"] = b64encode(properties.correlation_data).decode()
    return found
