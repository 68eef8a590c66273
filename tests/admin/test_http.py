"""Connections of the admin server on a transport that does what a test wants, at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from folkmoot.admin.exchange import Message
from folkmoot.admin.http import HttpConnection, HttpServer

REQUEST = b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"
PUT = b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
STEPS = 12  # iterations of the loop within which a request is answered


class Broken(RuntimeError):
    """What a transport raises."""


class Transport:
    """Keeps what is written; the call number `fails` of any method raises."""

    def __init__(self, fails: int = -1) -> None:
        self.written = b""
        self.reading = True
        self.ended = False
        self.aborted = False
        self.unsent = 0
        self.calls = 0
        self._fails = fails
        self.protocol: Any = None

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("do_"):
            known = getattr(self, f"do_{name}")

            def call(*arguments: Any, **named: Any) -> Any:
                self.calls += 1
                if self.calls == self._fails:
                    raise Broken(name)
                return known(*arguments, **named)

            return call
        raise AttributeError(name)

    def do_set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def do_get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 4711) if name == "peername" else None

    def do_get_write_buffer_size(self) -> int:
        return self.unsent

    def do_writelines(self, parts: list[bytes]) -> None:
        self.written += b"".join(parts)

    def do_pause_reading(self) -> None:
        self.reading = False

    def do_resume_reading(self) -> None:
        self.reading = True

    def do_is_closing(self) -> bool:
        return self.aborted

    def do_can_write_eof(self) -> bool:
        return True

    def do_write_eof(self) -> None:
        self.ended = True

    def do_close(self) -> None:
        self.ended = True

    def do_abort(self) -> None:
        self.aborted = True

    def do_get_protocol(self) -> Any:
        return self.protocol

    def do_set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol


async def answer(scope: Message, receive: Any, send: Any) -> None:
    """Echo the body; as with the right token, the connection is trusted from then on."""
    scope["state"]["trusted"] = True
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


class Bench:
    """One connection of a started server."""

    def __init__(self, server: HttpServer, transport: Transport, said: list[str]) -> None:
        self.server = server
        self.transport = transport
        self.said = said
        self.connection = HttpConnection(server)
        transport.protocol = self.connection
        made: Any = transport
        self.connection.connection_made(made)

    def receive(self, data: bytes) -> None:
        view = self.connection.get_buffer(-1)
        view[: len(data)] = data
        self.connection.buffer_updated(len(data))

    async def settle(self, steps: int = STEPS) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(steps):
            turned: asyncio.Future[None] = loop.create_future()
            loop.call_soon(turned.set_result, None)
            await turned
        if steps >= STEPS:
            paused: asyncio.Future[None] = loop.create_future()
            loop.call_later(0.005, paused.set_result, None)  # the pause between slices is a timer
            await paused


def run(test: Callable[[Bench], Awaitable[None]], fails: int = -1) -> Bench:
    """Run a test with a connection of its own; errors that reach the loop fail it."""

    async def main() -> Bench:
        leaked: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: leaked.append(context))
        said: list[str] = []
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            server = HttpServer(answer, sock, lambda level, text, **fields: said.append(f"{level} {text}"), 16, 8)
            await server.start()
            bench = Bench(server, Transport(fails), said)
            await test(bench)
            await bench.settle()
            await server.stop()
        assert leaked == []
        return bench

    return asyncio.run(main())


def test_requests_are_answered_one_by_one() -> None:
    async def test(bench: Bench) -> None:
        bench.receive(REQUEST + PUT + REQUEST)
        for _ in range(3):
            await bench.settle()
        assert bench.transport.written.count(b"HTTP/1.1 200 OK") == 3
        assert b"\r\n\r\nabcHTTP/1.1" in bench.transport.written

    assert run(test).said == []


def test_the_next_request_waits_until_the_answer_is_taken() -> None:
    async def test(bench: Bench) -> None:
        bench.transport.unsent = 1
        bench.connection.pause_writing()
        bench.connection.resume_writing()
        bench.receive(REQUEST + REQUEST)
        await bench.settle(2)
        bench.connection.pause_writing()
        await bench.settle()
        count = bench.transport.written.count(b"HTTP/1.1 200")
        assert count <= 1
        assert not bench.transport.reading
        bench.transport.unsent = 0
        bench.connection.resume_writing()
        for _ in range(2):
            await bench.settle()
        assert bench.transport.written.count(b"HTTP/1.1 200") == 2
        assert bench.transport.reading

    assert run(test).said == []


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("step", range(STEPS + 1))
@pytest.mark.parametrize("request_", [REQUEST, PUT, REQUEST + REQUEST, PUT[:-1], REQUEST[:-1]])
def test_the_client_may_end_its_side_at_any_moment(request_: bytes, step: int, trusted: bool) -> None:
    async def test(bench: Bench) -> None:
        bench.connection.trusted = trusted
        bench.receive(request_)
        await bench.settle(step)
        bench.connection.eof_received()
        for _ in range(100):  # a machine with other work makes the pauses longer
            if bench.transport.ended:
                break
            await bench.settle()
        whole = request_ in (REQUEST, PUT, REQUEST + REQUEST)
        assert bench.transport.written.count(b"HTTP/1.1 200") == (1 + (request_ == REQUEST + REQUEST) if whole else 0)
        assert bench.transport.ended

    said = run(test).said
    assert [line for line in said if "bug" in line] == []


@pytest.mark.parametrize("step", range(STEPS + 1))
@pytest.mark.parametrize("request_", [REQUEST, PUT, REQUEST + REQUEST, PUT[:-1]])
def test_the_connection_may_be_lost_at_any_moment(request_: bytes, step: int) -> None:
    async def test(bench: Bench) -> None:
        bench.receive(request_)
        await bench.settle(step)
        bench.connection.connection_lost(ConnectionResetError())

    assert run(test).said == []


@pytest.mark.parametrize("fails", range(1, 13))
def test_an_error_of_a_transport_ends_its_connection_alone(fails: int) -> None:
    """Call by call; what the loop would hear of would end the node."""

    async def test(bench: Bench) -> None:
        bench.receive(REQUEST + PUT)
        for _ in range(3):
            await bench.settle()
        with contextlib.suppress(Broken):
            bench.connection.eof_received()
        await bench.settle()

    bench = run(test, fails)
    assert bench.transport.calls >= fails, "every call in the range is made"
    assert all("bug" in line or "Broken" in line for line in bench.said)


def test_an_endpoint_that_fails_is_answered_with_500() -> None:
    async def test(bench: Bench) -> None:
        async def broken(_scope: Message, _receive: Any, _send: Any) -> None:
            raise Broken("an endpoint")

        bench.server._app = broken
        bench.receive(REQUEST)
        await bench.settle()
        assert bench.transport.written.startswith(b"HTTP/1.1 500 Internal Server Error")

    assert any("Broken: an endpoint" in line for line in run(test).said)
