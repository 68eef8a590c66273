"""Heartbeats: what a node sends to every other a few times a second. Bytes in, values out; decides nothing."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import varint
from folkmoot.peer.cursor import Cursor, put_bytes, put_text

__all__ = [
    "DEPART",
    "EVICT",
    "EXCLUDED",
    "FORGET",
    "LEAVE",
    "MEMBER",
    "WAITING",
    "Heartbeat",
    "Request",
    "decode_heartbeat",
    "encode_heartbeat",
]

WAITING: Final = 0  # no view since its start
MEMBER: Final = 1
EXCLUDED: Final = 2  # others have continued without it

EVICT: Final = 1
FORGET: Final = 2
LEAVE: Final = 3  # a node is to hand over its copies and leave for good
DEPART: Final = 4  # a node announces its own end: the next view is to be without it

_FORMAT: Final = 1
_IDS_MAX: Final = 4096
_REQUESTS_MAX: Final = 64
_LOAD_MAX: Final = 64

_IN_VIEW: Final = 4
_STALLED: Final = 8
_PATIENT: Final = 16
_NEWS: Final = 32
_LEAVING: Final = 64
_LOAD: Final = 128


class Request:
    """What an operator, or the node itself (DEPART), wants of the next view."""

    def __init__(self, kind: int, node_id: str, incarnation: int) -> None:
        self.kind = kind
        self.node_id = node_id
        self.incarnation = incarnation


class Heartbeat:
    """What one node reports of itself.

    counter: the highest view number that it knows. in_view: the receiver is a member of its view. stalled: its disk or
    loop stands still. patient: it waits for more nodes before a first view. news: its holdings need another view
    (learners are filled, or a copy is damaged). leaving: it wants to leave. hears: a bit per member of the view with
    this epoch, in their order; `others`: the ids of other nodes that it hears. peers: (id, address) of nodes that the
    receiver may not know. load: its figures, None = unchanged.
    """

    def __init__(self, state: int, incarnation: int, epoch: int, counter: int, partitions: int) -> None:
        self.state = state
        self.incarnation = incarnation
        self.epoch = epoch
        self.counter = counter
        self.partitions = partitions
        self.in_view: bool = False
        self.stalled: bool = False
        self.patient: bool = False
        self.news: bool = False
        self.leaving: bool = False
        self.hears: int = 0
        self.others: list[str] = []
        self.requests: list[Request] = []
        self.peers: list[tuple[str, str]] = []
        self.load: dict[str, int] | None = None


def encode_heartbeat(beat: Heartbeat) -> bytes:
    """Return a heartbeat as bytes; later versions may append fields."""
    flags = beat.state
    flags |= _IN_VIEW if beat.in_view else 0
    flags |= _STALLED if beat.stalled else 0
    flags |= _PATIENT if beat.patient else 0
    flags |= _NEWS if beat.news else 0
    flags |= _LEAVING if beat.leaving else 0
    flags |= _LOAD if beat.load is not None else 0
    parts: list[bytes] = [
        bytes([_FORMAT, flags]),
        varint(beat.incarnation),
        varint(beat.epoch),
        varint(beat.counter),
        varint(beat.partitions),
        put_bytes(beat.hears.to_bytes((beat.hears.bit_length() + 7) // 8, "little")),
        varint(len(beat.others)),
    ]
    parts.extend([put_text(node_id) for node_id in beat.others])
    parts.append(varint(len(beat.requests)))
    parts.extend([bytes([wish.kind]) + put_text(wish.node_id) + varint(wish.incarnation) for wish in beat.requests])
    parts.append(varint(len(beat.peers)))
    parts.extend([put_text(node_id) + put_text(address) for node_id, address in beat.peers])
    if beat.load is not None:
        parts.append(varint(len(beat.load)))
        parts.extend([put_text(name) + varint(value) for name, value in beat.load.items()])
    return b"".join(parts)


def decode_heartbeat(data: bytes) -> Heartbeat:
    """Read what `encode_heartbeat` wrote, in this or a later version; raises ValueError."""
    cursor = Cursor(data, "a heartbeat")
    found = cursor.byte()
    if found != _FORMAT:
        raise ValueError(f"a heartbeat has format {found}, this version reads format {_FORMAT}")
    flags = cursor.byte()
    incarnation = cursor.integer()
    epoch = cursor.integer()
    counter = cursor.integer()
    beat = Heartbeat(flags & 3, incarnation, epoch, counter, cursor.integer())
    beat.in_view = flags & _IN_VIEW != 0
    beat.stalled = flags & _STALLED != 0
    beat.patient = flags & _PATIENT != 0
    beat.news = flags & _NEWS != 0
    beat.leaving = flags & _LEAVING != 0
    hears = cursor.bytes_()
    if len(hears) > _IDS_MAX // 8 or beat.state > EXCLUDED:
        raise ValueError("a heartbeat has a state or size that none has")
    beat.hears = int.from_bytes(hears, "little")
    beat.others = [cursor.text() for _ in range(cursor.count(_IDS_MAX))]
    for _ in range(cursor.count(_REQUESTS_MAX)):
        kind = cursor.byte()
        node_id = cursor.text()
        beat.requests.append(Request(kind, node_id, cursor.integer()))
    for _ in range(cursor.count(_IDS_MAX)):
        node_id = cursor.text()
        beat.peers.append((node_id, cursor.text()))
    if flags & _LOAD:
        load: dict[str, int] = {}
        for _ in range(cursor.count(_LOAD_MAX)):
            name = cursor.text()
            load[name] = cursor.integer()
        beat.load = load
    return beat
