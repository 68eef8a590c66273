"""What becomes of the transactions of one app in two branches of its home: the rule for its rows as one unit.

Only one side of a split goes on with transactions (`delivery.transaction`), but the other one may have got a change of
it in time, or have made one that it could not tell anybody: so of each number the side counts that has published
further, and a number that only one side has committed stays committed. What is staged and not committed is kept from
both sides. docs/adr/0010.
"""

from __future__ import annotations

from typing import Final

from folkmoot.merge.side import Side
from folkmoot.store.batch import DELETE, PUT
from folkmoot.store.key import (
    COMMITTED,
    PACKETS,
    STAGED,
    TRANSACTION,
    name_of,
    plain_key,
    plain_name_of,
    sequence_of,
)
from folkmoot.store.transaction import (
    ChunkKey,
    TransactionRow,
    chunk_key_of,
    decode_parts,
    decode_transaction,
    encode_transaction,
)
from folkmoot.store.writer import VERSION_BYTES, body_of

__all__ = ["app_of", "merge_app", "merge_rows"]

_KINDS: Final = (COMMITTED, STAGED, PACKETS)


def app_of(key: bytes) -> bytes | None:
    """Return the app that a row belongs to, None for rows of other kinds."""
    if key[2] == TRANSACTION:
        return plain_name_of(key)
    return name_of(key) if key[2] in _KINDS else None


def merge_rows(
    mine: TransactionRow, my_numbers: list[int], theirs: TransactionRow, their_numbers: list[int]
) -> tuple[TransactionRow, list[int]]:
    """Return the row that both sides amount to, and the numbers that wait; numbers: those that wait at each side."""
    ahead, other = mine, theirs
    numbers, others = my_numbers, their_numbers
    if theirs.published > mine.published:
        ahead, other = theirs, mine
        numbers, others = their_numbers, my_numbers
    row = TransactionRow()
    row.last = max(mine.last, theirs.last)
    row.committed_us = max(mine.committed_us, theirs.committed_us)
    row.published = ahead.published
    row.base = max(mine.base, theirs.base)
    waiting = sorted([*numbers, *[number for number in others if number > ahead.last]])
    if waiting:
        row.at = waiting[0]
        source = ahead if ahead.at == row.at else other
        if source.at == row.at:
            row.part = source.part
            row.chunk = source.chunk
    return row, waiting


def merge_app(
    partition: int, app: bytes, keys: list[bytes], mine: Side, theirs: Side
) -> list[tuple[int, bytes, bytes]]:
    """Return the operations for the rows `keys` of an app, those of both sides; raises CorruptStore, IndexError."""
    head = plain_key(partition, TRANSACTION, app)
    my_head = mine.rows.get(head)
    their_head = theirs.rows.get(head)
    if their_head is None or mine.knows(their_head):
        # They have changed nothing of it but what is staged, or this side has seen it.
        row = _row_of(my_head)
        waiting = _numbers(keys, mine)
    else:
        row, waiting = merge_rows(_row_of(my_head), _numbers(keys, mine), _row_of(their_head), _numbers(keys, theirs))
    ops: list[tuple[int, bytes, bytes]] = []
    body = encode_transaction(row)
    if row.last >= 0 and (my_head is None or body_of(my_head) != body):
        ops.append((PUT, head, body))
    order = _order(keys, waiting, mine, theirs)
    for key in keys:
        if key != head:
            _add(ops, key, _is_wanted(key, row, waiting, order), mine, theirs)
    return ops


def _row_of(value: bytes | None) -> TransactionRow:
    return TransactionRow() if value is None else decode_transaction(body_of(value))


def _numbers(keys: list[bytes], side: Side) -> list[int]:
    return [sequence_of(key) for key in keys if key[2] == COMMITTED and key in side.rows]


def _order(keys: list[bytes], waiting: list[int], mine: Side, theirs: Side) -> dict[int, dict[bytes, int]]:
    """Return the place of each part in the transactions that wait."""
    order: dict[int, dict[bytes, int]] = {}
    for key in keys:
        if key[2] == COMMITTED and sequence_of(key) in waiting:
            value = mine.rows.get(key)
            if value is None or len(value) == VERSION_BYTES:
                value = theirs.rows.get(key)
            if value is not None and len(value) > VERSION_BYTES:
                places: dict[bytes, int] = {}
                for name, _ in decode_parts(body_of(value))[1]:
                    places[name] = len(places)
                order[sequence_of(key)] = places
    return order


def _is_wanted(key: bytes, row: TransactionRow, waiting: list[int], order: dict[int, dict[bytes, int]]) -> bool | None:
    """Tell whether a row belongs to what waits; None for what is staged and not committed."""
    if key[2] == COMMITTED:
        return sequence_of(key) in waiting
    place: ChunkKey = chunk_key_of(key)
    if place.number > row.last:
        return None
    part = order.get(place.number, {}).get(place.part, -1)
    if part < 0:
        return False
    return place.number != row.at or part > row.part or (part == row.part and place.chunk >= row.chunk)


def _add(ops: list[tuple[int, bytes, bytes]], key: bytes, wanted: bool | None, mine: Side, theirs: Side) -> None:
    my_row = mine.rows.get(key)
    their_row = theirs.rows.get(key)
    if wanted is False:
        if my_row is not None:
            ops.append((DELETE, key, b""))
    elif my_row is None and their_row is not None and len(their_row) > VERSION_BYTES:
        if wanted or not mine.knows(their_row):
            ops.append((PUT, key, body_of(their_row)))
