"""An error of one connection ends that connection, is logged, and nobody else notices.

Every call of a transport that the driver makes in a scenario fails once. The calls are found in the sources too: a new
one that no scenario makes is noticed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from folkmoot.config.cluster import ClusterSettings
from folkmoot.config.unit import Address
from folkmoot.runtime.clock import Clock
from folkmoot.runtime.drain import LINGER_S
from folkmoot.runtime.gate import Gate
from folkmoot.runtime.loop import LARGE_BYTES, TURN_BYTES_MAX, Turns
from folkmoot.runtime.origin import OriginRules
from folkmoot.runtime.peers import LINGER_S as PEER_LINGER_S
from folkmoot.runtime.peers import PeerNetwork, PeerProtocol
from folkmoot.runtime.tcp import TcpProtocol, TlsProtocol
from folkmoot.runtime.websocket import WebSocketProtocol, WebSocketRules
from tests.runtime.fake import FakeLoop, FakeNode, FakeTransport
from tests.runtime.test_peers import PeerNode

RUNTIME = Path(__file__).parents[2] / "src" / "folkmoot" / "runtime"
# What a transport is called in the sources of the driver, where its methods are called.
NAMES = ("transport", "_transport", "handle", "made", "opened")
METHODS = (
    *("abort", "can_write_eof", "close", "get_extra_info", "get_protocol", "get_write_buffer_size", "is_closing"),
    *("pause_reading", "resume_reading", "set_protocol", "set_write_buffer_limits", "write", "write_eof"),
)


class Broken(Exception):
    """No error that anybody expects."""


class FaultyTransport(FakeTransport):
    """Counts its calls, and fails in the one with the number `fails_at` (from 0), or in all from `fails_from` on."""

    def __init__(self, halves: bool, fails_at: int = -1, fails_from: int = 1 << 30) -> None:
        super().__init__({"peercert": None})
        self.halves = halves
        self.fails_at = fails_at
        self.fails_from = fails_from
        self.asked: list[str] = []
        self.dead = False

    def _ask(self, name: str) -> None:
        number = len(self.asked)
        self.asked.append(name)
        if number == self.fails_at or number >= self.fails_from:
            raise Broken(f"{name}, call {number}")

    def can_write_eof(self) -> bool:
        self._ask("can_write_eof")
        return self.halves

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._ask("set_write_buffer_limits")

    def close(self) -> None:
        self._ask("close")
        self.dead = True
        super().close()

    def abort(self) -> None:
        self._ask("abort")
        self.dead = True
        super().abort()


def counted(name: str) -> Callable[..., Any]:
    plain = getattr(FakeTransport, name)

    def method(self: FaultyTransport, *arguments: Any) -> Any:
        self._ask(name)
        return plain(self, *arguments)

    return method


for _name in METHODS:
    if _name not in vars(FaultyTransport):
        setattr(FaultyTransport, _name, counted(_name))


class Bench:
    """The driver, a bystander on TCP, and one connection whose transport fails."""

    def __init__(self, kind: str, transport: FaultyTransport) -> None:
        self.node = PeerNode() if kind == "peer" else FakeNode()
        self.loop = FakeLoop()
        node: Any = self.node
        loop: Any = self.loop
        self.turns = Turns(node, loop, Clock())
        self.failures: list[Exception] = []
        self.complaints: list[tuple[str, Exception]] = []
        self.turns.fail = self.failures.append
        self.turns.complain = lambda address, error: self.complaints.append((address, error))
        self.gate = Gate(10, 10, self.loop.time)
        self.bystander = FakeTransport()
        self.bystander_protocol = self.accepted("tcp", self.bystander)
        self.kind = kind
        self.transport = transport
        self.network: PeerNetwork | None = None
        if kind == "peer":
            self.network = PeerNetwork(ClusterSettings(listen=Address("127.0.0.1", 0)))
            self.network._turns = self.turns
            self.turns.carrier = self.network
        self.protocol: Any = self.accepted(kind, transport)

    def accepted(self, kind: str, transport: FakeTransport) -> Any:
        protocol: Any
        if kind == "peer":
            assert self.network is not None
            protocol = PeerProtocol(self.network, self.turns, "", self.network.gate.enter("127.0.0.1"))
        else:
            arrival = self.gate.enter("127.0.0.1")
            assert arrival is not None
            if kind == "ws":
                protocol = WebSocketProtocol(
                    self.turns, self.gate, arrival, WebSocketRules("/mqtt", 1 << 20, OriginRules()), "ws"
                )
            else:
                protocol = {"tcp": TcpProtocol, "tls": TlsProtocol}[kind](self.turns, self.gate, arrival)
        made: Any = transport
        transport.protocol = protocol
        protocol.connection_made(made)
        return protocol

    def turn(self) -> None:
        """One iteration of the loop, in which a turn ends."""
        self.turns.begin()
        self.loop.iterate()
        if self.transport.dead:  # what uvloop does in the iteration after
            self.lose()

    def lose(self) -> None:
        self.transport.dead = False
        self.transport.protocol.connection_lost(None)

    def close(self) -> None:
        if self.network is not None:
            self.network.close()


def client_script(bench: Bench) -> Iterator[None]:
    """All that happens to the connection of a client; a step ends where other things may happen."""
    protocol = bench.protocol
    say = protocol.data_received
    yield
    if protocol._connection is None:
        return
    if bench.kind == "ws":
        client = ClientProtocol(parse_uri("ws://localhost/mqtt"), subprotocols=[Subprotocol("mqtt")])
        client.send_request(client.connect())
        say(b"".join(client.data_to_send()))
        yield

        def say(data: bytes) -> None:
            client.state = client.state.OPEN
            client.send_ping(b"are you there")
            client.send_binary(data)
            protocol.data_received(b"".join(client.data_to_send()))

    say(b"hello")
    yield
    bench.turn()
    connection: Any = bench.node.connections[-1]
    yield
    protocol.pause_writing()
    say(b"you do not read")
    protocol.resume_writing()
    yield
    bench.turn()
    yield
    for _ in range(TURN_BYTES_MAX // LARGE_BYTES + 1):
        say(bytes(LARGE_BYTES))
    yield
    bench.turn()
    yield
    bench.node.effects.pauses.append(connection)
    bench.turn()
    yield
    bench.node.effects.resumes.append(connection)
    bench.turn()
    yield
    if bench.kind == "ws":
        small = b"\x82\x81\0\0\0\0x"
        protocol.data_received(small * 500)  # more than are taken at once
        yield
        bench.turn()
        bench.turn()
        yield
    bench.node.effects.closes.append(connection)
    bench.turn()
    bench.turns.open.discard(1)  # it would be unsent itself
    bench.turns.unsent()
    bench.turns.open.add(1)
    yield
    bench.loop.advance(LINGER_S)
    bench.turn()
    yield


def peer_script(bench: Bench) -> Iterator[None]:
    """All that happens to a connection of a peer."""
    protocol = bench.protocol
    node: Any = bench.node
    yield
    if protocol._peer is None:
        return
    peer = protocol._peer
    peer.peer_nonce = bytes(16)  # no stranger, which would be aborted
    protocol.data_received(b"hello")
    peer.put(b"an answer")
    yield
    bench.turn()
    yield
    protocol.pause_writing()
    protocol.resume_writing()
    for _ in range(TURN_BYTES_MAX // LARGE_BYTES + 1):
        protocol.data_received(bytes(LARGE_BYTES))
    yield
    bench.turn()
    yield
    node.wanted.peer_closes.append(peer)
    bench.turn()
    yield
    bench.loop.advance(PEER_LINGER_S)
    bench.turn()
    yield


def run(kind: str, transport: FaultyTransport) -> Bench:
    """Play the script until it ends or the connection does."""
    bench = Bench(kind, transport)
    for _ in (peer_script if kind == "peer" else client_script)(bench):
        if transport.dead or "abort" in transport.calls:
            break
    bench.turn()
    return bench


def scenarios() -> Iterator[tuple[str, bool]]:
    for kind in ("tcp", "tls", "ws", "peer"):
        for halves in (True, False):
            yield kind, halves


@pytest.mark.parametrize(("kind", "halves"), list(scenarios()))
def test_an_error_at_any_call_of_a_transport_ends_its_connection_and_nothing_else(kind: str, halves: bool) -> None:
    clean = FaultyTransport(halves)
    bench = run(kind, clean)
    bench.close()
    assert (bench.failures, bench.complaints) == ([], [])
    assert len(clean.asked) > 8
    for number, name in enumerate(clean.asked):
        for dead_for_good in (False, True):
            transport = FaultyTransport(halves, number, number if dead_for_good else 1 << 30)
            bench = run(kind, transport)
            where = f"{name}, call {number} of {kind}"
            assert bench.failures == [], where
            assert [type(error) for _, error in bench.complaints][:1] == [Broken], where
            assert bench.node.counters.connection_errors >= 1
            if not dead_for_good and name != "abort":
                assert "abort" in transport.calls, f"{where}: it must be ended"
            if transport.dead:
                bench.lose()
            known = bench.node.named("connected") if kind == "peer" else bench.node.named("connect")[1:]
            assert len(bench.node.named("lost")) >= len(known), f"{where}: the node is told"
            if not dead_for_good:
                assert bench.gate.sockets == 1, where
            before = len(bench.bystander.written)
            bench.bystander_protocol.data_received(b"still served")
            bench.turn()
            assert b"".join(bench.bystander.written[before:]).endswith(b"still served"), where
            bench.close()


def calls_in_the_sources() -> set[str]:
    """The methods of transports that the driver calls."""
    found = set()
    for path in RUNTIME.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                owner = node.value
                name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                if name in NAMES and not node.attr.startswith("_"):
                    found.add(node.attr)
    return found


def test_no_call_of_a_transport_is_forgotten() -> None:
    made = {name for kind, halves in scenarios() for name in calls_of(kind, halves)}
    sources = calls_in_the_sources()
    others = {"cancel", "take_output"}  # of what has one of the names and is no transport
    assert sources - others <= set(METHODS), "a method that FaultyTransport does not have"
    assert sources - others <= made, "no scenario makes this call"


def calls_of(kind: str, halves: bool) -> list[str]:
    transport = FaultyTransport(halves)
    run(kind, transport).close()
    return transport.asked


def test_output_of_a_turn_in_which_its_connection_is_lost_goes_nowhere() -> None:
    """uvloop raises RuntimeError when a transport is used after its end."""
    transport = FaultyTransport(True)
    bench = Bench("tcp", transport)
    bench.turn()
    bench.protocol.data_received(b"hello")
    bench.protocol.connection_lost(None)
    transport.fails_from = 0
    bench.turn()
    assert (bench.failures, bench.complaints, transport.written) == ([], [], [])
    assert bench.turns.open == {1}


def test_a_fault_of_the_node_ends_the_node() -> None:
    for method in ("receive", "writable", "lost", "connect", "written", "wake", "storage", "authenticated"):
        bench = Bench("tcp", FaultyTransport(True))
        bench.turn()

        def fault(*_arguments: object) -> None:
            raise AssertionError("an invariant")

        setattr(bench.node, method, fault)
        if method == "receive":
            bench.turns.receive = fault
            bench.protocol.data_received(b"x")
        elif method == "writable":
            bench.protocol.pause_writing()
        elif method == "lost":
            bench.protocol.connection_lost(None)
        elif method == "connect":
            bench.accepted("tcp", FakeTransport())
        elif method == "written":
            bench.turns.written(1)
        elif method == "wake":
            bench.node.due = 0
            bench.turns._timer()
        elif method == "storage":
            bench.turns.storage("space", "full")
        else:
            connection: Any = bench.node.connections[0]
            bench.turns.authenticated(connection, True)
        assert [str(error) for error in bench.failures] == ["an invariant"], method
        assert bench.complaints == []


def test_a_service_that_fails_ends_no_node() -> None:
    bench = Bench("tcp", FaultyTransport(True))

    def answered(_call: object) -> None:
        raise Broken("a request that was cancelled")

    bench.turns.answered = answered
    bench.turns.after_written = lambda: answered(None)
    call: Any = object()
    bench.node.effects.calls.append(call)
    bench.node.effects.grown = True
    bench.turn()
    assert bench.failures == []
    assert [type(error) for _, error in bench.complaints] == [Broken, Broken]
