"""Attacks on the admin port by strangers without a token: memory stays bounded, and MQTT goes on meanwhile."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.mqtt.packet import Pingreq, Pingresp
from tests.integration.serving import RawClient, Serving

ANY = "127.0.0.1:0"
MIB = 1 << 20
# Generous for a busy machine; the attacks made a node stand still for seconds and grow by gigabytes.
MEMORY_BYTES_MAX = 48 * MIB
ROUND_TRIP_S_MAX = 0.25
ATTACK_S_MAX = 20.0

HEAD = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    data = tmp_path_factory.mktemp("node") / "data"
    with Serving(data, "--mqtt", ANY, "--admin", ANY, "--stream", "s=s/#") as node:
        yield node
        assert node.stop() == 0, node.log()


class Bystander(threading.Thread):
    """A well-behaved client that measures its round trips, and the memory of the node."""

    def __init__(self, serving: Serving) -> None:
        super().__init__()
        self._serving = serving
        self._stop_it = threading.Event()
        self._client = RawClient(serving)
        self._client.connect("bystander", clean=True, session_s=0)
        self.before = self.peak = serving.memory_bytes()
        self.round_trips_s: list[float] = []
        self.quiet_s = max(self._round_trip_s() for _ in range(50))  # what this machine takes without an attack

    def _round_trip_s(self) -> float:
        begun = time.monotonic()
        self._client.send(Pingreq())
        answered = isinstance(self._client.receive(), Pingresp)
        return time.monotonic() - begun if answered else float("inf")

    def run(self) -> None:
        while not self._stop_it.is_set():
            self.round_trips_s.append(self._round_trip_s())
            self.peak = max(self.peak, self._serving.memory_bytes())
            time.sleep(0.005)

    def __enter__(self) -> Bystander:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_it.set()
        self.join()
        self._client.socket.close()

    def check(self) -> None:
        """The node stayed small, and 99 of 100 round trips were short."""
        found = sorted(self.round_trips_s)
        figures = f"{len(found)} round trips, worst {found[-1]:.3f} s, {(self.peak - self.before) / MIB:.1f} MiB more"
        print(figures)
        assert found[len(found) * 99 // 100] < ROUND_TRIP_S_MAX + 5 * self.quiet_s, figures
        assert self.peak - self.before < MEMORY_BYTES_MAX, figures


def push(
    serving: Serving, head: bytes, part: bytes, total: int, read: bool = False, attack_s: float = ATTACK_S_MAX
) -> int:
    """Send `head`, then `part` again and again; return how many bytes the node took before it closed or stalled."""
    sent = 0
    with socket.create_connection(serving.places["admin"], timeout=20) as one:
        one.sendall(head)
        deadline = time.monotonic() + attack_s
        one.setblocking(False)
        view = memoryview(part)
        at = 0
        with contextlib.suppress(ConnectionError):
            while sent < total and time.monotonic() < deadline:
                try:
                    size = one.send(view[at : at + 16_384])
                except BlockingIOError:
                    time.sleep(0.01)
                    size = 0
                at = (at + size) % len(part)
                sent += size
                if read:
                    with contextlib.suppress(BlockingIOError):
                        if not one.recv(MIB):
                            return sent
    return sent


def test_trailers_without_end_are_refused(serving: Serving) -> None:
    part = (b"x: " + b"a" * 1000 + b"\r\n") * 64
    with Bystander(serving) as bystander:
        head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
        sent = push(serving, head, part, 300 * MIB)
    bystander.check()
    assert sent < 12 * MIB, f"{sent / MIB} MiB went out, more than what sockets hold"


def test_requests_that_cannot_be_understood_leave_nothing_behind(serving: Serving) -> None:
    request = b"\x01" * 60_000 + b"\r\nHost: localhost\r\n\r\n"
    with Bystander(serving) as bystander:
        for _ in range(600):
            with socket.create_connection(serving.places["admin"], timeout=20) as one, contextlib.suppress(OSError):
                one.sendall(request)
                answer = b""
                while data := one.recv(MIB):
                    answer += data
                assert answer.startswith(b"HTTP/1.1 400 ")
                assert len(answer) < 1024
    bystander.check()
    assert bystander.peak - bystander.before < 8 * MIB, "the requests together had 34 MiB, and more escaped"


def test_pipelined_requests_of_a_client_that_does_not_read(serving: Serving) -> None:
    request = HEAD + b"X: " + b"a" * 13 + b"\r\n\r\n"
    assert len(request) == 64
    part = request * 1024
    with Bystander(serving) as bystander:
        push(serving, b"", part, 48 * MIB)
    bystander.check()


def test_pipelined_requests_of_a_client_that_reads(serving: Serving) -> None:
    """As fast as one connection can ask, from eight of them: MQTT keeps its share of the loop."""
    request = HEAD + b"X: " + b"a" * 13 + b"\r\n\r\n"
    with Bystander(serving) as bystander:
        threads = [
            threading.Thread(target=push, args=(serving, b"", request * 256, 2 * MIB, True, 5.0)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    bystander.check()


@pytest.mark.parametrize(
    "part",
    [
        b"1;" + b"x" * 1000 + b"\r\na\r\n",  # chunk extensions
        b"1\r\na\r\n" * 1000,  # chunks of one byte
        b"1;x=" + b"x" * 100_000,  # a size line without end
        b"0\r\n" + b"a: b\r\n" * 20_000,  # trailers
    ],
)
def test_framing_without_end_is_refused(serving: Serving, part: bytes) -> None:
    head = b"PUT /api/v1/transactions/a/1/p/0 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Bystander(serving) as bystander:
        sent = push(serving, head, part, 64 * MIB)
    bystander.check()
    assert sent < 12 * MIB


def answer_to(serving: Serving, *parts: bytes, end: bool = False) -> bytes:
    """What the node sends until it closes; `end`: the client ends its half first."""
    with socket.create_connection(serving.places["admin"], timeout=20) as one:
        for part in parts:
            one.sendall(part)
        if end:
            one.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionError):
            while data := one.recv(MIB):
                found += data
        return found


@pytest.mark.parametrize("framing", [b"Content-Length: 5\r\n\r\nabcde", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"])
def test_a_get_with_a_body_is_refused(serving: Serving, framing: bytes) -> None:
    assert answer_to(serving, HEAD + framing).startswith(b"HTTP/1.1 413 ")


def test_pipelined_requests_are_answered_in_order_one_by_one(serving: Serving) -> None:
    paths = [b"/health/live", b"/nowhere", b"/health/ready"] * 50
    requests = b"".join(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in paths)
    answers = answer_to(serving, requests, end=True)
    assert [part.split(b" ", 1)[0] for part in answers.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"] * 50


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"HEAD /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"200"),
        (b"GET /health/live HTTP/1.0\r\n\r\n", b"200"),
        (b"GET http://localhost/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"200"),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"421"),
        (b"GET /health/live HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", b"421"),
        (b"CONNECT evil.example:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /health/live HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /health/live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"413"),
        (
            b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\nGET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"400",
        ),
        (b"POST /nowhere HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
        (HEAD + b"a: " + b"x" * 80_000 + b"\r\n\r\n", b"431"),
        (
            b"POST /api/v1/leave HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n"
            b"Content-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
            b"403",
        ),
    ],
)
def test_answers_by_the_book(serving: Serving, request_: bytes, status: bytes) -> None:
    assert answer_to(serving, request_).split(b" ", 2)[1] == status
    in_pieces = [request_[at : at + 7919] for at in range(0, len(request_), 7919)]
    assert answer_to(serving, *in_pieces).split(b" ", 2)[1] == status


def test_a_client_that_awaits_permission_to_send_gets_it(serving: Serving) -> None:
    head = b"PUT /api/v1/transactions/a/1/p/0 HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    with socket.create_connection(serving.places["admin"], timeout=20) as one:
        one.sendall(head + b"Content-Length: 3\r\n\r\n")
        assert one.recv(MIB).startswith(b"HTTP/1.1 100 ")
        one.sendall(b"abc")
        assert one.recv(MIB).startswith(b"HTTP/1.1 400 ")


def test_clients_that_end_their_side_at_any_moment(serving: Serving) -> None:
    """Before, while and after they are answered: by FIN, by a reset, and with a request behind it."""
    with RawClient(serving) as client:
        client.connect("witness", clean=True, session_s=0)
        for round_ in range(300):
            one = socket.create_connection(serving.places["admin"], timeout=20)
            if round_ % 3 == 2:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.sendall((HEAD + b"\r\n") * (1 + round_ % 2))
            if round_ % 5:
                time.sleep(0.0005 * (round_ % 5))
            if round_ % 4 == 3:
                one.shutdown(socket.SHUT_WR)
                one.recv(MIB)
            one.close()
        client.send(Pingreq())
        assert isinstance(client.receive(), Pingresp)
    assert "because of a bug" not in serving.log()


def cut_off(one: socket.socket) -> bool:
    """Whether the other side has aborted the connection; there may be data to read nevertheless."""
    watch = select.poll()
    watch.register(one, 0)
    return bool(watch.poll(0))


def test_clients_that_are_too_slow_are_closed(serving: Serving) -> None:
    """Heads, bodies and answers, each with a byte now and then."""
    begun_s = time.monotonic()
    body = b"PUT /api/v1/transactions/a/1/p/0 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    with contextlib.ExitStack() as stack:
        slow = {}
        for name, said in (
            ("head", b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX: "),
            ("body", body),
            ("answers", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20),
        ):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.settimeout(20)
            one.connect(serving.places["admin"])
            one.sendall(said)
            slow[name] = one
        closed_s: dict[str, float] = {}
        while len(closed_s) < len(slow) and time.monotonic() - begun_s < 40:
            for name in slow.keys() - closed_s.keys():
                with contextlib.suppress(ConnectionError):
                    if name == "answers":
                        slow[name].recv(1)
                    else:
                        slow[name].sendall(b"a")
                if cut_off(slow[name]):
                    closed_s[name] = time.monotonic() - begun_s
            time.sleep(0.5)
    assert closed_s.keys() == slow.keys(), closed_s
    assert min(closed_s.values()) > 5, closed_s


def test_one_address_has_not_all_connections(tmp_path: Path) -> None:
    config = "[admin]\nconnections_max = 20\nconnections_per_address_max = 16\n"
    with Serving(tmp_path / "data", "--mqtt", ANY, "--admin", ANY, "--stream", "s=s/#", config=config) as node:
        wait = b"GET /api/v1/streams/s/partitions/0/records?from=0&wait_ms=30000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with contextlib.ExitStack() as stack:

            def held(source: str) -> int:
                """How many connections from `source` are open after each has asked to wait for records."""
                ones = []
                for _ in range(24):
                    with contextlib.suppress(ConnectionError):
                        one = stack.enter_context(socket.create_connection(node.places["admin"], 20, (source, 0)))
                        ones.append(one)
                        one.sendall(wait)
                    time.sleep(0.01)  # so that it is being answered when the next one comes
                time.sleep(0.5)
                found = 0
                for one in ones:
                    one.setblocking(False)
                    try:
                        found += bool(one.recv(1))
                    except BlockingIOError:
                        found += 1
                    except ConnectionError:
                        pass
                return found

            assert held("127.0.0.1") == 16
            assert held("127.0.0.2") == 4
