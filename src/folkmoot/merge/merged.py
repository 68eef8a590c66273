"""Rows MERGED: the branches that a partition has taken in, or how far it has come with one."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u64, u64, varint
from folkmoot.membership.divergence import shared
from folkmoot.membership.history import put_history, take_history
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.peer.cursor import Cursor, put_bytes
from folkmoot.store.chunk import decode_head
from folkmoot.store.key import (
    ABSORBED,
    CHUNK,
    LEFTOVER,
    MERGED,
    kind_prefix,
    log_of_chunk,
    log_of_leftover,
    sequence_of,
)
from folkmoot.store.reader import Reader
from folkmoot.store.writer import VERSION_BYTES, version_of

__all__ = ["TakenBranch", "as_taken", "decode_mark", "encode_mark", "ends_of", "known_ends", "mark_key", "note_ends"]

_FORMAT: Final = b"\3"
_LOGS_MAX: Final = 65_536  # stream logs of one partition
_ENDS_MAX: Final = 16  # of one log in one branch: the newest; without the others, records may come twice


class TakenBranch:
    """A branch that was taken in up to `cursor`.

    ends: by stream log, (sequence of a change, offset behind the last record that the branch had with it), in order,
    one for each epoch. A copy that goes on from there may have rewritten these records in a chunk with later ones.
    """

    def __init__(self, holding: Holding, cursor: bytes) -> None:
        self.holding = holding
        self.cursor = cursor
        self.ends: dict[bytes, list[tuple[int, int]]] = {}


def note_ends(newest: dict[bytes, dict[int, tuple[int, int]]], rows: list[tuple[bytes, bytes]]) -> None:
    """Note of a branch, by log and epoch, the newest change that wrote a chunk, and where its records end."""
    for key, value in rows:
        head = decode_head(value, VERSION_BYTES) if key[2] == CHUNK else None
        if head is not None:
            epoch, seq = version_of(value)
            epochs = newest.setdefault(log_of_chunk(key), {})
            epochs[epoch] = max(epochs.get(epoch, (0, 0)), (seq, head.end))


def ends_of(
    newest: dict[bytes, dict[int, tuple[int, int]]], known: dict[bytes, list[tuple[int, int]]]
) -> dict[bytes, list[tuple[int, int]]]:
    """Return `TakenBranch.ends` of a branch by its chunks (`note_ends`); known: what was known of it before."""
    ends = dict(known)
    for log, epochs in newest.items():
        ends[log] = sorted({*known.get(log, []), *epochs.values()})[-_ENDS_MAX:]
    return ends


def known_ends(taken: list[TakenBranch], holding: Holding) -> dict[bytes, list[tuple[int, int]]]:
    """Return how far the records of a copy are known here because branches were taken in, as `TakenBranch.ends`.

    Up to where the copy and such a branch have the same changes, they have the same records.
    """
    found: dict[bytes, list[tuple[int, int]]] = {}
    for branch in taken:
        common, _certain = shared(branch.holding, holding)
        for log, ends in branch.ends.items():
            same = [one for one in ends if one[0] <= common]
            if same:
                found[log] = sorted({*found.get(log, []), *same})[-_ENDS_MAX:]
    return found


def as_taken(holding: Holding, lines: list[Holding], rows: dict[bytes, bytes], reader: Reader) -> TakenBranch:
    """Return this side's own copy as if it were a branch that was taken in; raises CorruptStore.

    lines: of the other side, and those from which it has records. rows: of the other side. Only logs are looked up in
    which it has such records.
    """
    own = TakenBranch(holding, b"")
    parted = sorted({shared(holding, line)[0] for line in lines})
    partition_logs = [(key[:2], log_of_chunk(key)) for key in rows if key[2] == ABSORBED]
    partition_logs += [(key[:2], log_of_leftover(key)) for key in rows if key[2] == LEFTOVER]
    for partition, log in sorted(set(partition_logs)):
        prefix = partition + bytes([CHUNK]) + log
        own.ends[log] = [(seq, _end_with(reader, prefix, seq)) for seq in parted[-_ENDS_MAX:]]
    return own


def _end_with(reader: Reader, prefix: bytes, seq: int) -> int:
    """Return the offset behind the last chunk of a log that a change up to `seq` has written, 0 if there is none.

    Chunks are only appended, and the last ones rewritten: the later in the log, the later in time.
    """
    newest = reader.last(prefix, prefix + b"\xff" * 9)
    low = 0
    high = 0 if newest is None else sequence_of(newest[0]) + 1
    found = 0
    while low < high:
        middle = (low + high) // 2
        row = reader.last(prefix, prefix + u64(middle + 1))
        if row is None:
            low = middle + 1  # retention has removed it
        elif version_of(row[1])[1] > seq:
            high = sequence_of(row[0])
        else:
            head = decode_head(row[1], VERSION_BYTES)
            if head is None:
                raise CorruptStore(f"the chunk of offset {sequence_of(row[0])} is cut short")
            found = low = head.end
    return found


def mark_key(partition: int, holding: Holding) -> bytes:
    """Return the key of the row for a branch that ends there."""
    return kind_prefix(partition, MERGED) + u64(holding.epoch) + u64(holding.seq)


def encode_mark(branch: TakenBranch) -> bytes:
    """Return the value of the row."""
    parts = [_FORMAT, put_bytes(branch.cursor), put_history(branch.holding.history), varint(len(branch.ends))]
    for log, ends in branch.ends.items():
        parts += [put_bytes(log), varint(len(ends))]
        parts += [varint(seq) + varint(end) for seq, end in ends]
    return b"".join(parts)


def decode_mark(key: bytes, value: bytes) -> TakenBranch:
    """Read a row MERGED; raises ValueError."""
    if len(key) != 19 or value[VERSION_BYTES : VERSION_BYTES + 1] != _FORMAT:
        raise ValueError("the row of a merged branch has a format that this version does not read")
    reading = Cursor(value[VERSION_BYTES + 1 :], "the row of a merged branch")
    cursor = reading.bytes_()
    taken = TakenBranch(Holding(COMPLETE, get_u64(key, 3), get_u64(key, 11), take_history(reading)), cursor)
    for _ in range(reading.count(_LOGS_MAX)):
        log = reading.bytes_()
        taken.ends[log] = [(reading.integer(), reading.integer()) for _ in range(reading.count(_ENDS_MAX))]
    return taken
