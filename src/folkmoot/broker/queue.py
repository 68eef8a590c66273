"""The outbound flow of a session: its stored queue, its window, and the acknowledgements that empty them.

MQTT 5 sections 4.3 (QoS), 4.4 (delivery retry), 4.6 (ordering), 4.9 (flow control). A persistent session's messages are
rows first; they are sent when their row is durable and the window is open, from memory if they are recent, else by
pages from the store. A transient session's messages wait in memory.
"""

from __future__ import annotations

from folkmoot.broker.body import Bodies
from folkmoot.broker.commit import Commits
from folkmoot.broker.state import State
from folkmoot.kernel.pack import u64
from folkmoot.mqtt.encode import encode_ack
from folkmoot.mqtt.kind import PUBREL
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
from folkmoot.session.session import Session
from folkmoot.session.wire import put_publish
from folkmoot.store.key import RELEASED, SENT, name_prefix, numbered_key, plain_key, sequence_of
from folkmoot.store.message import Message
from folkmoot.store.row import QueueRow, decode_queue, encode_queue
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["Queue"]


class Queue:
    """Outbound messages of all sessions of the node."""

    def __init__(self, state: State, commits: Commits, bodies: Bodies) -> None:
        self.state = state
        self.commits = commits
        self.bodies = bodies
        self.unfed: list[Session] = []  # sessions with feeds whose queue has room again
        self.lost: list[Entry] = []  # shared messages that need another member

    # -- entering -------------------------------------------------------------------------------------------------

    def append(
        self, session: Session, message: Message, qos: int, retain: bool, identifiers: bytes, group: bytes, body: int
    ) -> bool:
        """Store a message for a persistent session; False when the queue's limit refuses it (counted)."""
        size = message.size
        if not self._has_room(session, size):
            return False
        sequence = session.queue_next
        session.queue_next = sequence + 1
        direct = self._is_direct(session, sequence)
        if direct:
            entry = Entry(sequence, message, qos, retain, identifiers, group)
            entry.body = body
            session.push_ready(entry)
            session.ready_end = sequence + 1
        inline = None if body else message
        row = QueueRow(qos, retain, direct, identifiers, group, body, size, inline)
        self.state.writer.put(session.partition, numbered_key(session.queue_prefix, sequence), encode_queue(row))
        session.queue_count += 1
        session.queue_bytes += size
        if body or group:
            session.special_rows += 1
        counters = self.state.counters
        counters.queue_messages += 1
        counters.queue_bytes += size
        self.commits.touch(session)
        return True

    def _is_direct(self, session: Session, sequence: int) -> bool:
        connection = session.connection
        if connection is None or connection.state != OPEN or sequence != session.ready_end:
            return False
        return session.waiting + len(session.inflight) < session.window

    def _has_room(self, session: Session, size: int) -> bool:
        limits = self.state.limits
        # What is in flight to a connected client does not wait.
        in_flight_max = session.window if session.connection is not None else 0
        if session.queue_count < limits.queue_messages_max + in_flight_max and (
            session.queue_bytes + size <= limits.queue_bytes_max
        ):
            return True
        if not limits.queue_full_drops_oldest or not self._drop_oldest(session):
            self.state.counters.dropped_queue_full += 1
            return False
        return True

    def _drop_oldest(self, session: Session) -> bool:
        start = max(session.sent_below, session.drop_below)
        if session.waiting:
            entry = session.ready[session.ready_head]
            if entry.dup or entry.sequence >= session.durable_next:
                return False  # one that was sent before stays: its flow has begun
            session.pop_ready()
        else:
            start = max(start, session.ready_end) if session.connection is not None else start
            end = numbered_key(session.queue_prefix, session.durable_next)
            rows = self.state.reader.scan(numbered_key(session.queue_prefix, start), end, 1)
            if not rows:
                return False
            entry = self._entry_of(session, rows[0][0], rows[0][1])
        if start > session.drop_below:
            session.drop_from = entry.sequence
        session.drop_below = entry.sequence + 1
        self.remove(session, entry)
        self.state.counters.dropped_queue_full += 1
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
            limits = self.state.limits
            if (
                session.waiting >= limits.queue_messages_max
                or session.ready_bytes + message.size > limits.queue_bytes_max
            ):
                self.state.counters.dropped_queue_full += 1
                if not limits.queue_full_drops_oldest or not session.waiting:
                    return False
                session.pop_ready()
            session.push_ready(Entry(0, message, qos, retain, identifiers, group))
            return True
        packet_id = session.take_packet_id()
        if not put_publish(connection, message, qos, retain, False, packet_id, identifiers, self.state.now):
            self.state.counters.dropped_too_large += 1
            return True
        if group:
            entry = Entry(0, message, qos, retain, identifiers, group)
            entry.state = AWAIT_PUBACK if qos == 1 else AWAIT_PUBREC
            session.inflight[packet_id] = entry
        else:
            session.inflight[packet_id] = SENT_QOS1 if qos == 1 else SENT_QOS2
        self._count_sent(qos, message)
        return True

    def sends_qos0(self, session: Session) -> bool:
        """Whether QoS 0 goes out at once: to a connected session, unless it would overtake stored ones (A3)."""
        connection = session.connection
        if connection is None or connection.state != OPEN:
            return False
        if not session.durable or not self.state.limits.queue_qos0_offline:
            return True
        return not session.waiting and session.ready_end == session.queue_next

    def send_qos0(self, session: Session, message: Message, retain: bool, identifiers: bytes) -> bool:
        """Send QoS 0 to a connected session, or drop it when the peer does not keep up (counted)."""
        connection = session.connection
        if connection is None or connection.state != OPEN or not connection.can_send():
            self.state.counters.dropped_qos0_slow += 1
            return False
        if put_publish(connection, message, 0, retain, False, 0, identifiers, self.state.now):
            self._count_sent(0, message)
        else:
            self.state.counters.dropped_too_large += 1
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

    # -- leaving --------------------------------------------------------------------------------------------------

    def pump(self, session: Session) -> None:
        """Send what may be sent: in order, durable, within the window, as fast as the peer takes it."""
        connection = session.connection
        if connection is None or connection.state != OPEN:
            return
        while True:
            if not session.waiting and not self._load(session):
                break
            if not session.waiting:
                continue  # nothing of that page is to be sent
            entry = session.ready[session.ready_head]
            if session.durable and entry.sequence >= session.durable_next:
                break
            if not connection.can_send():
                break
            if entry.qos:
                if len(session.inflight) >= session.window:
                    break
                if session.durable and session.packet_id_of(entry.sequence) in session.inflight:
                    break
            session.pop_ready()
            self._send(session, connection, entry)
        if (
            session.feeds
            and session.waiting + session.queue_count - len(session.inflight) < self.state.limits.page_rows
        ):
            self.unfed.append(session)

    def _send(self, session: Session, connection: Connection, entry: Entry) -> None:
        message = entry.message
        assert message is not None, "an entry that waits has its message"
        now = self.state.now
        if message.expires_us and message.expires_us <= now and not entry.dup:  # [MQTT-3.3.2-5] [MQTT-4.3.3-7]
            self.state.counters.dropped_expired += 1
            self._done(session, entry)
            return
        packet_id = 0
        if entry.qos:
            packet_id = session.packet_id_of(entry.sequence) if session.durable else session.take_packet_id()
        if not put_publish(connection, message, entry.qos, entry.retain, entry.dup, packet_id, entry.identifiers, now):
            self.state.counters.dropped_too_large += 1  # [MQTT-3.1.2-25] as if it had been sent
            self._done(session, entry)
            return
        self._count_sent(entry.qos, message)
        if entry.dup:
            self.state.counters.publish_resent += 1
        if not entry.qos:
            self._done(session, entry)
            return
        entry.state = AWAIT_PUBACK if entry.qos == 1 else AWAIT_PUBREC
        if session.durable:
            session.sent_below = max(session.sent_below, entry.sequence + 1)
            entry.message = None  # the row has it
        session.inflight[packet_id] = entry

    def _done(self, session: Session, entry: Entry) -> None:
        if session.durable:
            self.remove(session, entry)

    def _load(self, session: Session) -> bool:
        """Read the next page of a stored queue; False when there is none."""
        if not session.durable:
            return False
        start = session.ready_end
        if session.drop_from <= start < session.drop_below:
            start = session.drop_below
        if start >= session.durable_next:
            return False
        prefix = session.queue_prefix
        page_rows = self.state.limits.page_rows
        end = session.durable_next
        rows = self.state.reader.scan(numbered_key(prefix, start), numbered_key(prefix, end), page_rows)
        session.ready_end = sequence_of(rows[-1][0]) + 1 if len(rows) == page_rows else end
        for key, value in rows:
            if session.drop_from <= sequence_of(key) < session.drop_below:
                continue
            entry = self._entry_of(session, key, value)
            if entry.qos == 0 and entry.sequence < session.sent_below:
                self.remove(session, entry)  # perhaps sent before a crash: at most once, section 4.3.1
            else:
                session.push_ready(entry)
        if rows and session.ready_end > session.sent_below:
            # From now on they may have been sent, also for whoever reads this after a crash.
            self.state.writer.put(
                session.partition, plain_key(session.partition, SENT, session.key), u64(session.ready_end)
            )
        return bool(rows)

    def _entry_of(self, session: Session, key: bytes, value: bytes) -> Entry:
        row = decode_queue(value[VERSION_BYTES:])
        message = row.message
        if message is None:
            message = self.bodies.load(session.partition, row.body)
        entry = Entry(sequence_of(key), message, row.qos, row.retain, row.identifiers, row.group)
        entry.body = row.body
        # [MQTT-3.3.1-3] The row's own flag says what was meant when it was written; it counts after a restart only.
        entry.dup = row.qos > 0 and entry.sequence < session.sent_below
        return entry

    def remove(self, session: Session, entry: Entry) -> None:
        """Delete the row of a message that is done with."""
        self.state.writer.delete(session.partition, numbered_key(session.queue_prefix, entry.sequence))
        session.queue_count -= 1
        session.queue_bytes -= entry.size
        counters = self.state.counters
        counters.queue_messages -= 1
        counters.queue_bytes -= entry.size
        if entry.body:
            self.bodies.release(session.partition, entry.body)
        if entry.body or entry.group:
            session.special_rows -= 1

    # -- acknowledgements -----------------------------------------------------------------------------------------

    def puback(self, session: Session, packet_id: int) -> bool:
        """PUBACK came [MQTT-4.3.2-5]; False when the id is of another flow."""
        entry = session.inflight.get(packet_id)
        if entry is None:
            return True  # of a flow that a reconnect or a crash has already ended: nothing to do
        if entry.state != AWAIT_PUBACK:
            return False
        del session.inflight[packet_id]
        if session.durable:
            self.remove(session, entry)
            self.pump(session)
        elif session.ready or session.feeds:
            self.pump(session)
        return True

    def pubrec(self, session: Session, packet_id: int, code: int) -> int:
        """PUBREC came: return what is owed.

        0: PUBREL at once, 1: PUBREL when this turn is durable, 2: nothing, 0x92: the id is unknown, 0x82: of QoS 1.
        """
        entry = session.inflight.get(packet_id)
        if entry is None:
            return 0x92
        if entry.state == AWAIT_PUBCOMP:
            # A second PUBREC: PUBREL again, but not before the row that says so is on disk.
            return 1 if session.durable else 0
        if entry.state != AWAIT_PUBREC:
            return 0x82
        if code >= 0x80:  # [MQTT-4.3.3-4] the flow ends here
            del session.inflight[packet_id]
            self._done(session, entry)
            self.pump(session)
            return 2
        if not session.durable:
            session.inflight[packet_id] = SENT_RELEASE
            return 0
        self.remove(session, entry)
        session.inflight[packet_id] = SENT_RELEASE
        if session.released is None:
            session.released = {}
        session.released[packet_id] = entry.sequence
        self.state.writer.put(session.partition, self._released_key(session, entry.sequence), b"")
        return 1

    def pubcomp(self, session: Session, packet_id: int) -> bool:
        """PUBCOMP came; False when the id is of another flow."""
        entry = session.inflight.get(packet_id)
        if entry is None:
            return True
        if entry.state != AWAIT_PUBCOMP:
            return False
        del session.inflight[packet_id]
        if session.durable:
            released = session.released
            assert released is not None, "a persistent session remembers what it released"
            sequence = released.pop(packet_id)
            self.state.writer.delete(session.partition, self._released_key(session, sequence))
        self.pump(session)
        return True

    def _released_key(self, session: Session, sequence: int) -> bytes:
        return numbered_key(name_prefix(session.partition, RELEASED, session.key), sequence)

    # -- the connection comes and goes ------------------------------------------------------------------------------

    def attach(self, session: Session) -> None:
        """A connection resumes the session: what was released and not completed is in flight again [MQTT-4.4.0-1]."""
        session.ready_end = session.queue_floor
        if session.released:
            for packet_id in session.released:
                session.inflight[packet_id] = SENT_RELEASE

    def resend(self, session: Session) -> None:
        """Send PUBREL again for what is released and not completed [MQTT-4.4.0-1]; messages come again by `pump`."""
        connection = session.connection
        if session.released and connection is not None:
            for packet_id in session.released:
                connection.put(encode_ack(PUBREL, packet_id))
                self.state.counters.sent_pubrel += 1

    def detach(self, session: Session) -> None:
        """The connection is gone: everything unacknowledged waits in the store.

        A transient session's shared messages are lost here.
        """
        if not session.durable:
            for entry in session.inflight.values():
                # [MQTT-4.8.2-4] a QoS 2 message that may have been received goes to nobody else
                if entry.group and entry.state == AWAIT_PUBACK:
                    self.lost.append(entry)
            while session.waiting:
                entry = session.pop_ready()
                if entry.group:
                    self.lost.append(entry)
        session.inflight.clear()
        session.clear_ready()
        session.ready_end = session.queue_floor
