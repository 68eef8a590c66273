"""Values of rows: the bytes behind the version.

Each starts with a format byte, so that later versions of this program can still read it.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import BYTE, U16, get_u16, get_u32, get_u64, get_varint, u16, u32, u64, varint
from folkmoot.store.message import Message, decode_message, encode_message

__all__ = [
    "QUEUE_ORIGIN_BYTES",
    "UNPROVED_MARK",
    "CursorRow",
    "QueueRow",
    "SessionRow",
    "SubscriptionRow",
    "WillRow",
    "decode_cursor",
    "decode_queue",
    "decode_sent",
    "decode_session",
    "decode_subscription",
    "decode_will",
    "encode_cursor",
    "encode_queue",
    "encode_sent",
    "encode_session",
    "encode_subscription",
    "encode_will",
    "marked_name",
    "origin_in",
    "with_origin",
]

UNPROVED_MARK: Final = "\0"  # before a user name that nobody has proved

QUEUE_ORIGIN_BYTES: Final = 40

_FORMAT: Final = 1
_MERGED: Final = 16  # in the flags of a QUEUE row: its origin follows
_FORMAT_TOKEN: Final = 2  # of wills and sessions
_FORMAT_OWNED: Final = 3  # of wills: with the user
_BEGUN: Final = 0x80  # a flag in the byte with the protocol version of a session's client
_SCAN_WITH_LIVE: Final = 2  # a kind of cursor
_SENT_BYTES: Final = 16
_BODY_MAX: Final = (1 << 64) - 1  # sequences of bodies are 8 bytes of a key


def _check_format(data: bytes, size_min: int, what: str) -> None:
    if len(data) < size_min or data[0] != _FORMAT:
        found = data[0] if data else "nothing"
        raise CorruptStore(
            f"a {what} row has format {found} and {len(data)} bytes; this version reads format {_FORMAT}"
        )


class SessionRow:
    """A persistent session.

    version: the protocol version of its client; expiry_s: in seconds, 0xFFFFFFFF = never; ends_us: when it ends unless
    its client connects, 0 = a client is connected; queue_floor: queue rows with a smaller sequence belong to an ended
    session of the same client id; token: of its current or last connection, 0 = not known; begun: whether it began with
    that connection; proved: whether its client has proved the user name. Before such a name that it has not stands a
    zero byte, which no user name contains [MQTT-1.5.4-2].
    """

    def __init__(
        self,
        version: int,
        expiry_s: int,
        ends_us: int,
        queue_floor: int,
        username: str,
        token: int = 0,
        begun: bool = False,
        proved: bool = True,
    ) -> None:
        self.version = version
        self.expiry_s = expiry_s
        self.ends_us = ends_us
        self.queue_floor = queue_floor
        self.username = username
        self.token = token
        self.begun = begun
        self.proved = proved


def encode_session(row: SessionRow) -> bytes:
    """Return the value of a SESSION row."""
    version = row.version | _BEGUN if row.begun else row.version
    head = bytes([_FORMAT_TOKEN, version]) + u32(row.expiry_s) + u64(row.ends_us) + u64(row.queue_floor)
    return head + u64(row.token) + marked_name(row.username, row.proved).encode()


def marked_name(username: str, proved: bool) -> str:
    """Return a user name with a mark before it if nobody has proved it."""
    return username if proved or not username else UNPROVED_MARK + username


def decode_session(data: bytes) -> SessionRow:
    """Return the content of a SESSION row; raises CorruptStore."""
    has_token = data[:1] == BYTE[_FORMAT_TOKEN] and len(data) >= 30
    if not has_token:
        _check_format(data, 22, "session")
    try:
        username = data[30 if has_token else 22 :].decode()
    except UnicodeDecodeError:
        raise CorruptStore("a session row is damaged: its user name is not UTF-8") from None
    token = get_u64(data, 22) if has_token else 0
    version = data[1] & ~_BEGUN
    begun = data[1] & _BEGUN != 0
    name = username.removeprefix(UNPROVED_MARK)
    proved = name == username
    return SessionRow(version, get_u32(data, 2), get_u64(data, 6), get_u64(data, 14), name, token, begun, proved)


class SubscriptionRow:
    """A subscription: the options byte of SUBSCRIBE and the subscription identifier (0 = none). MQTT 5 3.8.3.1."""

    def __init__(self, options: int, identifier: int) -> None:
        self.options = options
        self.identifier = identifier


def encode_subscription(row: SubscriptionRow) -> bytes:
    """Return the value of a SUBSCRIPTION row."""
    return bytes([_FORMAT, row.options]) + u32(row.identifier)


def decode_subscription(data: bytes) -> SubscriptionRow:
    """Return the content of a SUBSCRIPTION row; raises CorruptStore."""
    _check_format(data, 6, "subscription")
    if len(data) > 6:
        raise CorruptStore("a subscription row is damaged: it is too long")
    return SubscriptionRow(data[1], get_u32(data, 2))


class QueueRow:
    """A message that waits for a session or for its acknowledgement.

    sent: it may have been sent already, so that it is sent again with DUP; body: sequence of the BODY row with the
    message (0 = it is in this row); group: the full filter of the shared subscription that matched (empty = none).
    """

    def __init__(
        self,
        qos: int,
        retain: bool,
        sent: bool,
        identifiers: bytes,
        group: bytes,
        body: int,
        size: int,
        message: Message | None,
    ) -> None:
        self.qos = qos
        self.retain = retain
        self.sent = sent
        self.identifiers = identifiers
        self.group = group
        self.body = body
        self.size = size
        self.message = message


def encode_queue(row: QueueRow) -> bytes:
    """Return the value of a QUEUE row."""
    flags = row.qos | (4 if row.retain else 0) | (8 if row.sent else 0)
    # The length of the identifiers needs more than a byte: thousands of subscriptions of a session may match a topic.
    head = (
        BYTE[_FORMAT] + BYTE[flags] + varint(len(row.identifiers)) + row.identifiers + U16[len(row.group)] + row.group
    )
    if row.message is None:
        assert row.body > 0, "a queue row without a message names a body"
        return head + varint(row.body) + u32(row.size)
    return head + b"\0" + encode_message(row.message)


def with_origin(data: bytes, origin: bytes) -> bytes:
    """Return the value of a QUEUE row that a merge writes: with the origin of the row that it had, if it has none yet.

    origin: version and sequence of that row, and the position of the copy that had it in the form of a version.
    """
    assert len(origin) == QUEUE_ORIGIN_BYTES, "two versions and a sequence"
    return data if data[1] & _MERGED else data[:1] + BYTE[data[1] | _MERGED] + origin + data[2:]


def origin_in(data: bytes) -> bytes:
    """Return the origin in the value of a QUEUE row; empty if no merge has written it."""
    return data[2 : 2 + QUEUE_ORIGIN_BYTES] if data[1] & _MERGED else b""


def decode_queue(data: bytes) -> QueueRow:
    """Return the content of a QUEUE row; raises CorruptStore."""
    _check_format(data, 6, "queue")
    flags = data[1]
    try:
        length, start = get_varint(data, 2 + QUEUE_ORIGIN_BYTES if flags & _MERGED else 2)
        pos = start + length
        identifiers = data[start:pos]
        group_end = pos + 2 + get_u16(data, pos)
        group = data[pos + 2 : group_end]
        body, pos = get_varint(data, group_end)
        size = get_u32(data, pos) if body else 0
    except IndexError:
        raise CorruptStore("a queue row is damaged: it ends too early") from None
    if flags & 3 == 3 or flags > 31 or body > _BODY_MAX or (body and len(data) != pos + 4):
        raise CorruptStore("a queue row is damaged: its flags or its body do not exist")
    message = None if body else decode_message(data, pos)
    if message is not None:
        size = message.size
    return QueueRow(flags & 3, bool(flags & 4), bool(flags & 8), identifiers, group, body, size, message)


class WillRow:
    """A will: its message, its delay in seconds, and when it is due (0 = the client is connected).

    token: of the connection that has set it, 0 on a node without a cluster; username: of its client, None: not known.
    """

    def __init__(self, delay_s: int, due_us: int, message: Message, token: int, username: str | None = None) -> None:
        self.delay_s = delay_s
        self.due_us = due_us
        self.message = message
        self.token = token
        self.username = username


def encode_will(row: WillRow) -> bytes:
    """Return the value of a WILL row."""
    head = u32(row.delay_s) + u64(row.due_us) + u64(row.token)
    if row.username is None:
        return bytes([_FORMAT_TOKEN]) + head + encode_message(row.message)
    name = row.username.encode()
    return bytes([_FORMAT_OWNED]) + head + u16(len(name)) + name + encode_message(row.message)


def decode_will(data: bytes) -> WillRow:
    """Return the content of a WILL row; raises CorruptStore. Rows from before there were clusters have no token."""
    if len(data) >= 23 and data[0] == _FORMAT_OWNED:
        end = 23 + get_u16(data, 21)
        username = data[23:end].decode()
        return WillRow(get_u32(data, 1), get_u64(data, 5), decode_message(data, end), get_u64(data, 13), username)
    if len(data) >= 21 and data[0] == _FORMAT_TOKEN:
        return WillRow(get_u32(data, 1), get_u64(data, 5), decode_message(data, 21), get_u64(data, 13))
    _check_format(data, 13, "will")
    return WillRow(get_u32(data, 1), get_u64(data, 5), decode_message(data, 13), 0)


class CursorRow:
    """The progress of a feed (a retained scan or a stream replay) into a session's queue.

    kind: 0 retained scan, 1 replay of a stream; positions: for a scan, the remaining partitions; for a replay, the next
    offset of each stream partition; key: where the scan continues in the first of its partitions, or which packet began
    the replay (`folkmoot.turn.source`; empty = not known); live: topics that the scan skips, because a newer message
    was delivered meanwhile.
    """

    def __init__(self, kind: int, positions: list[int], key: bytes) -> None:
        self.kind = kind
        self.positions = positions
        self.key = key
        self.live: list[bytes] = []


def encode_cursor(row: CursorRow) -> bytes:
    """Return the value of a CURSOR row."""
    numbers = b"".join([varint(n) for n in row.positions])
    kind = row.kind
    topics = b""
    if row.live:
        kind = _SCAN_WITH_LIVE
        topics = varint(len(row.live)) + b"".join([varint(len(topic)) + topic for topic in row.live])
    return bytes([_FORMAT, kind]) + varint(len(row.positions)) + numbers + topics + row.key


def decode_cursor(data: bytes) -> CursorRow:
    """Return the content of a CURSOR row; raises CorruptStore."""
    _check_format(data, 3, "cursor")
    try:
        count, pos = get_varint(data, 2)
        positions: list[int] = []
        for _ in range(count):
            number, pos = get_varint(data, pos)
            positions.append(number)
        live, pos = _get_topics(data, pos) if data[1] == _SCAN_WITH_LIVE else ([], pos)
    except IndexError:
        raise CorruptStore("a cursor row is damaged: it ends too early") from None
    if data[1] > _SCAN_WITH_LIVE:
        raise CorruptStore(f"a cursor row is damaged: there is no kind {data[1]} of feed")
    row = CursorRow(data[1] % _SCAN_WITH_LIVE, positions, data[pos:])
    row.live = live
    return row


def _get_topics(data: bytes, pos: int) -> tuple[list[bytes], int]:
    count, pos = get_varint(data, pos)
    topics: list[bytes] = []
    for _ in range(count):
        length, pos = get_varint(data, pos)
        if pos + length > len(data):
            raise IndexError("a topic ends too early")
        topics.append(data[pos : pos + length])
        pos += length
    return topics, pos


def encode_sent(sent_below: int, given_below: int) -> bytes:
    """Return the value of a SENT row: of the queue, rows below these may have been sent, or have been there."""
    return u64(sent_below) + u64(given_below)


def decode_sent(data: bytes) -> tuple[int, int]:
    """Read what `encode_sent` wrote; raises CorruptStore."""
    if len(data) != _SENT_BYTES:
        raise CorruptStore(f"a SENT row has {len(data)} bytes; this version reads {_SENT_BYTES}")
    return get_u64(data, 0), get_u64(data, 8)
