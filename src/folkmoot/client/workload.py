"""The description of a load run: its shape, sizes and limits, and its target.

Owns the names of the workloads and the limits of their parameters. Never opens a connection.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote, urlsplit

from folkmoot.client.template import PAYLOAD_BYTES_MIN
from folkmoot.kernel.errors import FolkmootError

__all__ = ["PERSISTENT", "SHAPES", "TRANSIENT", "Span", "Target", "Workload", "WorkloadError"]

SHAPES: Final = ("pairs", "fan-in", "fan-out", "connect", "idle", "retained")
TRAFFIC: Final = ("pairs", "fan-in", "fan-out")

WINDOW_MAX: Final = 16_384
"""Packet ids have 16 bits, and a publisher uses twice as many ids as its window."""

PAYLOAD_BYTES_MAX: Final = 1_048_576
FLYING_BYTES_MAX: Final = 67_108_864
"""A publisher keeps four windows of messages in memory."""

CLIENTS_MAX: Final = 60_000
SECONDS_MAX: Final = 3_600.0


class WorkloadError(FolkmootError):
    """A parameter or name of a workload is invalid; the text says which one, and what is valid."""


def require(holds: bool, text: str) -> None:
    """Raise `WorkloadError(text)` unless the condition holds."""
    if not holds:
        raise WorkloadError(text)


@dataclass(frozen=True)
class Target:
    """A broker's address and the credentials for it."""

    host: str
    port: int
    username: str | None = None
    password: str | None = None

    @classmethod
    def parse(cls, url: str) -> Target:
        """Return the target of `mqtt://[user[:password]@]host[:port]`; raises `WorkloadError`."""
        parts = urlsplit(url if "://" in url else f"mqtt://{url}")
        require(parts.scheme in {"mqtt", "tcp"}, f"url {url!r}: load runs over plain TCP; use mqtt://HOST:PORT")
        try:
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise WorkloadError(f"url {url!r}: {error}") from error
        require(bool(host), f"url {url!r} has no host; use mqtt://HOST:PORT")
        username = unquote(parts.username) if parts.username is not None else None
        password = unquote(parts.password) if parts.password is not None else None
        return cls(host or "", port or 1883, username, password)

    def resolve(self) -> tuple[int, tuple[str, int]]:
        """Return (address family, socket address) of the host; raises `WorkloadError` if its name is unknown."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise WorkloadError(f"host {self.host!r}: {error.strerror or error}") from error
        family, _, _, _, address = found[0]
        return int(family), (str(address[0]), int(address[1]))


@dataclass(frozen=True)
class Span:
    """The duration of a run: `seconds`, or until `messages` were published in total (connects, retained messages)."""

    seconds: float = 5.0
    messages: int = 0
    warmup_s: float = 0.5

    def __post_init__(self) -> None:
        require(0 < self.seconds <= SECONDS_MAX, f"seconds must be above 0 and at most {SECONDS_MAX:.0f}")
        require(0 <= self.messages <= 1_000_000_000, "messages must be 0 (no limit) to 1000000000")
        require(0 <= self.warmup_s <= 60, "the warm-up must be 0 to 60 seconds")


@dataclass(frozen=True)
class Workload:
    """One load: `publishers` x `subscribers` connections in a shape, and what they send.

    pairs: publisher i to subscriber i. fan-in: all publishers to one subscriber. fan-out: one publisher to all
    subscribers. connect: `connections` at a time connect and disconnect. idle: `connections` stay connected.
    retained: a wildcard subscription to retained messages while a pair has traffic. `window` is the maximum number of
    outstanding messages of a publisher; `rate` is messages per second in total, 0 for as fast as the windows allow.
    """

    name: str
    shape: str = "pairs"
    qos: int = 0
    publishers: int = 1
    subscribers: int = 1
    window: int = 100
    payload_bytes: int = 64
    rate: float = 0.0
    connections: int = 0
    version: int = 4
    persistent: bool = False
    sample_every: int = 101

    def __post_init__(self) -> None:
        require(self.shape in SHAPES, f"workload {self.shape!r} is unknown; use {', '.join(SHAPES)}")
        require(self.qos in {0, 1, 2}, f"qos must be 0, 1 or 2, not {self.qos}")
        require(self.version in {4, 5}, f"version must be 4 (MQTT 3.1.1) or 5, not {self.version}")
        require(1 <= self.window <= WINDOW_MAX, f"window must be 1 to {WINDOW_MAX}, not {self.window}")
        low, high = PAYLOAD_BYTES_MIN, PAYLOAD_BYTES_MAX
        require(low <= self.payload_bytes <= high, f"payload must be {low} to {high} bytes, not {self.payload_bytes}")
        require(self.rate >= 0, "rate must be 0 (as fast as the windows allow) or more")
        require(self.sample_every >= 1, "the interval between messages with a time stamp must be 1 or more")
        for name, count in (("publishers", self.publishers), ("subscribers", self.subscribers)):
            require(1 <= count <= CLIENTS_MAX, f"{name} must be 1 to {CLIENTS_MAX}, not {count}")
        flying = self.publishers * self.window * self.payload_bytes
        require(flying <= FLYING_BYTES_MAX, "publishers x window x payload is above 64 MiB: lower one of them")
        self._check_shape()

    def _check_shape(self) -> None:
        if self.shape == "pairs":
            require(self.publishers == self.subscribers, "pairs need as many publishers as subscribers")
        elif self.shape == "fan-in":
            require(self.subscribers == 1, "fan-in has one subscriber; use --publishers for its size")
        elif self.shape == "fan-out":
            require(self.publishers == 1, "fan-out has one publisher; use --subscribers for its size")
        elif self.shape != "retained":
            require(1 <= self.connections <= CLIENTS_MAX, f"connections must be 1 to {CLIENTS_MAX}")

    @property
    def copies(self) -> int:
        """The number of subscribers that receive one message."""
        return self.subscribers if self.shape == "fan-out" else 1

    def changed(self, **fields: object) -> Workload:
        """Return the workload with other values for some fields; raises `WorkloadError`."""
        return replace(self, **fields)  # type: ignore[arg-type]


def pairs(count: int, qos: int, window: int, persistent: bool = False) -> Workload:
    """Return a workload of pairs, named after its parameters."""
    kept = ", persistent" if persistent else ""
    plural = "pair" if count == 1 else "pairs"
    return Workload(
        name=f"QoS {qos}, {count} {plural}, window {window}{kept}",
        qos=qos,
        publishers=count,
        subscribers=count,
        window=window,
        persistent=persistent,
    )


TRANSIENT: Final = (
    pairs(1, 0, 100),
    pairs(10, 0, 100),
    pairs(100, 0, 10),
    pairs(1000, 0, 1),
    pairs(10, 1, 50),
    pairs(10, 2, 50),
    Workload(name="QoS 0, fan-out 50, window 100", shape="fan-out", subscribers=50),
)
"""The seven workloads that measure the speed of the data path, with 64 bytes of payload."""

# Window 1 shows the cost of one acknowledgement, window 50 the throughput of a busy publisher.
PERSISTENT: Final = tuple(
    replace(pairs(count, 1, window, persistent=True), sample_every=7) for window in (1, 50) for count in (1, 10, 100)
)
"""Persistent sessions with QoS 1: more publishers share one write to disk."""
