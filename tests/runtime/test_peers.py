"""The driver's part in peer connections: what it tells the node, and the order in which it does what the node wants."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from folkmoot.config.cluster import ClusterSettings
from folkmoot.config.unit import Address
from folkmoot.peer.peer import PeerConnection
from folkmoot.runtime.clock import Clock
from folkmoot.runtime.loop import Turns
from folkmoot.runtime.peers import KERNEL_BYTES, LINGER_S, PeerNetwork, PeerProtocol, connect
from folkmoot.runtime.tcp import ListenError
from tests.runtime.fake import FakeEffects, FakeLoop, FakeNode, FakeTransport


class PeerTransport(FakeTransport):
    def __init__(self) -> None:
        super().__init__()
        self.closing = False

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.calls.append(f"limits {low < high}")

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True
        super().close()


class PeerEffects(FakeEffects):
    def __init__(self) -> None:
        super().__init__()
        self.dials: list[str] = []
        self.peer_outputs: list[PeerConnection] = []
        self.peer_closes: list[PeerConnection] = []


class PeerNode(FakeNode):
    """Writes down what it is told about peers."""

    def __init__(self) -> None:
        super().__init__()
        self.effects = self.wanted = PeerEffects()

    def peer_connected(self, handle: object, address: str, outgoing: bool, now: int) -> PeerConnection:
        self.calls.append(("connected", address, outgoing))
        return PeerConnection(len(self.calls), handle, address, outgoing, now, self.wanted.peer_outputs)

    def peer_received(self, peer: PeerConnection, data: bytes, now: int) -> None:
        self.calls.append(("received", peer.address, data))

    def peer_writable(self, peer: PeerConnection, flag: bool, now: int) -> None:
        self.calls.append(("writable", peer.address, flag))

    def peer_lost(self, peer: PeerConnection, why: str, now: int) -> None:
        self.calls.append(("lost", peer.address, why))

    def dial_failed(self, address: str, why: str, refused: bool, now: int) -> None:
        self.calls.append(("dial_failed", address, why, refused))

    def drain(self, now: int, steady_ns: int = 0) -> FakeEffects:
        self.turns += 1
        effects, self.effects = self.wanted, PeerEffects()
        self.wanted = self.effects
        return effects


class Bench:
    """A network between a fake node and a fake loop."""

    def __init__(self) -> None:
        self.node = PeerNode()
        self.loop = FakeLoop()
        node: Any = self.node
        loop: Any = self.loop
        self.turns = Turns(node, loop, Clock())
        self.network = PeerNetwork(ClusterSettings(listen=Address("127.0.0.1", 0)))
        self.network._turns = self.turns
        self.turns.carrier = self.network

    def connected(self, address: str) -> tuple[PeerProtocol, PeerTransport]:
        protocol, transport = PeerProtocol(self.network, self.turns, address), PeerTransport()
        made: Any = transport
        protocol.connection_made(made)
        self.loop.iterate()
        return protocol, transport

    def peer(self, transport: PeerTransport) -> PeerConnection:
        """The peer whose handle is `transport`, with a frame to send."""
        peer = PeerConnection(self.number(transport), transport, "b:1", True, 0, self.node.wanted.peer_outputs)
        peer.put(b"last words")
        return peer

    def number(self, transport: PeerTransport) -> int:
        return next(number for number, handle in self.network.open.items() if id(handle) == id(transport))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.network.close()


def test_the_node_hears_of_connections_bytes_and_ends(bench: Bench) -> None:
    there, _ = bench.connected("b:1")
    here, transport = bench.connected("")
    there.data_received(b"abc")
    here.pause_writing()
    here.resume_writing()
    there.connection_lost(OSError("reset"))
    here.connection_lost(None)
    assert bench.node.named("connected") == [("b:1", True), ("127.0.0.1:4711", False)]
    assert bench.node.named("received") == [("b:1", b"abc")]
    assert bench.node.named("writable") == [("127.0.0.1:4711", False), ("127.0.0.1:4711", True)]
    assert bench.node.named("lost") == [("b:1", "reset"), ("127.0.0.1:4711", "closed by the peer")]
    assert transport.calls == ["limits True"]
    assert bench.network.open == {}


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="this platform does not limit what is unsent")
def test_the_kernel_takes_little_that_it_cannot_send(bench: Bench) -> None:
    with socket.socket() as sock:
        transport: Any = PeerTransport()
        transport.extra["socket"] = sock
        PeerProtocol(bench.network, bench.turns, "b:1").connection_made(transport)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == KERNEL_BYTES


def test_output_goes_before_a_close_and_a_close_that_hangs_is_cut(bench: Bench) -> None:
    _, transport = bench.connected("b:1")
    bench.node.wanted.peer_closes.append(bench.peer(transport))
    bench.turns.begin()
    bench.loop.iterate()
    assert transport.written == [b"last words"]
    assert transport.calls[1:] == ["eof", "resume"], "what the peer still sends is read and discarded"
    bench.loop.advance(LINGER_S)
    assert transport.calls[1:] == ["eof", "resume", "abort"]


def test_a_stranger_that_was_told_nothing_is_cut_at_once(bench: Bench) -> None:
    """A flood of them would else hold many sockets for the time of a close."""
    _, transport = bench.connected("")
    peer = PeerConnection(bench.number(transport), transport, "x:1", False, 0, bench.node.wanted.peer_outputs)
    bench.node.wanted.peer_closes.append(peer)
    bench.turns.begin()
    bench.loop.iterate()
    assert transport.calls[1:] == ["abort"]


def test_a_connection_that_is_gone_is_neither_written_nor_closed(bench: Bench) -> None:
    protocol, transport = bench.connected("b:1")
    peer = bench.peer(transport)
    bench.node.wanted.peer_closes.append(peer)
    transport.closing = True
    protocol.connection_lost(None)
    bench.loop.iterate()
    assert transport.written == []
    assert transport.calls == ["limits True"]
    bench.loop.advance(LINGER_S)
    assert transport.calls == ["limits True"]


def test_a_halted_driver_tells_the_node_nothing(bench: Bench) -> None:
    protocol, _ = bench.connected("b:1")
    bench.turns.halt()
    told = len(bench.node.calls)
    protocol.data_received(b"x")
    protocol.pause_writing()
    protocol.connection_lost(None)
    _, late = bench.connected("c:1")
    assert len(bench.node.calls) == told
    assert late.calls == ["abort"]


class Unusable(PeerTransport):
    """Its first call fails, and also its end if it is `stubborn`."""

    def __init__(self, stubborn: bool) -> None:
        super().__init__()
        self.stubborn = stubborn

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        raise RuntimeError("no limits")

    def abort(self) -> None:
        if self.stubborn:
            raise RuntimeError("no end")
        super().abort()


def end_of(bench: Bench, transport: PeerTransport, address: str) -> None:
    """A connection is made and ends."""
    protocol = PeerProtocol(bench.network, bench.turns, address)
    made: Any = transport
    protocol.connection_made(made)
    if "abort" in transport.calls:
        protocol.connection_lost(None)


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_dial_whose_connection_cannot_be_used_has_failed(bench: Bench, stubborn: bool) -> None:
    """The node would wait for its end for ever, and never dial the address again."""
    end_of(bench, Unusable(stubborn), "b:1")
    assert bench.node.named("dial_failed") == [("b:1", "RuntimeError: no limits", False)]


def test_a_dial_that_was_overtaken_by_a_reload_and_is_refused_has_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(bench.network, "outdated", lambda _handle: "the certificate was revoked")
    monkeypatch.setattr(bench.network, "failed", lambda address, _error: said.append(address))
    end_of(bench, PeerTransport(), "b:1")
    assert bench.node.named("dial_failed") == [("b:1", "the certificate was revoked", False)]
    assert said == [], "the node says it"
    end_of(bench, PeerTransport(), "")
    assert len(bench.node.named("dial_failed")) == 1, "nobody dialled it"
    assert said == ["127.0.0.1:4711"]
    assert bench.node.named("connected") == []


def test_the_port_that_the_system_picked_is_told_to_others() -> None:
    network = PeerNetwork(ClusterSettings(listen=Address("127.0.0.1", 0)))
    try:
        assert network.address.port > 0
        assert network.advertised == f"127.0.0.1:{network.address.port}"
        taken = ClusterSettings(listen=Address("127.0.0.1", network.address.port))
        with pytest.raises(ListenError, match="choose another port"):
            PeerNetwork(taken)
        elsewhere = ClusterSettings(listen=Address("127.0.0.1", 0), advertise=Address("node7.example", 7883))
        other = PeerNetwork(elsewhere)
        other.close()
        assert other.advertised == "node7.example:7883"
    finally:
        network.close()
        network.close()


def test_nobody_listens_is_told_apart_from_other_failures() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        port = bound.getsockname()[1]

        async def dial(host: str) -> None:
            (await connect(asyncio.get_running_loop(), Address(host, port))).close()

        with pytest.raises(ConnectionRefusedError):
            asyncio.run(dial("127.0.0.1"))
        with pytest.raises(socket.gaierror) as unknown:
            asyncio.run(dial("no-such-name.invalid"))
        assert not isinstance(unknown.value, ConnectionRefusedError)
        bound.listen()
        asyncio.run(dial("localhost"))
