"""A real node with a small memory budget that everything is done to fill: it lives, stays within it, and serves."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBACK, Ack, Connect, Properties, Publish, Subscribe
from folkmoot.mqtt.reason import SERVER_BUSY
from tests.integration.flood import Flood
from tests.integration.serving import RawClient, Serving

BUDGET: Final = 220 << 20  # a node that does nothing has about 80 MB
READERS: Final = 24  # each may have 32 MiB in its queue
PIECES: Final = 100  # clients with 900 KB of a packet that they never finish
SESSIONS: Final = 400
PAYLOAD: Final = 32_000
FLOOD_S: Final = 20.0
CALM_S: Final = 15.0  # freed memory is given back every two seconds, and clients are refused until the process has less


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    config = f'[limits]\nmemory_bytes_max = {BUDGET}\n[admin]\naddress = "127.0.0.1:0"\n'
    with Serving(tmp_path / "data", "--mqtt", "127.0.0.1:0", config=config) as node:
        yield node


class Witness(threading.Thread):
    """A client that does what clients do, one message after another, and measures how long each takes."""

    def __init__(self, serving: Serving) -> None:
        super().__init__()
        self.client = RawClient(serving)
        self.client.connect("witness", clean=True, session_s=0)
        self.client.subscribe(b"witness", qos=1)
        self.trips_s: list[float] = []
        self.error: BaseException | None = None
        self.over = threading.Event()

    def run(self) -> None:
        try:
            while not self.over.wait(0.02):
                self._trip()
        except BaseException as error:  # noqa: BLE001 - the test reports it
            self.error = error

    def _trip(self) -> None:
        begun = time.monotonic()
        self.client.send(Publish(b"witness", b"x", 1, False, False, 1))
        missing = {"ack", "message"}
        while missing:
            packet = self.client.receive(30.0)
            assert packet is not None, f"no answer after {time.monotonic() - begun:.1f} s"
            if isinstance(packet, Publish):
                missing.discard("message")
                self.client.send(Ack(PUBACK, packet.packet_id))
            elif isinstance(packet, Ack):
                missing.discard("ack")
        self.trips_s.append(time.monotonic() - begun)


class Gauge(threading.Thread):
    """The highest resident memory of the process, sampled."""

    def __init__(self, serving: Serving) -> None:
        super().__init__()
        self.serving = serving
        self.highest = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            with contextlib.suppress(OSError):
                self.highest = max(self.highest, self.serving.memory_bytes())


def deaf(serving: Serving, number: int) -> socket.socket | None:
    """A client that subscribes and never reads; None if it is not let in."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(10.0)
    sock.connect(serving.places["mqtt"])
    with contextlib.suppress(OSError):
        sock.sendall(encode(Connect(5, f"deaf{number}", True, 0), 5))
        sock.sendall(encode(Subscribe(1, [(b"flood/#", 1)]), 5))
    return sock


def piece(serving: Serving, number: int) -> socket.socket:
    """A client that begins a large packet and does not end it."""
    sock = socket.create_connection(serving.places["mqtt"], 10.0)
    with contextlib.suppress(OSError):
        sock.sendall(encode(Connect(5, f"piece{number}", True, 0), 5))
        sock.sendall(b"\x30\xc0\x84\x3d" + bytes(900_000))
    return sock


def stored(serving: Serving, number: int) -> None:
    """A session with subscriptions whose client has gone, and a retained message."""
    properties = Properties()
    properties.session_expiry = 3600
    with socket.create_connection(serving.places["mqtt"], 10.0) as sock, contextlib.suppress(OSError):
        sock.sendall(encode(Connect(5, f"stored{number}", True, 0, None, None, None, properties), 5))
        filters = [(b"stored/%d/%d" % (number, at), 1) for at in range(20)]
        sock.sendall(encode(Subscribe(1, filters), 5))
        sock.sendall(encode(Publish(b"retained/%d" % number, bytes(10_000), 1, True, False, 1), 5))
        sock.recv(1000)


def let_in(serving: Serving, client_id: str) -> RawClient:
    """Connect with the stored session as soon as the node has memory again: a client that is refused comes back."""
    deadline = time.monotonic() + CALM_S
    while True:
        client = RawClient(serving)
        answer = client.connect(client_id)
        if answer.code != SERVER_BUSY:
            assert answer.session_present, answer
            return client
        client.socket.close()
        assert time.monotonic() < deadline, f"nobody is let in {CALM_S} s after the load has ended: {answer}"
        time.sleep(0.1)


def metrics(serving: Serving) -> dict[str, float]:
    host, port = serving.places["admin"]
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30.0) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_a_node_that_is_filled_lives_within_its_budget(serving: Serving) -> None:
    with RawClient(serving) as keeper:
        keeper.connect("keeper")
        keeper.subscribe(b"kept", qos=1)
    witness, gauge = Witness(serving), Gauge(serving)
    witness.start()
    gauge.start()
    open_sockets: list[socket.socket | None] = []
    with contextlib.ExitStack() as stack:
        open_sockets += [deaf(serving, number) for number in range(READERS)]
        floods = [
            stack.enter_context(Flood(serving.places["mqtt"], f"f{at}", f"flood/{at}", PAYLOAD, 100_000))
            for at in range(2)
        ]
        kept = stack.enter_context(Flood(serving.places["mqtt"], "k", "kept", 2000, 5000))
        begun = time.monotonic()
        open_sockets += [piece(serving, number) for number in range(PIECES)]
        for number in range(SESSIONS):
            stored(serving, number)
        while time.monotonic() - begun < FLOOD_S:
            time.sleep(0.1)
        acknowledged = kept.acknowledged
        seen = metrics(serving)
        flooded = sum(flood.acknowledged for flood in floods)
    gauge.over.set()
    gauge.join()
    witness.over.set()
    witness.join()
    witness.client.socket.close()
    for sock in open_sockets:
        if sock is not None:
            sock.close()
    trips = sorted(witness.trips_s)
    figures = {  # for those who measure
        "highest": gauge.highest >> 20,
        "flooded_mb": flooded * PAYLOAD >> 20,
        "trips": len(trips),
        "p50_ms": round(trips[len(trips) // 2] * 1000),
        "p99_ms": round(trips[len(trips) * 99 // 100] * 1000),
        "longest_ms": round(trips[-1] * 1000),
        "dropped": seen.get("folkmoot_memory_dropped_clients_total"),
        "refused": {name: value for name, value in seen.items() if "memory_refused" in name},
        "kept": acknowledged,
    }
    print(figures)
    assert witness.error is None, (witness.error, figures, serving.log()[-3000:])
    assert gauge.highest < BUDGET, figures
    assert len(trips) >= 20, figures
    assert acknowledged > 0, figures
    with let_in(serving, "keeper") as returned:
        numbers: list[int] = []
        while len(numbers) < acknowledged:
            message = returned.expect_publish()
            numbers.append(int(message.payload.split()[1]))
            returned.send(Ack(PUBACK, message.packet_id))
        assert numbers == list(range(acknowledged)), "what was acknowledged is there, once and in order"
