"""Password checks outside the loop: a small thread pool, and the marks of passwords that were right.

Owns the threads and the keys of marks. Which check is done, waits or is refused, `folkmoot.auth.login` decides. A mark
is a keyed hash (BLAKE2b) of user name, password and stored hash: it does not outlive a change of the password, and does
not reveal it without the key. The keys are derived from the secrets of the cluster, so that its nodes can tell each
other their marks; a node without a secret draws a random one. Without marks, a broker that loses 10,000 clients for a
second would spend minutes on hashing passwords that it has just verified.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from folkmoot.auth.login import OVERFLOW, UNIT_BYTES, Login, Logins, address_key, told
from folkmoot.auth.remembered import MARK_BYTES, Remembered
from folkmoot.config.password import PasswordFile

if TYPE_CHECKING:
    from folkmoot.kernel.limits import Limits
    from folkmoot.session.connection import Authenticate, Connection

__all__ = ["CheckListener", "PasswordChecks", "mark_keys"]

THREADS: Final = 2  # each check takes about 40 ms and 16 MiB
WAITING_MAX: Final = 4096  # further clients are disconnected without an answer: they retry, and the queue stays short
# What clients keep in memory that wait for the check of another one, of the same address, name and password; each
# counts as JOINED_BYTES_MIN at least.
JOINED_BYTES_MAX: Final = 32 << 20
JOINED_BYTES_MIN: Final = 1024
CROWDED: Final = "too many large CONNECT packets wait for the check of their passwords: try again later"
KEY_BYTES: Final = 32
LABEL: Final = b"folkmoot marks of passwords 1 "


def mark_keys(cluster: str, words: list[bytes]) -> list[bytes]:
    """Return a key for each secret of a cluster; a random one without a secret."""
    if not words:
        return [secrets.token_bytes(KEY_BYTES)]
    return [hmac.new(word, LABEL + cluster.encode(), hashlib.sha256).digest() for word in words]


class CheckListener(ABC):
    """Receives the results of checks."""

    @abstractmethod
    def authenticated(self, connection: Connection, accepted: bool) -> None:
        """Take a result; called in the loop's thread."""

    @abstractmethod
    def limited(self, connection: Connection, why: str) -> None:
        """Refuse a connection whose password is not checked, after too many wrong ones."""

    @abstractmethod
    def crowded(self, connection: Connection, why: str) -> None:
        """Refuse a connection for whose check there is no room."""

    @abstractmethod
    def is_open(self, connection: Connection) -> bool:
        """Whether the connection still waits for the result."""

    @abstractmethod
    def cut(self, connection: Connection) -> None:
        """Abort a connection that cannot be answered now: after a refusal its client might give up."""

    @abstractmethod
    def checking(self) -> None:
        """Count a check."""

    @abstractmethod
    def remember(self, mark: bytes) -> None:
        """Keep the mark of a password that was right."""


class _Check:
    """A check that waits or is done, and the connections that wait for the same result."""

    def __init__(self, login: Login, mark: bytes, first: Authenticate) -> None:
        self.login = login
        self.mark = mark
        self.waiting = [first]
        self.joined_bytes = 0  # of the others


class PasswordChecks:
    """Checks user names and passwords against a password file."""

    def __init__(
        self,
        file: PasswordFile,
        loop: AbstractEventLoop,
        listener: CheckListener,
        limits: Limits,
        remembered: Remembered,
        keys: list[bytes],
    ) -> None:
        self._file = file
        self._loop = loop
        self._listener = listener
        self._remembered = remembered
        self._keys = keys
        self._logins = Logins(limits.login_failures_max, limits.login_failure_interval_us, WAITING_MAX)
        self._checks: dict[int, _Check] = {}
        self._asking: dict[tuple[str, bytes], _Check] = {}  # by address and mark
        self._joined_bytes = 0
        self._numbers = 0
        self._running = 0
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="folkmoot-password")

    def check(self, check: Authenticate) -> None:
        """Start a check. The result is delivered later, even if it is known: the node is in the middle of a turn."""
        listener, connection = self._listener, check.connection
        if check.username is None or check.password is None:
            self._loop.call_soon(listener.authenticated, connection, False)
            return
        now = self._now()
        address = address_key(connection.info.address)
        marks = [self._mark(key, check.username, check.password) for key in self._keys]
        if any(self._remembered.has(mark) for mark in marks):
            self._logins.succeeded(address, check.username)
            self._loop.call_soon(self._known, check, marks[0], self._file)
            return
        same = self._asking.get((address, marks[0]))
        if same is not None:
            self._join(same, check)
            return
        self._numbers += 1
        login = Login(self._numbers, address, check.username, held_by(check))
        answer = self._logins.enter(login, now)
        self._drop_overflowed()
        if answer == OVERFLOW:
            self._turn_away(check)
        elif answer:
            self._loop.call_soon(listener.limited, connection, told(answer))
        else:
            found = _Check(login, marks[0], check)
            self._checks[login.number] = found
            self._asking[(address, marks[0])] = found
            self._begin()

    def _join(self, same: _Check, check: Authenticate) -> None:
        """Wait for the same result."""
        size = max(held_by(check), JOINED_BYTES_MIN)
        if self._joined_bytes + size > JOINED_BYTES_MAX:
            self._turn_away(check)
            return
        same.waiting.append(check)
        same.joined_bytes += size
        self._joined_bytes += size

    def _turn_away(self, check: Authenticate) -> None:
        """End a connection for whose check there is no room: a large packet is no chance of a crowd."""
        if held_by(check) > UNIT_BYTES:
            self._loop.call_soon(self._listener.crowded, check.connection, CROWDED)
        else:
            self._loop.call_soon(self._listener.cut, check.connection)

    def _now(self) -> int:
        return int(self._loop.time() * 1_000_000)

    def _mark(self, key: bytes, username: str, password: bytes) -> bytes:
        """Return the mark of a success: it changes with the stored hash and reveals nothing without the key."""
        known = self._file.hashes.get(username, "")
        text = b"".join([len(part).to_bytes(4, "big") + part for part in (username.encode(), known.encode(), password)])
        return hashlib.blake2b(text, key=key, digest_size=MARK_BYTES).digest()

    def _known(self, check: Authenticate, mark: bytes, file: PasswordFile) -> None:
        if self._is_changed(check.username, file):
            self.check(check)
            return
        self._listener.remember(mark)  # it may have been found under a former key
        self._listener.authenticated(check.connection, True)

    def _is_changed(self, username: str | None, file: PasswordFile) -> bool:
        """Whether the file was read again since, and the user's entry has changed."""
        return file is not self._file and file.hashes.get(username or "") != self._file.hashes.get(username or "")

    def _begin(self) -> None:
        """Give the threads something to do; skip what nobody waits for any more."""
        while self._running < THREADS:
            now = self._now()
            login = self._logins.take(now)
            self._drop_refused(now)
            if login is None:
                return
            check = self._checks[login.number]
            if self._remembered.has(check.mark):  # found right meanwhile: many devices may have one password
                self._end(check, True)
            elif any(self._listener.is_open(one.connection) for one in check.waiting):
                self._running += 1
                self._listener.checking()
                first = check.waiting[0]
                assert first.username is not None
                assert first.password is not None
                self._pool.submit(self._work, check, first.username, first.password, self._file)
            else:
                self._forget(check)

    def _forget(self, check: _Check) -> None:
        del self._checks[check.login.number]
        del self._asking[(check.login.address, check.mark)]
        self._joined_bytes -= check.joined_bytes

    def _drop_refused(self, now: int) -> None:
        for login in self._logins.refused:
            check = self._checks[login.number]
            self._forget(check)
            why = told(self._logins.wait_us(login.address, now))
            for one in check.waiting:
                self._loop.call_soon(self._listener.limited, one.connection, why)
        self._logins.refused.clear()

    def _drop_overflowed(self) -> None:
        for login in self._logins.overflowed:
            check = self._checks[login.number]
            self._forget(check)
            for one in check.waiting:
                self._turn_away(one)
        self._logins.overflowed.clear()

    def _work(self, check: _Check, username: str, password: bytes, file: PasswordFile) -> None:
        """Check in a thread of the pool."""
        try:
            accepted = file.verify(username, password)
        except (ValueError, MemoryError):  # a hash whose cost parameters exceed this machine
            accepted = False
        try:
            self._loop.call_soon_threadsafe(self._finish, check, accepted, file)
        except RuntimeError:  # the loop is closed
            return

    def _finish(self, check: _Check, accepted: bool, file: PasswordFile) -> None:
        self._running -= 1
        if self._is_changed(check.login.username, file):
            self._forget(check)
            for one in check.waiting:
                self.check(one)
        else:
            self._end(check, accepted)
        self._begin()

    def _end(self, check: _Check, accepted: bool) -> None:
        self._forget(check)
        self._logins.checked(check.login, accepted, self._now())
        if accepted:
            self._listener.remember(check.mark)
        for one in check.waiting:
            self._listener.authenticated(one.connection, accepted)

    def replace(self, file: PasswordFile, keys: list[bytes]) -> None:
        """Use another content of the file, and other keys. Users whose stored hash is the same stay remembered."""
        self._file = file
        self._keys = keys

    def close(self) -> None:
        """End the threads; pending results are dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def held_by(check: Authenticate) -> int:
    """Return how many bytes of its client are in memory while it waits."""
    return check.connection.connect_held() + check.connection.waiting_bytes()
