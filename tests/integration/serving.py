"""A real node in a process of its own, and a small client on a real socket that can be stopped anywhere in a flow."""

from __future__ import annotations

import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from folkmoot.mqtt.decode import decode
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.framer import Framer
from folkmoot.mqtt.packet import Ack, Connack, Connect, Packet, Properties, Publish, Suback, Subscribe, Will

__all__ = ["CERTIFICATES", "RawClient", "Serving", "await_true", "client_context", "expiry"]

CERTIFICATES = Path(__file__).parent / "certificates"
WAIT_S = 20.0
START_S = 60.0  # on a machine that is busy with other tests
FOR_EVER = 0xFFFF_FFFF


class Serving:
    """`folkmoot serve` on loopback with ports of the system's choice; restarts keep the data folder."""

    def __init__(self, data: Path, *arguments: str, config: str = "", log_level: str = "info") -> None:
        self.data = data
        self.arguments = list(arguments)
        self.errors = data.with_name(data.name + ".err")
        self.log_level = log_level
        self.config = data.with_name(data.name + ".toml")
        self.config.write_text(config)
        self.places: dict[str, tuple[str, int]] = {}
        self.process: subprocess.Popen[str] | None = None

    def command(self) -> list[str]:
        given = ["--config", str(self.config), "--data", str(self.data), "--log-level", self.log_level]
        return [sys.executable, "-m", "folkmoot", "serve", *given, *self.arguments]

    def start(self) -> Self:
        """Start the process and wait for its line `ready`."""
        assert self.process is None
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        words: list[str] = []
        ready = select.poll()  # this process may have more descriptors than `select` takes
        ready.register(self.process.stdout, select.POLLIN)
        if ready.poll(START_S * 1000):
            words = self.process.stdout.readline().split()
        if words[:1] != ["ready"]:
            self.kill()
            raise AssertionError(f"no line ready within {START_S} s: {words} {self.log()}")
        for word in words[1:]:
            name, _, place = word.partition("=")
            host, _, port = place.rpartition(":")
            if host:
                self.places[name] = (host, int(port))
        return self

    def __enter__(self) -> Self:
        return self if self.process is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.kill()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def port(self, name: str = "mqtt") -> int:
        return self.places[name][1]

    def kill(self) -> None:
        """End the process as a power cut of the process would: kill -9."""
        assert self.process is not None
        self.process.kill()
        self._end()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop with a signal; the exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self._end()

    def _end(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        status = self.process.wait(WAIT_S)
        self.process.stdout.close()
        self.process = None
        return status

    def restart(self) -> None:
        """kill -9 and start again."""
        self.kill()
        self.start()

    def log(self) -> str:
        return self.errors.read_text()

    def memory_bytes(self) -> int:
        """The resident memory of the process."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """The processor time that the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class RawClient:
    """One connection and nothing done by itself: no acknowledgement, no ping, unless the test sends it.

    serving: a node, or a socket that is connected to one already.
    """

    def __init__(
        self,
        serving: Serving | socket.socket,
        name: str = "mqtt",
        version: int = 5,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.version = version
        self.socket = self._dial(serving, name)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.framer = Framer(1 << 28)
        self.waiting: list[Packet] = []

    @staticmethod
    def _dial(serving: Serving | socket.socket, name: str) -> socket.socket:
        if isinstance(serving, Serving):
            return socket.create_connection(serving.places[name], timeout=WAIT_S)
        serving.settimeout(WAIT_S)
        return serving

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, *packets: Packet | bytes) -> None:
        data = [packet if isinstance(packet, bytes) else encode(packet, self.version) for packet in packets]
        self.socket.sendall(b"".join(data))

    def receive(self, timeout_s: float = WAIT_S) -> Packet | None:
        """The next packet, or None when the server has closed or nothing came in time."""
        deadline = time.monotonic() + timeout_s
        while not self.waiting:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(1 << 16)
            except (TimeoutError, ConnectionError):
                return None
            if not data:
                return None
            self.waiting += [decode(first, body, self.version) for first, body in self.framer.feed(data)]
        return self.waiting.pop(0)

    def connect(
        self,
        client_id: str,
        *,
        clean: bool = False,
        session_s: int = FOR_EVER,
        keep_alive_s: int = 0,
        will: Will | None = None,
        receive_max: int | None = None,
    ) -> Connack:
        properties = None
        if self.version == 5:
            properties = Properties()
            properties.session_expiry = session_s
            properties.receive_max = receive_max
        self.send(Connect(self.version, client_id, clean, keep_alive_s, None, None, will, properties))
        answer = self.receive()
        assert isinstance(answer, Connack), answer
        return answer

    def subscribe(self, topic_filter: bytes, qos: int = 2) -> None:
        self.send(Subscribe(1, [(topic_filter, qos)]))
        answer = self.receive()
        assert isinstance(answer, Suback), answer
        assert answer.codes == [qos]

    def expect_publish(self, timeout_s: float = WAIT_S) -> Publish:
        packet = self.receive(timeout_s)
        assert isinstance(packet, Publish), packet
        return packet

    def expect_ack(self, kind: int) -> Ack:
        packet = self.receive()
        assert isinstance(packet, Ack), packet
        assert packet.kind == kind, packet
        return packet

    def closed(self, timeout_s: float = WAIT_S) -> bool:
        """Whether the server closes; packets before that are dropped."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                if not self.socket.recv(1 << 16):
                    return True
            except ConnectionError:
                return True
            except TimeoutError:
                return False
        return False


def expiry(seconds: int) -> Properties:
    properties = Properties()
    properties.session_expiry = seconds
    return properties


def client_context(certificate: str = "", verify: bool = True) -> ssl.SSLContext:
    """A TLS context that trusts the test authority, with a client certificate if one is named."""
    context = ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(CERTIFICATES / f"{certificate}.pem", CERTIFICATES / f"{certificate}.key")
    return context


def tls_arguments(certificate: str = "server") -> Sequence[str]:
    """The flags that name the server's certificate."""
    return (
        "--tls-certificate",
        str(CERTIFICATES / f"{certificate}.pem"),
        "--tls-key",
        str(CERTIFICATES / f"{certificate}.key"),
    )


def await_true(what: object, timeout_s: float = WAIT_S, poll_s: float = 0.02) -> None:
    """Wait until a condition (a function without arguments) holds."""
    assert callable(what)
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, f"not true after {timeout_s} s: {what}"
        time.sleep(poll_s)
