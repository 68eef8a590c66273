"""The rows of the current turn: stamps each with the version of its change and gathers them into one batch.

A change is what one turn does to one partition: (partition, epoch, sequence, rows). It is the unit of replication.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import get_u64, u64
from folkmoot.store.batch import Batch

__all__ = ["VERSION_BYTES", "Writer", "body_of", "version_of"]

VERSION_BYTES: Final = 16
"""Every row value starts with (epoch, sequence), 8 bytes each: the change that wrote it."""


def version_of(value: bytes) -> tuple[int, int]:
    """Return (epoch, sequence) of the change that wrote the row."""
    return get_u64(value, 0), get_u64(value, 8)


def body_of(value: bytes) -> bytes:
    """Return the row value without its version."""
    return value[VERSION_BYTES:]


class Writer:
    """Collects the rows of a turn; `take` ends the turn.

    Sequences start at 1 in every epoch, and an opened store starts a new epoch, so that versions only grow
    although the last sequence of the epoch before is not kept anywhere.
    """

    def __init__(self, partitions: int, epoch: int) -> None:
        self.epoch = epoch
        self.batch = Batch(1)
        self._epoch_bytes = u64(epoch)
        self._sequences: list[int] = [0] * partitions
        self._versions: list[bytes] = [b""] * partitions
        self._touched: list[int] = []

    @property
    def token(self) -> int:
        """The token of the batch that the current turn fills."""
        return self.batch.token

    @property
    def dirty(self) -> bool:
        """Whether the current turn has changed a row."""
        return bool(self.batch.ops)

    def sequence(self, partition: int) -> int:
        """Return the sequence of the newest change of `partition`, that of the current turn included."""
        return self._sequences[partition]

    def version(self, partition: int) -> bytes:
        """Return the version of this turn's change of `partition`; begins the change if need be."""
        version = self._versions[partition]
        if not version:
            self._sequences[partition] += 1
            version = self._epoch_bytes + u64(self._sequences[partition])
            self._versions[partition] = version
            self._touched.append(partition)
        return version

    def put(self, partition: int, key: bytes, body: bytes) -> None:
        """Set the row at `key` of `partition` to the change's version followed by `body`."""
        self.batch.put(key, self.version(partition) + body)

    def delete(self, partition: int, key: bytes) -> None:
        """Remove the row at `key` of `partition`."""
        self.version(partition)
        self.batch.delete(key)

    def delete_range(self, partition: int, start: bytes, end: bytes) -> None:
        """Remove the rows of `partition` with start <= key < end."""
        self.version(partition)
        self.batch.delete_range(start, end)

    def split(self) -> None:
        """Let the rows that come later in this turn belong to later changes, so that they can be told from these."""
        for partition in self._touched:
            self._versions[partition] = b""
        self._touched.clear()

    def take(self) -> Batch | None:
        """End the turn: return its batch, or None when it changed nothing (the token is then used by the next turn)."""
        if not self.batch.ops:
            return None
        batch = self.batch
        self.split()
        self.batch = Batch(batch.token + 1)
        return batch
