"""The outbound flow of a session: its stored queue, its window, and the acknowledgements that empty them.

MQTT 5 sections 4.3 (QoS), 4.4 (delivery retry), 4.6 (ordering), 4.9 (flow control). Messages of a persistent session
are rows first. They are sent when their row is committed and the window is open: from memory if they are recent, else
by pages from the store. Messages of a transient session wait in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import BYTE, U16
from folkmoot.mqtt.encode import encode_ack
from folkmoot.mqtt.kind import PUBACK, PUBCOMP, PUBREC, PUBREL
from folkmoot.mqtt.packet import Ack
from folkmoot.partition.backlog import Backlog
from folkmoot.session.connection import OPEN, Connection
from folkmoot.session.entry import (
    AWAIT_PUBACK,
    AWAIT_PUBCOMP,
    AWAIT_PUBREC,
    SENT_QOS1,
    SENT_QOS2,
    SENT_RELEASE,
    Entry,
)
from folkmoot.session.session import PACKET_IDS, Session
from folkmoot.session.wire import put_publish
from folkmoot.store.key import RELEASED, name_prefix, numbered_key
from folkmoot.store.message import Message
from folkmoot.store.row import QueueRow, encode_queue
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.lazy import UNWRITTEN
from folkmoot.turn.state import State
from folkmoot.turn.work import DELIVERY_STEPS

__all__ = ["IN_STORE", "NOT_TAKEN", "TAKEN", "Queue"]

# What became of a QoS 0 message for one session
NOT_TAKEN: Final = 0
TAKEN: Final = 1
IN_STORE: Final = 2

# In place of the token of a flow that expiry has ended: PUBREL has gone out over this connection
TOLD: Final = -1
_EXPIRED: Final = b"\x01"  # the row of such a flow: no PUBREC of the client is repeated, which PUBREL would answer

# read for one session in one turn; several are necessary when messages have expired, or are QoS 0
_PAGES_MAX: Final = 8


class Queue:
    """Outbound messages of all sessions of the node."""

    def __init__(self, state: State, fabric: Fabric, commits: Commits, backlog: Backlog) -> None:
        self.state = state
        self.fabric = fabric
        self.commits = commits
        self.backlog = backlog
        self.unfed: list[Session] = []  # sessions with feeds whose queue has room again
        self.unreadable: list[tuple[Session, CorruptStore]] = []  # whose messages cannot be read
        self.unfinished: OrderedDict[str, Session] = OrderedDict()  # by client id: they continue in their turn
        self.lost: list[Entry] = []  # messages of shared subscriptions that need another member

    # -- input ----------------------------------------------------------------------------------------------------

    def append(
        self, session: Session, message: Message, qos: int, retain: bool, identifiers: bytes, group: bytes, body: int
    ) -> bool:
        """Store a message for a persistent session; False when the queue's limit refuses it (counted)."""
        size = message.size
        if not self.backlog.make_room(session, size):
            return False
        sequence = session.queue_next
        session.queue_next = sequence + 1
        direct = self.backlog.keeps_in_memory(session, sequence)
        if direct:
            entry = Entry(sequence, message, qos, retain, identifiers, group)
            entry.body = body
            self.backlog.push(session, entry)
            session.ready_end = sequence + 1
        inline = None if body else message
        row = QueueRow(qos, retain, direct, identifiers, group, body, size, inline)
        key = numbered_key(session.queue_prefix, sequence)
        self.state.writer.put(session.partition, key, encode_queue(row))
        session.queue_count += 1
        session.queue_bytes += size
        if session.account is not None:
            session.account.queue_bytes += size
        if body or group:
            session.special_rows += 1
        counters = self.state.counters
        counters.queue_messages += 1
        counters.queue_bytes += size
        self.commits.touch(session)
        return True

    def offer(
        self, session: Session, message: Message, qos: int, retain: bool, identifiers: bytes, group: bytes
    ) -> bool:
        """Send QoS 1 or 2 to a connected transient session, or keep it until its window opens.

        False when its queue is full.
        """
        connection = session.connection
        if connection is None:
            return False  # it ends in this very call: its own will matches its own subscription
        if session.waiting or len(session.inflight) >= session.window or not connection.can_send():
            if not self.backlog.offer_room(session, message.size):
                return False
            self.backlog.push(session, Entry(0, message, qos, retain, identifiers, group))
            self._await_room(session, connection)
            return True
        if self._has_expired(message):
            return True
        packet_id = session.take_packet_id()
        if not put_publish(
            connection, message, qos, retain, False, packet_id, identifiers, self.state.clock.expiry_time
        ):
            self.state.counters.dropped_too_large += 1
            return True
        if group:
            entry = Entry(0, message, qos, retain, identifiers, group)
            entry.state = AWAIT_PUBACK if qos == 1 else AWAIT_PUBREC
            session.inflight[packet_id] = entry
        else:
            session.inflight[packet_id] = SENT_QOS1 if qos == 1 else SENT_QOS2
        self._count_sent(qos, message)
        if self.state.meter.on:
            self.state.meter.sent(message, connection.opened_us)
        return True

    def sends_qos0(self, session: Session) -> bool:
        """Whether QoS 0 goes out at once: to a connected session, unless it would overtake stored ones (A3)."""
        connection = session.connection
        if connection is None or connection.state != OPEN:
            return False
        if not session.persistent or not self.state.limits.queue_qos0_offline:
            return True
        return not session.waiting and session.ready_end == session.queue_next

    def would_take(self, session: Session, message: Message, qos: int) -> bool:
        """Whether a persistent session would probably take a message now; nothing is counted."""
        if qos == 0 and self.sends_qos0(session):
            return True
        if qos == 0 and not self.state.limits.queue_qos0_offline:
            return False
        return self.backlog.has_room(session, message.size)

    def give_qos0(self, session: Session, message: Message, retain: bool, identifiers: bytes) -> int:
        """Send QoS 0, or store it behind what is stored if the limits allow: NOT_TAKEN, TAKEN or IN_STORE."""
        if message.asked_again:
            self.state.counters.dropped_qos0_moved += 1  # at most once [MQTT-4.3.1-1]: it may be there already
            return TAKEN
        if self.sends_qos0(session):
            return TAKEN if self.send_qos0(session, message, retain, identifiers) else NOT_TAKEN
        if not session.persistent or not self.state.limits.queue_qos0_offline:
            return NOT_TAKEN
        return IN_STORE if self.append(session, message, 0, retain, identifiers, b"", 0) else NOT_TAKEN

    def send_qos0(self, session: Session, message: Message, retain: bool, identifiers: bytes) -> bool:
        """Send QoS 0 to a connected session, or drop it when the peer does not keep up (counted)."""
        connection = session.connection
        if connection is None or connection.state != OPEN or not connection.can_send_qos0():
            self.state.counters.dropped_qos0_slow += 1
            return False
        if self._has_expired(message):
            return True
        if put_publish(connection, message, 0, retain, False, 0, identifiers, self.state.clock.expiry_time):
            self._count_sent(0, message)
            if self.state.meter.on:
                self.state.meter.sent(message, connection.opened_us)
        else:
            self.state.counters.dropped_too_large += 1
        return True

    def _has_expired(self, message: Message) -> bool:
        """Drop and count a message whose expiry is over: it was long on its way to this node [MQTT-3.3.2-5]."""
        if not self.state.has_expired(message.expires_us):
            return False
        self.state.counters.dropped_expired += 1
        return True

    def _count_sent(self, qos: int, message: Message) -> None:
        counters = self.state.counters
        counters.publish_payload_bytes_sent += len(message.payload)
        if qos == 0:
            counters.publish_sent_qos0 += 1
        elif qos == 1:
            counters.publish_sent_qos1 += 1
        else:
            counters.publish_sent_qos2 += 1

    # -- output -------------------------------------------------------------------------------------------------------

    def _load(self, session: Session) -> bool:
        """Load a page of the queue; False when there is none, or when it cannot be read."""
        try:
            return self.backlog.load(session)
        except CorruptStore as fault:
            self.unreadable.append((session, fault))
            return False

    def pump(self, session: Session) -> None:
        """Send messages: in order, committed, within the window, as fast as the peer accepts them."""
        connection = session.connection
        if connection is None or connection.state != OPEN:
            return
        if session.expired_flows:
            self._end_expired(session, connection, session.expired_flows)
        pages = 0
        while True:
            if not session.waiting:
                pages += 1
                if pages > _PAGES_MAX or (pages > 1 and self.state.work.is_over()):
                    self.unfinished[session.client_id] = session
                    break
                if not self._load(session):
                    break
                if not session.waiting:
                    continue  # nothing of that page needs to be sent
            entry = session.ready[session.ready_head]
            if session.persistent and entry.sequence >= session.committed_next:
                break
            if not connection.can_send():
                self._await_room(session, connection)
                break
            if entry.qos:
                if len(session.inflight) >= session.window:
                    break
                if session.persistent and self._is_taken(session, session.packet_id_of(entry.sequence)):
                    break
            self.backlog.pop(session)
            self.state.work.steps += DELIVERY_STEPS
            self._send(session, connection, entry)
        if (
            session.feeds
            and session.waiting + session.queue_count - len(session.inflight) < self.state.limits.page_rows
        ):
            self.unfed.append(session)

    def _await_room(self, session: Session, connection: Connection) -> None:
        """If only the output of this turn is full, continue in the next one: nothing else tells that it has room."""
        if connection.writable and not connection.can_send():
            self.unfinished[session.client_id] = session

    def go_on(self) -> None:
        """Continue with the first of the unfinished sessions, and with others as far as the steps of the turn reach."""
        for _ in range(len(self.unfinished)):
            _, session = self.unfinished.popitem(last=False)
            self.pump(session)
            if self.state.work.is_over():
                break

    def pump_soon(self, session: Session) -> None:
        """As `pump`, but in a later turn if the steps of this one are spent.

        For sessions that may have much to send and whose number nothing bounds: they have just got their connections.
        """
        if self.state.work.is_over():
            self.unfinished[session.client_id] = session
        else:
            self.pump(session)

    def committed(self, session: Session) -> None:
        """Send what is committed now, but in its turn if the session is unfinished."""
        if self.unfinished.get(session.client_id) is not session:
            self.pump(session)

    def _send(self, session: Session, connection: Connection, entry: Entry) -> None:
        message = entry.message
        assert message is not None, "an entry that waits has its message"
        now = self.state.clock.expiry_time
        if not entry.qos and session.persistent and entry.sequence < session.sent_below:
            self._done(session, entry)  # it may have been sent before a crash: at most once, section 4.3.1
            return
        if not entry.started and self._has_expired(message):  # [MQTT-4.3.3-7]
            self._expire(session, entry)
            return
        packet_id = 0
        if entry.qos:
            packet_id = session.packet_id_of(entry.sequence) if session.persistent else session.take_packet_id()
        if not put_publish(connection, message, entry.qos, entry.retain, entry.dup, packet_id, entry.identifiers, now):
            self.state.counters.dropped_too_large += 1  # [MQTT-3.1.2-25] as if it had been sent
            self._done(session, entry)
            return
        self._count_sent(entry.qos, message)
        if entry.dup:
            self.state.counters.publish_resent += 1
        elif self.state.meter.on:
            self.state.meter.sent(message, connection.opened_us)
        if not entry.qos:
            self._done(session, entry)
            return
        entry.state = AWAIT_PUBACK if entry.qos == 1 else AWAIT_PUBREC
        if session.persistent:
            session.sent_below = max(session.sent_below, entry.sequence + 1)
            session.started_below = max(session.started_below, entry.sequence + 1)
            entry.message = None  # the row has it
        session.inflight[packet_id] = entry
        if connection.remote is not None:
            connection.remote.sequences.append(entry.sequence)

    def _expire(self, session: Session, entry: Entry) -> None:
        """Drop an expired message. If an earlier leader may have sent it with QoS 2, its flow ends with PUBREL.

        The client may hold the packet id, and would take the next message with it for this one.
        """
        self._done(session, entry)
        if entry.dup and entry.qos == 2:
            packet_id = session.packet_id_of(entry.sequence)
            self._release(session, packet_id, entry.sequence, _EXPIRED)
            if session.expired_flows is None:
                session.expired_flows = {}
            session.expired_flows[packet_id] = self.state.writer.token
            self.commits.touch(session)

    def _end_expired(self, session: Session, connection: Connection, flows: dict[int, int]) -> None:
        """Send PUBREL for flows that expiry has ended, once that is committed."""
        for packet_id in list(flows):
            if 0 <= flows[packet_id] <= self.commits.committed_token:
                self._put_pubrel(session, connection, packet_id)

    def _put_pubrel(self, session: Session, connection: Connection, packet_id: int) -> None:
        connection.put(encode_ack(PUBREL, packet_id))
        self.state.counters.sent_pubrel += 1
        flows, released = session.expired_flows, session.released
        if flows is not None and released is not None and packet_id in flows:
            sequence = released[packet_id]
            _note_told(session, flows, packet_id, sequence)
            if connection.remote is not None:
                connection.remote.sequences.append(sequence)  # for the next leader, see `reclaim`

    def _release(self, session: Session, packet_id: int, sequence: int, mark: bytes = b"") -> None:
        """Store that a QoS 2 message is not sent any more, but PUBREL, until PUBCOMP."""
        session.inflight[packet_id] = SENT_RELEASE
        if session.released is None:
            session.released = {}
        session.released[packet_id] = sequence
        self.state.writer.put(session.partition, self._released_key(session, sequence), mark)

    def _done(self, session: Session, entry: Entry) -> None:
        if session.persistent:
            self.backlog.remove(session, entry)

    # -- acknowledgements -----------------------------------------------------------------------------------------

    def puback(self, session: Session, packet_id: int) -> bool:
        """Handle PUBACK [MQTT-4.3.2-5]; False when the id belongs to another flow."""
        entry = session.inflight.get(packet_id)
        if entry is None:
            return True  # of a flow that a reconnect or a crash has already ended
        if entry.state != AWAIT_PUBACK:
            return False
        del session.inflight[packet_id]
        if session.persistent:
            self._keep(session, PUBACK, packet_id, 0, entry.sequence, lazy=True)
            self.backlog.remove(session, entry, lazy=True)
            self.pump(session)
        elif session.ready or session.feeds:
            self.pump(session)
        return True

    def pubrec(self, session: Session, packet_id: int, code: int) -> int:
        """Handle PUBREC; return the required answer.

        0: PUBREL at once, 1: PUBREL when this turn is complete, 2: nothing, 0x92: the id is unknown, 0x82: it is of QoS
        1.
        """
        entry = session.inflight.get(packet_id)
        if entry is None:
            return 0x92
        if entry.state == AWAIT_PUBCOMP:
            # A second PUBREC: PUBREL again, but not before the row of the first is on disk.
            return 1 if session.persistent else 0
        if entry.state != AWAIT_PUBREC:
            return 0x82
        if code >= 0x80:  # [MQTT-4.3.3-4] the flow ends here
            del session.inflight[packet_id]
            if session.persistent:
                self._keep(session, PUBREC, packet_id, code, entry.sequence)
                self._free(session, packet_id, entry.sequence)
            self._done(session, entry)
            self.pump(session)
            return 2
        if not session.persistent:
            session.inflight[packet_id] = SENT_RELEASE
            return 0
        self._keep(session, PUBREC, packet_id, 0, entry.sequence)
        self.backlog.remove(session, entry)
        self._release(session, packet_id, entry.sequence)
        return 1

    def pubcomp(self, session: Session, packet_id: int) -> bool:
        """Handle PUBCOMP; False when the id belongs to another flow."""
        entry = session.inflight.get(packet_id)
        if entry is None:
            return True
        if entry.state != AWAIT_PUBCOMP:
            return False
        del session.inflight[packet_id]
        if session.persistent:
            released = session.released
            assert released is not None, "a persistent session remembers what it released"
            sequence = released.pop(packet_id)
            if session.expired_flows is not None:
                session.expired_flows.pop(packet_id, None)
            self._keep(session, PUBCOMP, packet_id, 0, sequence, lazy=True)
            self.state.remove_later(session.partition, self._released_key(session, sequence), session)
            self._free(session, packet_id, sequence)
        self.pump(session)
        return True

    def acknowledged(self, session: Session, ack: Ack) -> None:
        """Handle a PUBACK, PUBREC or PUBCOMP of a client that has gone, and gets no answer."""
        if ack.kind == PUBACK:
            self.puback(session, ack.packet_id)
        elif ack.kind == PUBREC:
            self.pubrec(session, ack.packet_id, ack.code)
        else:
            self.pubcomp(session, ack.packet_id)

    def _free(self, session: Session, packet_id: int, sequence: int) -> None:
        """Have a message that waits for the packet id of an ended flow wait until the end is committed.

        The next leader would take up the old flow again, and the client take it for that of the message.
        """
        if session.queue_next > sequence + PACKET_IDS:
            self.state.lazy.urgent = True
            if session.ended_ids is None:
                session.ended_ids = {}
            session.ended_ids[packet_id] = self.state.writer.token
            self.commits.touch(session)

    def _is_taken(self, session: Session, packet_id: int) -> bool:
        """Whether a flow has this packet id, or has had it and may have it again at the next leader."""
        if packet_id in session.inflight:
            return True
        ended = session.ended_ids
        if ended is None or packet_id not in ended:
            return False
        if ended[packet_id] > self.commits.committed_token:
            return True
        del ended[packet_id]
        if not ended:
            session.ended_ids = None
        return False

    def _keep(self, session: Session, kind: int, packet_id: int, code: int, sequence: int, lazy: bool = False) -> None:
        """Keep an acknowledgement until its turn is complete: the next leader may lack the change, or has to answer."""
        connection = session.connection
        if self.fabric.alone or connection is None or connection.remote is not None:
            return  # the node with the connection keeps it
        if session.taken is None:
            session.taken = []
        self._let_go(session.taken)
        rest = U16[packet_id] + BYTE[code] if code else U16[packet_id]
        token = UNWRITTEN if lazy else self.state.writer.token
        session.taken.append((token, kind << 4, rest, sequence))

    def _let_go(self, taken: list[tuple[int, int, bytes, int]]) -> None:
        complete = self.commits.complete_token
        count = 0
        while count < len(taken) and taken[count][0] <= complete:
            count += 1
        if count:
            del taken[:count]

    def hand_over(self, session: Session, connection: Connection) -> list[tuple[int, bytes, int]]:
        """Return the acknowledgements whose turn is not complete, for the next leader: first byte, rest, sequence.

        It answers them, so this node does not: PUBREL goes out once, in the order of PUBREC [MQTT-4.6.0-4]. A PUBREC
        whose PUBREL has left ahead of its turn is answered, and committed.
        """
        taken = session.taken
        if taken is None:
            return []
        self._let_go(taken)
        released = [rest for _, first, rest, _ in taken if first >> 4 == PUBREC and len(rest) == 2]
        waiting = self.commits.drop_releases(connection, released)
        answered = [packet_id for packet_id in released if packet_id not in waiting]
        return [
            (first, rest, sequence)
            for _, first, rest, sequence in taken
            if first >> 4 != PUBREC or rest not in answered
        ]

    def _released_key(self, session: Session, sequence: int) -> bytes:
        return numbered_key(name_prefix(session.partition, RELEASED, session.key), sequence)

    # -- connections ------------------------------------------------------------------------------------------------

    def attach(self, session: Session) -> None:
        """Resume the session with a connection: released messages are in flight again [MQTT-4.4.0-1]."""
        session.ready_end = session.queue_head
        if session.released:
            for packet_id in session.released:
                session.inflight[packet_id] = SENT_RELEASE

    def reclaim(self, session: Session, sequences: list[int]) -> None:
        """Mark messages as in flight that the client has received from an earlier leader and that are still stored.

        So are flows that expiry has ended, if PUBREL has gone out. If a message cannot be read, the connection ends
        (`unreadable`).
        """
        flows, released = session.expired_flows, session.released
        if flows and released is not None:
            received = set(sequences)
            for packet_id in list(flows):
                if released[packet_id] in received:
                    _note_told(session, flows, packet_id, released[packet_id])
        session.flights = set()
        for sequence in sequences:
            try:
                entry = self.backlog.find(session, sequence)
            except CorruptStore as fault:
                self.unreadable.append((session, fault))
                return
            if entry is not None:
                entry.state = AWAIT_PUBACK if entry.qos == 1 else AWAIT_PUBREC
                entry.message = None
                session.inflight[session.packet_id_of(sequence)] = entry
                session.flights.add(sequence)
                session.sent_below = max(session.sent_below, sequence + 1)
                session.started_below = max(session.started_below, sequence + 1)

    def resend(self, session: Session) -> None:
        """Send PUBREL again for released and not completed messages [MQTT-4.4.0-1]; `pump` repeats messages."""
        connection = session.connection
        if session.released and connection is not None:
            for packet_id in session.released:
                self._put_pubrel(session, connection, packet_id)

    def detach(self, session: Session) -> None:
        """Detach the connection: everything unacknowledged waits in the store.

        Messages of a transient session's shared subscriptions are lost here.
        """
        if self.state.lazy.concerns(session):
            self.state.lazy.urgent = True  # the next connection reads the rows
        if not session.persistent:
            for entry in session.inflight.values():
                # [MQTT-4.8.2-4] a QoS 2 message that the client may have goes to no other member
                if entry.group and entry.state == AWAIT_PUBACK:
                    self.lost.append(entry)
            while session.waiting:
                entry = self.backlog.pop(session)
                if entry.group:
                    self.lost.append(entry)
        else:
            session.kept_below = max(session.kept_below, _first_unsent(session))
            session.queue_head = self._first_left(session)
        session.flights = None
        if session.expired_flows:
            session.expired_flows = dict.fromkeys(session.expired_flows, 0)  # the next connection is told anew
        session.taken = None  # the next connection is admitted when all is committed
        session.inflight.clear()
        self.backlog.clear(session)
        session.ready_end = session.queue_head

    def _first_left(self, session: Session) -> int:
        """Return the first sequence whose row may exist: the store is slow to step over many deleted rows."""
        first = _first_unsent(session)
        for entry in session.inflight.values():
            if 0 < entry.sequence < first:  # 0: released, its row is gone
                first = entry.sequence
        return first


def _note_told(session: Session, flows: dict[int, int], packet_id: int, sequence: int) -> None:
    """Note that PUBREL has gone out for a flow that expiry has ended; its sequence is in flight until PUBCOMP."""
    flows[packet_id] = TOLD
    entry = Entry(sequence, None, 2, False, b"", b"")
    entry.state = AWAIT_PUBCOMP
    session.inflight[packet_id] = entry


def _first_unsent(session: Session) -> int:
    """Return the first sequence that waits: rows below are in flight or gone, even if the store still shows them."""
    return session.ready[session.ready_head].sequence if session.waiting else session.ready_end
