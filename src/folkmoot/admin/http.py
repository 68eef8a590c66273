"""The HTTP/1.1 server of a node: an ASGI application in the event loop of the node, on the parser h11.

Owns the sockets. It must serve strangers without harm to MQTT, which shares its thread:

- A connection has one request at a time. Nothing more is read until it is answered and the client has taken the answer.
- `folkmoot.admin.bound` limits the bytes of a message that are not its body, and the time of everything that a client
  has to do. Bodies are read only as fast as an endpoint takes them.
- Connections are limited in total and per address. Above the limit, the connection that has waited longest for its
  client is closed in favour of the new one, so that probes are always answered.
- Requests without a token are handled in short slices, and take half of the time of the loop at most.

Why not a server from a package: uvicorn, hypercorn and granian limit neither the time in which an answer is taken nor
connections per address, uvicorn's parser httptools does not limit trailers, and uvicorn parses requests that it has not
begun to answer. h11 is a parser without I/O; it stops by itself behind each request.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios
import time
import traceback
from asyncio import BaseTransport, Transport
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

import h11

from folkmoot.admin.bound import BODY_AHEAD_BYTES, GRACE_S, HEAD_BYTES_MAX, HEAD_S, IDLE_S, FramingBound, Patience
from folkmoot.admin.exchange import Application, BadTarget, Carrier, Exchange, response, scope_of
from folkmoot.runtime.address import limit_key
from folkmoot.runtime.clock import next_beat
from folkmoot.runtime.drain import LINGER_BYTES_MAX, LINGER_S, close_in_order, reset

__all__ = ["HttpConnection", "HttpServer", "Say"]

READ_BYTES: Final = 32_768
REFUSED_BYTES_MAX: Final = 65_536  # discarded behind a refusal, so that a client that has sent little can read it
SEND_BUFFER_BYTES: Final = 262_144  # in the kernel, per connection
SWEEP_S: Final = 1.0
STOP_S: Final = 1.0
SLICE_S: Final = 0.002
TURN_EVENTS_MAX: Final = 64  # parts of a body: with chunks of one byte, 32 KiB would take a tenth of a second
WHY_CHARACTERS_MAX: Final = 200  # of what an answer and the log say about a wrong request
WITHOUT_BODY: Final = (b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT")

Say = Callable[..., object]
"""`say(level, message, **fields)` writes to the node's log."""

# Shared by all connections: what was received is copied out before the next read.
_RECEIVED: Final = bytearray(READ_BYTES)
_VIEW: Final = memoryview(_RECEIVED)


class HttpConnection(asyncio.BufferedProtocol, Carrier):
    """One connection: it reads a request, has it answered, waits until the answer is taken, and reads the next one."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._framing = FramingBound()
        self._transport: Transport = cast("Transport", None)
        self._exchange: Exchange | None = None
        self._discarded = 0  # bytes of a body that its endpoint did not want
        self._unread = 0  # bytes that h11 has and that were not understood yet
        self._unsent = 0  # bytes at the last look
        self._closing = False
        self._last = False  # the server stops
        self._client_ended = False  # it sends nothing more
        self._head_only = False
        self._taken: asyncio.Task[None] | None = None  # waits until the answer is taken
        self._linger: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self.incoming = Patience()
        self.outgoing = Patience()
        self.waiting_since_s = 0.0
        self.trusted = False  # the last request had the token
        self.queued = False
        self.address: tuple[str, int] | None = None
        self.key = ""

    # From the transport

    def connection_made(self, transport: BaseTransport) -> None:
        """Count the connection; refuse it if there are too many, and none can be closed in its favour."""
        self._transport = cast("Transport", transport)
        self._safely(self._made)

    def _made(self) -> None:
        self._transport.set_write_buffer_limits(high=0)
        peer = self._transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.address = (str(peer[0]), int(peer[1]))
            self.key = limit_key(self.address[0])
        now_s = self._server.now_s()
        self.waiting_since_s = now_s
        self.incoming.begin(now_s, IDLE_S)
        if not self._server.enter(self):
            self.abort()

    def get_buffer(self, _hint: int) -> memoryview:
        """Return the buffer for received bytes."""
        return _VIEW

    def buffer_updated(self, size: int) -> None:
        """Take received bytes; they are parsed in this connection's turn."""
        if not self._closing:
            self._safely(lambda: self._received(size))

    def _received(self, size: int) -> None:
        if self._exchange is None and self._unread == 0:
            self.incoming.begin(self._server.now_s(), HEAD_S)  # the first byte of a request
        self._h11.receive_data(bytes(_VIEW[:size]))
        self._framing.received(size)
        self._unread += size
        self._pause()
        self._server.give_turn(self)

    def eof_received(self) -> bool:
        """The client sends nothing more: answer what it has asked."""
        if not self._closing:
            self._safely(self._received_end)
        return True

    def _received_end(self) -> None:
        self._client_ended = True
        self._h11.receive_data(b"")
        self._server.give_turn(self)

    def _safely(self, step: Callable[[], None]) -> None:
        """Take a step; an error in it ends this connection alone."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the node goes on
            trace = "".join(traceback.format_exception(error)[-3:])
            self._server.say("error", "a connection failed because of a bug; please report it", trace=trace)
            self.abort()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is sent to."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client has taken everything."""
        self._writable.set()
        self.outgoing.end()

    def connection_lost(self, _error: Exception | None) -> None:
        """End the request: nobody waits for its answer."""
        self._closing = True
        if self._linger is not None:
            self._linger.cancel()
        self._writable.set()
        self._server.leave(self)
        if self._exchange is not None and self._exchange.task is not None:
            self._exchange.task.cancel()

    # What a client may delay

    def busy(self) -> bool:
        """Whether a request is being answered, rather than the client waited for."""
        return self._exchange is not None and not self._exchange.ended and not self.incoming.waits()

    def look(self, now_s: float) -> None:
        """Abort the connection if its client is too slow."""
        self._safely(lambda: self._look(now_s))

    def _look(self, now_s: float) -> None:
        unsent = self._unsent_bytes()
        if unsent == 0:
            self.outgoing.end()
        elif not self.outgoing.waits() or unsent > self._unsent:
            self.outgoing.begin(now_s, GRACE_S)
        elif unsent < self._unsent:
            self.outgoing.progress(self._unsent - unsent, now_s)
        self._unsent = unsent
        if self.incoming.over(now_s) or self.outgoing.over(now_s):
            self.abort()

    def _unsent_bytes(self) -> int:
        """Return how many bytes of answers the client's machine has not confirmed."""
        size = self._transport.get_write_buffer_size()
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                (queued,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
                size += queued
        return size

    def abort(self) -> None:
        """Close now."""
        self._closing = True
        with contextlib.suppress(OSError, RuntimeError):  # of a socket that is closed already
            reset(self._transport)

    def is_closing(self) -> bool:
        """Whether the connection serves nobody any more."""
        return self._closing

    # Reading

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._transport.resume_reading()

    def take_turn(self) -> None:
        """Handle what was received, until more is needed, a request waits for its answer, or it takes long."""
        self._safely(self._take_turn)

    def _take_turn(self) -> None:
        for _ in range(TURN_EVENTS_MAX):
            if self._closing:
                return
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                # Its trace refers to itself, and holds this connection with all that it has received until the
                # garbage collector runs.
                error.with_traceback(None)
                self._refuse(error.error_status_hint, f"Invalid HTTP request received: {shortened(str(error))}")
                return
            if event is h11.PAUSED:
                return
            if isinstance(event, h11.Data):  # checked when the next part is needed
                if self._take(bytes(event.data)):
                    continue
                return
            self._unread = len(self._h11.trailing_data[0])
            if self._framing.exceeded(0 if event is h11.NEED_DATA else self._unread):
                self._refuse(431, f"Invalid HTTP request received: more than {HEAD_BYTES_MAX} bytes besides its body")
                return
            if event is h11.NEED_DATA:
                self._resume()
                return
            if isinstance(event, h11.ConnectionClosed):
                if self._exchange is None:
                    self._close()
                return
            if not self._handle(event):
                return
        self._server.queue(self)

    def _handle(self, event: object) -> bool:
        """Handle one event; return whether to go on with the next one."""
        if isinstance(event, h11.Request):
            return self._begin(event)
        exchange = self._exchange
        assert exchange is not None, "the end of a message follows its beginning"
        self._framing.next_message(self._unread)
        self.incoming.end()
        exchange.finish()
        if exchange.ended:
            self._next()
            return False
        return True

    def _begin(self, request: h11.Request) -> bool:
        """Have a request answered."""
        self._head_only = request.method == b"HEAD"
        if request.method in WITHOUT_BODY and has_body(request):
            self._refuse(413, f"a {request.method.decode()} has no body here")
            return False
        if has_doubtful_end(request):
            self._refuse(400, "it is not clear where the body ends")
            return False
        try:
            scope = scope_of(request, self.address)
        except BadTarget as fault:
            self._refuse(400, str(fault))
            return False
        self.incoming.begin(self._server.now_s(), GRACE_S)  # for the body; it may be empty
        self._discarded = 0
        self._exchange = Exchange(self, scope)
        self._exchange.task = self._server.run(self, self._exchange)
        return True

    def _take(self, data: bytes) -> bool:
        """Take a part of a body; return whether to go on with what follows."""
        exchange = self._exchange
        assert exchange is not None, "a body follows a request"
        self._framing.body(len(data))
        self.incoming.progress(len(data), self._server.now_s())
        if exchange.ended:
            self._discarded += len(data)
            if self._discarded > BODY_AHEAD_BYTES:
                self._close()
            return True
        exchange.feed(data)
        if exchange.waiting_bytes <= BODY_AHEAD_BYTES:
            return True
        self.incoming.end()  # until the endpoint has taken it, the client has nothing to do
        return False

    def want(self) -> None:
        """The endpoint waits for a part of the body."""
        if not self.incoming.waits():
            self.incoming.begin(self._server.now_s(), GRACE_S)
        if self._h11.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[]))
        self._server.give_turn(self)

    # Answering

    def keeps(self) -> bool:
        """Whether the connection can go on: the request is complete, or the rest of its body is small."""
        exchange = self._exchange
        assert exchange is not None, "an answer has a request"
        if exchange.complete:
            return True
        return (
            rest_of(exchange.scope["headers"]) <= BODY_AHEAD_BYTES and not self._h11.they_are_waiting_for_100_continue
        )

    async def put(self, event: h11.Event) -> None:
        """Send a part of an answer; wait while the client takes what was sent before."""
        await self._writable.wait()
        self._send(event)

    def _send(self, event: h11.Event) -> None:
        if self._closing:
            return
        parts = self._h11.send_with_data_passthrough(event)
        if parts:
            self._transport.writelines([part for part in parts if part])

    def ended(self, exchange: Exchange, error: Exception | None) -> None:
        """The application has returned: go on when its answer is taken."""
        self._safely(lambda: self._ended(exchange, error))

    def _ended(self, exchange: Exchange, error: Exception | None) -> None:
        if self._closing or exchange is not self._exchange:
            return
        if error is not None or not exchange.ended:
            text = "an endpoint did not answer" if error is None else f"{type(error).__name__}: {error}"
            self._server.say("error", f"Exception in ASGI application {text}")
            exchange.ended = True
            if not exchange.started:
                self._answer(500, "Internal Server Error")
            else:
                self.abort()
            return
        if not exchange.complete:
            self._server.give_turn(self)  # what is left of the body
            return
        self._next()

    def _next(self) -> None:
        """Go on with the next request as soon as the answer is taken."""
        self.waiting_since_s = self._server.now_s()
        if self._can_go_on():
            asyncio.get_running_loop().call_soon(self._safely, self._when_taken)
        else:
            self._close()

    def _can_go_on(self) -> bool:
        """Whether the connection serves further requests: both sides are done, and neither has announced its end."""
        return not self._last and self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE

    def _when_taken(self) -> None:
        if self._closing:
            return
        if not self._can_go_on():  # the client has ended its side meanwhile
            self._close()
            return
        if not self._writable.is_set() or self._transport.get_write_buffer_size():
            self._taken = self._server.begin(self._await_taken())
            return
        self._exchange = None
        self._h11.start_next_cycle()
        now_s = self._server.now_s()
        self.waiting_since_s = now_s
        self.incoming.begin(now_s, HEAD_S if self._unread else IDLE_S)
        if self._unread:
            self._server.give_turn(self)
        else:
            self._resume()

    async def _await_taken(self) -> None:
        await self._writable.wait()
        self._safely(self._when_taken)

    def _refuse(self, status: int, why: str) -> None:
        """Answer a request that cannot be understood, or is not wanted, and close."""
        self._server.say("warning", why, address=f"{self.address[0]}:{self.address[1]}" if self.address else "unknown")
        if self._h11.our_state is h11.IDLE or self._h11.our_state is h11.SEND_RESPONSE:
            self._answer(status, why)
        else:
            self._close(REFUSED_BYTES_MAX)

    def _answer(self, status: int, text: str) -> None:
        """Answer without the application, and close."""
        body = f"{text}\n".encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        exchange = self._exchange
        self._send(response(status, headers))
        if not self._head_only:
            self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())
        if exchange is not None and exchange.task is not None:
            exchange.task.cancel()
        self._close(REFUSED_BYTES_MAX)

    def _close(self, discard_bytes_max: int = LINGER_BYTES_MAX) -> None:
        """Close in order, so that the client can read an answer that was sent early; abort if that takes too long."""
        if self._closing:
            return
        self._closing = True
        self.incoming.end()
        if self._client_ended:
            self._transport.close()  # nothing is unread, and the end that `close_in_order` waits for has come
        if self._client_ended or close_in_order(self._transport, discard_bytes_max) is not None:
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def shutdown(self) -> None:
        """Close as soon as no request is being answered."""
        self._last = True
        if self._exchange is None:
            self._close()


class HttpServer:
    """Serves an ASGI application on a bound socket until `stop`.

    connections_max, per_address_max: connections in total and from one address (a /64 network of IPv6).
    """

    def __init__(
        self, app: Application, sock: socket.socket, say: Say, connections_max: int, per_address_max: int
    ) -> None:
        self.say = say
        self._app = app
        self._socket = sock
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._connections: dict[HttpConnection, None] = {}
        self._per_address: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: deque[HttpConnection] = deque()
        self._slicing = False
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def now_s(self) -> float:
        """Return the time of the loop."""
        assert self._loop is not None, "a started server has a loop"
        return self._loop.time()

    async def start(self) -> None:
        """Accept connections from now on."""
        self._loop = asyncio.get_running_loop()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)  # accepted sockets inherit it
        self._server = await self._loop.create_server(lambda: HttpConnection(self), sock=self._socket)
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    # Connections

    def enter(self, connection: HttpConnection) -> bool:
        """Count a connection; return whether there is room for it."""
        self._connections[connection] = None
        self._per_address[connection.key] = self._per_address.get(connection.key, 0) + 1
        if self._per_address[connection.key] > self._per_address_max:
            return self._make_room(connection, connection.key)
        if len(self._connections) > self._connections_max:
            return self._make_room(connection, "")
        return True

    def _make_room(self, newcomer: HttpConnection, key: str) -> bool:
        """Close the connection that has waited longest for its client, of one address if `key` is given."""
        found: HttpConnection | None = None
        for one in self._connections:
            if one is newcomer or one.is_closing() or one.busy() or (key and one.key != key):
                continue
            if found is None or one.waiting_since_s < found.waiting_since_s:
                found = one
        if found is None:
            self.say("warning", "too many connections are busy: one more is refused", address=newcomer.key)
            return False
        found.abort()
        return True

    def leave(self, connection: HttpConnection) -> None:
        """Forget a connection that is lost."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        count = self._per_address[connection.key] - 1
        if count:
            self._per_address[connection.key] = count
        else:
            del self._per_address[connection.key]

    def _sweep(self) -> None:
        """Close the connections of clients that are too slow."""
        assert self._loop is not None, "it is running"
        now_s = self._loop.time()
        self._sweeper = self._loop.call_at(next_beat(now_s, SWEEP_S), self._sweep)
        for connection in list(self._connections):
            connection.look(now_s)

    # Turns

    def give_turn(self, connection: HttpConnection) -> None:
        """Let a connection handle what it has received: at once if its client has shown the token."""
        if connection.trusted:
            connection.take_turn()
        else:
            self.queue(connection)

    def queue(self, connection: HttpConnection) -> None:
        """Let a connection go on after those that wait already."""
        if not connection.queued:
            connection.queued = True
            self._ready.append(connection)
            if not self._slicing:
                self._slicing = True
                self._soon(self._slice)

    def _soon(self, what: Callable[[], None]) -> None:
        assert self._loop is not None, "it is running"
        self._loop.call_soon(what)

    def _slice(self) -> None:
        """Give turns for a short time; what they start runs before `_rest`."""
        begun_s = time.monotonic()
        while self._ready and time.monotonic() - begun_s < SLICE_S:
            connection = self._ready.popleft()
            connection.queued = False
            connection.take_turn()
        assert self._loop is not None, "it is running"
        self._loop.call_soon(self._rest, begun_s)

    def _rest(self, begun_s: float) -> None:
        """Leave the loop to others for as long as the slice has taken."""
        assert self._loop is not None, "it is running"
        if self._ready:
            self._loop.call_later(time.monotonic() - begun_s, self._slice)
        else:
            self._slicing = False

    # Requests

    def run(self, connection: HttpConnection, exchange: Exchange) -> asyncio.Task[None]:
        """Begin to answer a request."""
        return self.begin(self._answer(connection, exchange))

    def begin(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine, until the server stops at the latest."""
        assert self._loop is not None, "it is running"
        task = self._loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _answer(self, connection: HttpConnection, exchange: Exchange) -> None:
        error: Exception | None = None
        try:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except Exception as fault:  # noqa: BLE001 - a bug of one endpoint ends its request, not the node
            error = fault
        connection.trusted = exchange.scope["state"].get("trusted", False)
        connection.ended(exchange, error)

    async def stop(self) -> None:
        """Stop accepting, give requests a moment to end, then abort them."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.shutdown()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=STOP_S)
        for task in set(self._tasks):
            task.cancel()
        for connection in list(self._connections):
            connection.abort()


def shortened(text: str) -> str:
    """Return the beginning of an explanation: it quotes the client, escaped, and so up to four times as long."""
    return text if len(text) <= WHY_CHARACTERS_MAX else text[:WHY_CHARACTERS_MAX] + "..."


def has_body(request: h11.Request) -> bool:
    """Return whether a request announces a body."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in request.headers
    )


def has_doubtful_end(request: h11.Request) -> bool:
    """Return whether a proxy in front of this server may have taken another length of the body than h11 does.

    What one of them takes for the body would be a request for the other (RFC 9112 sections 6.1 and 11.2).
    """
    names = [name for name, _ in request.headers]
    return b"transfer-encoding" in names and (b"content-length" in names or request.http_version < b"1.1")


def rest_of(headers: list[tuple[bytes, bytes]]) -> float:
    """Return the number of bytes of a body; infinite if it is sent in chunks."""
    for name, value in headers:
        if name == b"transfer-encoding":
            return float("inf")
        if name == b"content-length":
            return int(value)
    return 0
