"""One driver per state folder: a lock that the kernel releases when its holder dies, with the holder's name in it.

And one pipeline: its name is in a file of the folder from its first run on.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from pyspark_folkmoot.pipeline.fault import PipelineProblem

__all__ = ["StateLock", "owner_file", "owner_of"]


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
    """Holds the lock of a state folder while it is open; raises PipelineProblem naming who has it.

    owner: the name of the pipeline, to which the folder belongs from now on.
    """

    def __init__(self, state: Path, purpose: str, owner: str | None = None) -> None:
        state.mkdir(parents=True, exist_ok=True)
        self.path = state / "lock"
        self._file: IO[str] = self.path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            held = self._file.read()
            self._file.close()
            raise PipelineProblem(_taken(state, held)) from None
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "purpose": purpose}
        holder["since"] = datetime.now(UTC).isoformat(timespec="seconds")
        self._file.truncate(0)
        self._file.write(json.dumps(holder) + "\n")
        self._file.flush()
        if owner is not None:
            owner_file(state).write_text(owner + "\n", encoding="utf-8")

    def close(self) -> None:
        """Let go of the lock."""
        if not self._file.closed:
            self._file.truncate(0)
            self._file.close()

    def __enter__(self) -> StateLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _taken(state: Path, held: str) -> str:
    try:
        found = json.loads(held)
        who = f"process {found['pid']} on {found['host']} ({found['purpose']}, since {found['since']})"
    except (ValueError, KeyError, TypeError):
        who = "another process"
    return (
        f"the state folder {state} is in use by {who}: a pipeline has one driver. Stop that one, or give this pipeline "
        "another 'state' and other tables"
    )
