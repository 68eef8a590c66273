"""The driver and the lease: a comparison after the last decision, another one before the write, and the aborts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from folkmoot.kernel.lease import PAUSE_US
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import Connect, Pingreq, Publish
from folkmoot.node import Node, NodeConfig
from folkmoot.runtime.clock import Clock
from folkmoot.runtime.gate import Gate
from folkmoot.runtime.intake import Intake, TlsTransport
from folkmoot.runtime.loop import Turns
from folkmoot.runtime.slice import Slices
from folkmoot.runtime.tcp import TcpProtocol
from folkmoot.store.memory import MemoryStore
from tests.runtime.fake import FakeLoop, FakeTransport

UNTIL_NS = 1_000_000_000


class Bench:
    """The driver with a real node, on a fake loop; `now_ns` is the monotonic clock."""

    def __init__(self, turns: type[Turns] = Turns) -> None:
        self.now_ns = UNTIL_NS - 1
        self.loop = FakeLoop()
        loop: Any = self.loop
        self.node = Node(NodeConfig(), MemoryStore(), 1)
        self.turns = turns(self.node, loop, Clock())
        self.node.open(self.turns.now)
        self.turns.steady_ns = lambda: self.now_ns
        self.turns.submit = lambda batch: self.loop.call_soon(self.turns.written, batch.token)
        self.gate = Gate(100, 100, self.loop.time)

    def client(self, client_id: str) -> tuple[TcpProtocol, FakeTransport]:
        arrival = self.gate.enter("127.0.0.1")
        assert arrival is not None
        protocol, transport = TcpProtocol(self.turns, self.gate, arrival), FakeTransport()
        made: Any = transport
        transport.protocol = protocol
        protocol.connection_made(made)
        protocol.data_received(encode(Connect(5, client_id, True, 0), 5))
        self.rest()
        assert len(transport.written) == 1, "CONNACK"
        transport.written.clear()
        return protocol, transport

    def rest(self) -> None:
        """Iterate until nothing is ready; a node that is busy for nothing never is."""
        for _ in range(100):
            if not self.loop.ready:
                return
            self.loop.iterate()
        raise AssertionError("the node does not come to rest")


PUBLISH = encode(Publish(b"t", b"m", 1, packet_id=1), 5)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_under_a_lease_everything_leaves(bench: Bench) -> None:
    protocol, transport = bench.client("a")
    bench.node.lease(UNTIL_NS)
    protocol.data_received(PUBLISH)
    bench.rest()
    assert transport.written == [bytes.fromhex("4003000110")]


class AtTheBeginning(Turns):
    """A planted bug: the lease is compared with the time at which the turn began."""

    def begin(self) -> int:
        if not self.begun:
            began_ns = self.steady_ns()
            self.steady_ns = lambda: began_ns
        return super().begin()


@pytest.mark.parametrize("turns", [Turns, AtTheBeginning])
def test_a_process_that_is_stopped_between_two_sockets_of_one_turn_answers_neither(turns: type[Turns]) -> None:
    bench = Bench(turns)
    (one, first), (two, second) = bench.client("a"), bench.client("b")
    bench.turns.steady_ns = lambda: bench.now_ns
    bench.node.lease(UNTIL_NS)
    one.data_received(PUBLISH)
    bench.now_ns = UNTIL_NS  # it is stopped here, and others have taken over when it goes on
    two.data_received(PUBLISH)
    bench.rest()
    planted = turns is AtTheBeginning
    assert (first.written, second.written) == (([bytes.fromhex("4003000110")],) * 2 if planted else ([], []))


def test_a_process_that_is_stopped_between_the_turn_and_the_write_sends_nothing(bench: Bench) -> None:
    protocol, transport = bench.client("a")
    bench.node.lease(UNTIL_NS)
    reads = iter([UNTIL_NS - 1])
    bench.turns.steady_ns = lambda: next(reads, UNTIL_NS)
    protocol.data_received(PUBLISH)
    bench.rest()
    assert transport.written == []
    bench.turns.steady_ns = lambda: UNTIL_NS + 5
    bench.node.lease(2 * UNTIL_NS)
    bench.turns.begin()
    bench.rest()
    assert transport.written == [bytes.fromhex("4003000110")]
    protocol.data_received(encode(Pingreq(), 5))
    bench.rest()
    assert transport.written[1:] == [b"\xd0\x00"]


def test_a_client_whose_output_waits_is_not_read(bench: Bench) -> None:
    protocol, transport = bench.client("a")
    bench.node.lease(1)
    protocol.data_received(PUBLISH)
    bench.rest()
    assert transport.calls == ["pause"]
    bench.node.lease(UNTIL_NS)
    bench.turns.begin()
    bench.rest()
    assert transport.calls == ["pause", "resume"]


@pytest.mark.parametrize("unsent", [0, 1])
def test_what_a_transport_holds_when_the_node_is_done_with_its_client_is_aborted(bench: Bench, unsent: int) -> None:
    protocol, transport = bench.client("a")
    transport.unsent_bytes = unsent
    bench.node.lease(1)
    protocol.data_received(PUBLISH)
    bench.rest()
    bench.now_ns += PAUSE_US * 1000
    bench.turns.begin()
    bench.rest()
    assert ("abort" in transport.calls) == bool(unsent)
    if not unsent:
        assert [data[:1] for data in transport.written] == [b"\xe0"], "nothing but DISCONNECT"
        assert transport.calls[-2:] == ["eof", "resume"], "closed in order"


def test_under_tls_what_the_socket_has_not_taken_counts_as_unsent() -> None:
    class Layer:
        def get_write_buffer_size(self) -> int:
            return 3

        def connection_made(self, _transport: object) -> None:
            pass

    loop = FakeLoop()
    given: Any = loop
    intake = Intake(Layer(), Slices(given))
    below = FakeTransport()
    below.unsent_bytes = 4
    made: Any = below
    intake.connection_made(made)
    assert TlsTransport(Layer(), intake).get_write_buffer_size() == 7


def test_the_clock_of_leases_goes_on() -> None:
    loop = asyncio.new_event_loop()
    try:
        turns = Turns(Node(NodeConfig(), MemoryStore(), 1), loop, Clock())
        first = turns.steady_ns()
        assert 0 < first <= turns.steady_ns()
    finally:
        loop.close()
