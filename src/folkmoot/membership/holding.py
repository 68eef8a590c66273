"""Holdings: what one node has of each partition.

Owns the values. Never compares copies (`divergence` does), and never reads a store (`replica` does).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

__all__ = [
    "COMPLETE",
    "DAMAGED",
    "DOUBTFUL",
    "FORGOTTEN",
    "HISTORY_MAX",
    "NONE",
    "PARTIAL",
    "Holding",
    "HoldingsSource",
    "knows_epoch",
    "later",
]

NONE: Final = 0  # nothing was ever stored
PARTIAL: Final = 1  # is being filled, or was when its node stopped: it has holes
COMPLETE: Final = 2  # everything up to its position; also nothing, if the node is a replica of an empty partition
DAMAGED: Final = 3  # a checksum or digest shows that rows are wrong or missing
DOUBTFUL: Final = 4  # everything up to its position, but what it has confirmed after that may be missing

FORGOTTEN: Final = 0  # in a history, in place of an epoch: from there up to the next entry epochs were forgotten
HISTORY_MAX: Final = 1024  # entries of a history at most; reached only while a copy is being filled over so many epochs


class Holding:
    """A copy of one partition.

    epoch, seq: its position, the last change that it has; (0, 0) = none. history: the epochs in which the
    partition was changed, oldest first, each with the last seq before it, so that epoch e has the changes from there
    up to the next entry; where epochs were forgotten an entry FORGOTTEN stands for them (see `history`).
    """

    def __init__(self, state: int, epoch: int, seq: int, history: list[tuple[int, int]]) -> None:
        self.state = state
        self.epoch = epoch
        self.seq = seq
        self.history = history

    def __repr__(self) -> str:
        return f"Holding(state={self.state} epoch={self.epoch} seq={self.seq} history={self.history!r})"


def later(one: Holding, other: Holding) -> bool:
    """Tell whether a copy is ahead of another on the same branch, or was written later on another branch."""
    if one.epoch != other.epoch:
        return one.epoch > other.epoch
    return one.seq > other.seq


def knows_epoch(holder: Holding, epoch: int) -> bool:
    """Tell whether a copy has a change of an epoch."""
    for known, _base in holder.history:
        if known == epoch:
            return True
    return holder.seq > 0 and holder.epoch == epoch


@mypyc_attr(allow_interpreted_subclasses=True)  # asked a few times a second, while this node is not up
class HoldingsSource(ABC):
    """Says what this node holds."""

    @abstractmethod
    def holdings(self) -> list[Holding]:
        """Return what this node has of each partition, in their order."""
