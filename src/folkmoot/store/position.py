"""Positions: the newest change of each partition at this node, stored so that a restart finds them.

One row per turn holds the positions of all partitions that the turn changed: a row per partition would double what a
message in a partition of its own writes. The rows rotate through a fixed number of slots; the first row of each round
holds all positions, so that the rows before it can be overwritten. They belong to the node, and are written in the
same batch as the changes that they describe.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u16, get_u64, u64
from folkmoot.store.key import position_key
from folkmoot.store.reader import Reader

__all__ = ["ENTRY_BYTES", "SLOTS", "Positions", "encode_head", "is_full", "read_positions"]

SLOTS: Final = 64
"""Rows per round: with 256 partitions, full rows add 80 bytes per turn, and opening reads at most 64 rows."""

ENTRY_BYTES: Final = 19
"""Partition (2), state (1), epoch (8), sequence (8)."""

_HEAD_BYTES: Final = 25  # version, counter, whether it is full
_COUNTER_MAX: Final = 1 << 62


class Positions:
    """For each partition its state (a number that the cluster defines; 0 = no data), epoch and sequence.

    counter: of the next row; found: whether there were any rows. Older versions of this program did not write them.
    """

    def __init__(self, partitions: int) -> None:
        self.counter = 0
        self.found = False
        self.states: list[int] = [0] * partitions
        self.epochs: list[int] = [0] * partitions
        self.sequences: list[int] = [0] * partitions


def is_full(counter: int) -> bool:
    """Whether the row with this number holds all positions."""
    return counter % SLOTS == 0


def encode_head(counter: int) -> bytes:
    """Return the start of a row; entries of ENTRY_BYTES follow, later ones win."""
    return b"\0" * 16 + u64(counter) + (b"\1" if is_full(counter) else b"\0")


def read_positions(reader: Reader, partitions: int) -> Positions:
    """Return the positions in a store; raises CorruptStore if their rows are damaged."""
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
        raise CorruptStore("the rows with the positions of partitions are damaged: none of them holds all positions")
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
            raise CorruptStore(
                f"the rows with the positions of partitions are damaged: there is no partition {partition}"
            )
        positions.states[partition] = value[pos + 2]
        positions.epochs[partition] = get_u64(value, pos + 3)
        positions.sequences[partition] = get_u64(value, pos + 11)
