"""What ends a node, and what ends only one of its connections."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from folkmoot.runtime.serve import ended, on_exception, trace_of


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
