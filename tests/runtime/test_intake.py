"""What a connection with TLS has received goes to TLS in measured portions."""

from __future__ import annotations

import time
from typing import Any

import pytest

from folkmoot.runtime.intake import Intake, TlsTransport
from folkmoot.runtime.slice import COSTLY_S, PIECE_BYTES_MIN, Slices
from tests.runtime.fake import FakeLoop, FakeTransport


class Tls:
    """Takes what it gets; each byte costs something, of which the node has a part."""

    def __init__(self, slices: Slices, clock: list[float]) -> None:
        self.slices = slices
        self.clock = clock
        self.buffer = memoryview(bytearray(65_536))
        self.byte_s = 0.0
        self.node_s = 0.0
        self.calls: list[str] = []

    def connection_made(self, _transport: Any) -> None:
        self.calls.append("made")

    def get_buffer(self, _hint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, size: int) -> None:
        self.clock[0] += size * self.byte_s + self.node_s
        self.slices.handled_s += self.node_s

    def connection_lost(self, _error: Exception | None) -> None:
        self.calls.append("lost")


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: self.clock[0])
        self.loop = FakeLoop()
        loop: Any = self.loop
        slices = Slices(loop)
        self.tls = Tls(slices, self.clock)
        self.intake = Intake(self.tls, slices)
        self.socket = FakeTransport()
        transport: Any = self.socket
        self.intake.connection_made(transport)

    def read(self) -> int:
        size = len(self.intake.get_buffer(-1))
        self.intake.buffer_updated(size)
        return size


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_cheap_portions_grow_to_all_that_tls_takes(bench: Bench) -> None:
    assert [bench.read() for _ in range(11)] == [256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768] + [65_536] * 3
    assert bench.socket.calls == []


def test_after_a_costly_portion_the_connection_waits_and_the_next_one_is_smaller(bench: Bench) -> None:
    for _ in range(4):
        bench.read()
    bench.tls.byte_s = COSTLY_S / 1024  # changes of keys
    assert bench.read() == 4096
    assert bench.socket.calls == ["pause"]
    bench.loop.iterate()
    assert bench.socket.calls == ["pause", "resume"]
    assert bench.read() == 1024
    bench.loop.iterate()
    assert [bench.read() for _ in range(2)] == [PIECE_BYTES_MIN, 2 * PIECE_BYTES_MIN], "as much as is cheap"


def test_what_the_node_does_with_a_portion_is_no_cost_of_tls(bench: Bench) -> None:
    bench.tls.node_s = 10 * COSTLY_S
    for _ in range(5):
        bench.read()
    assert bench.socket.calls == []


def test_reading_is_paused_at_the_socket_and_only_by_who_wants_it(bench: Bench) -> None:
    transport = TlsTransport(FakeTransport(), bench.intake)
    bench.tls.byte_s = COSTLY_S / PIECE_BYTES_MIN
    bench.read()
    transport.pause_reading()
    bench.loop.iterate()
    assert bench.socket.calls == ["pause", "pause"], "its turn has come, and the node wants nothing"
    transport.resume_reading()
    assert bench.socket.calls == ["pause", "pause", "resume"]
    bench.read()
    transport.pause_reading()
    transport.resume_reading()
    assert bench.socket.calls[-1] == "pause", "the node would read on, and its turn has not come"
    bench.loop.iterate()
    assert bench.socket.calls[-1] == "resume"


def test_a_connection_that_is_lost_while_it_waits_is_left_alone(bench: Bench) -> None:
    bench.tls.byte_s = COSTLY_S / PIECE_BYTES_MIN
    bench.read()
    bench.intake.connection_lost(None)
    bench.loop.iterate()
    bench.intake.hold()
    bench.intake.release()
    assert bench.socket.calls == ["pause"]
    assert bench.tls.calls == ["made", "lost"]
