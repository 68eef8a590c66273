"""The commit log of a node: files of segments in one folder, appended to, synced, read again after a start, trimmed.

Owns these files and nothing else. A frame is `store/segment`. Bytes in front of the next segment's first position are
durable: before a segment begins, the one before it is synced. So a bad frame there is damage; in the newest segment it
is a torn tail, unless a frame behind it says that it had been durable. Nothing is ever written into what was found: the
log goes on in a new segment, and what a crash has left behind that is no part of the log.

After a failed sync the kernel takes pages for clean that are not on the disk. It still shows them to whoever reads, and
a later sync succeeds: there is nothing left to write. So a sync proves nothing for what another process has written. Of
what a start finds, that is durable which a frame says to be so; frames behind that are written again, elsewhere.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.runtime.directory import sync_folder
from folkmoot.store.batch import Batch
from folkmoot.store.segment import durable_of, encode_frame, frame_end, is_durable, operations

__all__ = ["SEGMENT_BYTES", "CommitLog"]

SEGMENT_BYTES: Final = 16 << 20
_SPARE_MAX: Final = 16  # segments that are kept although nothing of them is needed
_SUFFIX: Final = ".seg"
_UNNAMED: Final = "unnamed"  # a segment whose first frames are still being written


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
        self._is_doubtful = False  # a sync has failed: none of this process makes durable what comes after `durable`

    def create(self) -> None:
        """Make the log of a new store; raises OSError. From then on, a log without a segment has lost them."""
        self.folder.mkdir(exist_ok=True)
        sync_folder(self.folder.parent)
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

        They are on the disk before they are yielded: a process that was killed may have left them to the kernel, and
        one whose sync failed has lost them there. Raises CorruptStore where the log is damaged, or lacks what it must
        have: nothing behind that is read; and OSError.
        """
        starts = self._starts()
        self.end = applied
        while len(starts) > 1 and starts[1] <= applied:
            starts.pop(0)
        if starts and starts[0] > applied:
            raise CorruptStore(f"the log {self.folder} lacks what comes before {self._path(starts[0]).name}; {_HINT}")
        if not starts:
            raise CorruptStore(f"the log {self.folder} has lost its segments (*{_SUFFIX}); {_HINT}")
        is_damaged = False
        for number, start in enumerate(starts):
            path = self._path(start)
            data = path.read_bytes()
            stop = starts[number + 1] - start if number + 1 < len(starts) else -1
            at = max(0, applied - start)
            ends = _valid_frames(data, start, at, stop)
            end = ends[-1] if ends else at
            is_whole = end == stop
            if not is_whole:
                self.torn_bytes = max(0, len(data) - end)
            is_damaged = not is_whole and (stop >= 0 or is_durable(data, end, start))
            if is_damaged and not self._salvage:
                raise _damaged(path, end)
            if stop < 0 and not is_damaged:
                self._check_end(path, start + len(data), applied)
                self._prove(data, start, [at, *ends], applied)
            for behind in ends:
                yield operations(data, at, behind), start + behind
                at = behind
            self.end = start + end
            if is_damaged:
                for later in starts[number + 1 :]:
                    self._path(later).unlink()
                break
        self.durable = self.end
        self._is_doubtful = False
        if is_damaged:
            self._begin()  # what is behind the damage is no part of the log any more

    def _check_end(self, path: Path, end: int, applied: int) -> None:
        """What was applied was durable before, so a log that ends earlier has lost its end; unless nobody waits."""
        if self._sync and not self._salvage and end < applied:
            raise _damaged(path, path.stat().st_size)

    def _prove(self, data: bytes, start: int, bounds: list[int], applied: int) -> None:
        """Make the frames between `bounds` of the newest segment durable; raises OSError.

        Those that are not proved to be so are written again, in a new segment. That one may have the name of the one in
        which they were found, so it gets its name when it is on the disk: a crash leaves one of the two, whole.
        """
        proved = max([self.durable, start, *[durable_of(data, at) for at in bounds[:-1]]])
        if proved >= start + bounds[-1]:
            return
        position = max(proved, applied)  # what was applied is in the tables, and is not needed here
        frames = data[position - start : bounds[-1]]
        path = self.folder / _UNNAMED
        self.close()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            written = 0
            while written < len(frames):
                written += os.write(self._file, frames[written:])
            os.fdatasync(self._file)
            path.rename(self._path(position))
            sync_folder(self.folder)
        except OSError:
            self._drop()
            path.unlink(missing_ok=True)
            raise
        self._written = len(frames)
        self.segments += 1

    def newest(self, bytes_max: int) -> Iterator[list[tuple[int, bytes, bytes]]]:
        """Yield the operations of the newest groups, oldest first and none missing between; call it after `replay`.

        Reads at most `bytes_max` and a segment, twice. What cannot be read ends it: nobody depends on these groups.
        """
        least = self.end - bytes_max
        stop = self.end
        found: list[tuple[int, list[int]]] = []  # segments with the bounds of their frames, newest first
        for start in reversed(self._starts()):
            if stop <= least:
                break
            if start >= stop:
                continue  # nothing is in it yet
            try:
                data = self._path(start).read_bytes()
            except OSError:
                break
            ends = _valid_frames(data, start, 0, stop - start)
            if not ends or ends[-1] != stop - start:
                break
            found.append((start, [0, *ends]))
            stop = start
        for start, bounds in reversed(found):
            try:
                data = self._path(start).read_bytes()
            except OSError:
                return
            for at, behind in pairwise(bounds):
                if start + at >= least:
                    yield operations(data, at, behind)

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
            self._fail()
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
        self.sync()
        if self._file >= 0:
            self._drop()

    def _drop(self) -> None:
        descriptor, self._file = self._file, -1
        os.close(descriptor)

    def _fail(self) -> None:
        """A write or sync has failed: the log goes on in another file."""
        if self._sync:
            self.end = self.durable  # a seal was not synced, and may be lost with what failed behind it
        if self._file >= 0:
            self._drop()

    def sync(self) -> None:
        """Wait until all that was appended is on the disk; raises OSError, after a failed sync always."""
        if self.durable == self.end:
            return
        if self._is_doubtful:
            raise OSError(errno.EIO, "an earlier sync of the log has failed")
        try:
            if self._file >= 0:
                os.fdatasync(self._file)
            else:
                self._sync_newest()
        except OSError:
            self._is_doubtful = not self._sync
            self._fail()
            raise
        self.durable = self.end

    def _sync_newest(self) -> None:
        for start in self._starts()[-1:]:
            descriptor = os.open(self._path(start), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def trim(self, position: int, spare_bytes: int = 0) -> None:
        """Remove the segments that have nothing from `position` on, which need not be durable.

        spare_bytes: what is kept before it, for `newest`; in a few segments, however short starts have made them.
        """
        unneeded = [pair for pair in pairwise(self._starts()) if pair[1] <= position]
        spare = [start for start, following in unneeded if following > position - spare_bytes][-_SPARE_MAX:]
        for start, _following in unneeded:
            if start not in spare:
                self._path(start).unlink()

    def size_bytes(self) -> int:
        """Return the bytes of all segments."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def bytes_from(self, position: int) -> int:
        """Return the bytes of the segments that have something from `position` on; raises OSError."""
        starts = self._starts()
        while len(starts) > 1 and starts[1] <= position:
            starts.pop(0)
        return sum(self._path(start).stat().st_size for start in starts)

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file >= 0:
            self._drop()


def _valid_frames(data: bytes, start: int, at: int, stop: int) -> list[int]:
    """Return the ends of the valid frames from `at` on, up to `stop` if there is one; start: position of `data`."""
    ends: list[int] = []
    while at != stop and at < len(data):
        at = frame_end(data, at, start + at)
        if at < 0 or (0 <= stop < at):
            break
        ends.append(at)
    return ends


_HINT: Final = "nothing was changed. Restore the data folder from a backup or a replica"


def _damaged(path: Path, at: int) -> CorruptStore:
    """Return the error that names a damaged log and what to do about it."""
    return CorruptStore(
        f"the log {path} is damaged at byte {at}; {_HINT}. To go on with what was written before the damage, and lose "
        "the rest, start once with --salvage"
    )
