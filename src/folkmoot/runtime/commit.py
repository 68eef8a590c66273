"""The commit thread: takes batches in token order, writes all that wait as one, and reports what is durable.

Owns the queue between the loop and the thread. While one group waits for the disk the next one accumulates, so that
more batches share a sync the busier the node is. It never drops a batch: it reports a full disk and retries the same
batches, in order, until there is room. Nothing is acknowledged meanwhile.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from folkmoot.kernel.errors import StoreError
from folkmoot.runtime.rocks import StoreFull
from folkmoot.store.batch import Batch

__all__ = ["CommitListener", "Committer", "WriteTarget"]

GROUP_BYTES: Final = 8 << 20  # bounds one write, and so how long a turn waits for the disk
RETRY_S: Final = 0.25
SEAL_S: Final = 1.0  # after the last write; damage to a write that nothing follows could pass for a torn one
_RECLAIM: Final = Batch(0)  # in the queue: not a batch, but a request to reclaim space


class WriteTarget(ABC):
    """The store that batches are written to."""

    @abstractmethod
    def write(self, batches: list[Batch]) -> None:
        """Make batches durable as one atomic write; raises StoreFull when there is no room, StoreError otherwise."""

    @abstractmethod
    def apply(self, ops: list[tuple[int, bytes, bytes]], token: int) -> None:
        """Bring the rows up to batch `token`, which was the last one of a write; raises StoreFull, StoreError."""

    @abstractmethod
    def seal(self) -> None:
        """No write has followed the last one for a while: note that it was durable; raises nothing."""

    @abstractmethod
    def reclaim(self) -> None:
        """Reclaim the space of deleted rows, as far as that is possible now; raises nothing."""

    @abstractmethod
    def has_room(self) -> bool:
        """Whether a write that failed for lack of room may be tried again."""

    @abstractmethod
    def reopen(self) -> None:
        """Make writing possible again after a failure; called in the loop's thread, so that nothing reads meanwhile."""


class CommitListener(ABC):
    """Receives what happens to batches, in the loop's thread."""

    @abstractmethod
    def written(self, token: int) -> None:
        """Batch `token` and all before it are durable."""

    @abstractmethod
    def applied(self) -> None:
        """The rows have what was handed over with `Committer.apply`."""

    @abstractmethod
    def stuck(self, reason: str) -> None:
        """The disk is full; the thread keeps retrying."""

    @abstractmethod
    def unstuck(self) -> None:
        """There is room again, and the waiting batches are durable."""

    @abstractmethod
    def failed(self, error: Exception) -> None:
        """The store cannot be written; the thread has ended."""


class RowChange:
    """Operations on the rows, which are durable in the log already."""

    def __init__(self, ops: list[tuple[int, bytes, bytes]], token: int) -> None:
        self.ops = ops
        self.token = token
        self.bytes = 0  # of a group


class Committer:
    """One writing thread. `submit` never blocks; `close` writes what waits and ends the thread."""

    def __init__(self, target: WriteTarget, listener: CommitListener, loop: AbstractEventLoop) -> None:
        self._target = target
        self._listener = listener
        self._loop = loop
        self._queue: SimpleQueue[Batch | RowChange | None] = SimpleQueue()
        self._closing = False
        self._gave_up = False  # it was closed while the disk was full
        self._sealed = True
        self._thread = threading.Thread(target=self._run, name="folkmoot-commit", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch) -> None:
        """Queue `batch` behind all that were submitted before."""
        self._queue.put(batch)

    def apply(self, ops: list[tuple[int, bytes, bytes]], token: int) -> None:
        """Queue a change of the rows, see `WriteTarget.apply`; one at a time."""
        self._queue.put(RowChange(ops, token))

    def reclaim(self) -> None:
        """Reclaim the space of deleted rows, once what was submitted before is written."""
        self._queue.put(_RECLAIM)

    def close(self, timeout_s: float = 10.0) -> bool:
        """Write what waits and end the thread; return False if something is not written: the disk is full, or hangs.

        To be called in the loop's thread. The store is not reopened any more.
        """
        self._closing = True
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and not self._gave_up

    def _run(self) -> None:
        try:
            self._write_all()
        except Exception as error:  # noqa: BLE001 - nothing would be acknowledged any more, and nobody be told
            self._tell(self._listener.failed, error)

    def _next(self) -> Batch | RowChange | None:
        """Wait for what comes; None: the node stops."""
        if not self._sealed:
            try:
                return self._queue.get(timeout=SEAL_S)
            except Empty:
                self._sealed = True
                self._target.seal()
        return self._queue.get()

    def _write_all(self) -> None:
        ending = False
        while not ending:
            batch = self._next()
            group: list[Batch] = []
            size = 0
            reclaims = False
            change: RowChange | None = None
            while batch is not None:
                if batch is _RECLAIM:
                    reclaims = True
                elif isinstance(batch, RowChange):
                    change = batch
                else:
                    group.append(batch)
                size += batch.bytes
                if size >= GROUP_BYTES:
                    break
                try:
                    batch = self._queue.get_nowait()
                except Empty:
                    break
            ending = batch is None
            if group and not self._commit(group):
                return
            self._sealed = self._sealed and not group
            if change is not None and not ending and not self._apply(change):
                return
            if reclaims and not ending:
                self._target.reclaim()

    def _commit(self, group: list[Batch]) -> bool:
        """Write a group; return False if it cannot be written."""
        return self._insist(lambda: self._target.write(group), self._listener.written, group[-1].token)

    def _apply(self, change: RowChange) -> bool:
        """Change the rows; return False if that is impossible."""
        return self._insist(lambda: self._target.apply(change.ops, change.token), self._listener.applied)

    def _insist(self, write: Callable[[], None], report: Callable[..., None], *arguments: object) -> bool:
        """Write and report, retrying while the disk is full; return False if it cannot be written."""
        stuck = False
        while True:
            try:
                write()
                break
            except StoreFull as error:
                if stuck:  # there was room, but not for this user: each attempt takes the loop's thread
                    threading.Event().wait(RETRY_S)
                else:
                    stuck = True
                    self._tell(self._listener.stuck, str(error))
            except StoreError as error:
                self._tell(self._listener.failed, error)
                return False
            if not self._await_room():
                return False
        self._tell(report, *arguments)
        if stuck:
            self._tell(self._listener.unstuck)
        return True

    def _await_room(self) -> bool:
        """Wait until there is room and the store is open again; return False if the node stops first."""
        pause = threading.Event()
        while not self._target.has_room():
            if self._closing:
                self._gave_up = True
                return False
            pause.wait(RETRY_S)
        reopened = Reopening(self._target)
        self._tell(self._reopen, reopened)
        while not reopened.done.wait(RETRY_S):
            if self._closing:  # it will not be reopened
                self._gave_up = True
                return False
        if reopened.error is not None:
            self._tell(self._listener.failed, reopened.error)
        return reopened.error is None

    def _reopen(self, reopening: Reopening) -> None:
        """Reopen the store, in the loop's thread, unless `close` was called there: it is closed then, or soon."""
        if not self._closing:
            reopening.run()

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed
            return


class Reopening:
    """A call of `WriteTarget.reopen` that one thread requests and another one makes."""

    def __init__(self, target: WriteTarget) -> None:
        self.done = threading.Event()
        self.error: Exception | None = None
        self._target = target

    def run(self) -> None:
        """Reopen, then release the requesting thread."""
        try:
            self._target.reopen()
        except Exception as error:  # noqa: BLE001 - for the thread that asked
            self.error = error
        finally:
            self.done.set()
