"""Positions: how far this node is with each partition, kept so that a restart finds them.

One row per turn tells the positions of all partitions that the turn changed: a row per partition would have doubled
what a message of its own partition writes. The rows go round in slots; the first of each round tells all positions, so
that those before it can be overwritten. They are the node's own and are written in the batch that makes them true.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u16, get_u64, u64
from folkmoot.store.key import position_key
from folkmoot.store.reader import Reader

__all__ = ["ENTRY_BYTES", "SLOTS", "Positions", "encode_head", "is_full", "read_positions"]

SLOTS: Final = 64
"""Rows in a round: with 256 partitions the full row adds 80 bytes per turn, and an opening reads at most 64 rows."""

ENTRY_BYTES: Final = 19
"""Partition (2), state (1), epoch (8), sequence (8)."""

_HEAD_BYTES: Final = 25  # version, counter, whether it is full
_COUNTER_MAX: Final = 1 << 62


class Positions:
    """For each partition its state (a number of the cluster's; 0 = nothing is there), epoch and sequence.

    counter: of the next row; found: whether there were any rows, which an older version of this program did not write.
    """

    def __init__(self, partitions: int) -> None:
        self.counter = 0
        self.found = False
        self.states: list[int] = [0] * partitions
        self.epochs: list[int] = [0] * partitions
        self.sequences: list[int] = [0] * partitions


def is_full(counter: int) -> bool:
    """Whether the row of this number tells all positions."""
    return counter % SLOTS == 0


def encode_head(counter: int) -> bytes:
    """Return the start of a row; entries of ENTRY_BYTES follow, later ones win."""
    return b"\0" * 16 + u64(counter) + (b"\1" if is_full(counter) else b"\0")


def read_positions(reader: Reader, partitions: int) -> Positions:
    """Return the positions that a store has; raises CorruptStore when their rows cannot be read."""
    rows: list[tuple[int, bytes]] = []
    newest_full = -1
    for slot in range(SLOTS):
        value = reader.get(position_key(slot))
        if value is None:
            continue
        counter = _check(value, slot)
        rows.append((counter, value))
        if value[_HEAD_BYTES - 1] and counter > newest_full:
            newest_full = counter
    positions = Positions(partitions)
    if not rows:
        return positions
    if newest_full < 0:
        raise CorruptStore("the rows with the positions of partitions are damaged: none of them tells all")
    rows.sort()
    expected = newest_full
    for counter, value in rows:
        if counter < newest_full:
            continue
        if counter != expected:
            raise CorruptStore(f"the rows with the positions of partitions are damaged: number {expected} is missing")
        expected += 1
        _apply(positions, value, partitions)
    positions.found = True
    positions.counter = expected
    return positions


def _check(value: bytes, slot: int) -> int:
    size = len(value) - _HEAD_BYTES
    if size < 0 or size % ENTRY_BYTES:
        raise CorruptStore(f"row {slot} with the positions of partitions is damaged: it has {len(value)} bytes")
    counter = get_u64(value, 16)
    if counter % SLOTS != slot or counter > _COUNTER_MAX or value[_HEAD_BYTES - 1] != (1 if is_full(counter) else 0):
        raise CorruptStore(f"row {slot} with the positions of partitions is damaged: it has number {counter}")
    return counter


def _apply(positions: Positions, value: bytes, partitions: int) -> None:
    for pos in range(_HEAD_BYTES, len(value), ENTRY_BYTES):
        partition = get_u16(value, pos)
        if partition >= partitions:
            raise CorruptStore(f"the rows with the positions of partitions are damaged: there is no {partition}")
        positions.states[partition] = value[pos + 2]
        positions.epochs[partition] = get_u64(value, pos + 3)
        positions.sequences[partition] = get_u64(value, pos + 11)
