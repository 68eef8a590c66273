"""Attacks on the admin port by strangers without a token: memory stays bounded, and MQTT clients are served meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

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

    def run(self) -> None:
        while not self._stop_it.is_set():
            begun = time.monotonic()
            self._client.send(Pingreq())
            if not isinstance(self._client.receive(), Pingresp):
                self.round_trips_s.append(float("inf"))
                return
            self.round_trips_s.append(time.monotonic() - begun)
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
        assert found[len(found) * 99 // 100] < ROUND_TRIP_S_MAX, figures
        assert self.peak - self.before < MEMORY_BYTES_MAX, figures


def push(serving: Serving, head: bytes, part: bytes, total: int, read: bool = False) -> int:
    """Send `head`, then `part` again and again; return how many bytes the node took before it closed or stalled."""
    sent = 0
    with socket.create_connection(serving.places["admin"], timeout=20) as one:
        one.sendall(head)
        deadline = time.monotonic() + ATTACK_S_MAX
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


def test_pipelined_requests_of_a_client_that_does_not_read(serving: Serving) -> None:
    request = HEAD + b"X: " + b"a" * 13 + b"\r\n\r\n"
    assert len(request) == 64
    part = request * 1024
    with Bystander(serving) as bystander:
        push(serving, b"", part, 48 * MIB)
    bystander.check()
