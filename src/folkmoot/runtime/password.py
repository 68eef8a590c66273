"""Password checks outside the loop: a small thread pool, and a cache of recent successes.

The cache holds no passwords but keyed hashes (BLAKE2b with a random key per process) of user name, password and stored
hash. An entry does not outlive a change of the file, and a memory dump does not reveal a password. Without the cache,
a broker that loses 10,000 clients for a second would spend minutes on hashing passwords that it has just verified.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from folkmoot.config.password import PasswordFile
from folkmoot.config.secret import check_private

if TYPE_CHECKING:
    from folkmoot.session.connection import Authenticate, Connection

__all__ = ["CheckListener", "PasswordChecks"]

THREADS: Final = 2  # each check takes about 40 ms and 16 MiB
REMEMBERED_MAX: Final = 100_000
WAITING_MAX: Final = 4096  # further clients are disconnected without an answer: they retry, and the queue stays short
KEY_BYTES: Final = 32


class CheckListener(ABC):
    """Receives the results of checks."""

    @abstractmethod
    def authenticated(self, connection: Connection, accepted: bool) -> None:
        """Take a result; called in the loop's thread."""

    @abstractmethod
    def is_open(self, connection: Connection) -> bool:
        """Whether the connection still waits for the result; called in any thread."""

    @abstractmethod
    def cut(self, connection: Connection) -> None:
        """Abort a connection that cannot be answered now: after a refusal its client might give up."""


class PasswordChecks:
    """Checks user names and passwords against a password file."""

    def __init__(self, path: Path, loop: AbstractEventLoop, listener: CheckListener) -> None:
        self._path = path
        self._loop = loop
        self._listener = listener
        self._file = PasswordFile.read(path)
        self._key = secrets.token_bytes(KEY_BYTES)
        self._remembered: OrderedDict[bytes, None] = OrderedDict()
        self._asking: dict[bytes, list[Connection]] = {}  # connections that wait for the same result
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="folkmoot-password")

    def check(self, check: Authenticate) -> None:
        """Start a check. The result is delivered later, even if it is cached: the node is in the middle of a turn."""
        listener, connection = self._listener, check.connection
        if check.username is None or check.password is None:
            self._loop.call_soon(listener.authenticated, connection, False)
            return
        mark = self._mark(check.username, check.password)
        if mark in self._remembered:
            self._remembered.move_to_end(mark)
            self._loop.call_soon(listener.authenticated, connection, True)
        elif mark in self._asking:
            self._asking[mark].append(connection)
        elif len(self._asking) >= WAITING_MAX:
            self._loop.call_soon(listener.cut, connection)
        else:
            self._asking[mark] = [connection]
            self._pool.submit(self._work, mark, check.username, check.password, self._file)

    def _mark(self, username: str, password: bytes) -> bytes:
        """Return the cache key of a success: it changes with the stored hash and reveals nothing without the secret."""
        known = self._file.hashes.get(username, "")
        text = b"".join([len(part).to_bytes(4, "big") + part for part in (username.encode(), known.encode(), password)])
        return hashlib.blake2b(text, key=self._key, digest_size=16).digest()

    def _work(self, mark: bytes, username: str, password: bytes, file: PasswordFile) -> None:
        """Check in a thread of the pool, unless all connections that wait for the result have gone."""
        waited = any(self._listener.is_open(connection) for connection in list(self._asking[mark]))
        try:
            accepted = waited and file.verify(username, password)
        except (ValueError, MemoryError):  # a hash whose cost parameters exceed this machine
            accepted = False
        try:
            self._loop.call_soon_threadsafe(self._finish if waited else self._drop, mark, accepted)
        except RuntimeError:  # the loop is closed
            return

    def _drop(self, mark: bytes, _accepted: bool) -> None:
        """The check was skipped because no connection waited; abort those that have asked since, so that they retry."""
        for connection in self._asking.pop(mark):
            self._listener.cut(connection)

    def _finish(self, mark: bytes, accepted: bool) -> None:
        if accepted:
            self._remembered[mark] = None
            if len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        for connection in self._asking.pop(mark):
            self._listener.authenticated(connection, accepted)

    def reload(self) -> None:
        """Read the file again; on FolkmootError, which names the wrong line, the users stay as they were."""
        check_private(self._path)
        self._file = PasswordFile.read(self._path)
        self._remembered.clear()

    def close(self) -> None:
        """End the threads; pending results are dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)
