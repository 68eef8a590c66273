"""What ends a node, and what ends only one of its connections."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from folkmoot.config.settings import Settings
from folkmoot.kernel.clock import HOUR
from folkmoot.kernel.errors import StoreError
from folkmoot.node import NodeConfig
from folkmoot.runtime import directory, serve
from folkmoot.runtime.log import Log
from folkmoot.runtime.serve import ServingNode, ended, on_exception, open_node, trace_of
from folkmoot.store.memory import MemoryStore
from tests.runtime.fake import FakeLoop


class Bench:
    """Remembers what is done about an error."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.failed: list[Exception] = []
        self.complaints: list[str] = []
        self.aborted: list[object] = []
        turns = SimpleNamespace(spoiled=lambda transport, address, error: self.aborted.append(transport))
        self.serving: Any = SimpleNamespace(
            say=lambda level, kind, **fields: self.said.append(kind),
            fail=self.failed.append,
            complain=lambda what, error: self.complaints.append(what),
            turns=turns,
        )

    def hear(self, **context: object) -> None:
        on_exception(self.serving, {"message": "m", **context})


def test_the_time_of_a_node_goes_on_when_the_wall_clock_is_set_back_during_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would stand still for as long as the step, and so would the lease of the node, by its own count."""
    walls_us = itertools.count(1_600_000_000_000_000, -HOUR)
    monkeypatch.setattr(time, "time_ns", lambda: next(walls_us) * 1000)
    loop: Any = FakeLoop()
    turns = open_node(NodeConfig(), MemoryStore(), loop)
    turns.ask(turns.node.wake)
    assert turns.node.now == turns.now
    assert turns.clock.has_stepped(), "the node is told of the step"


def test_an_error_of_a_transport_ends_its_connection() -> None:
    bench = Bench()
    transport = object()
    bench.hear(exception=RuntimeError("the handler is closed"), transport=transport, protocol=object())
    assert (bench.aborted, bench.failed) == ([transport], [])


def test_an_error_of_a_task_is_told() -> None:
    bench = Bench()
    bench.hear(exception=KeyError("x"), task=object())
    bench.hear(exception=KeyError("x"), future=object())
    assert (len(bench.complaints), bench.failed) == (2, [])


@pytest.mark.parametrize("error", [OSError(5, "no"), ConnectionResetError()])
def test_the_network_may_fail(error: Exception) -> None:
    bench = Bench()
    bench.hear(exception=error)
    bench.hear()
    assert (bench.said, bench.failed) == (["connection_failed", "loop"], [])


def test_an_error_in_any_other_callback_ends_the_node() -> None:
    bench = Bench()
    error = AssertionError("half a turn")
    bench.hear(exception=error, handle=object())
    assert bench.failed == [error]


def test_a_task_that_the_node_needs_ends_it_when_it_fails() -> None:
    class Done:
        def __init__(self, error: BaseException | None) -> None:
            self.error = error

        def cancelled(self) -> bool:
            return self.error is None

        def exception(self) -> BaseException | None:
            return self.error

    found: list[Exception] = []
    for error in (None, ValueError("x")):
        done: Any = Done(error)
        ended(done, found.append)
    assert [str(one) for one in found] == ["x"]


def test_a_trace_begins_where_it_happened() -> None:
    def inner() -> None:
        raise ValueError("x")

    try:
        inner()
    except ValueError as error:
        trace = trace_of(error)
    assert [line.split()[1] for line in trace] == ["inner", "test_a_trace_begins_where_it_happened"]
    assert all(line.startswith("test_serve:") for line in trace)


class Mark:
    """A node that serves nobody: what its folder says when it would begin to, and at its end."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.boot = folder / "boot"
        self.data = folder / "data"
        self.writes = True  # its first batch is written while it serves
        self.seen = ""
        monkeypatch.setattr(directory, "BOOT_ID", self.boot)
        monkeypatch.setattr(serve, "serve_until_stopped", self._look)

    def read(self) -> str:
        mark = self.data / "running"
        return mark.read_text() if mark.exists() else ""

    async def _look(self, serving: ServingNode, *_others: object) -> None:
        self.seen = self.read()
        if self.writes:
            serving.disk.begun()

    def run(self, durability: str, boot: str) -> tuple[str, str]:
        """The mark when the node would begin to serve, and when it has stopped."""
        self.boot.write_text(boot)
        node = {"data": str(self.data), "id": "n1", "durability": durability}
        settings = Settings.model_validate({"node": node, "listeners": [{"address": "127.0.0.1:0"}]})
        asyncio.run(serve.run(settings, None, None, Log("error", "text"), None))
        return self.seen, self.read()


@pytest.mark.parametrize("writes", [True, False])
def test_a_node_whose_writes_wait_for_no_disk_marks_it_before_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    """Otherwise it would not doubt the disk when the power fails right after its first answer."""
    mark = Mark(tmp_path, monkeypatch)
    mark.writes = writes
    assert mark.run("os", "first") == ("first", "")
    assert mark.run("fsync", "second") == ("", "")


def test_a_node_that_doubts_its_disk_does_so_until_it_has_written_that_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = Mark(tmp_path, monkeypatch)
    mark.run("os", "first")
    (mark.data / "running").write_text("first")
    mark.writes = False
    assert mark.run("os", "second") == ("first", "first")
    mark.writes = True
    assert mark.run("os", "second") == ("first", "")


def test_a_folder_that_cannot_be_marked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_folder: directory.DataFolder, forced: bool) -> None:
        (tmp_path / "data" / "running").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    mark = Mark(tmp_path, monkeypatch)
    monkeypatch.setattr(directory.DataFolder, "begin", fail)
    with pytest.raises(StoreError, match=rf"cannot write in the data folder {mark.data}: No space left on device;"):
        mark.run("os", "first")
    assert not (mark.data / "running").exists(), "nothing was lost"
