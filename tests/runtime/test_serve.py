"""What ends a node, and what ends only one of its connections."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from folkmoot.kernel.clock import HOUR
from folkmoot.node import NodeConfig
from folkmoot.runtime.serve import ended, on_exception, open_node, trace_of
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


class SlowStore(MemoryStore):
    """While it is read, the wall clock is set back."""

    def __init__(self) -> None:
        super().__init__()
        self.wall_us = 1_600_000_000_000_000

    def wall_ns(self) -> int:
        return self.wall_us * 1000

    def get(self, key: bytes) -> bytes | None:
        self.wall_us -= HOUR
        return super().get(key)

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        self.wall_us -= HOUR
        return super().scan(start, end, limit)


def test_the_time_of_a_node_goes_on_when_the_wall_clock_is_set_back_during_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would stand still for as long as the step, and so would the lease of the node, by its own count."""
    store = SlowStore()
    monkeypatch.setattr(time, "time_ns", store.wall_ns)
    loop: Any = FakeLoop()
    turns = open_node(NodeConfig(), store, loop)
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
