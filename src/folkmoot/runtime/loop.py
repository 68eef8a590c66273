"""Turns: pass everything that happened in one iteration of the event loop to the node, then carry out its effects.

Owns the clock, the timer and the order of effects (see `folkmoot.node.effect`), and which errors end the node. A fault
of the node or of its store does (`ask`, `fail`). An unexpected error of one connection, or of one HTTP request, ends
that one and is logged with its trace (`on_handle`, `broken`). It decides nothing about MQTT and knows no kind of
socket: the handle of a connection is anything with the methods of `Handle`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop, TimerHandle
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from folkmoot.kernel.clock import NEVER
from folkmoot.runtime.clock import Clock
from folkmoot.runtime.commit import CommitListener
from folkmoot.runtime.drain import GONE, LINGER_S, Handle, close_in_order, reset
from folkmoot.runtime.password import CheckListener
from folkmoot.runtime.slice import Slices

if TYPE_CHECKING:
    from folkmoot.kernel.event import Event
    from folkmoot.node import Effects, Node
    from folkmoot.report.call import Call
    from folkmoot.session.connection import Authenticate, Connection, PeerInfo
    from folkmoot.store.batch import Batch

__all__ = ["LARGE_BYTES", "TURN_BYTES_MAX", "Carrier", "Turns", "pause_reading", "resume_reading"]

# A machine may be suspended, which the timers of the loop do not count: none is trusted for longer than this.
WAKE_S_MAX: Final = 60.0
# A timer whose deadline was put off is set again, rather than fire in vain, unless that was done so recently.
REARM_US: Final = 10_000
# Pieces of at least LARGE_BYTES count as large. A turn reads TURN_BYTES_MAX of them, and one more per connection.
LARGE_BYTES: Final = 16_384
TURN_BYTES_MAX: Final = 256 << 10


Result = TypeVar("Result")


class Carrier(ABC):
    """Carries out the effects of a turn that concern other nodes."""

    @abstractmethod
    def carry(self, effects: Effects) -> None:
        """Send, close and dial."""


class Turns(CommitListener, CheckListener):
    """The driver of one node in one event loop.

    Protocols call `begin` for whatever has come, then the node with the time that it returns. The turn ends in the
    next iteration of the loop, after all sockets that were ready have been read.

    clock: also the one by which the node was opened; the node ignores times before that of its last call.
    """

    def __init__(self, node: Node, loop: AbstractEventLoop, clock: Clock) -> None:
        self.node = node
        self.loop = loop
        self.clock = clock
        self.steady_ns: Callable[[], int] = self.clock.read_ns
        self.now = self.clock.read()
        assert self.now >= node.now, "the node was opened by another clock"
        self.began_us = self.now
        self.begun = False
        self.halted = False
        self.receive: Callable[[Any, bytes, int], None] = (
            node.receive
        )  # looked up once, for every chunk of every connection
        self.open: set[int] = set()  # ids of connections that are not lost yet
        self.submitted = 0  # the token of the newest batch submitted to the store
        self.durable = 0  # the token of the newest batch that is durable
        self.submit: Callable[[Batch], None] = _no_store
        self.apply: Callable[[list[tuple[int, bytes, bytes]], int], None] = _no_rows
        self.handed: Callable[[int], None] = _no_room  # called with the size of each batch
        self.check: Callable[[Authenticate], None] = _no_check
        self.log: Callable[[Iterable[Event], int], None] = _no_log
        self.fail: Callable[[Exception], None] = _no_fail
        self.complain: Callable[[str, Exception], None] = _no_complaint  # address or name of what failed, and its error
        self.after_written: Callable[[], None] | None = None  # called at the end of a turn with something new to read
        self.answered: Callable[[Call], None] = _no_call
        self.measure: Callable[[], None] = _no_measure  # reports the memory of the process to the node
        self.carrier: Carrier | None = None  # None: a node without a cluster
        self.slices = Slices(loop)
        self._written = False
        self._read_bytes = 0  # in large pieces, in this turn
        self._full: list[Connection] = []  # connections that are not read until the turn ends
        self._full_peers: list[tuple[str, Handle]] = []  # with their addresses
        self._waiting: deque[tuple[int, int, int]] = deque()  # token, since when, bytes
        self._written_us = 0  # when batches were last durable
        self._wake_handle: TimerHandle | None = None
        self._wake_us = NEVER
        self._set_us = 0  # when the timer was set last
        # In the order of their deadlines; a plain dictionary passes over all that were removed to find its first entry.
        self._lingering: OrderedDict[int, tuple[float, Connection]] = OrderedDict()
        self._linger_handle: TimerHandle | None = None
        self._full_reasons: dict[str, str] = {}

    def begin(self) -> int:
        """Begin a turn if none is begun; return the time in microseconds, read after what has come was there.

        A process can be stopped between two sockets of one turn. With the time at which the turn began, the node would
        take what the second client has sent since for older than the end of its lease (`node.withheld`).
        """
        now = self.now = self.clock.read()
        if not self.begun:
            self.begun = True
            self.began_us = now
            self.loop.call_soon(self._end)
        return now

    # Faults

    def ask(self, call: Callable[..., Result], *arguments: object) -> Result | None:
        """Call the node with `arguments` and the time; an exception is a fault of the node, and ends it."""
        now = self.begin()
        try:
            return call(*arguments, now)
        except Exception as error:  # noqa: BLE001 - a bug: the node must not continue after half a turn
            self.fail(error)
            return None

    def on_handle(self, connection: Connection, action: Callable[[Any], None]) -> None:
        """Call a method of a connection's handle; an exception ends this connection."""
        try:
            action(connection.handle)
        except Exception as error:  # noqa: BLE001 - whatever it is, other connections go on
            self.broken(connection, error)

    def broken(self, connection: Connection, error: Exception) -> None:
        """End a connection because of an unexpected error."""
        if connection.id in self.open and not self.spoiled(connection.handle, connection.info.address, error):
            self.lost(connection, "an unexpected error, see connection_error in the log")

    def spoiled(self, handle: Any, address: str, error: Exception) -> bool:
        """Report an unexpected error of a connection and abort it; return False if even that fails."""
        self.node.counters.connection_errors += 1
        self.complain(address, error)
        try:
            _abort(handle)
        except Exception as another:  # noqa: BLE001 - as above
            self.complain(address, another)
            return False
        return True

    def _for_others(self, action: Callable[..., None], *arguments: object) -> None:
        """Tell a service in this process what it waits for: its error is not the node's."""
        try:
            action(*arguments)
        except Exception as error:  # noqa: BLE001 - as above
            self.complain("a service of this process", error)

    # Input

    def connected(self, handle: object, info: PeerInfo) -> Connection | None:
        """Make a connection known to the node; None if the node has failed."""
        connection: Connection | None = self.ask(self.node.connect, handle, info)
        if connection is not None:
            self.open.add(connection.id)
        return connection

    def took(self, connection: Connection, size: int) -> None:
        """Count a large piece; above the limit of this turn, the connection is not read until the next one.

        Otherwise the loop would read until the socket is empty, and publishers could make a turn arbitrarily long.
        """
        self._read_bytes += size
        if self._read_bytes > TURN_BYTES_MAX and connection.id in self.open:
            self.on_handle(connection, pause_reading)
            self._full.append(connection)

    def took_from_peer(self, address: str, handle: Handle, size: int) -> None:
        """Count a large piece from another node, as `took` does."""
        self._read_bytes += size
        if self._read_bytes > TURN_BYTES_MAX:
            try:
                handle.pause_reading()
            except Exception as error:  # noqa: BLE001 - as in `on_handle`
                self.spoiled(handle, address, error)
            else:
                self._full_peers.append((address, handle))

    def _go_on_reading(self) -> None:
        self._read_bytes = 0
        for address, handle in self._full_peers:
            try:
                if not handle.is_closing():
                    handle.resume_reading()
            except Exception as error:  # noqa: BLE001 - as in `on_handle`
                self.spoiled(handle, address, error)
        self._full_peers.clear()
        for connection in self._full:
            if not connection.reading_paused and connection.id in self.open:
                self.on_handle(connection, resume_reading)
        self._full.clear()

    def _end(self) -> None:
        """End the turn: carry out its effects."""
        if self.halted:
            return
        self.begun = False
        try:
            now = self.clock.read()
            self.node.seal(now)
            effects = self.node.drain(now, self.steady_ns())  # a time after the last decision of the turn
            if self._read_bytes:
                self._go_on_reading()
            if effects.write is not None or effects.apply:
                self._hand_over(effects)
            if self.carrier is not None:
                self.carrier.carry(effects)  # before clients: they wait for what other nodes answer
            if effects.outputs or effects.drops:
                self._speak(effects)
            if effects.grown:
                self._written = True
            for call in effects.calls:
                self._for_others(self.answered, call)
            if effects.closes or effects.pauses or effects.resumes or effects.checks or effects.events:
                self._rare(effects)
            if effects.measure:
                self.loop.call_soon(self.measure)
            if effects.more:
                self.loop.call_soon(self._wake)
            due = self.node.next_wake()
        except Exception as error:  # noqa: BLE001 - a bug: the node must not continue after half a turn
            self.fail(error)
            return
        if due < self._wake_us or (due > self._wake_us and self.now - self._set_us >= REARM_US):
            self._set_wake(due)
        self.node.histograms.turn_us.record(self.clock.read() - self.began_us)
        if self._written:
            self._written = False
            if self.after_written is not None:
                self._for_others(self.after_written)

    def _speak(self, effects: Effects) -> None:
        """Hand the output of connections to their transports, unless the lease has ended since the turn did."""
        if effects.drops:
            self._drop(effects.drops)
        if self.steady_ns() >= effects.until_ns:  # this process was stopped
            self.node.withhold(effects)
            self.begin()
            return
        connection: Any  # a call of `cast` per connection would cost more than the write of a small packet
        for connection in effects.outputs:
            data = connection.take_output()
            try:
                connection.handle.write(data)
            except Exception as error:  # noqa: BLE001 - as in `on_handle`, and without its price
                self.broken(connection, error)

    def _drop(self, connections: list[Connection]) -> None:
        """Abort connections that are served no more and whose transports hold bytes: these are not to arrive."""
        handle: Any
        for connection in connections:
            if connection.id in self.open:
                try:
                    handle = connection.handle
                    if handle.get_write_buffer_size() > 0:
                        _abort(handle)
                except Exception as error:  # noqa: BLE001 - as in `on_handle`
                    self.broken(connection, error)

    def silence(self) -> str:
        """Return why the node may not answer clients now; "": it has a lease."""
        return self.node.silence(self.steady_ns())

    def _hand_over(self, effects: Effects) -> None:
        """Submit a batch to the store, and note when; and the rows that are committed."""
        if effects.apply:
            self.apply(effects.apply, effects.apply_token)
        batch = effects.write
        if batch is None:
            return
        self.submitted = batch.token
        self._waiting.append((batch.token, self.clock.read(), batch.bytes))
        counters = self.node.counters
        counters.commit_waiting_batches += 1
        counters.commit_waiting_bytes += batch.bytes
        self.submit(batch)
        self.handed(batch.bytes)

    def _rare(self, effects: Effects) -> None:
        for connection in effects.closes:
            try:
                self._close(connection)
            except Exception as error:  # noqa: BLE001 - as in `on_handle`
                self.broken(connection, error)
        for connection in effects.pauses:
            if connection.id in self.open:
                self.on_handle(connection, pause_reading)
        for connection in effects.resumes:
            if connection.id in self.open:
                self.on_handle(connection, resume_reading)
        for check in effects.checks:
            self.check(check)
        if effects.events:
            self.log(effects.events, self.clock.wall())

    # Timers

    def _set_wake(self, due: int) -> None:
        if self._wake_handle is not None:
            self._wake_handle.cancel()
        # Timers of the loop count in whole milliseconds: one that is rounded down comes too early, again and again.
        delay = -(-(due - self.clock.read()) // 1000) / 1000
        self._wake_us = due
        self._set_us = self.now
        self._wake_handle = self.loop.call_later(min(max(delay, 0.0), WAKE_S_MAX), self._timer)

    def _timer(self) -> None:
        self._wake_handle = None
        self._wake_us = NEVER
        if self.halted:
            return
        try:
            due = self.node.next_wake()
        except Exception as error:  # noqa: BLE001 - as in `_end`
            self.fail(error)
            return
        if due > self.clock.read():
            self._set_wake(due)  # what was due then has been put off since
        else:
            self._wake()

    def _wake(self) -> None:
        if self.halted:
            return
        self.ask(self.node.wake)

    # Connections

    def _close(self, connection: Connection) -> None:
        if connection.id not in self.open:
            return
        handle: Any = connection.handle
        # A WebSocket closes in order by itself. Others are closed at once if the client has sent DISCONNECT, after
        # which it sends nothing more [MQTT-3.14.4-1], or if it was never sent anything that it could lose.
        if connection.cut:
            _abort(handle)
        elif isinstance(handle, Handle) or connection.said >= 0 or connection.bytes_out == 0:
            handle.close()
        else:
            connection.handle = close_in_order(handle) or handle
        self.linger(connection)

    def linger(self, connection: Connection) -> None:
        """Abort a connection that is being closed after LINGER_S, unless it is lost by then."""
        if connection.id in self._lingering:
            return
        self._lingering[connection.id] = (self.loop.time() + LINGER_S, connection)
        if self._linger_handle is None:
            self._linger_handle = self.loop.call_later(LINGER_S, self._cut_lingering)

    def unsent(self) -> bool:
        """Whether an open connection is not being closed yet, or has unsent bytes."""
        if len(self.open) > len(self._lingering):
            return True
        for _, connection in list(self._lingering.values()):
            try:
                if cast("Handle", connection.handle).get_write_buffer_size() > 0:
                    return True
            except Exception as error:  # noqa: BLE001 - as in `on_handle`
                self.broken(connection, error)
        return False

    def _cut_lingering(self) -> None:
        """Abort connections that have been closing for too long; entries are in the order of their deadlines."""
        self._linger_handle = None
        time_s = self.loop.time()
        while self._lingering:
            number = next(iter(self._lingering))
            deadline, connection = self._lingering[number]
            if deadline > time_s:
                self._linger_handle = self.loop.call_later(deadline - time_s, self._cut_lingering)
                return
            del self._lingering[number]
            self.on_handle(connection, _abort)

    def cut_closing(self, closing_s: float) -> bool:
        """Abort the connection that has been closing for longest, if that is so many seconds; False if none is."""
        number = next(iter(self._lingering), None)
        if number is None or self._lingering[number][0] - LINGER_S + closing_s > self.loop.time():
            return False
        _, connection = self._lingering.pop(number)
        self.on_handle(connection, _abort)
        return True

    def lost(self, connection: Connection, reason: str) -> None:
        """Report to the node that a network connection is gone."""
        self.open.discard(connection.id)
        self._lingering.pop(connection.id, None)
        connection.handle = GONE  # output of this turn may still be on its way to it
        if not self.halted:
            self.ask(self.node.lost, connection, reason)

    def writable(self, connection: Connection, flag: bool) -> None:
        """Report to the node that a transport's buffer is full (False), or has room again (True)."""
        if not self.halted:
            self.ask(self.node.writable, connection, flag)

    # What other threads report

    def written(self, token: int) -> None:
        """Batch `token` and all before it are durable."""
        if self.halted:
            return
        now = self.begin()
        self.durable = token
        self._written = True
        self._written_us = now
        counters, waits = self.node.counters, self.node.histograms.commit_us
        while self._waiting and self._waiting[0][0] <= token:
            _, since, size = self._waiting.popleft()
            waits.record(now - since)
            counters.commit_waiting_batches -= 1
            counters.commit_waiting_bytes -= size
        self.ask(self.node.written, token)

    def applied(self) -> None:
        """The store has the rows that were handed to it."""
        if not self.halted:
            self.ask(self.node.applied)

    def waiting_since(self) -> int:
        """Return since when the disk has completed nothing that it has to write, in microseconds; 0 if it has nothing.

        A disk that works off a long backlog is slow, and does not stand still.
        """
        return max(self._waiting[0][1], self._written_us) if self._waiting else 0

    def stuck(self, reason: str) -> None:
        """The disk is full; submitted batches wait."""
        self.storage("write", reason)

    def unstuck(self) -> None:
        """There is room on the disk again, and the waiting batches are durable."""
        self.storage("write", "")

    def failed(self, error: Exception) -> None:
        """The store cannot be written."""
        self.fail(error)

    def authenticated(self, connection: Connection, accepted: bool) -> None:
        """Pass the result of a password check to the node."""
        if connection.id in self.open and not self.halted:
            self.ask(self.node.authenticated, connection, accepted)

    def limited(self, connection: Connection, why: str) -> None:
        """Have the node refuse a connection whose password is not checked."""
        if connection.id in self.open and not self.halted:
            self.ask(self.node.limited, connection, why)

    def crowded(self, connection: Connection, why: str) -> None:
        """Have the node refuse a connection for whose check there is no room."""
        if connection.id in self.open and not self.halted:
            self.ask(self.node.crowded, connection, why)

    def checking(self) -> None:
        """Count a password check."""
        self.node.counters.password_checks += 1

    def remember(self, mark: bytes) -> None:
        """Tell the node that a password was right."""
        if not self.halted:
            self.ask(self.node.remember, mark)

    def is_open(self, connection: Connection) -> bool:
        """Whether a connection is not lost yet."""
        return connection.id in self.open

    def cut(self, connection: Connection) -> None:
        """Abort a connection; the node learns of it as of any other loss."""
        if connection.id in self.open:
            self.on_handle(connection, _abort)

    def storage(self, source: str, reason: str) -> None:
        """Record why `source` has no room on disk ("" if it has); notify the node when the overall state changes."""
        before = bool(self._full_reasons)
        if reason:
            self._full_reasons[source] = reason
        else:
            self._full_reasons.pop(source, None)
        full = bool(self._full_reasons)
        if full != before:
            self.ask(self.node.storage, full, reason)

    def halt(self) -> None:
        """Stop for good: after a bug, half a turn must be neither written nor sent."""
        self.halted = True
        self.receive = _no_receive
        self.stop_timers()

    def stop_timers(self) -> None:
        """Cancel all timers and set no more."""
        for handle in (self._wake_handle, self._linger_handle):
            if handle is not None:
                handle.cancel()
        self._wake_us = 0  # nothing is due earlier
        self._set_us = NEVER  # nor is it put off


def pause_reading(handle: Handle) -> None:
    """Read no more from a connection."""
    handle.pause_reading()


def resume_reading(handle: Handle) -> None:
    """Read from a connection again."""
    handle.resume_reading()


def _abort(handle: Any) -> None:
    if isinstance(handle, Handle):
        handle.abort()
    else:
        reset(handle)


def _no_complaint(_what: str, _error: Exception) -> None:
    """Drop the report: there is no log."""


def _no_receive(_connection: Any, _data: bytes, _now: int) -> None:
    """Ignore input after `halt`."""


def _no_store(_batch: Any) -> None:
    raise AssertionError("the driver has no store to write to")


def _no_rows(_ops: Any, _token: int) -> None:
    """Leave the rows with the node: there is no store to put them into."""


def _no_room(_size: int) -> None:
    """Ignore the size: free space is not monitored."""


def _no_check(_check: Any) -> None:
    raise AssertionError("the driver has nothing to check passwords with")


def _no_log(_events: Any, _now: int) -> None:
    """Drop events: there is no log."""


def _no_measure() -> None:
    """Measure nothing: the node estimates."""


def _no_call(_call: Any) -> None:
    """Ignore the call: no caller is registered."""


def _no_fail(error: Exception) -> None:
    raise error
