from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from folkmoot.kernel.errors import StoreError
from folkmoot.runtime import commit
from folkmoot.runtime.commit import CommitListener, Committer, WriteTarget
from folkmoot.runtime.rocks import StoreFull
from folkmoot.store.batch import Batch

WAIT_S = 10.0


class Waiting(Exception):
    """The test waited for something that did not come."""


class Disk(WriteTarget):
    """Blocks each write until the test lets it go; fails as the test says."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.errors: list[StoreError] = []
        self.reopen_error: StoreError | None = None
        self.reopened = 0
        self.reclaimed: list[int] = []  # each time: how many groups were written before
        self.sealed: list[int] = []  # likewise
        self.applied: list[tuple[int, list[tuple[int, bytes, bytes]], int]] = []  # likewise
        self.room = threading.Event()
        self.entered = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def write(self, batches: list[Batch]) -> None:
        self.entered.release()
        if not self.go.acquire(timeout=WAIT_S):
            raise Waiting
        if self.errors:
            raise self.errors.pop(0)
        self.groups.append([batch.token for batch in batches])

    def apply(self, ops: list[tuple[int, bytes, bytes]], token: int) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.applied.append((token, ops, len(self.groups)))

    def seal(self) -> None:
        self.sealed.append(len(self.groups))

    def reclaim(self) -> None:
        self.reclaimed.append(len(self.groups))

    def has_room(self) -> bool:
        return self.room.is_set()

    def reopen(self) -> None:
        self.reopened += 1
        if self.reopen_error is not None:
            raise self.reopen_error

    def await_write(self) -> None:
        assert self.entered.acquire(timeout=WAIT_S)


class Loop:
    """The thread of the test as an event loop: calls from the other thread run in `run_one`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.arrived = threading.Semaphore(0)

    def call_soon_threadsafe(self, callback: Callable[..., None], *arguments: Any) -> None:
        self.calls.append((callback, arguments))
        self.arrived.release()

    def run_one(self) -> None:
        assert self.arrived.acquire(timeout=WAIT_S)
        callback, arguments = self.calls.pop(0)
        callback(*arguments)


class Told(CommitListener):
    def __init__(self) -> None:
        self.what: list[Any] = []

    def written(self, token: int) -> None:
        self.what.append(token)

    def applied(self) -> None:
        self.what.append("applied")

    def stuck(self, reason: str) -> None:
        self.what.append(f"stuck: {reason}")

    def unstuck(self) -> None:
        self.what.append("unstuck")

    def failed(self, error: Exception) -> None:
        self.what.append(f"failed: {error}")


class Bench:
    def __init__(self) -> None:
        self.disk, self.loop, self.told = Disk(), Loop(), Told()
        loop: Any = self.loop
        self.committer = Committer(self.disk, self.told, loop)

    def submit(self, *tokens: int, size: int = 10) -> None:
        for token in tokens:
            batch = Batch(token)
            batch.put(b"k", bytes(size))
            self.committer.submit(batch)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(commit, "RETRY_S", 0.001)
    return Bench()


def test_batches_that_wait_are_written_as_one_and_acknowledged_in_order(bench: Bench) -> None:
    bench.submit(1)
    bench.disk.await_write()
    bench.submit(2, 3, 4)
    bench.disk.go.release()
    bench.disk.await_write()
    bench.disk.go.release()
    bench.loop.run_one()
    bench.loop.run_one()
    assert bench.disk.groups == [[1], [2, 3, 4]]
    assert bench.told.what == [1, 4]
    assert bench.committer.close()


def test_a_write_that_nothing_follows_is_sealed_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = threading.Semaphore(0)
    monkeypatch.setattr(commit, "SEAL_S", 0.001)
    monkeypatch.setattr(bench.disk, "seal", sealed.release)
    for number in range(1, 3):
        bench.submit(number)
        bench.disk.await_write()
        bench.disk.go.release()
        bench.loop.run_one()
        assert sealed.acquire(timeout=WAIT_S)
    assert bench.told.what == [1, 2]
    assert bench.committer.close()
    assert not sealed.acquire(blocking=False), "no write was sealed twice"


def test_a_group_is_not_larger_than_its_limit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "GROUP_BYTES", 250)
    bench.submit(1)
    bench.disk.await_write()
    bench.submit(2, 3, 4, 5, size=100)
    for _ in range(3):
        bench.disk.go.release()
    for _ in range(3):
        bench.loop.run_one()
    assert bench.disk.groups == [[1], [2, 3, 4], [5]]
    assert bench.committer.close()


def test_reclaiming_comes_after_what_was_submitted_before_and_acknowledges_nothing(bench: Bench) -> None:
    bench.submit(1)
    bench.disk.await_write()
    bench.submit(2)
    bench.committer.reclaim()
    bench.submit(3)
    bench.disk.go.release()
    bench.disk.go.release()
    bench.loop.run_one()
    bench.loop.run_one()
    bench.committer.reclaim()
    assert bench.committer.close()
    assert bench.disk.groups == [[1], [2, 3]]
    assert bench.told.what == [1, 3]
    assert bench.disk.reclaimed[:1] == [2]


def test_rows_are_applied_after_what_was_submitted_before(bench: Bench) -> None:
    bench.submit(1)
    bench.disk.await_write()
    bench.submit(2)
    bench.committer.apply([(0, b"k", b"v")], 1)
    bench.submit(3)
    bench.disk.go.release()
    bench.disk.go.release()
    for _ in range(3):
        bench.loop.run_one()
    assert bench.disk.groups == [[1], [2, 3]]
    assert bench.disk.applied == [(1, [(0, b"k", b"v")], 2)]
    assert bench.told.what == [1, 3, "applied"]
    assert bench.committer.close()


def test_rows_that_a_full_disk_refuses_are_applied_when_there_is_room(bench: Bench) -> None:
    bench.disk.errors = [StoreFull("no space")]
    bench.committer.apply([(0, b"k", b"v")], 1)
    bench.loop.run_one()
    assert bench.told.what == ["stuck: no space"]
    bench.disk.room.set()
    for _ in range(3):  # reopens, applies, is no longer stuck
        bench.loop.run_one()
    assert bench.disk.applied == [(1, [(0, b"k", b"v")], 0)]
    assert bench.told.what == ["stuck: no space", "applied", "unstuck"]
    assert bench.committer.close()


def test_closing_writes_what_waits(bench: Bench) -> None:
    bench.submit(1)
    bench.disk.await_write()
    bench.submit(2)
    bench.disk.go.release()
    bench.disk.go.release()
    assert bench.committer.close()
    assert bench.disk.groups == [[1], [2]]


def test_a_full_disk_is_reported_and_the_same_batches_are_written_when_there_is_room(bench: Bench) -> None:
    bench.disk.errors = [StoreFull("no space"), StoreFull("still none")]
    bench.submit(1)
    bench.disk.await_write()
    bench.disk.go.release()
    bench.loop.run_one()
    assert bench.told.what == ["stuck: no space"]
    bench.submit(2)
    bench.disk.room.set()
    for _ in range(2):  # the second attempt fails too
        bench.loop.run_one()  # reopens
        bench.disk.await_write()
        bench.disk.go.release()
    bench.loop.run_one()
    bench.loop.run_one()
    assert bench.disk.reopened == 2
    assert bench.disk.groups == [[1]]
    assert bench.told.what == ["stuck: no space", 1, "unstuck"], "nothing was acknowledged before"
    bench.disk.await_write()
    bench.disk.go.release()
    bench.loop.run_one()
    assert bench.told.what[-1] == 2
    assert bench.committer.close()


def test_room_that_only_others_have_is_not_tried_without_a_pause(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a quota of the user: each attempt closes and opens the store, in the loop's thread."""
    monkeypatch.setattr(commit, "RETRY_S", 0.05)
    bench.disk.errors = [StoreFull("Disk quota exceeded")] * 4
    bench.disk.room.set()
    bench.disk.go.release(5)
    began_s = time.monotonic()
    bench.submit(1)
    for _ in range(7):  # stuck, reopens four times, written, no longer stuck
        bench.loop.run_one()
    assert time.monotonic() - began_s >= 3 * 0.05
    assert bench.disk.reopened == 4
    assert bench.told.what[1:] == [1, "unstuck"]
    assert bench.committer.close()


def test_stopping_while_the_disk_is_full_ends_and_says_that_something_is_not_written(bench: Bench) -> None:
    bench.disk.errors = [StoreFull("no space")]
    bench.submit(1)
    bench.disk.go.release()
    bench.loop.run_one()
    assert not bench.committer.close()
    assert bench.disk.groups == []
    assert bench.told.what == ["stuck: no space"]


def test_a_reopening_that_the_loop_reaches_after_the_end_is_not_made(bench: Bench) -> None:
    """The store is closed by then: it would be opened for good."""
    bench.disk.errors = [StoreFull("no space")]
    bench.disk.room.set()
    bench.submit(1)
    bench.disk.go.release()
    bench.loop.run_one()
    assert bench.loop.arrived.acquire(timeout=WAIT_S), "the thread asks for it"
    bench.loop.arrived.release()
    assert not bench.committer.close()
    bench.loop.run_one()
    assert bench.disk.reopened == 0
    assert bench.told.what == ["stuck: no space"]


def test_an_error_that_room_does_not_heal_ends_the_committing(bench: Bench) -> None:
    bench.disk.errors = [StoreError("the disk is broken")]
    bench.submit(1, 2)
    bench.disk.go.release()
    bench.loop.run_one()
    assert bench.told.what == ["failed: the disk is broken"]
    assert bench.committer.close()
    assert bench.disk.groups == []


def test_a_store_that_cannot_be_opened_again_ends_the_committing(bench: Bench) -> None:
    bench.disk.errors = [StoreFull("no space")]
    bench.disk.reopen_error = StoreError("gone")
    bench.disk.room.set()
    bench.submit(1)
    bench.disk.go.release()
    for _ in range(3):
        bench.loop.run_one()
    assert bench.told.what == ["stuck: no space", "failed: gone"]
    assert bench.committer.close()
