"""Slowing publishers, and nothing else: which connections' PUBLISH packets are not taken now, and why (A13).

The socket of a client that only publishes is not read. The socket of a client that also subscribes is: its
acknowledgements and pings are handled at once, and everything else goes into its stash, in order, up to a bound. So
publishing never delays deliveries. Only a client with more acknowledgements under way than it can owe is not read at
all. Nothing is dropped, and every reason ends without an action of the client.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.session.account import Account
from folkmoot.session.connection import CLOSED, CLOSING, Connection
from folkmoot.turn.state import TIMER_OVERLOAD, TIMER_QUOTA, State
from folkmoot.turn.work import WAITING_BYTES_MAX

__all__ = [
    "FOR_ACKS",
    "FOR_BACKLOG",
    "FOR_HANDSHAKE",
    "FOR_ORDER",
    "FOR_OVERLOAD",
    "FOR_QUOTA",
    "FOR_RATE",
    "FOR_RELAY",
    "Throttle",
]

# Why PUBLISH packets of a connection are not taken, in `Connection.paused`; each reason ends on its own.
FOR_BACKLOG: Final = 1  # too much waits for the disk
FOR_RATE: Final = 2  # it publishes faster than it may
FOR_HANDSHAKE: Final = 4  # it sends much before its CONNACK
FOR_OVERLOAD: Final = 8  # it has published, and the cluster can bear only so much
FOR_RELAY: Final = 16  # too much waits for the leader of its session
FOR_ORDER: Final = 32  # a message must not overtake one that went another way
FOR_QUOTA: Final = 64  # its user publishes faster than it may
FOR_ACKS: Final = 128  # nothing else is taken either: its acknowledgements wait for the leader of its session, too

_DELAY_US: Final = MILLISECOND  # between two reads of a publisher at level 0, doubled with each level
_STASH_BYTES_MAX: Final = 64 << 10


class Throttle:
    """The connections that are paused, and how much waits for disks and other nodes."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.backlog_bytes = 0  # `Commits` counts what waits with it
        self.backlog_bytes_max = state.limits.write_backlog_bytes_max
        self.stranded_bytes = 0  # of messages for partitions without a leader, for which no turn waits any more
        self.congested = False  # a link to another node holds so much that it must not get more
        self.stash_bytes = 0
        self.paused: dict[int, Connection] = {}  # for the backlog, by number
        self._fresh: list[Connection] = []  # paused in this turn
        self._slowed: dict[int, tuple[Connection, int]] = {}  # for overload, since when

    def is_full(self) -> bool:
        """Whether more waits for disks and other nodes than may."""
        waiting = self.backlog_bytes + self.state.writer.batch.bytes
        return waiting > self.backlog_bytes_max or self.congested

    def is_stranded_full(self) -> bool:
        """Whether messages for partitions without a leader take as much as they may: a quarter of the backlog.

        They are in memory until somebody repairs a partition, and the leader of their home counts them as backlog anew.
        """
        return self.stranded_bytes > self.backlog_bytes_max // 4

    def may_strand(self) -> bool:
        """Whether to let messages wait for partitions without a leader which could wait on the disk as well.

        They get half of the room, what is on its way included: the rest is for those that nobody can hold back.
        """
        return self.stranded_bytes + self.backlog_bytes <= self.backlog_bytes_max // 8

    def may_defer(self) -> bool:
        """Whether one more message may wait for a partition without a leader that its publisher could keep as well.

        Half of the room is for those that cannot be refused.
        """
        return self.stranded_bytes <= self.backlog_bytes_max // 8

    def slow_down(self, connection: Connection) -> None:
        """Take nothing more from a client that makes nodes write while too much waits."""
        if self.is_full():
            self.pause(connection, FOR_BACKLOG)

    def spread(self, connection: Connection) -> None:
        """A client has published under overload: its next messages are taken after a time that grows with the level.

        Everybody gets one read in that time. It is the clock that ends it, so that nobody waits for ever.
        """
        self.slow_down(connection)
        self.pause(connection, FOR_OVERLOAD)

    def weigh(self, connection: Connection) -> None:
        """Count what a client has sent: input that waits for more of it, and what it has published.

        If its user is ahead of its rate, take nothing more until it is not. All clients of the user wait when they
        publish: each one goes on when the average of all of them fits.
        """
        waiting = connection.waiting_bytes()
        if waiting != connection.weighed_bytes and connection.state != CLOSED:
            self.state.memory.parts_bytes += waiting - connection.weighed_bytes
            connection.weighed_bytes = waiting
        account = connection.account
        if account is None or not account.quota.paces:
            return
        messages = connection.messages_in - connection.charged_messages
        if not messages and (waiting or connection.stash is not None):
            return  # they may belong to a message
        size = connection.bytes_in - connection.charged_bytes
        connection.charged_messages = connection.messages_in
        connection.charged_bytes = connection.bytes_in
        if messages:
            self._pace(connection, account, messages, size)

    def _pace(self, connection: Connection, account: Account, messages: int, size: int) -> None:
        until_us = account.publish(messages, size, self.state.now)
        if until_us:
            self.state.counters.quota_pauses += 1
            self.pause(connection, FOR_QUOTA)
            self.state.timers.set(until_us, TIMER_QUOTA, connection.id)

    def resume(self) -> None:
        """Read those again who were paused for the backlog, if it has halved.

        Also on a full disk: what waits for it stays in the backlog, and what comes later is refused with a reason.
        """
        if not self.paused or self.congested or self.backlog_bytes > self.backlog_bytes_max // 2:
            return
        paused = self.paused
        self.paused = {}
        for connection in paused.values():
            self.unpause(connection, FOR_BACKLOG)

    def pause(self, connection: Connection, why: int) -> None:
        """Take no PUBLISH packets of a connection until `unpause` is called for the same reason.

        A client that only publishes is not read. One that also subscribes is read for its acknowledgements and pings;
        everything else is stashed, up to a bound.
        """
        if connection.paused & why or connection.remote is not None or connection.ending:
            return  # the node that has the connection pauses it; one that has ended sends nothing more
        if not connection.paused:
            if why == FOR_HANDSHAKE or not _converses(connection) or self._is_stash_full():
                self.pause_reading(connection)
            self.state.counters.publisher_pauses += 1
            self.state.counters.publishers_paused += 1
        connection.paused |= why
        self._fresh.append(connection)
        if why == FOR_BACKLOG:
            self.paused[connection.id] = connection

    def choke(self, connection: Connection) -> None:
        """Take nothing of a connection, not even acknowledgements, until `unpause` is called for FOR_ACKS."""
        self.pause(connection, FOR_ACKS)
        if connection.paused & FOR_ACKS:
            self.pause_reading(connection)

    def defer_publishes(self) -> None:
        """The turn ends: from now on PUBLISH packets of connections that were paused in it are deferred."""
        for connection in self._fresh:
            connection.defers_publishes = connection.paused != 0
            if connection.paused & FOR_OVERLOAD and connection.state < CLOSING and connection.id not in self._slowed:
                self._slowed[connection.id] = (connection, self.state.now)
                self._set_end(connection, self.state.now)
        self._fresh.clear()

    def _set_end(self, connection: Connection, since_us: int) -> None:
        self.state.timers.set(since_us + (_DELAY_US << self.state.overload), TIMER_OVERLOAD, connection.id)

    def relax(self) -> None:
        """The level has fallen: shorten all pauses to the new delay."""
        for connection, since_us in list(self._slowed.values()):
            self._set_end(connection, since_us)

    def unpause(self, connection: Connection, why: int) -> None:
        """End one reason of a pause; without another one the connection is read again."""
        if not connection.paused & why:
            return
        connection.paused &= ~why
        if why == FOR_OVERLOAD:
            self._slowed.pop(connection.id, None)
        if why == FOR_ACKS and (connection.task is not None or connection.waiting_bytes()):
            self.state.work.wait(connection)
        if connection.paused:
            return
        connection.defers_publishes = False
        self.state.counters.publishers_paused -= 1
        self.resume_reading(connection)
        if connection.has_stash():
            self.state.work.wait(connection)

    def pause_reading(self, connection: Connection) -> None:
        """Stop reading the socket until `resume_reading`."""
        if not connection.reading_paused:
            connection.reading_paused = True
            self.state.pauses.append(connection)

    def _is_stash_full(self) -> bool:
        return self.stash_bytes > self.state.limits.write_backlog_bytes_max // 4

    def stash(self, connection: Connection, data: bytes) -> None:
        """Stash packets of a connection that it may not send now; beyond a bound its socket is not read."""
        if connection.stash is None:
            connection.stash = bytearray()
        connection.stash.extend(data)
        self.stash_bytes += len(data)
        most = min(_STASH_BYTES_MAX, self.state.limits.write_backlog_bytes_max // 16)
        if len(connection.stash) > most or self._is_stash_full():
            self.pause_reading(connection)

    def open_stash(self, connection: Connection) -> bytes:
        """Return the bytes of which those from `stashed_pos` on are the oldest stashed packets; empty: none.

        They stay there until `take_from_stash`, and are not copied again however often they have to wait.
        """
        if connection.stashed_pos == len(connection.stashed):
            stash = connection.stash
            connection.stash = None
            connection.stashed = b"" if stash is None else bytes(stash)
            connection.stashed_pos = 0
        return connection.stashed

    def take_from_stash(self, connection: Connection, pos: int) -> None:
        """The packets before `pos` have been handled."""
        self.stash_bytes -= pos - connection.stashed_pos
        connection.stashed_pos = pos
        if pos == len(connection.stashed):
            connection.stashed = b""
            connection.stashed_pos = 0

    def drop_stash(self, connection: Connection) -> None:
        """Forget the stashed packets."""
        self.stash_bytes -= len(connection.stashed) - connection.stashed_pos
        connection.stashed = b""
        connection.stashed_pos = 0
        if connection.stash is not None:
            self.stash_bytes -= len(connection.stash)
            connection.stash = None

    def resume_reading(self, connection: Connection) -> None:
        """Read the socket of a connection again that is not paused any more, unless much of its input waits."""
        if connection.queued and connection.waiting_bytes() > WAITING_BYTES_MAX:
            return
        if connection.reading_paused and not connection.paused:
            connection.reading_paused = False
            if connection.state < CLOSING:
                self.state.resumes.append(connection)

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self.drop_stash(connection)
        self.release(connection)

    def release(self, connection: Connection) -> None:
        """The connection has ended: it is not paused any more, for whatever reason."""
        if connection.paused:
            connection.paused = 0
            connection.defers_publishes = False
            self.state.counters.publishers_paused -= 1
            self.paused.pop(connection.id, None)
            self._slowed.pop(connection.id, None)


def _converses(connection: Connection) -> bool:
    """Whether a client sends more than what it publishes."""
    session = connection.session
    if session is None:
        return False
    relay = connection.relay
    if relay is not None and relay.persistent:
        return True  # its subscriptions are known to the session's leader
    return bool(session.subscriptions) or bool(session.inflight)
