"""The history of a partition: in which epochs it was changed, each with the last sequence before it.

It shows where two copies parted. It is a row of the partition, so a copy of the partition brings it along; the oldest
epochs are forgotten (`HISTORY_MAX`).
"""

from __future__ import annotations

from folkmoot.cluster.cursor import Cursor
from folkmoot.cluster.holding import HISTORY_MAX
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import varint
from folkmoot.store.key import history_key
from folkmoot.store.reader import Reader
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["decode_history", "encode_history", "extended", "put_history", "read_history", "take_history"]

_FORMAT = b"\1"


def extended(history: list[tuple[int, int]], epoch: int, base: int) -> list[tuple[int, int]]:
    """Return the history with one more epoch, whose changes come after sequence `base`."""
    return [*history[-(HISTORY_MAX - 1) :], (epoch, base)]


def put_history(history: list[tuple[int, int]]) -> bytes:
    """Return the bytes of a history within a message."""
    parts: list[bytes] = [varint(len(history))]
    for epoch, base in history:
        parts.append(varint(epoch))
        parts.append(varint(base))
    return b"".join(parts)


def take_history(cursor: Cursor) -> list[tuple[int, int]]:
    """Read what `put_history` wrote; raises ValueError."""
    history: list[tuple[int, int]] = []
    for _ in range(cursor.count(HISTORY_MAX)):
        epoch = cursor.integer()
        history.append((epoch, cursor.integer()))
    return history


def encode_history(history: list[tuple[int, int]]) -> bytes:
    """Return the value of a HISTORY row, without its version."""
    return _FORMAT + put_history(history)


def decode_history(value: bytes) -> list[tuple[int, int]]:
    """Read the value of a HISTORY row, version included; raises ValueError."""
    if value[VERSION_BYTES : VERSION_BYTES + 1] != _FORMAT:
        raise ValueError("the history of a partition has a format that this version does not read")
    return take_history(Cursor(value[VERSION_BYTES + 1 :], "the history of a partition"))


def read_history(reader: Reader, partition: int) -> list[tuple[int, int]]:
    """Return the history that a store has of a partition; raises CorruptStore."""
    value = reader.get(history_key(partition))
    if value is None:
        return []
    try:
        return decode_history(value)
    except ValueError as fault:
        raise CorruptStore(f"partition {partition} is damaged: {fault}") from None
