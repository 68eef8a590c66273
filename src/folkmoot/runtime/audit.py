"""The audit log: who was let in or refused, which orders were given, what changed in the settings. JSON lines.

Owns the file, the thread that writes to it, and the aggregation of what is too frequent. It never stops the node: while
the file cannot be written, lines wait in memory up to a limit; what does not fit is counted, and the log of the node
says so. Secrets never get here: events have none, and of files with secrets only their names are recorded.

A line is written at once, and is on disk (fsync) within a second: a power cut loses what is newer.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from folkmoot.config.settings import Settings
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.errors import FolkmootError
from folkmoot.kernel.event import Event
from folkmoot.runtime.address import host_of, limit_key
from folkmoot.runtime.log import json_line, plain

__all__ = ["AUDITED", "Audit", "Frequency", "Reading", "SettingFiles", "open_audit"]

# Kinds of events of the log that are audited, whatever their level and however frequent.
AUDITED: Final = frozenset(
    {
        "admin_refused",
        "connect_refused",
        "connected",
        "handshake_failed",
        "node_refused",
        "origin_refused",
        "peer_refused",
        "peer_up",
        "publish_denied",
        "session_of_another",
        "session_revoked",
        "subscribe_denied",
        "subscription_revoked",
        "will_revoked",
    }
)
# Lines per second of one kind and address, and of one kind with all addresses; the others are counted in one line each.
LINES_MAX: Final = 50
KIND_LINES_MAX: Final = 1000
ADDRESSES_MAX: Final = 1024  # with counts of their own, per kind and second
WAITING_BYTES_MAX: Final = 16 << 20
RETRY_S: Final = 1.0
SYNC_S: Final = 1.0
CLOSE_S: Final = 2.0
STDERR: Final = "stderr"

Say = Callable[..., None]
"""`say(level, kind, **fields)` writes an event to the log of the node, in the thread of the loop."""


class Frequency:
    """Decides which events have a line of their own; counts the others per second, kind and address."""

    def __init__(self) -> None:
        self._second = 0
        self._lines: dict[str, int] = {}  # per kind
        self._of: dict[tuple[str, str], int] = {}  # per kind and address, all events
        self._counted: dict[tuple[str, str], int] = {}  # those without a line
        self._addresses: dict[str, int] = {}  # per kind, in `_of`

    def take(self, kind: str, address: str, now: int) -> bool:
        """Return whether an event has a line of its own; the caller has called `ended` for this time."""
        self._second = now // SECOND
        key = (kind, address)
        if key not in self._of:
            known = self._addresses.get(kind, 0)
            if known >= ADDRESSES_MAX:
                key = (kind, "")
            else:
                self._addresses[kind] = known + 1
        count = self._of[key] = self._of.get(key, 0) + 1
        lines = self._lines.get(kind, 0)
        if count <= LINES_MAX and lines < KIND_LINES_MAX:
            self._lines[kind] = lines + 1
            return True
        self._counted[key] = self._counted.get(key, 0) + 1
        return False

    def ended(self, now: int) -> list[tuple[str, str, int, int]]:
        """Return kind, address ("": further ones), count and second of what had no line, once their second is over."""
        if now // SECOND == self._second or not self._of:
            return []
        found = [(kind, address, count, self._second) for (kind, address), count in self._counted.items()]
        self._lines.clear()
        self._of.clear()
        self._counted.clear()
        self._addresses.clear()
        return found


class AuditFile:
    """Appends lines in a thread of its own; `report(why, lost)` is called there when the file fails and works again."""

    def __init__(self, path: Path | None, report: Callable[[str, int], None]) -> None:
        self._path = path
        self._report = report
        self._lock = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._lost = 0
        self._reopen = False
        self._ends = False
        self._failed = False
        self._unsynced = False
        self._synced_s = 0.0
        self._descriptor = self._open()
        self._thread = threading.Thread(target=self._run, name="folkmoot-audit", daemon=True)
        self._thread.start()

    def _open(self) -> int:
        if self._path is None:
            return 2
        try:
            if self._path.exists() and not self._path.is_file():
                raise FolkmootError(f'the audit log {self._path} must be a file, or "{STDERR}"')
            return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FolkmootError(f"cannot write the audit log {self._path}: {error.strerror}") from error

    def put(self, line: bytes) -> None:
        """Take a line; the oldest ones stay when there is no room for more."""
        with self._lock:
            if self._waiting_bytes + len(line) > WAITING_BYTES_MAX:
                self._lost += 1
                return
            self._waiting.append(line)
            self._waiting_bytes += len(line)
            self._lock.notify()

    def reopen(self) -> None:
        """Open the file again by its name, for programs that rename it (logrotate)."""
        with self._lock:
            self._reopen = self._path is not None
            self._lock.notify()

    def close(self) -> None:
        """Write what waits, for a short time."""
        with self._lock:
            self._ends = True
            self._lock.notify()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._is_done():
            try:
                self._work()
                self._works()
            except (OSError, FolkmootError) as error:
                self._fails(error)
                with self._lock:
                    if self._ends:
                        return
                    self._lock.wait_for(lambda: self._ends, RETRY_S)

    def _is_done(self) -> bool:
        """Wait until there is something to do; return whether that is to end, and everything is written."""
        with self._lock:
            while not (self._waiting or self._reopen or self._ends):
                if not self._unsynced:
                    self._lock.wait()
                elif not self._lock.wait(max(0.0, self._synced_s + SYNC_S - time.monotonic())):
                    break
            return self._ends and not (self._waiting or self._unsynced)

    def _work(self) -> None:
        if self._reopen and self._path is not None:
            self._reopen = False  # before the file is opened: it may be renamed again meanwhile
            try:
                self._sync()
                descriptor = self._open()
            except BaseException:
                self._reopen = True
                raise
            os.close(self._descriptor)
            self._descriptor = descriptor
        with self._lock:
            batch = b"".join(self._waiting)
            self._waiting.clear()
        if batch:
            self._unsynced = True
            self._write(batch)
        if self._ends or time.monotonic() - self._synced_s >= SYNC_S:
            self._sync()

    def _write(self, batch: bytes) -> None:
        """Write whole lines; what the disk does not take stays the next thing to be written."""
        at = 0
        try:
            while at < len(batch):
                at += os.write(self._descriptor, batch[at:])
        finally:
            with self._lock:
                self._waiting_bytes -= at
                if at < len(batch):
                    self._waiting.appendleft(batch[at:])

    def _sync(self) -> None:
        if self._path is not None and self._unsynced:
            os.fsync(self._descriptor)
        self._unsynced = False
        self._synced_s = time.monotonic()

    def _fails(self, error: OSError | FolkmootError) -> None:
        if not self._failed:
            self._failed = True
            self._report(str(error), 0)

    def _works(self) -> None:
        with self._lock:
            lost, self._lost = self._lost, 0
        if self._failed or lost:
            self._failed = False
            self._report("", lost)


class Audit:
    """Turns events into lines of the audit log of one node."""

    def __init__(self, path: Path | None, node_id: str, say: Say) -> None:
        self._node_id = node_id
        self._say = say
        self._frequency = Frequency()
        self._file = AuditFile(path, self._report)
        self._later: Callable[[Callable[[], None]], object] | None = None
        self.lost = 0

    def run_in(self, later: Callable[[Callable[[], None]], object]) -> None:
        """Say in another thread, by `later(call)`, how the file is."""
        self._later = later

    def take(self, events: Iterable[Event], now: int) -> None:
        """Record those of the events of a turn that are audited."""
        for event in events:
            if event.kind in AUDITED:
                self.record(event.kind, now, event.fields)

    def record(self, kind: str, now: int, fields: dict[str, object]) -> None:
        """Record one event, or count it if it is too frequent."""
        self.tick(now)
        address = fields.get("address")
        if self._frequency.take(kind, limit_key(host_of(str(address))) if address else "", now):
            self._put(kind, now, fields)

    def tick(self, now: int) -> None:
        """Record the counts of a second that is over; to be called regularly."""
        for kind, address, count, second in self._frequency.ended(now):
            where = {"address": address} if address else {}
            self._put(kind, second * SECOND, {**where, "count": count, "aggregated": True})

    def _put(self, kind: str, now: int, fields: dict[str, object]) -> None:
        moment = datetime.fromtimestamp(now / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        head = {"time": moment, "node": self._node_id, "event": kind}
        rest = {name: plain(value) for name, value in fields.items() if name not in head}
        self._file.put(json_line({**head, **rest}))

    def _report(self, why: str, lost: int) -> None:
        if self._later is not None:
            try:
                self._later(lambda: self._tell(why, lost))
            except RuntimeError:  # the loop is closed
                return

    def _tell(self, why: str, lost: int) -> None:
        self.lost += lost
        if why:
            self._say("error", "audit_failed", reason=f"{why}; the node goes on, and lines wait in memory")
            return
        self._say("warning" if lost else "info", "audit_works", lost=lost)
        if lost:
            self.record("audit_lost", time.time_ns() // 1000, {"lines": lost})

    def reopen(self) -> None:
        """Open the file again by its name."""
        self._file.reopen()

    def close(self, now: int) -> None:
        """Record what was counted, write everything, close."""
        self.tick(now + SECOND)
        self._file.close()


class Reading:
    """What settings and the files that they name say: keyed digests by the path of the setting, and users."""

    def __init__(self, digests: dict[str, bytes], users: dict[str, str]) -> None:
        self.digests = digests
        self.users = users


class SettingFiles:
    """What is in force, to find out what a reload changes. Keeps keyed digests, no content.

    A reading that was not put into force changes nothing: the next one is still compared with what is.
    """

    def __init__(self, settings: Settings, users: dict[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._in_force = self.read(settings, users)

    def read(self, settings: Settings, users: dict[str, str]) -> Reading:
        """Read what a reload reads again; users: what the password file says. Changes nothing, so in any thread."""
        return Reading({name: self._digest(value) for name, value in read_again(settings)}, dict(users))

    def _digest(self, value: object) -> bytes:
        digest = hashlib.blake2b(repr(value).encode(), key=self._key)
        if isinstance(value, Path):
            try:
                digest.update(value.read_bytes())
            except OSError:
                digest.update(b"cannot be read")
        return digest.digest()

    def replace(self, reading: Reading) -> dict[str, object]:
        """Put a reading into force; return which settings, files and users it changes: fields of an audit line."""
        before, now = self._in_force, reading
        self._in_force = now
        names = list(dict.fromkeys([*before.digests, *now.digests]))
        both = now.users.keys() & before.users.keys()
        lists = {
            "changed": [name for name in names if before.digests.get(name) != now.digests.get(name)],
            "users_added": sorted(now.users.keys() - before.users.keys()),
            "users_removed": sorted(before.users.keys() - now.users.keys()),
            "users_changed": sorted(user for user in both if now.users[user] != before.users[user]),
        }
        return {name: found for name, found in lists.items() if found or name == "changed"}


def read_again(settings: Settings) -> list[tuple[str, object]]:
    """Return the settings that a reload puts into force, by their paths."""
    auth = settings.auth
    found: list[tuple[str, object]] = [(f"auth.{name}", getattr(auth, name)) for name in type(auth).model_fields]
    admin = settings.admin
    found += [("admin.token_file", admin.token_file), ("admin.metrics_token_file", admin.metrics_token_file)]
    found.append(("cluster.secret_file", settings.cluster.secret_file))
    sections = [("tls", settings.tls), ("cluster.tls", settings.cluster.tls)]
    sections += [(f"listeners[{at}].tls", listener.tls) for at, listener in enumerate(settings.listeners)]
    for path, section in sections:
        if section is not None:
            found += [(f"{path}.{name}", getattr(section, name)) for name in type(section).model_fields]
    return found + [(f"listeners[{at}].origins", listener.origins) for at, listener in enumerate(settings.listeners)]


def open_audit(settings: Settings, say: Say) -> Audit | None:
    """Open the audit log that the settings name; None if there is none. Raises FolkmootError."""
    target = settings.log.audit
    if not target:
        return None
    return Audit(None if target == STDERR else Path(target), settings.node.id, say)
