"""The numbers of an idempotent producer (row PRODUCER): the newest that a partition has accepted, and some before it.

Where the messages of a producer come in their order, the newest number tells what is a repetition. After a split they
do not: what another side has acknowledged for a partition comes when the sides are merged, and the producer may have
gone on at this one. So while somebody is away, the row also names the last numbers that were accepted.

A row is the newest number (8 bytes), then up to `RECENT_MAX` that were accepted, ascending (8 bytes each), or none.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import get_u64, u64

__all__ = ["NUMBER_BYTES", "RECENT_MAX", "add_number", "has_number", "merge_numbers"]

NUMBER_BYTES: Final = 8

RECENT_MAX: Final = 16
"""As many as a client has under way when it changes sides; what it has sent before that it does not send again."""


def has_number(row: bytes, number: int) -> bool:
    """Tell whether a row names a number."""
    for pos in range(0, len(row), NUMBER_BYTES):
        if get_u64(row, pos) == number:
            return True
    return False


def add_number(row: bytes, number: int) -> bytes:
    """Return the row after a number was accepted; an empty row names none yet."""
    return _row_of([*_numbers_in(row), number])


def merge_numbers(one: bytes, other: bytes) -> bytes:
    """Return the row of a partition of which two sides have accepted these; both plain: the one with the newest."""
    if len(one) == NUMBER_BYTES and len(other) == NUMBER_BYTES:
        return max(one, other)  # big-endian
    return _row_of([*_numbers_in(one), *_numbers_in(other)])


def _numbers_in(row: bytes) -> list[int]:
    return [get_u64(row, pos) for pos in range(0, len(row), NUMBER_BYTES)]


def _row_of(numbers: list[int]) -> bytes:
    recent = sorted(set(numbers))[-RECENT_MAX:]
    return u64(recent[-1]) + b"".join([u64(number) for number in recent])
