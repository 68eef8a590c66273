"""How a core reads the store: synchronous, small, bounded. Drivers implement it (RocksDB, the simulated disk)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

__all__ = ["Reader", "Snapshot"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Snapshot(ABC):
    """The rows as they were at one moment, for pages that must fit together; it costs space until it is closed."""

    @abstractmethod
    def scan(self, start: bytes, end: bytes, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """Return rows with start <= key < end, in key order: at most `rows_max`, and none after `bytes_max` bytes.

        Raises CorruptStore at a damaged block, SnapshotGone once it is closed.
        """

    @abstractmethod
    def close(self) -> None:
        """Let the store forget what only this snapshot needs; idempotent."""


# The store on RocksDB is interpreted.
@mypyc_attr(allow_interpreted_subclasses=True)
class Reader(ABC):
    """Ordered rows as they are after the last written batch; a batch that is not yet written is not visible."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value at `key`, or None."""

    @abstractmethod
    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows with start <= key < end, in key order."""

    def bytes_between(self, start: bytes, end: bytes) -> int:
        """Return about how many bytes the rows with start <= key < end have; a guess that costs little, 0 = unknown."""
        assert start <= end, "a range"
        return 0

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the rows of this moment; whoever asks closes it soon."""

    @abstractmethod
    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the row with the greatest key in start <= key < end, or None."""
