"""Stand-ins for what surrounds the driver: a node that echoes, a loop without time, transports that remember."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.event import Event
from folkmoot.metrics.counters import Counters, Histograms
from folkmoot.session.connection import NEW, OPEN, PeerInfo
from folkmoot.store.batch import Batch

__all__ = ["FakeConnection", "FakeEffects", "FakeLoop", "FakeNode", "FakeTransport"]


class FakeConnection:
    """A connection as the driver sees it."""

    def __init__(self, number: int, handle: object, info: PeerInfo) -> None:
        self.id = number
        self.handle = handle
        self.info = info
        self.out: list[bytes] = []
        self.reading_paused = False
        self.state = NEW
        self.said = -1
        self.bytes_out = 1
        self.cut = False

    def take_output(self) -> bytes:
        data = b"".join(self.out)
        self.out = []
        return data


class FakeEffects:
    def __init__(self) -> None:
        self.write: Batch | None = None
        self.apply: list[tuple[int, bytes, bytes]] = []
        self.apply_token = 0
        self.outputs: list[Any] = []
        self.until_ns = NEVER
        self.drops: list[Any] = []
        self.closes: list[Any] = []
        self.pauses: list[Any] = []
        self.resumes: list[Any] = []
        self.checks: list[Any] = []
        self.events: list[Event] = []
        self.calls: list[Any] = []
        self.grown = False
        self.measure = False
        self.more = False


class FakeNode:
    """Echoes what it receives and writes down every call; `effects` of the next turn can be filled by a test."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.effects = FakeEffects()
        self.connections: list[FakeConnection] = []
        self.now = 0
        self.due = NEVER
        self.until_ns = NEVER
        self.turns = 0
        self.echo = True
        self.greets = True  # the first bytes are a whole CONNECT
        self.counters = Counters()
        self.histograms = Histograms()

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == name]

    def connect(self, handle: object, info: PeerInfo, now: int) -> FakeConnection:
        connection = FakeConnection(len(self.connections) + 1, handle, info)
        self.connections.append(connection)
        self.calls.append(("connect", info.transport, info.certificate_name))
        return connection

    def receive(self, connection: FakeConnection, data: bytes, now: int) -> None:
        self.calls.append(("receive", connection.id, bytes(data)))
        connection.state = OPEN if self.greets else NEW
        if self.echo:
            if not connection.out:
                self.effects.outputs.append(connection)
            connection.out.append(data)

    def lost(self, connection: FakeConnection, reason: str, now: int) -> None:
        self.calls.append(("lost", connection.id, reason))

    def writable(self, connection: FakeConnection, flag: bool, now: int) -> None:
        self.calls.append(("writable", connection.id, flag))

    def authenticated(self, connection: FakeConnection, ok: bool, now: int) -> None:
        self.calls.append(("authenticated", connection.id, ok))

    def storage(self, full: bool, reason: str, now: int) -> None:
        self.calls.append(("storage", full, reason))

    def disk_low(self, low: bool, now: int) -> None:
        self.calls.append(("disk_low", low))

    def written(self, token: int, now: int) -> None:
        self.calls.append(("written", token))

    def wake(self, now: int) -> None:
        self.calls.append(("wake",))
        self.due = NEVER

    def stop(self, now: int) -> None:
        self.calls.append(("stop",))

    def next_wake(self) -> int:
        return self.due

    def seal(self, now: int) -> None:
        self.calls.append(("seal",))

    @property
    def speaks_until_ns(self) -> int:
        return self.until_ns

    def withhold(self, effects: FakeEffects) -> None:
        self.calls.append(("withhold", [one.id for one in effects.outputs]))
        self.effects.outputs = effects.outputs + self.effects.outputs
        effects.outputs = []

    def drain(self, now: int, steady_ns: int = 0) -> FakeEffects:
        self.turns += 1
        if steady_ns >= self.until_ns:
            return FakeEffects()
        effects, self.effects = self.effects, FakeEffects()
        effects.until_ns = self.until_ns
        return effects


class FakeHandle:
    def __init__(self, when: float, callback: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.when = when
        self.callback = callback
        self.arguments = arguments
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """Runs what was asked for when a test says so; time goes by only in `advance`."""

    def __init__(self) -> None:
        self.ready: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.timers: list[FakeHandle] = []
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        self.ready.append((callback, arguments))

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., None], *arguments: Any) -> FakeHandle:
        handle = FakeHandle(self.now + delay, callback, arguments)
        self.timers.append(handle)
        return handle

    def call_at(self, when: float, callback: Callable[..., None], *arguments: Any) -> FakeHandle:
        return self.call_later(when - self.now, callback, *arguments)

    def iterate(self) -> None:
        """One iteration: what is ready now, not what becomes ready by it."""
        ready, self.ready = self.ready, []
        for callback, arguments in ready:
            callback(*arguments)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer.when <= self.now and not timer.cancelled]
        self.timers = [timer for timer in self.timers if timer.when > self.now and not timer.cancelled]
        for timer in due:
            timer.callback(*timer.arguments)


class FakeTransport:
    """Remembers what was asked of it."""

    def __init__(self, extra: dict[str, Any] | None = None) -> None:
        self.extra = {"peername": ("127.0.0.1", 4711), **(extra or {})}
        self.written: list[bytes] = []
        self.calls: list[str] = []
        self.protocol: Any = None
        self.unsent_bytes = 0

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return "close" in self.calls or "abort" in self.calls

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.calls.append("eof")

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.extra.get(name, default)

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")
