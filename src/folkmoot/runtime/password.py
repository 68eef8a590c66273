"""Password checks beside the loop: a small pool of threads, and a memory of recent successes.

Owns no password: the memory holds keyed hashes (BLAKE2b under a random key of this process) of user name, password
and stored hash, so that neither a changed file nor a memory dump makes it useful. A broker that loses 10,000 clients
for a second would otherwise spend minutes on hashing passwords that it has just seen.
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

if TYPE_CHECKING:
    from folkmoot.session.connection import Authenticate, Connection

__all__ = ["CheckListener", "PasswordChecks"]

THREADS: Final = 2  # each check takes about 40 ms and 16 MiB
REMEMBERED_MAX: Final = 100_000
WAITING_MAX: Final = 4096  # clients beyond are cut off without an answer: they come back, and the queue stays short
KEY_BYTES: Final = 32


class CheckListener(ABC):
    """Who asked."""

    @abstractmethod
    def authenticated(self, connection: Connection, accepted: bool) -> None:
        """Take the answer; called in the loop's thread."""

    @abstractmethod
    def is_open(self, connection: Connection) -> bool:
        """Whether the connection still waits for the answer; called in any thread."""

    @abstractmethod
    def cut(self, connection: Connection) -> None:
        """Close a connection that cannot be answered now: a wrong answer might make its client give up."""


class PasswordChecks:
    """Answers the node's checks from a password file."""

    def __init__(self, path: Path, loop: AbstractEventLoop, listener: CheckListener) -> None:
        self._path = path
        self._loop = loop
        self._listener = listener
        self._file = PasswordFile.read(path)
        self._key = secrets.token_bytes(KEY_BYTES)
        self._remembered: OrderedDict[bytes, None] = OrderedDict()
        self._asking: dict[bytes, list[Connection]] = {}  # who waits for the same answer
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="folkmoot-password")

    def check(self, check: Authenticate) -> None:
        """Answer later, also when the answer is known: the node is in the middle of a turn."""
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
        """Return what stands for this success: it changes with the file's hash, and tells nothing without the key."""
        known = self._file.hashes.get(username, "")
        text = b"".join([len(part).to_bytes(4, "big") + part for part in (username.encode(), known.encode(), password)])
        return hashlib.blake2b(text, key=self._key, digest_size=16).digest()

    def _work(self, mark: bytes, username: str, password: bytes, file: PasswordFile) -> None:
        """Check in a thread of the pool, unless all who asked have gone while they waited for their turn."""
        waited = any(self._listener.is_open(connection) for connection in list(self._asking[mark]))
        try:
            accepted = waited and file.verify(username, password)
        except (ValueError, MemoryError):  # a hash with costs that this machine cannot pay
            accepted = False
        try:
            self._loop.call_soon_threadsafe(self._finish if waited else self._drop, mark, accepted)
        except RuntimeError:  # the loop is closed
            return

    def _drop(self, mark: bytes, _accepted: bool) -> None:
        """Nobody waited; who has asked since then is cut off and asks again."""
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
        """Read the file again; ConfigError names a wrong line and leaves the users as they were."""
        self._file = PasswordFile.read(self._path)
        self._remembered.clear()

    def close(self) -> None:
        """End the threads; answers still on their way are dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)
