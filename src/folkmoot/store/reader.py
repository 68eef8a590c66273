"""How a core reads the store: synchronous, small, bounded. Drivers implement it (RocksDB, the simulated disk)."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

__all__ = ["Reader"]


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
    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the row with the greatest key in start <= key < end, or None."""
