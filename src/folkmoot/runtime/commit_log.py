"""The commit log of a node: files of segments in one folder, appended to, synced, read again after a start, trimmed.

Owns these files and nothing else. A frame is `store/segment`. Bytes in front of the next segment's first position are
durable: before a segment begins, the one before it is synced. So a bad frame there is damage; in the newest segment it
is a torn tail, unless a frame behind it says that it had been durable. Nothing is ever written into what was found: the
log goes on in a new segment, which begins where the valid frames end, and what a crash has left behind that is no part
of the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.runtime.directory import sync_folder
from folkmoot.store.batch import Batch
from folkmoot.store.segment import encode_frame, frame_end, is_durable, operations

__all__ = ["SEGMENT_BYTES", "CommitLog"]

SEGMENT_BYTES: Final = 16 << 20
_SUFFIX: Final = ".seg"


class CommitLog:
    """The log in one folder, for one thread. `create` or `replay` comes before the first `append`.

    sync: `append` waits for the disk. salvage: read what was written before damage, and drop what follows it.
    """

    def __init__(self, folder: Path, sync: bool, salvage: bool) -> None:
        self.folder = folder
        self.torn_bytes = 0  # of an unfinished write, found by `replay`
        self.end = 0  # the position after the last frame
        self.durable = 0  # the position up to which all is on the disk
        self.segments = 0  # how many this process has begun
        self._sync = sync
        self._salvage = salvage
        self._file = -1
        self._written = 0  # bytes in the current file

    def create(self) -> None:
        """Make the log of a new store; raises OSError. From then on, a log without a segment has lost them."""
        self.folder.mkdir(exist_ok=True)
        if not self._starts():
            self._begin()

    def _starts(self) -> list[int]:
        """Return the first positions of the segments, ascending."""
        return sorted(int(path.stem, 16) for path in self.folder.glob(f"*{_SUFFIX}"))

    def _path(self, start: int) -> Path:
        return self.folder / f"{start:016x}{_SUFFIX}"

    # Reading

    def replay(self, applied: int) -> Iterator[tuple[list[tuple[int, bytes, bytes]], int]]:
        """Yield (operations, position after them) of the groups from position `applied` on.

        What is read is on the disk: a process that was killed may have left its last write to the kernel. Raises
        CorruptStore where the log is damaged, or lacks what it must have: nothing behind that is read; and OSError.
        """
        self._sync_newest()
        starts = self._starts()
        self.end = applied
        while len(starts) > 1 and starts[1] <= applied:
            starts.pop(0)
        if starts and starts[0] > applied:
            raise CorruptStore(f"the log {self.folder} lacks what comes before {self._path(starts[0]).name}; {_HINT}")
        if not starts:
            raise CorruptStore(f"the log {self.folder} has lost its segments (*{_SUFFIX}); {_HINT}")
        for number, start in enumerate(starts):
            path = self._path(start)
            data = path.read_bytes()
            stop = starts[number + 1] - start if number + 1 < len(starts) else -1
            at = max(0, applied - start)
            while at != stop and at < len(data):
                end = frame_end(data, at, start + at)
                if end < 0 or (0 <= stop < end):
                    break
                yield operations(data, at, end), start + end
                at = end
            self.end = max(self.end, start + at)
            if at == stop:
                continue
            self.torn_bytes = max(0, len(data) - at)
            if stop >= 0 or is_durable(data, at, start):
                if not self._salvage:
                    raise _damaged(path, at)
                for later in starts[number + 1 :]:
                    self._path(later).unlink()
                self._begin()  # what is behind the damage is no part of the log any more
                return
        self.durable = self.end
        self._check_end(starts, applied)

    def _check_end(self, starts: list[int], applied: int) -> None:
        """What was applied was durable before, so a log that ends earlier has lost its end; unless nobody waits."""
        if self._sync and not self._salvage:
            path = self._path(starts[-1])
            if starts[-1] + path.stat().st_size < applied:
                raise _damaged(path, path.stat().st_size)

    # Writing

    def append(self, batches: list[Batch]) -> None:
        """Write a group of batches as one frame, durable when this returns (with `sync`); raises OSError.

        After a failure nothing of it counts, and the next one begins a new segment: what the disk has of the failed
        write is unknown, and what the kernel has of it is not written again.
        """
        if self._file < 0 or self._written >= SEGMENT_BYTES:
            self._begin()
        frame = encode_frame(batches, self.end, self.durable)
        try:
            written = os.write(self._file, frame)
            while written < len(frame):
                written += os.write(self._file, frame[written:])
            if self._sync:
                os.fdatasync(self._file)
        except OSError:
            if self._sync:
                self.end = self.durable  # a seal was not synced, and may be lost with what failed behind it
            self._drop()
            raise
        self._written += len(frame)
        self.end += len(frame)
        if self._sync:
            self.durable = self.end

    def seal(self) -> None:
        """Write an empty frame: it says that what is before it was durable. It is not synced itself; raises OSError."""
        if self._file >= 0 and self.durable == self.end and self._written:
            frame = encode_frame([], self.end, self.durable)
            try:
                complete = os.write(self._file, frame) == len(frame)
            except OSError:
                self._drop()
                raise
            if not complete:
                self._drop()
                return
            self._written += len(frame)
            self.end += len(frame)

    def _begin(self) -> None:
        """Begin a segment at the end of the log; raises OSError."""
        self._finish()
        path = self._path(self.end)
        # What has this name is of a write that failed: nothing of it counts.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            sync_folder(self.folder)
        except OSError:
            self._drop()
            raise
        self._written = 0
        self.segments += 1

    def _finish(self) -> None:
        """Make all that was written so far durable, and close the file."""
        if self._file >= 0:
            os.fdatasync(self._file)
            self._drop()
        else:
            self._sync_newest()
        self.durable = self.end

    def _sync_newest(self) -> None:
        for start in self._starts()[-1:]:
            descriptor = os.open(self._path(start), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _drop(self) -> None:
        descriptor, self._file = self._file, -1
        os.close(descriptor)

    def sync(self) -> None:
        """Wait until all that was appended is on the disk; raises OSError."""
        if self.durable == self.end:
            return
        if self._file < 0:  # a write has failed
            self._sync_newest()
        else:
            try:
                os.fdatasync(self._file)
            except OSError:
                self._drop()
                raise
        self.durable = self.end

    def trim(self, position: int) -> None:
        """Remove the segments that have nothing from `position` on; it need not be durable."""
        starts = self._starts()
        for start, following in pairwise(starts):
            if following <= position:
                self._path(start).unlink()

    def size_bytes(self) -> int:
        """Return the bytes of all segments."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file >= 0:
            self._drop()


_HINT: Final = "nothing was changed. Restore the data folder from a backup or a replica"


def _damaged(path: Path, at: int) -> CorruptStore:
    """Return the error that names a damaged log and what to do about it."""
    return CorruptStore(
        f"the log {path} is damaged at byte {at}; {_HINT}. To go on with what was written before the damage, and lose "
        "the rest, start once with --salvage"
    )
