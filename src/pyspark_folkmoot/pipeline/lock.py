"""One driver per state folder: a lock that the kernel releases when its holder dies, with the holder's name in it.

And one pipeline per folder: from its first run on, a file in the folder has its name.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from pyspark_folkmoot.pipeline.fault import PipelineProblem

__all__ = ["StateLock", "held", "owner_file", "owner_of"]

ASKING: Final = hasattr(fcntl, "F_OFD_GETLK")
"""Whether this kernel can tell if a lock is held. flock, which excludes other drivers, can only be tested by taking it
for a moment."""


def owner_file(state: Path) -> Path:
    """Return the file that has the name of the pipeline that a state folder belongs to."""
    return state / "pipeline"


def owner_of(state: Path) -> str | None:
    """Return the name of the pipeline that a state folder belongs to, None if it belongs to none yet."""
    try:
        return owner_file(state).read_text(encoding="utf-8").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None


class StateLock:
    """Holds the lock of a state folder while it is open; raises PipelineProblem naming the holder.

    owner: the name of the pipeline, to which the folder belongs from now on.
    """

    def __init__(self, state: Path, purpose: str, owner: str | None = None) -> None:
        self.path = state / "lock"
        try:
            state.mkdir(parents=True, exist_ok=True)
            self._file: IO[str] = self.path.open("a+", encoding="utf-8")
        except OSError as error:
            raise _unwritable(state, error) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            held = self._file.read()
            self._file.close()
            raise PipelineProblem(_taken(state, held)) from None
        try:
            self._sign(state, purpose, owner)
        except OSError as error:
            self._file = _closed(self._file)
            raise _unwritable(state, error) from None

    def _sign(self, state: Path, purpose: str, owner: str | None) -> None:
        """Write the holder's name, and take the second lock, which others can query without taking it."""
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "purpose": purpose}
        holder["since"] = datetime.now(UTC).isoformat(timespec="seconds")
        self._file.truncate(0)
        self._file.write(json.dumps(holder) + "\n")
        self._file.flush()
        if ASKING:
            with suppress(OSError):  # without it on this file system, `status` reports the run as killed
                fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
        if owner is not None:
            owner_file(state).write_text(owner + "\n", encoding="utf-8")

    def close(self) -> None:
        """Release the lock."""
        if not self._file.closed:
            self._file.truncate(0)
            self._file.close()

    def __enter__(self) -> StateLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def held(state: Path) -> bool:
    """Return whether a process on this machine holds the lock of a state folder, without taking it."""
    try:
        with (state / "lock").open("r+", encoding="utf-8") as file:
            if ASKING:
                answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_WRLCK))
                return bool(struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK)
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _whole_file(kind: int) -> bytes:
    """Return a `struct flock` for all of a file: type, whence, start, length, process."""
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, 0, 0, 0)


def _closed(file: IO[str]) -> IO[str]:
    """Close a file after a failed write: its buffered data cannot be written either."""
    with suppress(OSError):
        file.close()
    return file


def _unwritable(state: Path, error: OSError) -> PipelineProblem:
    return PipelineProblem(f"the state folder {state} cannot be written: {error.strerror or error}")


def _taken(state: Path, held: str) -> str:
    try:
        found = json.loads(held)
        holder = f"process {found['pid']} on {found['host']} ({found['purpose']}, since {found['since']})"
    except (ValueError, KeyError, TypeError):
        holder = "another process"
    return (
        f"the state folder {state} is in use by {holder}: a pipeline has one driver. Stop that one, or give "
        "this pipeline another 'state' and other tables"
    )
