"""Connections that a stranger makes, and holds, against a real node: it lives, and clients that behave are served."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.frames import Frame, Opcode

from folkmoot.config.password import PasswordFile
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBACK, Connack, Connect, Pingreq, Pingresp, Publish, Will
from tests.integration.serving import (
    CERTIFICATES,
    WAIT_S,
    RawClient,
    Serving,
    await_true,
    client_context,
    tls_arguments,
)

ANY = "127.0.0.1:0"
SILENT = 1100  # as many as the reviewer opened, with 1,024 descriptors
CONNECT_TIMEOUT_S = 5.0
CONFIG = f'[limits]\nconnect_timeout = "{CONNECT_TIMEOUT_S:g}s"\n'
STORED = b"stored/topic"


@contextlib.contextmanager
def limited(node: Serving, descriptors: int) -> Iterator[Serving]:
    """Run the node with so many descriptors."""
    command = node.command()
    limit = f'ulimit -n {descriptors}; exec "$@"'
    node.command = lambda: ["bash", "-c", limit, "-", *command]  # type: ignore[method-assign]
    with node:
        yield node


@contextlib.contextmanager
def silent(place: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing. Some may be closed at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * count)), hard))
    sockets = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                sockets.append(socket.create_connection(place, WAIT_S))
        yield sockets
    finally:
        for one in sockets:
            one.close()


def store(client: RawClient, count: int, size: int, first: int = 1) -> None:
    """Publish messages that are stored, each after the acknowledgement of the one before."""
    for number in range(first, first + count):
        client.send(Publish(STORED, bytes(size), 1, False, False, number))
        assert client.expect_ack(PUBACK).packet_id == number


def served(client: RawClient) -> None:
    client.send(Pingreq())
    assert isinstance(client.receive(), Pingresp)


def open_descriptors(node: Serving) -> int:
    return sum(1 for _ in Path(f"/proc/{node.pid}/fd").iterdir())


def test_silent_tls_connections_take_no_descriptor_of_the_store(tmp_path: Path) -> None:
    """1,100 of them under a limit of 1,024: one that is connected is served, and so is a new client."""
    arguments = ["--mqtt", ANY, "--mqtts", ANY, "--stream", "kept=stored/#", *tls_arguments()]
    node = Serving(tmp_path / "data", *arguments, config=CONFIG)
    with limited(node, 1024), RawClient(node) as known:
        known.connect("known", clean=True, session_s=0)
        with silent(node.places["mqtts"], SILENT) as sockets:
            assert len(sockets) == SILENT
            began = time.monotonic()
            # More than a memtable: the store opens logs and tables meanwhile.
            store(known, 40, 600_000)
            assert open_descriptors(node) < 900
            served(known)
            # A new client comes from the same address: the oldest silent ones make room.
            await_true(lambda: accepted(node, "mqtts"))
            await_true(lambda: accepted(node, "mqtt"))
            for one in sockets:
                one.settimeout(max(began + 6 * CONNECT_TIMEOUT_S - time.monotonic(), 0.1))
                with contextlib.suppress(ConnectionError):
                    assert one.recv(1) == b"", "all are closed in time"
        assert accepted(node, "mqtts")
        served(known)
        log = node.log()
        assert "descriptors limit=1024 reserved=288" in log
        assert "handshakes_evicted" in log
        assert node.stop() == 0, node.log()


def test_clients_beyond_the_descriptors_are_told(tmp_path: Path) -> None:
    """As at `connections_max`: with the reason code that sends them elsewhere, not by a reset."""
    with limited(Serving(tmp_path / "data", "--mqtt", ANY), 400) as node, contextlib.ExitStack() as stack:
        await_true(lambda: "connections_max=" in node.log())
        most = int(node.log().partition("connections_max=")[2].split()[0])
        assert 100 < most < 400
        for number in range(most):
            client = stack.enter_context(RawClient(node))
            assert client.connect(f"c{number}", clean=True, session_s=0).code == 0
        for _ in range(3):
            assert stack.enter_context(RawClient(node)).connect("more", clean=True, session_s=0).code == 0x89
        served(client)


def accepted(node: Serving, name: str) -> bool:
    """Whether a new client is."""
    try:
        with RawClient(node, name, context=client_context() if name == "mqtts" else None) as client:
            client.send(Connect(5, "new", True, 0))
            return isinstance(client.receive(5), Connack)
    except OSError:
        return False


def test_connections_that_stay_after_their_end_keep_nobody_out(tmp_path: Path) -> None:
    """They are closed for the node, and the clients do not close their side: they have five seconds for that."""
    hello = encode(Connect(5, "", True, 0, None, None, None, None), 5)
    with limited(Serving(tmp_path / "data", "--mqtt", ANY), 400) as node, contextlib.ExitStack() as stack:
        for _ in range(400):
            with contextlib.suppress(OSError):
                one = stack.enter_context(socket.create_connection(node.places["mqtt"], WAIT_S))
                one.sendall(hello)
                if one.recv(100):  # CONNACK
                    one.sendall(b"\x00\x00")  # no packet
        began = time.monotonic()
        while not accepted(node, "mqtt"):
            assert time.monotonic() < began + 2.5
            time.sleep(0.05)


def queued_bytes(port: int) -> int:
    """What the system keeps for the peers of the sockets of a port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(fields[4].partition(":")[0], 16) for fields in lines if fields[1].endswith(f":{port:04X}"))


def test_the_system_keeps_nothing_for_a_client_that_was_cut_off(tmp_path: Path) -> None:
    """It has subscribed, does not read, and is out of time: what was sent is dropped, not offered to it for minutes."""
    with Serving(tmp_path / "data", "--mqtt", ANY) as node, RawClient(node) as deaf, RawClient(node) as source:
        port = node.port()
        deaf.connect("deaf", clean=True, session_s=0, keep_alive_s=1)
        deaf.subscribe(b"x", 0)
        source.connect("source", clean=True, session_s=0)
        for _ in range(200):
            source.send(Publish(b"x", bytes(100_000), 0, False, False, 0))
        served(source)
        assert queued_bytes(port) > 500_000
        await_true(lambda: queued_bytes(port) == 0)


def test_silent_connections_to_the_port_of_the_peers_keep_no_peer_out(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a-word-of-more-than-sixteen-characters")
    config = CONFIG + "".join(
        (
            "[cluster.tls]\n",
            f'certificate = "{CERTIFICATES / "node"}.pem"\n',
            f'key = "{CERTIFICATES / "node"}.key"\n',
            f'ca = "{CERTIFICATES / "nodes"}.pem"\n',
        )
    )

    def node(name: str, *more: str) -> Serving:
        arguments = ["--node-id", name, "--mqtt", ANY, "--peer", ANY, "--secret-file", str(secret), *more]
        return Serving(tmp_path / name, *arguments, "--stream", "kept=stored/#", config=config)

    with limited(node("one"), 1024) as one, RawClient(one) as known:
        known.connect("known", clean=True, session_s=0)
        with silent(one.places["peer"], SILENT):
            store(known, 40, 600_000)
            assert open_descriptors(one) < 500
            with node("two", "--seed", f"127.0.0.1:{one.port('peer')}") as two:
                await_true(lambda: "peer_up" in one.log() and "node=two" in one.log())
                served(known)
                assert two.stop() == 0
        assert one.stop() == 0, one.log()


def test_a_store_without_descriptors_waits_for_them(tmp_path: Path) -> None:
    """As for room on a full disk: nothing is acknowledged meanwhile, nothing is lost, and the node lives."""
    node = Serving(tmp_path / "data", "--mqtt", ANY, "--stream", "kept=stored/#", config=CONFIG)
    with node, RawClient(node) as client:
        client.connect("p", clean=True, session_s=0)
        store(client, 5, 600_000)
        soft, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (3, hard))
        number = 5
        while True:
            number += 1
            assert number < 200, "the store needed no file"
            client.send(Publish(STORED, bytes(600_000), 1, False, False, number))
            answer = client.receive(2.0)
            if answer is None or getattr(answer, "code", 0) == 0x97:
                break
        await_true(lambda: "storage_full" in node.log())
        assert "Too many open files" in node.log()
        waiting = RawClient(node)  # in the queue of the system
        waiting.send(Connect(5, "waiting", True, 0))
        await_true(lambda: "accept_paused" in node.log())
        before = node.cpu_s()
        time.sleep(1)
        assert node.cpu_s() - before < 0.5, "it waits without running in circles"
        served(client)
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (soft, hard))
        await_true(lambda: "storage_has_room" in node.log())
        with waiting:
            assert isinstance(waiting.receive(), Connack)
        if answer is None:
            assert client.expect_ack(PUBACK).packet_id == number
        store(client, 3, 1000, first=number + 1)
        assert node.stop() == 0, node.log()


def upgraded(node: Serving) -> socket.socket:
    """A WebSocket after its upgrade."""
    sock = socket.create_connection(node.places["ws"], WAIT_S)
    head = ("GET /mqtt HTTP/1.1", "Host: localhost", "Connection: Upgrade", "Upgrade: websocket")
    rest = ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: mqtt")
    sock.sendall(("\r\n".join((*head, *rest)) + "\r\n\r\n").encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += sock.recv(1)
    assert answer.startswith(b"HTTP/1.1 101 ")
    return sock


def binary(data: bytes, fin: bool = True) -> bytes:
    return Frame(Opcode.BINARY, data, fin).serialize(mask=True)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    data = tmp_path_factory.mktemp("web") / "data"
    with Serving(data, "--mqtt", ANY, "--ws", ANY, config=CONFIG) as node:
        yield node
        assert node.stop() == 0, node.log()


@pytest.mark.parametrize("greets", [True, False])
def test_pings_of_a_client_that_does_not_read_cost_no_memory(web: Serving, greets: bool) -> None:
    """200 MiB of them, before CONNECT or after it."""
    with RawClient(web) as known, upgraded(web) as sock:
        known.connect("known", clean=True, session_s=0)
        if greets:
            sock.sendall(binary(bytes.fromhex("101300044d5154540502000000") + b"\0\6pinger"))
            time.sleep(0.5)
        before = web.memory_bytes()
        pings = Frame(Opcode.PING, bytes(125)).serialize(mask=True) * 8000
        sent = 0
        began = time.monotonic()
        sock.settimeout(10)
        with contextlib.suppress(OSError):
            while sent < 200 << 20 and time.monotonic() - began < 30:
                sent += sock.send(pings)
        if not greets:
            assert sent < 40 << 20, "it is closed"
        assert web.memory_bytes() - before < 16 << 20
        served(known)


def test_upgrades_that_are_refused_leave_nothing_behind(web: Serving) -> None:
    request = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\n" + (b"X: " + b"x" * 8000 + b"\r\n") * 3 + b"Y\1: z\r\n\r\n"
    before = peak = web.memory_bytes()
    for at in range(1500):
        with socket.create_connection(web.places["ws"], timeout=10) as sock, contextlib.suppress(ConnectionError):
            sock.sendall(request)
            while sock.recv(65_536):
                pass
        if at % 50 == 0:
            peak = max(peak, web.memory_bytes())
    assert peak - before < 8 << 20


CONNECT_BYTES_MAX = 65_536


@pytest.mark.parametrize(
    "make",
    [
        binary,
        lambda data: b"".join(binary(data[at : at + 700]) for at in range(0, len(data), 700)),
        lambda data: b"".join(
            Frame(Opcode.CONT if at else Opcode.BINARY, data[at : at + 700], False).serialize(mask=True)
            for at in range(0, len(data), 700)
        ),
    ],
    ids=["one frame", "frames", "fragments"],
)
def test_before_connect_no_framing_makes_a_node_hold_more(web: Serving, make: object) -> None:
    """A CONNECT that announces 1 MiB is refused by its header; one of 64 KiB is all that is held."""
    assert callable(make)
    with upgraded(web) as sock:
        sock.settimeout(CONNECT_TIMEOUT_S / 2)
        with contextlib.suppress(ConnectionError):
            sock.sendall(make(b"\x10\xff\xff\x3f" + bytes(1 << 20))[:200_000])
            assert sock.recv(1) == b"\x88", "a Close frame, before the deadline"
    sockets = [upgraded(web) for _ in range(30)]
    try:
        before = web.memory_bytes()
        data = make(b"\x10\x80\x80\x04" + bytes(CONNECT_BYTES_MAX - 10))
        for sock in sockets:
            sock.sendall(data)
        time.sleep(0.5)
        assert web.memory_bytes() - before < len(sockets) * (CONNECT_BYTES_MAX + 40_000)
    finally:
        for sock in sockets:
            sock.close()


def test_a_frame_header_that_announces_much_holds_nothing(web: Serving) -> None:
    sockets = [upgraded(web) for _ in range(30)]
    try:
        before = web.memory_bytes()
        for sock in sockets:
            sock.sendall(b"\x82\xff" + (1 << 20).to_bytes(8, "big") + b"\0\0\0\0\x10\xff\xff\x3f" + bytes(900_000))
        time.sleep(0.5)
        assert web.memory_bytes() - before < 16 << 20
    except OSError:
        pass  # closed while it still sends
    finally:
        for sock in sockets:
            sock.close()


def test_a_peer_port_tells_a_stranger_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a-word-of-more-than-sixteen-characters")
    arguments = ["--node-id", "telltale", "--mqtt", ANY, "--peer", ANY, "--secret-file", str(secret)]
    with Serving(tmp_path / "data", *arguments) as node:
        for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x11\x08" + bytes(16) + b"\0\0\0\x21\x02" + bytes(32)):
            with socket.create_connection(node.places["peer"], WAIT_S) as sock:
                sock.sendall(sent)
                if not sent:
                    sock.shutdown(socket.SHUT_WR)
                heard = b""
                with contextlib.suppress(ConnectionError):
                    while piece := sock.recv(1000):
                        heard += piece
            assert heard[:5] == (b"\0\0\0\x11\x08" if sent else b"")
            for word in (b"telltale", b"folkmoot", b"replicas", b"127.0.0.1", b"0.1"):
                assert word not in heard
        await_true(lambda: "cluster.secret_file" in node.log())
        assert node.stop() == 0


def test_resets_and_half_closed_connections_end_nothing(web: Serving) -> None:
    """Output and the end of a connection in one turn; the last bytes of many at once."""
    with RawClient(web) as known:
        known.connect("known", clean=True, session_s=0)
        for turn in range(20):
            clients = [RawClient(web) for _ in range(10)]
            for number, client in enumerate(clients):
                client.send(Connect(5, f"reset{turn}-{number}", True, 0))
            for number, client in enumerate(clients):
                client.send(Pingreq())
                if number % 2:
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                else:
                    client.socket.shutdown(socket.SHUT_WR)
                client.socket.close()
            served(known)
        assert "connection_error" not in web.log()


def test_large_packets_that_wait_for_a_check_keep_a_bounded_part_of_memory(tmp_path: Path) -> None:
    """Of 60,000 bytes each, from many addresses, with passwords that nobody has: 32 MiB of them wait."""
    users = PasswordFile()
    users.set("ann", b"secret")
    users.write(tmp_path / "users")
    config = f'{CONFIG}[auth]\npassword_file = "{tmp_path}/users"\n'
    will = Will(b"w", bytes(60_000), 0, False)
    with Serving(tmp_path / "data", "--mqtt", ANY, config=config) as node, contextlib.ExitStack() as stack:
        with RawClient(node) as known:
            known.send(Connect(5, "ann", True, 0, "ann", b"secret", None, None))
            assert isinstance(known.receive(), Connack)
        before = resident(node)
        places = []
        for number in range(1_000):
            place = socket.create_connection(node.places["mqtt"], 20, source_address=(f"127.0.1.{number % 100}", 0))
            places.append(stack.enter_context(place))
            packet = Connect(5, f"c{number}", True, 0, f"u{number}", b"wrong", will, None)
            place.sendall(encode(packet, 5))
        with RawClient(node) as known:
            known.send(Connect(5, "ann", True, 0, "ann", b"secret", None, None))
            answer = known.receive()
            assert isinstance(answer, Connack)
            assert answer.code == 0, "it is remembered"
        assert resident(node) - before < 100 << 20
        codes = [connack(place) for place in places]
    assert codes.count(0x89) >= 1_000 - 4_096 * 8_192 // 60_000 - 100
    assert set(codes) <= {0x86, 0x89, 0x9F, NONE}


NONE = -1


def connack(place: socket.socket) -> int:
    """Return the code of an answer to CONNECT; NONE: the connection was closed without one."""
    place.settimeout(20)
    with contextlib.suppress(ConnectionError):
        data = place.recv(4)
        return data[3] if len(data) == 4 else NONE
    return NONE


def resident(node: Serving) -> int:
    """Return the bytes of the node's process that are in memory."""
    return int(Path(f"/proc/{node.pid}/statm").read_text().split()[1]) * 4096
