"""Hostile clients: what they send, again and again until an attack is over, in a process of their own.

Owns the attacks, each with what is one of it, and how many there are at once. It never measures, and does not know
whether an attack succeeds: that a node refuses, closes or does not read is its right.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import (
    V5,
    V311,
    Connect,
    Packet,
    Pingreq,
    Properties,
    Publish,
    Subscribe,
)

__all__ = ["ATTACKS", "NEW_USERS", "RECORDS", "Attack", "Places", "started"]

MEBIBYTE = 1 << 20
PIECE = 1 << 16
WAIT_S = 2.0
PAUSE_S = 0.001
GATHER_S = 0.05  # connections that were closed are made anew together
QUIET_S = 0.3  # a client that has got nothing for so long has got all
LINGER_RESET = struct.pack("ii", 1, 0)
HTTP_HEAD = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)
NEW_USERS = 400  # names that the attack on passwords knows, and that new clients have meanwhile
RECORDS = 50_000  # retained messages, and records of a stream
SESSIONS = 1_000
READER_BYTES = 256 * MEBIBYTE

Places = dict[str, tuple[str, int]]
Run = Callable[["Places", int, threading.Event], None]
"""`run(places, factor, over)` attacks so many times at once until it is over."""


@dataclass(frozen=True)
class Attack:
    """What is done, and how much of it once; `amount` times the factor is in `text`."""

    text: str
    amount: float
    run: Run
    files_max: int = 0  # descriptors of the attacked node; 0: what the system gives

    def named(self, factor: int) -> str:
        return self.text.format(f"{self.amount * factor:,.10g}")


def started(attack: Attack, places: Places, factor: int, seconds: float) -> BaseProcess:
    """Begin an attack in a process of its own: it shares no interpreter with those who measure."""
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=during, args=(attack.run, places, factor, seconds), daemon=True)
    process.start()
    return process


def during(run: Run, places: Places, factor: int, seconds: float) -> None:
    """Attack for so long."""
    over = threading.Event()
    timer = threading.Timer(seconds, over.set)
    timer.start()
    run(places, factor, over)


def together(works: list[Callable[[], None]]) -> None:
    """Do all of it at once, each in a thread, and wait for the end."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass(frozen=True)
class Stream:
    """What a client sends in one connection: greetings that are answered, then `part` until there are `total` bytes.

    reads: whether it takes what it gets meanwhile, and afterwards until nothing comes any more.
    """

    greetings: tuple[bytes, ...]
    part: bytes
    total: int
    reads: bool = False

    def repeat(self, place: tuple[str, int], over: threading.Event) -> None:
        """Do it again and again."""
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(place, WAIT_S) as sock:
                self._greet(sock)
                self._push(sock, over)
            over.wait(PAUSE_S)

    def _greet(self, sock: socket.socket) -> None:
        for greeting in self.greetings:
            sock.sendall(greeting)
            if not sock.recv(PIECE):
                raise ConnectionError("closed")

    def _push(self, sock: socket.socket, over: threading.Event) -> None:
        view, at, left = memoryview(self.part), 0, self.total
        while left > 0 and not over.is_set():
            sock.settimeout(0 if self.reads else 0.1)
            size = 0
            with contextlib.suppress(BlockingIOError, TimeoutError):
                size = sock.send(view[at : at + min(PIECE, left)])
            at = (at + size) % len(view)
            left -= size
            if self.reads and not drained(sock, 0.01 if not size else 0):
                return
        while self.reads and not over.is_set() and drained(sock, QUIET_S):
            pass


def drained(sock: socket.socket, wait_s: float) -> bool:
    """Take what has come, or comes soon; return whether something did, or nothing was waited for."""
    sock.settimeout(wait_s)
    try:
        if not sock.recv(MEBIBYTE):
            raise ConnectionError("closed")
    except (BlockingIOError, TimeoutError):
        return not wait_s or wait_s < QUIET_S
    return True


def streams(kind: str, *all_of_them: Stream) -> Run:
    """Return the attack of `factor` clients with each of these streams, on the listener of a kind."""

    def run(places: Places, factor: int, over: threading.Event) -> None:
        together([lambda one=one: one.repeat(places[kind], over) for one in all_of_them * factor])  # type: ignore[misc]

    return run


def hello(name: str, version: int = V5, *, kept: bool = False) -> bytes:
    properties = None
    if kept:
        properties = Properties()
        properties.session_expiry = 3600
    return encode(Connect(version, name, not kept, 0, None, None, None, properties), version)


def frame(opcode: int, data: bytes) -> bytes:
    """Return a frame of a client, masked with zeros."""
    size = len(data)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
    return head + bytes(4) + data


# --- the attacks


def silent(kind: str, count: int) -> Run:
    """Connections that say nothing; who is closed comes again."""

    def run(places: Places, factor: int, over: threading.Event) -> None:
        left = 5 * count * factor
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:

            def dial() -> None:
                sock = stack.enter_context(socket.socket())
                sock.setblocking(False)
                sock.connect_ex(places[kind])
                selector.register(sock, selectors.EVENT_READ)

            for _ in range(count * factor):
                dial()
            while not over.is_set():
                for key, _ in selector.select(0.1):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                    if left > 0:
                        left -= 1
                        dial()
                over.wait(GATHER_S)

    return run


def wrong_passwords(a_second: int) -> Run:
    """CONNECT with a wrong password, so many a second, with the names of those who come meanwhile."""

    def run(places: Places, factor: int, over: threading.Event) -> None:
        packets = [
            encode(Connect(V311, "", True, 0, f"new{number}", b"wrong", None, None), V311)
            for number in range(NEW_USERS)
        ]
        asking: deque[tuple[float, socket.socket]] = deque()
        for number, now in paced(a_second * factor, over):
            with contextlib.suppress(OSError):
                sock = socket.create_connection(places["mqtt"], WAIT_S)
                asking.append((now, sock))
                sock.sendall(packets[number % len(packets)])
            while asking and now - asking[0][0] > 1:
                asking.popleft()[1].close()

    return run


def taken_over(a_second: int) -> Run:
    """Clients with the same id, each with more on its way than it reads, that take over and are cut by a reset."""

    def run(places: Places, factor: int, over: threading.Event) -> None:
        flood = encode(Subscribe(1, [(b"taken/#", 0)]), V5) + encode(Publish(b"taken/x", bytes(8000)), V5) * 50
        before: deque[socket.socket] = deque()
        for _ in paced(a_second * factor, over):
            with contextlib.suppress(OSError):
                sock = socket.create_connection(places["mqtt"], WAIT_S)
                before.append(sock)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
                sock.setblocking(False)
                sock.send(hello("taken") + flood)
            while len(before) > 2:
                before.popleft().close()

    return run


def paced(a_second: float, over: threading.Event) -> Iterator[tuple[int, float]]:
    """Yield numbers and moments of things that are due at a steady rate, until the end."""
    due = time.monotonic()
    for number in itertools.count():
        if over.wait(max(due - time.monotonic(), 0)):
            return
        due += 1 / a_second
        yield number, time.monotonic()


def sessions(count: int) -> Run:
    """Stored sessions with subscriptions and a retained message, of clients that go at once."""

    def run(places: Places, factor: int, over: threading.Event) -> None:
        numbers = iter(range(count * factor))

        def work() -> None:
            for number in numbers:
                if over.is_set():
                    return
                filters = [(b"stored/%d/%d" % (number, at), 1) for at in range(20)]
                retained = Publish(b"retained/%d" % number, bytes(10_000), 1, True, False, 1)
                with contextlib.suppress(OSError), socket.create_connection(places["mqtt"], WAIT_S) as sock:
                    sock.sendall(hello(f"stored{number}", kept=True))
                    sock.sendall(encode(Subscribe(1, filters), V5) + encode(retained, V5))
                    sock.settimeout(WAIT_S)
                    sock.recv(PIECE)

        together([work] * 4)
        over.wait()

    return run


def deaf_readers(places: Places, factor: int, over: threading.Event) -> None:
    """Clients that subscribe and never read, each with a publisher of its own."""
    with contextlib.ExitStack() as stack:
        for number in range(factor):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with contextlib.suppress(OSError):
                sock.connect(places["mqtt"])
                sock.sendall(hello(f"deaf{number}") + encode(Subscribe(1, [(b"deaf/%d" % number, 0)]), V5))
        floods = [
            Stream((hello(f"flood{number}"),), encode(Publish(b"deaf/%d" % number, bytes(32_000)), V5), READER_BYTES)
            for number in range(factor)
        ]
        together([lambda one=one: one.repeat(places["mqtt"], over) for one in floods])  # type: ignore[misc]


def publications() -> bytes:
    """PUBLISH packets with a property each, none larger than it must be."""
    properties = Properties()
    properties.payload_format = 0
    return encode(Publish(b"a/b", b"", properties=properties), V5) * 4096


def wide_tree() -> bytes:
    """8,192 filters that match a topic, as many as the node grants of them, and 11 KB of publications to new topics."""
    filters = ["/".join(part).encode() + b"/#" for part in itertools.product("a+", repeat=13)]
    packets: list[Packet] = [Subscribe(1, [(name, 0) for name in filters])]
    packets += [Publish(b"a/" * 13 + b"%d" % number, b"") for number in range(340)]
    return b"".join([encode(packet, V5) for packet in [*packets, Pingreq()]])


def subscription(topic_filter: bytes) -> Stream:
    """A client that subscribes, and takes all that comes."""
    packet = encode(Subscribe(1, [(topic_filter, 0)]), V5)
    return Stream((hello(""),), packet, len(packet), reads=True)


TRAILERS = HTTP_HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
REQUEST = HTTP_HEAD + b"X: " + b"a" * 13 + b"\r\n\r\n"
TRAILER = b"x: " + b"a" * 1000 + b"\r\n"
PINGS = frame(9, bytes(125)) * 500
TREE = wide_tree()
PUBLICATIONS = publications()
NAMED = frame(2, hello("pinger"))

ATTACKS: tuple[Attack, ...] = (
    Attack("{} silent connections to `mqtts`", 1100, silent("mqtts", 1100), files_max=1024),
    Attack("{} silent connections to the port of the nodes", 1100, silent("peer", 1100), files_max=1024),
    Attack("{} x 300 MiB of HTTP trailers", 1, streams("admin", Stream((), TRAILER * 64, 300 * MEBIBYTE))),
    Attack(
        "{} x 48 MiB of HTTP requests, answers not read", 1, streams("admin", Stream((), REQUEST * 1024, 48 * MEBIBYTE))
    ),
    Attack(
        "{} x 200 MiB of WebSocket pings, pongs not read",
        1,
        streams("ws", Stream((UPGRADE, NAMED), PINGS, 200 * MEBIBYTE)),
    ),
    Attack(
        "{} x 200 MiB of WebSocket pings before CONNECT", 1, streams("ws", Stream((UPGRADE,), PINGS, 200 * MEBIBYTE))
    ),
    Attack(
        "{} x CONNECT of 1 MiB by WebSocket, again and again",
        1,
        streams("ws", Stream((UPGRADE,), frame(2, b"\x10\xff\xff\x3f" + bytes(MEBIBYTE)), MEBIBYTE)),
    ),
    Attack("{} wrong passwords a second", 150, wrong_passwords(150)),
    Attack("{} takeovers a second of a client id, cut by resets", 50, taken_over(50)),
    Attack(
        "{} x 5.4 MB of small PUBLISH packets, again and again",
        1,
        streams("mqtt", Stream((hello(""),), PUBLICATIONS, 5_400_000)),
    ),
    Attack(
        "{} x 8,192 filters of which each topic matches many",
        1,
        streams("mqtt", Stream((hello(""),), TREE, len(TREE), reads=True)),
    ),
    Attack("{} x 256 MiB for a client that does not read", 1, deaf_readers),
    Attack("{} stored sessions with subscriptions and retained messages", SESSIONS, sessions(SESSIONS)),
    Attack(
        "{} x a wildcard for 50,000 retained messages, again and again", 1, streams("mqtt", subscription(b"many/#"))
    ),
    Attack(
        "{} x a replay of a stream by a wildcard, again and again",
        1,
        streams("mqtt", subscription(b"$stream/kept/earliest/+/#")),
    ),
)
"""Each begins anew when it is through or the node has closed the connection."""
