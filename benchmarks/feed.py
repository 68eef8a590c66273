"""Publishing at a steady rate, and as fast as it goes: what feeds pipelines that are measured.

One connection of MQTT 3.1.1, QoS 1, of JSON readings whose number says where they belong. Owns the pace; what a message
costs the generator is kept small by patching numbers into packets made beforehand.
"""

from __future__ import annotations

import socket
import threading
import time

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V311, Connect, Disconnect, Publish

__all__ = ["Feed"]

DEVICES = 100
STEP_S = 0.01
OUTSTANDING_MAX = 20_000
PAYLOAD = b'{"n": %012d, "value": %010.3f, "unit": "C", "state": "running", "line": "assembly-7"}'
_WAIT_S = 120.0
_PUBACK_BYTES = 4


class Feed:
    """A publisher to one node; `sent` and `acknowledged` count messages."""

    def __init__(self, host: str, port: int, prefix: str) -> None:
        self.sent = 0
        self.acknowledged = 0
        self._prefix = prefix
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(encode(Connect(V311, f"feed-{prefix}", True, 0), V311))
        self._socket.recv(4)
        self._room = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _packet(self, number: int) -> bytes:
        payload = PAYLOAD % (number, number % 100_000 / 7)
        topic = b"%s/d%d" % (self._prefix.encode(), number % DEVICES)
        return encode(Publish(topic, payload, 1, False, False, number % 65_535 + 1, None), V311)

    def send(self, count: int) -> None:
        """Publish so many messages as fast as the node acknowledges them."""
        end = self.sent + count
        while self.sent < end:
            step = min(500, end - self.sent)
            with self._room:
                if not self._room.wait_for(lambda: self.sent - self.acknowledged < OUTSTANDING_MAX, _WAIT_S):
                    raise RuntimeError("the node acknowledges nothing")
            self._socket.sendall(b"".join([self._packet(number) for number in range(self.sent, self.sent + step)]))
            self.sent += step

    def pace(self, rate: int, seconds: float) -> None:
        """Publish `rate` messages per second for so long, in steps of some milliseconds."""
        begin, first = time.monotonic(), self.sent
        while (passed_s := time.monotonic() - begin) < seconds:
            self.send(max(0, int(passed_s * rate) - (self.sent - first)))
            time.sleep(STEP_S)

    def settle(self) -> None:
        """Wait until all is acknowledged."""
        with self._room:
            if not self._room.wait_for(lambda: self.acknowledged >= self.sent, _WAIT_S):
                raise RuntimeError(f"{self.sent - self.acknowledged} messages are not acknowledged")

    def close(self) -> None:
        """Say goodbye."""
        self._socket.sendall(encode(Disconnect(0, None), V311))
        self._socket.close()

    def _read(self) -> None:
        left = 0
        while True:
            try:
                data = self._socket.recv(65_536)
            except OSError:
                return
            if not data:
                return
            left += len(data)
            with self._room:
                self.acknowledged += left // _PUBACK_BYTES
                left %= _PUBACK_BYTES
                self._room.notify_all()
