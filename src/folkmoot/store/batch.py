"""A batch: the rows that one turn changes, made durable as a whole or not at all."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import BYTE, varint

__all__ = ["DELETE", "DELETE_RANGE", "PUT", "Batch", "encode_ops"]

PUT: Final = 0
DELETE: Final = 1
DELETE_RANGE: Final = 2


class Batch:
    """An atomic write: operations in order, identified by a token that grows by one per batch."""

    def __init__(self, token: int) -> None:
        self.token = token
        self.ops: list[tuple[int, bytes, bytes]] = []
        self.bytes = 0
        self.copied_bytes = 0  # of them, of rows that other nodes lead: they wait for this disk alone
        # Of each change that begins in it: the partition, the version of the change before, the number of operations
        self.begins: list[tuple[int, bytes, int]] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Set the row at `key`."""
        self.ops.append((PUT, key, value))
        self.bytes += len(key) + len(value)

    def delete(self, key: bytes) -> None:
        """Remove the row at `key`, if there is one."""
        self.ops.append((DELETE, key, b""))
        self.bytes += len(key)

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Remove all rows with start <= key < end."""
        self.ops.append((DELETE_RANGE, start, end))
        self.bytes += len(start) + len(end)


def encode_ops(ops: list[tuple[int, bytes, bytes]]) -> bytes:
    """Return operations of a batch as bytes: kind, key, and value or end, each behind its length."""
    parts: list[bytes] = []
    for kind, key, value in ops:
        parts.append(BYTE[kind])
        parts.append(varint(len(key)))
        parts.append(key)
        if kind != DELETE:
            parts.append(varint(len(value)))
            parts.append(value)
    return b"".join(parts)
