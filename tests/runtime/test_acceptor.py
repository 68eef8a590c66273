from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import types
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from folkmoot.runtime.acceptor import ACCEPTS_MAX, PAUSE_S, Accepted, Acceptor, Reception
from folkmoot.runtime.gate import Arrival, Gate
from folkmoot.runtime.slice import Slices
from tests.runtime.fake import FakeLoop

CERTIFICATES = Path(__file__).parents[1] / "integration" / "certificates"


class Protocol(Accepted):
    """Remembers what happens to it."""

    def __init__(self, hall: Hall, arrival: Arrival) -> None:
        super().__init__()
        self.hall = hall
        self.arrival: Arrival | None = arrival
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.made = True
        self.transport = transport
        self.hall.made.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.left()

    def left(self) -> None:
        arrival, self.arrival = self.arrival, None
        if arrival is not None:
            self.hall.gate.finish(arrival)
            self.hall.gate.leave()


class Hall(Reception):
    def __init__(self, gate: Gate, context: ssl.SSLContext | None = None) -> None:
        self.gate = gate
        self.context = context
        self.made: list[Protocol] = []
        self.events: list[str] = []

    def protocol(self, arrival: Arrival) -> Accepted:
        return Protocol(self, arrival)

    def options(self) -> dict[str, Any]:
        return {} if self.context is None else {"ssl": self.context, "ssl_handshake_timeout": 0.2}

    def refused(self, address: str) -> None:
        self.events.append("refused")

    def paused(self, error: OSError) -> None:
        self.events.append(f"paused {error.errno}")

    def failed(self, address: str, error: Exception) -> None:
        self.events.append(f"failed {type(error).__name__}")


class Listening:
    """A listening socket whose queue a test fills: sockets, and errors that accept raises."""

    def __init__(self, *queue: socket.socket | OSError) -> None:
        self.queue = list(queue)
        self.closed = False

    def fileno(self) -> int:
        return 99

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if not self.queue:
            raise BlockingIOError
        found = self.queue.pop(0)
        if isinstance(found, OSError):
            raise found
        return found, ("192.0.2.1", 4711)

    def close(self) -> None:
        self.closed = True


class Loop(FakeLoop):
    def __init__(self) -> None:
        super().__init__()
        self.readers: dict[int, Callable[[], None]] = {}

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        self.readers[descriptor] = callback

    def remove_reader(self, descriptor: int) -> bool:
        return self.readers.pop(descriptor, None) is not None


def faked(listening: Listening, sockets_max: int) -> tuple[Acceptor, Hall, Loop]:
    loop = Loop()
    hall = Hall(Gate(sockets_max, 1000, loop.time))
    sock: Any = listening
    any_loop: Any = loop
    acceptor = Acceptor(sock, hall.gate, hall, any_loop, Slices(any_loop))
    acceptor.start()
    return acceptor, hall, loop


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_without_descriptors_it_pauses_instead_of_spinning(number: int) -> None:
    listening = Listening(OSError(number, "none"))
    acceptor, hall, loop = faked(listening, 0)
    loop.readers[99]()
    assert loop.readers == {}
    assert hall.events == [f"paused {number}"]
    loop.advance(PAUSE_S)
    assert list(loop.readers) == [99]
    listening.queue.append(OSError(number, "none"))
    loop.readers[99]()
    acceptor.close()
    loop.advance(PAUSE_S)
    assert loop.readers == {}
    assert listening.closed


def test_a_connection_that_has_ended_meanwhile_does_not_stop_the_others() -> None:
    here, there = socket.socketpair()
    with here, there:
        ended = [OSError(errno.ECONNABORTED, "gone"), OSError(errno.EPROTO, "no"), OSError(errno.EPERM, "a firewall")]
        _, hall, loop = faked(Listening(*ended, here), 0)
        loop.readers[99]()
        assert list(loop.readers) == [99]
        assert hall.events == ["refused"]
        assert here.fileno() == -1, "closed at once"


def test_only_so_many_are_accepted_at_a_time() -> None:
    pairs = [socket.socketpair() for _ in range(ACCEPTS_MAX + 1)]
    listening = Listening(*[pair[0] for pair in pairs])
    _, hall, loop = faked(listening, 0)
    loop.readers[99]()
    assert (len(hall.events), len(listening.queue)) == (ACCEPTS_MAX, 1)
    for pair in pairs:
        for end in pair:
            end.close()


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    return context


@types.coroutine
def iteration() -> Generator[None]:
    """Let the loop do what is ready."""
    yield


class Real:
    """A real acceptor on a real loop."""

    def __init__(self, tls: bool, address_max: int = 100, sockets_max: int = 100) -> None:
        self.loop = asyncio.get_running_loop()
        self.now = 0.0
        self.hall = Hall(Gate(sockets_max, address_max, lambda: self.now), server_context() if tls else None)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setblocking(False)
        self.port: int = self.listening.getsockname()[1]
        self.acceptor = Acceptor(self.listening, self.hall.gate, self.hall, self.loop, Slices(self.loop))
        self.acceptor.start()
        self.clients: list[socket.socket] = []

    async def dial(self) -> socket.socket:
        client = socket.socket()
        client.setblocking(False)
        await self.loop.sock_connect(client, ("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not what():
                await iteration()

    def close(self) -> None:
        self.acceptor.close()
        for client in self.clients:
            client.close()


def with_real(test: Callable[[Real], Any], **options: Any) -> None:
    async def run() -> None:
        real = Real(**options)
        try:
            await test(real)
        finally:
            real.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_is_counted_from_its_accept_to_its_end(tls: bool) -> None:
    async def test(real: Real) -> None:
        client = await real.dial()
        await real.until(lambda: real.hall.gate.sockets == 1)
        if not tls:
            await real.until(lambda: len(real.hall.made) == 1)
        assert real.hall.gate.unfinished == 1
        client.close()
        await real.until(lambda: real.hall.gate.sockets == 0)
        assert real.hall.gate.unfinished == 0

    with_real(test, tls=tls)


def test_a_silent_tls_handshake_ends_in_time_and_is_reported() -> None:
    async def test(real: Real) -> None:
        client = await real.dial()
        await real.until(lambda: real.hall.gate.sockets == 1)
        await real.until(lambda: real.hall.gate.sockets == 0)
        assert real.hall.events == ["failed ConnectionAbortedError"]
        assert await real.loop.sock_recv(client, 10) == b""

    with_real(test, tls=True)


def test_nonsense_instead_of_tls_is_reported() -> None:
    async def test(real: Real) -> None:
        client = await real.dial()
        await real.loop.sock_sendall(client, b"GET / HTTP/1.1\r\n\r\n")
        await real.until(lambda: bool(real.hall.events))
        assert real.hall.events == ["failed SSLError"]
        assert real.hall.gate.sockets == 0

    with_real(test, tls=True)


def test_a_handshake_is_cut_to_make_room() -> None:
    async def test(real: Real) -> None:
        first = await real.dial()
        await real.until(lambda: real.hall.gate.sockets == 1)
        real.now += 2
        await real.dial()
        assert await real.loop.sock_recv(first, 10) == b""
        await real.until(lambda: real.hall.gate.sockets == 1)
        assert (real.hall.gate.evicted, real.hall.events) == (1, [])

    with_real(test, tls=True, address_max=1)


@pytest.mark.parametrize("tls", [False, True])
def test_closing_ends_what_is_being_made_and_leaves_the_others(tls: bool) -> None:
    async def test(real: Real) -> None:
        client = await real.dial()
        await real.until(lambda: real.hall.gate.sockets == 1)
        if not tls:
            await real.until(lambda: len(real.hall.made) == 1)
        real.acceptor.close()
        real.acceptor.close()
        if tls:
            assert await real.loop.sock_recv(client, 10) == b""
            await real.until(lambda: real.hall.gate.sockets == 0)
        else:
            real.hall.made[0].transport.write(b"still here")
            assert await real.loop.sock_recv(client, 20) == b"still here"

    with_real(test, tls=tls)


def test_no_descriptor_is_lost() -> None:
    def opened() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    async def test(real: Real) -> None:
        (await real.dial()).close()  # the loop may open some of its own
        await real.until(lambda: len(real.hall.made) == 1 and real.hall.gate.sockets == 0)
        before = opened()
        for _ in range(50):
            (await real.dial()).close()
        await real.until(lambda: real.hall.gate.refused + len(real.hall.made) == 51 and real.hall.gate.sockets == 0)
        await real.until(lambda: opened() == before)

    with_real(test, tls=False, sockets_max=20)
