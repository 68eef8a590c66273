"""Merging one client's wills: each is published by one side, and none is lost (A7).

A connection has one will, and a client one row for it; after a split there may be two, of two connections. One stays
the client's. The other is due, unless the side that goes on has seen it and thus settled it: it becomes a row that
stands for a client who never comes (`left_name`), and is published when the partition opens.
"""

from __future__ import annotations

from folkmoot.merge.side import Side, replaces
from folkmoot.store.key import is_left, left_name
from folkmoot.store.row import WillRow, decode_will
from folkmoot.store.writer import body_of

__all__ = ["left_will", "will_of_nobody"]


def will_of_nobody(key: bytes, mine: Side, theirs: Side) -> dict[bytes, bytes]:
    """Return the rows with the wills of a client without a session; each side takes the clients of the other for dead.

    key: of its WILL row. One whose client is connected where the row is stays: its end is still to come. One that
    is due goes when the other side has published it. Raises CorruptStore.
    """
    own, other = mine, theirs
    if key in theirs.rows:
        if key not in mine.rows or replaces(key, mine, theirs, mine.put_us(key), theirs.put_us(key)):
            own, other = theirs, mine
    found: dict[bytes, bytes] = {}
    value = own.rows.get(key)
    if value is None:
        return found
    kept = decode_will(body_of(value))
    due = kept.due_us > 0 or is_left(key[3:])
    if not due or key in other.rows or not other.knows(value):
        found[key] = body_of(value)
    left = _left(key, own, other)
    if left is not None:
        found[_due_key(key, left)] = body_of(other.rows[key])
    return found


def left_will(key: bytes, own: Side, other: Side, ended: bool) -> dict[bytes, bytes]:
    """Return a row for the other side's will when the client's session goes on as it is at the own side.

    ended: the other side's session is another one, and over; that makes its will due, delay or not [MQTT-3.1.3-9]. Else
    the client has taken its session over, or will: that ends the other connection, and a delay. Raises CorruptStore.
    """
    left = _left(key, own, other)
    if left is None or (left.delay_s and not ended):
        return {}
    return {_due_key(key, left): body_of(other.rows[key])}


def _left(key: bytes, own: Side, other: Side) -> WillRow | None:
    """Return the will that only the other side has seen, if there is one.

    Not where both sides' wills are of one connection, which has asked leaders of both.
    """
    value = other.rows.get(key)
    if value is None or own.knows(value):
        return None
    left = decode_will(body_of(value))
    own_value = own.rows.get(key)
    same = own_value is not None and left.token != 0 and decode_will(body_of(own_value)).token == left.token
    return None if same else left


def _due_key(key: bytes, will: WillRow) -> bytes:
    """Return the key of the row for a will that is due, from that of the client's WILL row."""
    return key + left_name(b"", will.token)
