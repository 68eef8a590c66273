"""The tables with the state of a cluster: their names, their columns, and the meaning of each column.

One list for the HTTP API, the command line and Spark. Values are sent as JSON: a `timestamp` is microseconds since
1970, `binary` is base64, `strings` is a list. A value may be null if its meaning says when.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BINARY",
    "BOOLEAN",
    "INTEGER",
    "LIVE",
    "LONG",
    "PAYLOAD",
    "STRING",
    "STRINGS",
    "TABLES",
    "TIMESTAMP",
    "Column",
    "columns_of",
]

STRING: Final = "string"
INTEGER: Final = "integer"
LONG: Final = "long"
BOOLEAN: Final = "boolean"
TIMESTAMP: Final = "timestamp"
BINARY: Final = "binary"
STRINGS: Final = "strings"


class Column:
    """A column: its name, its type, and its meaning."""

    def __init__(self, name: str, kind: str, meaning: str) -> None:
        self.name = name
        self.kind = kind
        self.meaning = meaning

    def __repr__(self) -> str:
        return f"Column({self.name} {self.kind})"


_PARTITION: Final = Column("partition", INTEGER, "the partition of the cluster that has it")
_CLIENT: Final = Column("client_id", STRING, "the client id")
_PERSISTENT: Final = Column(
    "persistent", BOOLEAN, "whether the session is stored; otherwise it ends with its connection"
)
_NODE: Final = Column("node", STRING, "the node that the client is connected to; null when it is not connected")

PAYLOAD: Final = Column("payload", BINARY, "the payload, with the option `payload`")

TABLES: Final[dict[str, list[Column]]] = {
    "sessions": [
        _PARTITION,
        _CLIENT,
        Column("username", STRING, "the user name of the last CONNECT; null without one"),
        _PERSISTENT,
        Column("version", INTEGER, "the protocol version of the client: 3 is MQTT 3.1, 4 is 3.1.1, 5 is 5.0"),
        Column("connected", BOOLEAN, "whether its client is connected"),
        _NODE,
        Column("expiry_s", LONG, "how long it outlives its connection, in seconds; null: for ever"),
        Column("disconnected_at", TIMESTAMP, "when its client disconnected; null while it is connected"),
        Column(
            "ends_at",
            TIMESTAMP,
            "when it ends unless its client connects; null while it is connected, and if it never ends",
        ),
    ],
    "subscriptions": [
        _PARTITION,
        _CLIENT,
        Column("filter", STRING, "the topic filter, without `$share/GROUP/`"),
        Column("share", STRING, "the group of a shared subscription; null for another"),
        Column("qos", INTEGER, "the maximum QoS of its messages"),
        Column("no_local", BOOLEAN, "whether the client's own messages are excluded (No Local)"),
        Column("retain_as_published", BOOLEAN, "whether the RETAIN flag is kept (Retain As Published)"),
        Column(
            "retain_handling", INTEGER, "retained messages are sent 0: always, 1: only for a new subscription, 2: never"
        ),
        Column("identifier", LONG, "the subscription identifier; null without one"),
        _PERSISTENT,
    ],
    "queues": [
        _PARTITION,
        _CLIENT,
        _PERSISTENT,
        Column("connected", BOOLEAN, "whether its client is connected"),
        Column("messages", LONG, "messages that wait to be sent or acknowledged"),
        Column("bytes", LONG, "their topics, payloads and properties"),
        Column("inflight", LONG, "messages that are sent and not acknowledged"),
        Column("oldest_at", TIMESTAMP, "when the first of them was published; null if that is not known"),
    ],
    "retained": [
        _PARTITION,
        Column("topic", STRING, "the topic"),
        Column("qos", INTEGER, "the QoS it was published with"),
        Column("payload_bytes", LONG, "the size of its payload"),
        Column("content_type", STRING, "its content type; null without one"),
        Column("publisher", STRING, "the client id of its publisher"),
        Column("published_at", TIMESTAMP, "when it was published"),
        Column("expires_at", TIMESTAMP, "when it expires; null: never"),
    ],
    "streams": [
        _PARTITION,
        Column("stream", STRING, "the name of the stream"),
        Column("stream_partition", INTEGER, "the stream partition"),
        Column("filter", STRING, "what the stream takes"),
        Column("leader", STRING, "the node that appends to it"),
        Column("oldest", LONG, "the first remaining offset"),
        Column("next", LONG, "the offset behind the last readable one"),
        Column("records", LONG, "how many can be read"),
        Column("bytes", LONG, "their size in chunks"),
        Column("oldest_at", TIMESTAMP, "the time of the first record; null if there is none"),
        Column("latest_at", TIMESTAMP, "the time of the last record; null if there is none"),
    ],
    "partitions": [
        _PARTITION,
        Column("leader", STRING, "the node that leads it"),
        Column("followers", STRINGS, "the nodes with the other complete copies"),
        Column("learners", STRINGS, "the nodes whose copies are being filled"),
        Column("epoch", LONG, "the configuration in which the newest change was made"),
        Column("sequence", LONG, "the number of the newest change"),
        Column("sessions", LONG, "persistent sessions"),
        Column("subscriptions", LONG, "their subscriptions"),
        Column("queued", LONG, "messages in queues"),
        Column("retained", LONG, "retained messages"),
        Column("rows", LONG, "the number of rows, except the chunks of streams"),
        Column("row_bytes", LONG, "the size of these rows, including keys"),
        Column("stream_records", LONG, "records of streams"),
        Column("stream_bytes", LONG, "the size of their chunks"),
    ],
}
"""The columns of each table, in order; `retained` also has `payload` on request."""

LIVE: Final = ("sessions", "subscriptions", "queues")
"""Tables that also have rows of transient sessions, which are requested by node, not by partition."""


def columns_of(table: str, payload: bool = False) -> list[Column]:
    """Return the columns of a table, including the payload of `retained` if `payload`; raises KeyError."""
    columns = TABLES[table]
    return [*columns, PAYLOAD] if payload and table == "retained" else columns
