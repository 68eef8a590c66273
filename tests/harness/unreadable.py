"""A store that cannot read rows of one kind: their blocks have a wrong checksum."""

from __future__ import annotations

from folkmoot.kernel.errors import CorruptStore
from folkmoot.store.key import kind_of
from folkmoot.store.reader import Reader, Snapshot

__all__ = ["Unreadable"]


class Unreadable(Reader):
    """Cannot read rows of a kind; without `gets` only in a scan, without `scans` only one by one."""

    def __init__(self, reader: Reader, kind: int, *, gets: bool = True, scans: bool = True) -> None:
        self.reader = reader
        self.kind = kind
        self.gets = gets
        self.scans = scans

    def get(self, key: bytes) -> bytes | None:
        if self.gets and kind_of(key) == self.kind:
            raise CorruptStore("block checksum mismatch")
        return self.reader.get(key)

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        if self.scans and kind_of(start) == self.kind:
            raise CorruptStore("block checksum mismatch")
        return self.reader.scan(start, end, limit)

    def snapshot(self) -> Snapshot:
        return self.reader.snapshot()

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        return self.reader.last(start, end)
