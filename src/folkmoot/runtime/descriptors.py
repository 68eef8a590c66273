"""File descriptors: how many this process may have, and what they are for.

Owns the limit of the process (RLIMIT_NOFILE), the shares of the store, of HTTP, of other nodes and of clients, and some
spare descriptors for reads of the store when there are none left. Connections never get the share of the store.
"""

from __future__ import annotations

import os
import resource
from typing import Final

__all__ = ["Descriptors", "Spare", "available", "raise_limit"]

# Tables that the store keeps open, at most and at least: RocksDB keeps one in each of 64 shards of its cache. Beside
# them it has logs, the manifest, and tables that are being written.
TABLES_MAX: Final = 256
TABLES_MIN: Final = 64
STORE_FILES: Final = 64
# Standard streams, the loop, listeners, files that are read again; spare ones.
OTHER_FILES: Final = 96
HTTP_CONNECTIONS: Final = 256
PEERS_MAX: Final = 2048
PEERS_MIN: Final = 192  # more than the handshakes that the node allows at once
SPARE: Final = 16
# Clients may be connected until so many are left, which are for those that are told that the node is full.
ARRIVALS_MAX: Final = 256


class Descriptors:
    """The shares of a limit; `http` and `cluster` tell whether the node has these servers."""

    def __init__(self, limit: int, http: bool, cluster: bool) -> None:
        self.limit = limit
        self.tables = min(max(limit // 8, TABLES_MIN), TABLES_MAX)
        self.http = HTTP_CONNECTIONS if http else 0
        self.peers = min(max(limit // 8, PEERS_MIN), PEERS_MAX) if cluster else 0
        self.reserved = self.tables + STORE_FILES + OTHER_FILES + self.http + self.peers
        self.sockets = max(limit - self.reserved, limit // 8, 1)  # of clients
        self.clients = self.sockets - min(self.sockets // 8, ARRIVALS_MAX)

    @property
    def enough(self) -> bool:
        """Whether the limit is above what the node needs beside clients."""
        return self.limit >= self.reserved + self.sockets


class Spare:
    """Descriptors that are kept open, so that they can be closed when the process has no other left."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self.refill()

    def refill(self) -> bool:
        """Open the descriptors that are missing; return whether all are there."""
        try:
            while len(self._held) < SPARE:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Close them; idempotent."""
        while self._held:
            os.close(self._held.pop())


def available(count: int) -> bool:
    """Return whether this process could open `count` files now."""
    held: list[int] = []
    try:
        for _ in range(count):
            held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))  # noqa: PERF401 - those before an error too
    except OSError:
        return False
    finally:
        for descriptor in held:
            os.close(descriptor)
    return True


def raise_limit() -> int:
    """Raise the limit of descriptors to what the system allows; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            pass
    return soft
