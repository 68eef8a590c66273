"""Synchronous, bounded reads of the store. Drivers implement them (RocksDB, the simulated disk)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from mypy_extensions import mypyc_attr

__all__ = ["Reader", "Snapshot"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Snapshot(ABC):
    """The rows at one moment, for consistent reads in several pages; it costs space until it is closed."""

    @abstractmethod
    def scan(self, start: bytes, end: bytes, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """Return rows with start <= key < end, in key order: at most `rows_max`, and none after `bytes_max` bytes.

        Fewer rows and bytes than that are the last ones of the range.
        Raises CorruptStore at a damaged block, SnapshotGone after `close`.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the snapshot; idempotent."""


# The store on RocksDB is interpreted.
@mypyc_attr(allow_interpreted_subclasses=True)
class Reader(ABC):
    """Ordered rows as of the last written batch; batches that are not written yet are not visible."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value at `key`, or None."""

    @abstractmethod
    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows with start <= key < end, in key order."""

    def bytes_between(self, start: bytes, end: bytes) -> int:
        """Return a cheap estimate of the bytes of the rows with start <= key < end; 0 = unknown."""
        assert start <= end, "a range"
        return 0

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return a snapshot of the current rows; the caller closes it soon."""

    def logged(self, bytes_max: int) -> Iterator[list[tuple[int, bytes, bytes]]]:
        """Yield what the newest writes have done, oldest first and none missing between, as far as this is still known.

        They take about `bytes_max` at most. For a start: nothing is written meanwhile.
        """
        assert bytes_max >= 0, "a limit"
        return iter(())

    @abstractmethod
    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the row with the greatest key in start <= key < end, or None."""
