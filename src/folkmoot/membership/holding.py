"""Holdings: what one node has of each partition.

Owns the values and their bytes. Never tells what one copy has of another (`fork` does), and never reads a store
(replication does, and tells).
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import varint
from folkmoot.peer.cursor import Cursor

__all__ = [
    "COMPLETE",
    "DAMAGED",
    "FORGOTTEN",
    "HISTORY_MAX",
    "NONE",
    "PARTIAL",
    "Holding",
    "decode_holdings",
    "encode_holdings",
    "knows_epoch",
    "later",
    "root_of",
]

NONE: Final = 0  # nothing was ever stored
PARTIAL: Final = 1  # is being filled, or was when it stopped: has holes
COMPLETE: Final = 2  # everything up to its position; also when that is nothing and the node is a replica
DAMAGED: Final = 3  # a checksum or digest says that rows are wrong or missing

FORGOTTEN: Final = 0  # in a history, in place of an epoch: from there up to the next entry epochs were forgotten
HISTORY_MAX: Final = 1024  # entries of a history at most; reached only while a copy is being filled over so many epochs

_FORMAT: Final = 2
_PARTITIONS_MAX: Final = 65_536


class Holding:
    """A copy of one partition.

    epoch, seq: position, that is the last change which it has; (0, 0) = none. history: the epochs in which the
    partition was changed, oldest first, each with the last seq before it, so that epoch e holds the changes from there
    up to the next entry; where epochs were forgotten an entry GAP stands for them (see `history`).
    """

    def __init__(self, state: int, epoch: int, seq: int, history: list[tuple[int, int]]) -> None:
        self.state = state
        self.epoch = epoch
        self.seq = seq
        self.history = history

    def __repr__(self) -> str:
        return f"Holding(state={self.state} epoch={self.epoch} seq={self.seq} history={self.history!r})"


def later(one: Holding, other: Holding) -> bool:
    """Tell whether a copy is further than another on the same branch, or was written later on another branch."""
    if one.epoch != other.epoch:
        return one.epoch > other.epoch
    return one.seq > other.seq


def knows_epoch(holder: Holding, epoch: int) -> bool:
    """Tell whether a copy has a change of an epoch."""
    for known, _base in holder.history:
        if known == epoch:
            return True
    return holder.seq > 0 and holder.epoch == epoch


def root_of(holding: Holding) -> int:
    """Return the epoch in which a copy's partition was begun from nothing; it is never forgotten. 0 = nobody knows.

    Of two copies with different roots the later one was begun because nobody had the earlier one at hand.
    """
    history = holding.history
    return history[0][0] if history and not history[0][1] else 0


def encode_holdings(holdings: list[Holding]) -> bytes:
    """Return the holdings of a node as bytes, one per partition in their order; epochs stand once in a table."""
    index: dict[int, int] = {}
    for holding in holdings:
        if holding.state == NONE:
            continue
        index.setdefault(holding.epoch, len(index))
        for epoch, _base in holding.history:
            index.setdefault(epoch, len(index))
    parts: list[bytes] = [bytes([_FORMAT]), varint(len(index))]
    parts.extend([varint(epoch) for epoch in index])
    parts.append(varint(len(holdings)))
    for holding in holdings:
        if holding.state == NONE:
            parts.append(b"\0")  # most of them, in a big cluster; it has no position
            continue
        parts.append(bytes([holding.state]))
        parts.append(varint(index[holding.epoch]))
        parts.append(varint(holding.seq))
        parts.append(varint(len(holding.history)))
        for epoch, base in holding.history:
            parts.append(varint(index[epoch]))
            parts.append(varint(base))
    return b"".join(parts)


def decode_holdings(data: bytes) -> list[Holding]:
    """Read what `encode_holdings` wrote; raises ValueError."""
    cursor = Cursor(data, "a list of holdings")
    found = cursor.byte()
    if found != _FORMAT:
        raise ValueError(f"a list of holdings has format {found}, this version reads format {_FORMAT}")
    epochs = [cursor.integer() for _ in range(cursor.count(len(data)))]
    holdings: list[Holding] = []
    for _ in range(cursor.count(_PARTITIONS_MAX)):
        head = cursor.byte()
        if head == 0:
            holdings.append(Holding(NONE, 0, 0, []))
            continue
        if head > DAMAGED:
            raise ValueError("a list of holdings names a state that does not exist")
        epoch = _epoch_at(epochs, cursor.integer())
        seq = cursor.integer()
        history: list[tuple[int, int]] = []
        for _entry in range(cursor.count(HISTORY_MAX)):
            entry_epoch = _epoch_at(epochs, cursor.integer())
            history.append((entry_epoch, cursor.integer()))
        holdings.append(Holding(head, epoch, seq, history))
    return holdings


def _epoch_at(epochs: list[int], number: int) -> int:
    if number >= len(epochs):
        raise ValueError("a list of holdings names an epoch that is not in its table")
    return epochs[number]
