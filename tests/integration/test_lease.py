"""A real node under traffic, stopped and continued after the end of its lease: it says nothing that needs one."""

from __future__ import annotations

import os
import random
import select
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.mqtt.decode import decode
from folkmoot.mqtt.kind import PUBACK
from folkmoot.mqtt.packet import Ack, Connack, Connect, Disconnect, Publish
from tests.integration.serving import WAIT_S, RawClient, Serving, await_true, client_context, tls_arguments

ANY = "127.0.0.1:0"
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
LONG_NS = 3_600_000_000_000
ROUNDS = 6
WINDOW = 50
LATE = 60_000  # packet ids from here on are sent while the node is stopped, and no others


class LeasedNode(Serving):
    """A node whose lease is set by hand."""

    def __init__(self, data: Path, *arguments: str) -> None:
        super().__init__(data, *arguments)
        self.file = data.with_name("lease")
        self.lease(LONG_NS)

    def command(self) -> list[str]:
        os.environ["LEASE_FILE"] = str(self.file)
        words = super().command()
        return [words[0], "-m", "tests.integration.lease_program", *words[3:]]

    def lease(self, left_ns: int) -> int:
        """Let the lease end in so many nanoseconds; return when."""
        until_ns = now_ns() + left_ns
        new = self.file.with_suffix(".new")
        new.write_text(str(until_ns))
        new.rename(self.file)
        if self.process is not None:
            os.kill(self.pid, signal.SIGUSR1)
        return until_ns


def now_ns() -> int:
    return time.clock_gettime_ns(CLOCK)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeasedNode]:
    folder = tmp_path_factory.mktemp("lease") / "data"
    arguments = ("--mqtt", ANY, "--mqtts", ANY, "--admin", ANY, *tls_arguments())
    with LeasedNode(folder, *arguments) as made:
        yield made


def packet_id_of(number: int) -> int:
    """Return the packet id of a message that is sent while the node runs; a fast machine uses ids again."""
    return (number - 1) % (LATE - 1) + 1


class Publisher:
    """Publishes with QoS 1 to a topic that nobody wants, `WINDOW` at a time, and notes what is acknowledged."""

    def __init__(self, node: LeasedNode, name: str) -> None:
        self.client = RawClient(node, name, context=client_context() if name == "mqtts" else None)
        assert self.client.connect("publisher", clean=True, session_s=0).code == 0
        self.client.socket.setblocking(False)
        self.sent = 0
        self.acked: list[int] = []

    def top_up(self) -> None:
        """Fill the window."""
        while self.sent - len(self.acked) < WINDOW:
            self.sent += 1
            self.client.send(Publish(b"nobody", b"m", 1, packet_id=packet_id_of(self.sent)))

    def read(self, until_ns: int, keep_going: bool) -> int:
        """Read until then; return how many acknowledgements came."""
        before = len(self.acked)
        while (left_ns := until_ns - now_ns()) > 0:
            if keep_going:
                self.top_up()
            pending = getattr(self.client.socket, "pending", int)()
            if not pending and not select.select([self.client.socket], [], [], left_ns / 1e9)[0]:
                break
            try:
                data = self.client.socket.recv(1 << 16)
            except BlockingIOError:
                continue
            except OSError as error:
                if "want" in type(error).__name__.lower():
                    continue
                raise
            assert data, "closed"
            for first, body in self.client.framer.feed(data):
                packet = decode(first, body, 5)
                assert isinstance(packet, Ack), packet
                assert packet.kind == PUBACK
                self.acked.append(packet.packet_id)
        return len(self.acked) - before

    def read_up_to(self, packet_id: int) -> None:
        """Read until this packet is acknowledged."""
        deadline_s = time.monotonic() + WAIT_S
        while packet_id not in self.acked:
            assert time.monotonic() < deadline_s, f"{packet_id} is not acknowledged"
            self.read(now_ns() + 50_000_000, keep_going=False)


@pytest.mark.parametrize("name", ["mqtt", "mqtts"])
def test_what_comes_after_the_end_of_the_lease_is_answered_when_there_is_another(node: LeasedNode, name: str) -> None:
    choose = random.Random(1)
    stragglers = 0
    for _ in range(ROUNDS):
        publisher = Publisher(node, name)
        try:
            publisher.top_up()
            assert publisher.read(now_ns() + 100_000_000, keep_going=True) > 0
            until_ns = node.lease(200_000_000)
            publisher.read(now_ns() + choose.randrange(50_000_000, 150_000_000), keep_going=True)
            os.kill(node.pid, signal.SIGSTOP)
            try:
                publisher.read(until_ns + 100_000_000, keep_going=False)
                late = list(range(LATE, LATE + 20))
                for number in late:
                    publisher.client.send(Publish(b"nobody", b"m", 1, packet_id=number))
            finally:
                os.kill(node.pid, signal.SIGCONT)
            stragglers += publisher.read(now_ns() + 300_000_000, keep_going=False)
            assert not set(late) & set(publisher.acked), "read after the lease had ended, and acknowledged"
            node.lease(LONG_NS)
            publisher.read_up_to(late[-1])
            sent = [packet_id_of(number) for number in range(1, publisher.sent + 1)]
            assert publisher.acked == [*sent, *late], "in order, and each once"
        finally:
            node.lease(LONG_NS)
            publisher.client.socket.close()
    # No comparison is one step with a write: what a turn has decided may be between them when the process is stopped.
    assert stragglers <= ROUNDS * WINDOW
    print(f"{stragglers} acknowledgements in {ROUNDS} rounds had been decided before the stop")


def fetch(node: LeasedNode, path: str) -> tuple[int, str]:
    host, port = node.places["admin"]
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_without_a_lease_for_long_clients_are_sent_elsewhere_until_there_is_one(node: LeasedNode) -> None:
    assert fetch(node, "/health/ready") == (200, "ready\n")
    with RawClient(node) as client:
        client.connect("c", clean=True, session_s=0)
        node.lease(0)
        await_true(lambda: fetch(node, "/health/ready")[0] == 503)
        client.send(Publish(b"nobody", b"m", 1, packet_id=1))
        packet = client.receive()
        assert isinstance(packet, Disconnect), "the acknowledgement was dropped"
        assert packet.code == 0x89
        assert client.closed()
    assert "it has no lease" in fetch(node, "/health/ready")[1]
    assert fetch(node, "/api/v1/streams")[0] == 503
    assert fetch(node, "/health/live")[0] == 200
    with RawClient(node) as client:
        client.send(Connect(5, "d", True, 0))
        answer = client.receive()
        assert isinstance(answer, Connack)
        assert answer.code == 0x89
    node.lease(LONG_NS)
    await_true(lambda: fetch(node, "/health/ready") == (200, "ready\n"))
    assert fetch(node, "/api/v1/streams")[0] == 200
    with RawClient(node) as client:
        assert client.connect("e", clean=True, session_s=0).code == 0


def test_a_node_without_a_lease_stops_when_it_is_told_to(tmp_path: Path) -> None:
    with LeasedNode(tmp_path / "data", "--mqtt", ANY) as node, RawClient(node) as client:
        client.connect("c", clean=True, session_s=0)
        node.lease(0)
        await_true(lambda: "lease_over" in node.log())
        client.send(Publish(b"nobody", b"m", 1, packet_id=1))
        assert node.stop() == 0
        packet = client.receive()
        assert not isinstance(packet, Ack)
