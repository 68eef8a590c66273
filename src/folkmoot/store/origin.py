"""Origins: where a queue row came from, as far as it matters when the two sides of a split are merged.

A row that was written by a request has the name of the requester (`partition.mark`) and the number of the request: both
sides may have applied it, one of them without having acknowledged it. All other rows have no origin.

A requester is a node, or a partition with an outbox. A node is at one side of a split at a time, and goes on with its
numbers when it changes over. A partition can have a leader at each side: so its name holds the lineage in which it gave
the number, and the numbers of each lineage are a sequence of their own.

Both sides may publish the same will, because each of them sees the end of its connection. So a will has a name of its
own, that of its connection, whoever publishes it, and no other number than `WILL_NUMBER`.

Both sides publish what is left of a transaction that was committed before they parted. So its messages have the name of
the app that has committed them, and numbers that go on from one transaction of the app to the next.

Two leaders of a session, one at each side, may both handle a packet of its client, because the node of the client sends
what is not acknowledged to the next leader too. So the packet has a name (`turn.source`), which the messages that it
brings have beside their origin.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import get_u64, u16, u32, u64

__all__ = [
    "NUMBER_BITS",
    "WILL_NUMBER",
    "is_node",
    "is_packet",
    "is_partition",
    "is_transaction",
    "is_will",
    "name_of",
    "number_of",
    "origin_of",
    "outbox_of",
    "packet_name",
    "partition_name",
    "transaction_name",
    "will_name",
]

NUMBER_BITS: Final = 38  # of the number of a request, below the counter of the view in which it was given

WILL_NUMBER: Final = 1

# No id of a node begins like these
_PARTITION: Final = b"\0p"
_TRANSACTION: Final = b"\0t"
_PACKET: Final = b"\0s"
_WILL: Final = b"\xff" + bytes(16)  # in the form of the owner of an idempotent producer, see `partition.producer`


def partition_name(partition: int, lineage: int) -> bytes:
    """Return the name of a partition as a requester; no node has such a name. lineage: its tag (`store/epoch`)."""
    return _PARTITION + u16(partition) + u32(lineage)


def is_partition(name: bytes) -> bool:
    """Whether a requester is a partition."""
    return name.startswith(_PARTITION)


def outbox_of(name: bytes) -> bytes:
    """Return what the names of one partition in all lineages begin with."""
    return name[: len(_PARTITION) + 2]


def transaction_name(app: bytes) -> bytes:
    """Return the name under which the messages of an app's transactions are published."""
    return _TRANSACTION + app


def is_transaction(name: bytes) -> bool:
    """Whether a requester is an app with transactions."""
    return name.startswith(_TRANSACTION)


def is_node(name: bytes) -> bool:
    """Whether a requester is a node."""
    return not name.startswith((_PARTITION, _TRANSACTION, _PACKET, _WILL))


def packet_name(source: bytes) -> bytes:
    """Return the name of a packet in the mark of a partition that has got its message; source: see `turn.source`."""
    return _PACKET + source


def is_packet(name: bytes) -> bool:
    """Whether it is the name of a packet."""
    return name.startswith(_PACKET)


def will_name(token: int) -> bytes:
    """Return the name under which the will of a connection is published; token: of the connection."""
    return _WILL + u64(token)


def is_will(name: bytes) -> bool:
    """Whether a requester is a will."""
    return name.startswith(_WILL)


def origin_of(name: bytes, number: int) -> bytes:
    """Return the origin of a request's rows; name: of the requester, as in its MARK row."""
    return name + u64(number)


def name_of(origin: bytes) -> bytes:
    """Return the requester; empty if the row was not written by a request."""
    return origin[:-8] if len(origin) > 8 else b""


def number_of(origin: bytes) -> int:
    """Return the number of the request, as counted by the requester that `name_of` returns."""
    return get_u64(origin, len(origin) - 8)
