"""Password checks beside the loop: a small pool of threads, and a memory of recent successes.

Owns no password: the memory holds keyed hashes (BLAKE2b under a random key of this process) of user name, password
and stored hash, so that neither a changed file nor a memory dump makes it useful. A broker that loses 10,000 clients
for a second would otherwise spend minutes on hashing passwords that it has just seen.
"""

from __future__ import annotations

import hashlib
import secrets
from asyncio import AbstractEventLoop
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from folkmoot.config.password import PasswordFile

if TYPE_CHECKING:
    from folkmoot.session.connection import Authenticate, Connection

__all__ = ["PasswordChecks"]

THREADS: Final = 2  # each check takes about 40 ms and 16 MiB
REMEMBERED_MAX: Final = 100_000
WAITING_MAX: Final = 4096  # checks beyond are refused: their clients come back, and the queue stays short
KEY_BYTES: Final = 32


class PasswordChecks:
    """Answers the node's checks from a password file; `answer(connection, accepted)` is called in the loop's thread."""

    def __init__(self, path: Path, loop: AbstractEventLoop, answer: Callable[[Connection, bool], None]) -> None:
        self._path = path
        self._loop = loop
        self._answer = answer
        self._file = PasswordFile.read(path)
        self._key = secrets.token_bytes(KEY_BYTES)
        self._remembered: OrderedDict[bytes, None] = OrderedDict()
        self._waiting = 0
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="folkmoot-password")

    def check(self, check: Authenticate) -> None:
        """Answer later, also when the answer is known: the node is in the middle of a turn."""
        if check.username is None or check.password is None:
            self._loop.call_soon(self._answer, check.connection, False)
            return
        mark = self._mark(check.username, check.password)
        if mark in self._remembered:
            self._remembered.move_to_end(mark)
            self._loop.call_soon(self._answer, check.connection, True)
        elif self._waiting >= WAITING_MAX:
            self._loop.call_soon(self._answer, check.connection, False)
        else:
            self._waiting += 1
            self._pool.submit(self._work, check.connection, check.username, check.password, mark, self._file)

    def _mark(self, username: str, password: bytes) -> bytes:
        """Return what stands for this success: it changes with the file's hash, and tells nothing without the key."""
        known = self._file.hashes.get(username, "")
        text = b"".join([len(part).to_bytes(4, "big") + part for part in (username.encode(), known.encode(), password)])
        return hashlib.blake2b(text, key=self._key, digest_size=16).digest()

    def _work(self, connection: Connection, username: str, password: bytes, mark: bytes, file: PasswordFile) -> None:
        """Check in a thread of the pool."""
        try:
            accepted = file.verify(username, password)
        except (ValueError, MemoryError):  # a hash with costs that this machine cannot pay
            accepted = False
        try:
            self._loop.call_soon_threadsafe(self._finish, connection, accepted, mark)
        except RuntimeError:  # the loop is closed
            return

    def _finish(self, connection: Connection, accepted: bool, mark: bytes) -> None:
        self._waiting -= 1
        if accepted:
            self._remembered[mark] = None
            if len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        self._answer(connection, accepted)

    def reload(self) -> None:
        """Read the file again; ConfigError names a wrong line and leaves the users as they were."""
        self._file = PasswordFile.read(self._path)
        self._remembered.clear()

    def close(self) -> None:
        """End the threads; answers still on their way are dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)
