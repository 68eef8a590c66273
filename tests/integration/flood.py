"""Publishers that push as fast as the node lets them, on blocking sockets, and count what is acknowledged."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["Flood", "resident_bytes"]

IN_FLIGHT_MAX: Final = 20_000  # below the number of packet ids
BURST: Final = 50


def resident_bytes(pid: int) -> int:
    """The memory of a process that is not swapped out."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * 4096


class Flood:
    """One MQTT 3.1.1 client: numbered messages of QoS 1, no pause between them.

    `name` stands before each number; `most`: how many there are at most.
    """

    def __init__(self, place: tuple[str, int], name: str, topic: str, payload_bytes: int, most: int) -> None:
        self.name = name
        self.topic = topic.encode()
        self.filler = b"." * payload_bytes
        self.most = most
        self.sent = 0
        self.acknowledged = 0
        self.longest_wait_s = 0.0  # between two acknowledgements
        self.closed = False
        self._stop = False
        self._socket = socket.create_connection(place, 5.0)
        self._socket.settimeout(30.0)
        client = f"flood-{name}".encode()
        body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(client).to_bytes(2, "big") + client
        self._socket.sendall(b"\x10" + bytes([len(body)]) + body)
        assert self._read(4) == b"\x20\x02\x00\x00"
        self._threads = [threading.Thread(target=self._push), threading.Thread(target=self._count)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def finish(self, timeout_s: float) -> None:
        """Push no more, and wait until everything is acknowledged."""
        self._stop = True
        self._threads[0].join(timeout_s)
        end = time.monotonic() + timeout_s
        while self.acknowledged < self.sent and time.monotonic() < end and not self.closed:
            time.sleep(0.02)
        assert self.acknowledged == self.sent, f"{self.name}: {self.acknowledged} of {self.sent} acknowledged"

    def _packet(self, number: int) -> bytes:
        payload = f"{self.name} {number} ".encode() + self.filler
        body = len(self.topic).to_bytes(2, "big") + self.topic + (number % 65_535 + 1).to_bytes(2, "big") + payload
        size, length = len(body), b""
        while size >= 128:
            length += bytes([size % 128 | 128])
            size //= 128
        return b"\x32" + length + bytes([size]) + body

    def _push(self) -> None:
        with contextlib.suppress(OSError):
            while not self._stop and self.sent < self.most:
                if self.sent - self.acknowledged > IN_FLIGHT_MAX:
                    time.sleep(0.005)
                    continue
                burst = b"".join(self._packet(self.sent + n) for n in range(BURST))
                self._socket.sendall(burst)
                self.sent += BURST

    def _count(self) -> None:
        last_s = time.monotonic()
        while True:
            ack = self._read(4)
            if not ack:
                self.closed = True
                return
            assert ack[:2] == b"\x40\x02", ack
            assert int.from_bytes(ack[2:], "big") == self.acknowledged % 65_535 + 1, "acknowledged out of order"
            now_s = time.monotonic()
            self.longest_wait_s = max(self.longest_wait_s, now_s - last_s)
            last_s = now_s
            self.acknowledged += 1

    def _read(self, count: int) -> bytes:
        data = b""
        with contextlib.suppress(OSError):
            while len(data) < count:
                more = self._socket.recv(count - len(data))
                if not more:
                    return b""
                data += more
        return data if len(data) == count else b""
