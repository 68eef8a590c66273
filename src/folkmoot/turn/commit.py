"""What waits for a turn: acknowledgements, deliveries, CONNACKs. One record per turn that is not complete yet.

An acknowledgement leaves only after the change that it acknowledges is on disk (A1). Those of one connection leave in
the order of their packets [MQTT-4.6.0-2]: one that need not wait itself waits behind one that must.

A turn, named by its token, reaches three levels, in this order, and never before an earlier turn. Durable: its rows are
on this node's disk, and the store shows them. Committed: they are on the disks of all replicas of the partitions that
it changed. Complete: its requests to other nodes are committed there too. On a node alone the three are one. A turn
with all its answers is *ahead* while an earlier one lacks some (one of its partitions may have no leader): a publisher
that waits for nothing older gets its acknowledgement. Rows that other nodes lead wait for this disk only: one that a
follower of this node does not answer holds up nothing but what this node leads.

`broker.broker` makes three calls in the life of a turn. `seal`, at its end: its batch is handed over. `commit_through`,
when batches are committed (on a node alone when they are durable, in a cluster when `replica` says so): the queues of
the sessions go on. `complete`, after that and when another node has answered: the acknowledgements leave (`release`).
Then `ahead` and `release_ahead` do the same for turns that only earlier ones hold up. `durable_through` comes before
all of them; feeds and other readers of the store wait for `durable_token`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.session.connection import OPEN, Connection
from folkmoot.session.session import Session
from folkmoot.store.batch import Batch
from folkmoot.streams.table import Streams
from folkmoot.turn.receipt import Receipt, Receipts
from folkmoot.turn.state import State
from folkmoot.turn.throttle import Throttle

__all__ = ["Commits", "PendingTurn"]

_PUBACK: Final = 0x40  # the first bytes of packets
_PUBREL: Final = 0x62
_HELD_BYTES: Final = 64  # of memory that a waiting acknowledgement takes beside its own bytes, about
_RECORDS_MIN: Final = 16  # of turns: with fewer, nobody looks for those of which nothing waits any more


class PendingTurn:
    """What becomes possible when the turn `token` is committed (queues go on) and complete (all the rest).

    row_bytes: of its batch, which count as backlog until it is committed; ack_bytes: of its acknowledgements, each of
    which counts until it leaves. sessions: whose queues go on when it is committed; committed_next: the
    `committed_next` that each of them has then, noted when the turn is sealed.
    """

    def __init__(self, token: int, since_us: int) -> None:
        self.token = token
        self.since_us = since_us
        self.row_bytes = 0
        self.ack_bytes = 0
        self.ahead = False  # it would be complete if an earlier turn were
        self.failed = False  # rows of it were lost with a change of leaders: nothing of it is acknowledged
        self.connects: list[Connection] = []
        self.ack_connections: list[Connection] = []
        self.acks: list[bytes] = []
        self.receipts: dict[int, Receipt] | None = None  # of some of the acknowledgements, by their index
        self.packets: dict[int, int] | None = None  # of other nodes: what acknowledgements are for, by their index
        self.handled: list[
            Connection
        ] = []  # at other nodes: their packets are reported as handled when the turn is complete
        self.handled_packets: list[int] = []
        self.sessions: list[Session] = []
        self.committed_next: list[int] = []

    def shrink(self) -> bool:
        """Keep only what still waits, of a turn that is committed; return whether anything does."""
        self.sessions = []
        self.committed_next = []
        self._drop_sent()
        self._drop_handled()
        return bool(self.connects or self.acks or self.handled)

    def _drop_sent(self) -> None:
        """Forget the acknowledgements that have left; the others get new indices."""
        left = [i for i in range(len(self.acks)) if self.acks[i]]
        if len(left) == len(self.acks):
            return
        receipts: dict[int, Receipt] = {}
        packets: dict[int, int] = {}
        for at in range(len(left)):
            i = left[at]
            if self.receipts is not None and i in self.receipts:
                receipts[at] = self.receipts[i]
            if self.packets is not None and i in self.packets:
                packets[at] = self.packets[i]
        self.receipts = receipts if receipts else None
        self.packets = packets if packets else None
        self.ack_connections = [self.ack_connections[i] for i in left]
        self.acks = [self.acks[i] for i in left]

    def _drop_handled(self) -> None:
        """Forget the packets that are reported already, as a later one is, and those that nobody asks for any more."""
        left: list[int] = []
        for i in range(len(self.handled)):
            remote = self.handled[i].remote
            if remote is not None and not remote.gone and self.handled_packets[i] > remote.handled_seq:
                left.append(i)
        self.handled = [self.handled[i] for i in left]
        self.handled_packets = [self.handled_packets[i] for i in left]


class Commits:
    """Keeps the records of the turns that are not complete yet, oldest first."""

    def __init__(self, state: State, streams: Streams, receipts: Receipts, throttle: Throttle) -> None:
        self.state = state
        self.throttle = throttle
        self.streams = streams
        self.receipts = receipts
        self.durable_token = 0
        self.committed_token = 0
        self.complete_token = 0
        self.asked = False  # this turn has asked something of another node, and its answer counts
        self._turns: dict[int, PendingTurn] = {}
        self._open: deque[int] = deque()  # batches that are not committed
        self._copied: deque[tuple[int, int]] = deque()  # by token: bytes that wait for this disk alone
        self._owed: dict[int, int] = {}  # by token: the number of missing answers of other nodes
        self._answered: list[int] = []  # turns that have all their answers, to be looked at
        self._looked_token = 0  # `ahead` has seen the turns up to this one
        self._records_max = _RECORDS_MIN  # from so many records on, `ahead` looks for empty ones

    def current(self) -> PendingTurn:
        """Return the record of the batch that this turn fills; for what has written to it: else it is never sealed."""
        return self.turn_of(self.state.writer.token)

    def newest_token(self) -> int:
        """Return the token of the batch that makes all changes until now durable: this turn's or the last.

        Records of streams are in this turn's batch too, although they become rows only at its end.
        """
        writer = self.state.writer
        return writer.token if writer.dirty or self.streams.dirty or self.asked else writer.token - 1

    def turn_of(self, token: int) -> PendingTurn:
        """Return the record of a turn that is not complete yet."""
        assert token > self.complete_token, "a complete turn has no record"
        turn = self._turns.get(token)
        if turn is None:
            turn = PendingTurn(token, self.state.now)
            turn.ahead = token <= self._looked_token  # its record was dropped when nothing was left of it
            self._turns[token] = turn
        return turn

    def acknowledge(
        self, connection: Connection, ack: bytes, wait: bool, receipt: Receipt | None = None, own: bool = False
    ) -> None:
        """Send an acknowledgement: at once, or when all changes until now are complete.

        `connection.held_turns` gets the token of the turn for which the acknowledgement waits, or that token negated if
        it waits not for that turn alone but for all before it: such a one never leaves ahead.

        With a receipt it is made anew when it leaves. own: it is only for changes of this turn; if there are none, it
        does not wait for other nodes. An acknowledgement to a client at another node always waits, so that the packet
        is reported to that node as handled: otherwise the next leader gets the packet once more, and answers it again.
        """
        remote = connection.remote
        wait = wait or remote is not None
        own = own and (remote is None or not remote.is_marked)
        token = self.newest_token() if wait else 0
        if remote is not None and self.state.lazy.concerns(connection.session):
            self.state.lazy.urgent = True  # the packet is reported together with them
            token = self.state.writer.token
        elif own and wait and token < self.state.writer.token:
            if token <= self.committed_token:
                token = 0
            else:  # what it says may depend on changes of others that are not committed
                self.asked = True
                token = self.state.writer.token
        if connection.held and connection.held_token > token:
            token = connection.held_token
        if token <= self.complete_token:
            connection.put(ack if receipt is None else self.receipts.packet(receipt, connection))
            if remote is not None and own:
                remote.handled_seq = max(remote.handled_seq, remote.received_seq)
            return
        turn = self.turn_of(token)
        if receipt is not None:
            if turn.receipts is None:
                turn.receipts = {}
            turn.receipts[len(turn.acks)] = receipt
        if own and remote is not None:
            if turn.packets is None:
                turn.packets = {}
            turn.packets[len(turn.acks)] = remote.received_seq
        turn.ack_connections.append(connection)
        turn.acks.append(ack)
        if connection.held_turns is None:
            connection.held_turns = deque()
        connection.held_turns.append(token if own or not wait else -token)
        connection.held += 1
        connection.held_token = token
        if ack[0] == _PUBACK:
            connection.held_pubacks += 1
        size = len(ack) + _HELD_BYTES
        turn.ack_bytes += size
        self.throttle.backlog_bytes += size
        self.throttle.slow_down(connection)

    def drop_releases(self, connection: Connection, packet_ids: list[bytes]) -> list[bytes]:
        """Send no PUBREL with these packet ids: another node leads the session from now on, and sends them.

        Return the packet ids of those that waited; the others have left ahead.
        """
        dropped: list[bytes] = []
        turns = connection.held_turns
        if not turns or not packet_ids:
            return dropped
        kept: deque[int] = deque()
        places: dict[int, int] = {}  # by token: where to look for the next acknowledgement
        for signed in turns:
            turn = self._turns[abs(signed)]
            i = places.get(turn.token, 0)
            while turn.ack_connections[i] is not connection or not turn.acks[i]:
                i += 1
            places[turn.token] = i + 1
            ack = turn.acks[i]
            if ack[0] == _PUBREL and ack[2:4] in packet_ids:
                self._uncount(turn, ack)
                turn.acks[i] = b""
                dropped.append(ack[2:4])
            else:
                kept.append(signed)
        connection.held_turns = kept
        connection.held = len(kept)
        connection.held_token = abs(kept[-1]) if kept else 0
        return dropped

    def touch(self, session: Session) -> None:
        """Have the session's queue go on when this turn is committed."""
        token = self.state.writer.token
        if session.touched_token != token:
            session.touched_token = token
            self.current().sessions.append(session)

    def ask(self, count: int, size: int) -> None:
        """This turn waits for `count` answers of other nodes to `size` bytes."""
        self.asked = True
        token = self.state.writer.token
        owed = self._owed.get(token, 0)
        if not owed:
            self.turn_of(token)  # for `oldest_us`, also if nothing else of the turn waits
        self._owed[token] = owed + count
        self.throttle.backlog_bytes += size

    def answered(self, token: int, count: int, size: int) -> None:
        """Other nodes have answered, or are gone; call `complete` afterwards."""
        left = self._owed[token] - count
        if left:
            self._owed[token] = left
        else:
            del self._owed[token]
            self._answered.append(token)
        self.throttle.backlog_bytes -= size

    def strand(self, token: int, size: int, more: int) -> None:
        """No node can answer to these bytes now: the turn waits for them no more; they stay in memory, with `more`."""
        self.answered(token, 1, size)
        self.throttle.stranded_bytes += size + more

    def unstrand(self, size: int) -> None:
        """These bytes are gone from memory."""
        self.throttle.stranded_bytes -= size

    def seal(self, batch: Batch) -> None:
        """The batch is handed to the store: note the end of each queue in it."""
        token = batch.token
        self._open.append(token)
        turn = self.turn_of(token)
        turn.row_bytes = batch.bytes - batch.copied_bytes
        self.throttle.backlog_bytes += batch.bytes
        if batch.copied_bytes:
            self._copied.append((token, batch.copied_bytes))
        for session in turn.sessions:
            turn.committed_next.append(session.queue_next)

    def durable_through(self, token: int) -> None:
        """The batches up to `token` are on this node's disk."""
        self.durable_token = token
        copied = self._copied
        while copied and copied[0][0] <= token:
            self.throttle.backlog_bytes -= copied.popleft()[1]

    def fail(self, token: int) -> PendingTurn | None:
        """Rows of a turn that was not complete are in no copy that counts; return its record, if there is one."""
        if token <= self.complete_token:
            return None
        turn = self.turn_of(token)
        turn.failed = True
        return turn

    def commit_through(self, token: int) -> list[PendingTurn]:
        """The batches up to `token` are committed: return the records of the turns that are so now, in order."""
        opened = self._open
        while opened and opened[0] <= token:
            opened.popleft()
        end = opened[0] - 1 if opened else self.state.writer.token - 1
        turns: list[PendingTurn] = []
        while self.committed_token < end:
            self.committed_token += 1
            turn = self._turns.get(self.committed_token)
            if turn is not None:
                self.throttle.backlog_bytes -= turn.row_bytes
                turns.append(turn)
        return turns

    def complete(self) -> list[PendingTurn]:
        """Return the records of the turns that are complete now, in order."""
        turns: list[PendingTurn] = []
        while self.complete_token < self.committed_token and self.complete_token + 1 not in self._owed:
            self.complete_token += 1
            turn = self._turns.pop(self.complete_token, None)
            if turn is not None:
                self.throttle.backlog_bytes -= turn.ack_bytes
                turns.append(turn)
        return turns

    def ahead(self) -> list[PendingTurn]:
        """Return the records of turns that would be complete if earlier ones were, each once; they keep their place."""
        turns: list[PendingTurn] = []
        if self.complete_token == self.committed_token:
            self._records_max = _RECORDS_MIN
        else:
            if len(self._turns) >= self._records_max:
                self._tidy()
            for token in self._answered:
                if self.complete_token < token <= self._looked_token:
                    self._find_ahead(token, turns)
            for token in range(max(self._looked_token, self.complete_token) + 1, self.committed_token + 1):
                if token not in self._owed:
                    self._find_ahead(token, turns)
        self._looked_token = self.committed_token
        self._answered.clear()
        return turns

    def _find_ahead(self, token: int, turns: list[PendingTurn]) -> None:
        turn = self._turns.get(token)
        if turn is not None and not turn.failed:
            turn.ahead = True
            turns.append(turn)

    def _tidy(self) -> None:
        """Forget what has left ahead, and the records of which nothing is left: an old turn may wait for long (A13).

        The records have doubled since the last time, so that each of them is looked at about twice in its life.
        """
        for turn in list(self._turns.values()):
            if turn.ahead and not turn.shrink():
                del self._turns[turn.token]
        self._records_max = max(2 * len(self._turns), _RECORDS_MIN)

    def release(self, turn: PendingTurn) -> None:
        """Send the acknowledgements that waited for this record, which is complete."""
        for i in range(len(turn.acks)):
            if turn.acks[i]:
                self._send(turn, i)

    def release_ahead(self, turn: PendingTurn) -> None:
        """Send those acknowledgements of a record that is ahead which wait for nothing older [MQTT-4.6.0-2].

        What is first in the line of its connection leaves. The next one in that line may wait for another turn that was
        found to be ahead before, when something older was still in front of it: `_go_on` sends it too.
        """
        later: list[Connection] = []
        for i in range(len(turn.acks)):
            connection = turn.ack_connections[i]
            if turn.acks[i] and self._send_ahead(turn, i) and connection.held:
                later.append(connection)
        for connection in later:
            self._go_on(connection)

    def _go_on(self, connection: Connection) -> None:
        """Send what is first in the line of a connection, turn by turn, until one waits for a turn that is not ahead.

        A negative token ends it as well: that acknowledgement waits until its turn is complete.
        """
        while connection.held_turns and connection.held_turns[0] > 0:
            turn = self._turns[connection.held_turns[0]]
            if not turn.ahead:
                return
            for i in range(len(turn.acks)):
                if turn.ack_connections[i] is connection and turn.acks[i]:
                    self._send_ahead(turn, i)

    def _send_ahead(self, turn: PendingTurn, i: int) -> bool:
        """Send an acknowledgement if its connection waits for it before all others; tell whether so."""
        connection = turn.ack_connections[i]
        turns = connection.held_turns
        if not turns or turns[0] != turn.token:
            return False
        self._uncount(turn, turn.acks[i])
        self._send(turn, i)
        remote = connection.remote
        if remote is not None and turn.packets is not None and i in turn.packets and connection.state == OPEN:
            # Its node must not pass it on to the next leader, who would answer it once more. What it has passed on
            # before is safe as well: it has been answered, or did nothing but to rows that are committed.
            remote.handled_seq = max(remote.handled_seq, turn.packets[i])
        return True

    def _uncount(self, turn: PendingTurn, ack: bytes) -> None:
        """An acknowledgement does not wait any more, and its turn is not complete."""
        size = len(ack) + _HELD_BYTES
        turn.ack_bytes -= size
        self.throttle.backlog_bytes -= size

    def _send(self, turn: PendingTurn, i: int) -> None:
        connection = turn.ack_connections[i]
        ack = turn.acks[i]
        turn.acks[i] = b""
        assert connection.held_turns, "an acknowledgement that waits has a turn"
        connection.held_turns.popleft()
        connection.held -= 1
        if ack[0] == _PUBACK:
            connection.held_pubacks -= 1
        if connection.state == OPEN:  # [MQTT-3.14.4-1] nothing follows a DISCONNECT
            if turn.receipts is not None and i in turn.receipts:
                connection.put(self.receipts.packet(turn.receipts[i], connection))
            else:
                connection.put(ack)

    def oldest_us(self) -> int:
        """Return since when the oldest turn waits to be complete; now, when none does."""
        for turn in self._turns.values():
            return turn.since_us
        return self.state.now
