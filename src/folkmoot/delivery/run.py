"""Runs of PUBLISH packets: one publisher, one topic, equal but for payload and packet id.

A run is sent on as it came, to the transient sessions of this node and, in one piece, to other nodes with subscribers:
what all packets share is examined once. A recipient that needs more (another version, an identifier, a full window)
gets messages one by one. Owns no rule of its own: it applies those of `publish` and `queue` without an object per
message. `ingress` and `express` decide whether packets are a run and may be published.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from folkmoot.channel.forward_sender import ForwardSender
from folkmoot.delivery.publish import Publishing
from folkmoot.kernel.pack import U16
from folkmoot.routing.route import Route, Routes
from folkmoot.session.connection import OPEN, Connection
from folkmoot.session.entry import SENT_QOS1, SENT_QOS2
from folkmoot.session.session import PACKET_IDS, Session
from folkmoot.session.subscription import Recipient
from folkmoot.store.message import Message
from folkmoot.turn.message import encode_run, read_run_head
from folkmoot.turn.state import State

__all__ = ["Run", "Runs", "run_topic"]

_LENGTH_AT: Final = 1  # the remaining length follows the first byte


class Run:
    """Packets of `total` bytes each, in `data[pos:end]`.

    head: their bytes up to the end of the topic, the same in all of them; body: their bytes before the payload, with
    packet id and, in version 5, an empty property section; publisher: its client id.
    """

    def __init__(
        self, data: bytes, pos: i64, end: i64, total: i64, head: i64, qos: i64, v5: bool, publisher: str
    ) -> None:
        self.data = data
        self.pos: i64 = pos
        self.end: i64 = end
        self.total: i64 = total
        self.head: i64 = head
        self.qos: i64 = qos
        self.v5 = v5
        self.publisher = publisher
        body: i64 = head
        if qos:
            body += 2
        if v5:
            body += 1
        self.body: i64 = body

    def steps(self, copies: i64) -> i64:
        """Return the steps that it takes to send the run to so many recipients."""
        count: i64 = (self.end - self.pos) // self.total
        if self.qos:
            return count * (2 + copies)
        return 1 + count // 4 + copies + (copies * (self.end - self.pos) >> 8)

    def topic(self) -> bytes:
        """Return the topic."""
        at: i64 = self.pos + _LENGTH_AT
        while self.data[at] >= 128:
            at += 1
        return self.data[at + 3 : self.pos + self.head]

    def count(self) -> int:
        """Return the number of packets."""
        return int((self.end - self.pos) // self.total)


def _read_run(body: bytes) -> Run:
    publisher, v5, total, head, pos = read_run_head(body)
    run = Run(body, pos, len(body), total, head, body[pos] >> 1 & 3, v5, publisher)
    if run.body > run.total:
        raise IndexError("a run of packets ends too early")
    return run


def run_topic(body: bytes) -> bytes:
    """Return the topic of a forwarded run. Raises IndexError for malformed bytes."""
    return _read_run(body).topic()


class Runs:
    """Sends runs to their recipients."""

    def __init__(self, state: State, routes: Routes, publishing: Publishing, forward_sender: ForwardSender) -> None:
        self.state = state
        self.counters = state.counters
        self.routes = routes
        self.publishing = publishing
        self.forward_sender = forward_sender

    def hand_over(self, run: Run, pos: i64, end: i64, nodes: list[str], connection: Connection) -> None:
        """Forward the packets in `data[pos:end]` to other nodes, packed once, in order with all that goes there."""
        count = int((end - pos) // run.total)
        fabric = self.forward_sender.fabric
        if fabric.choked and not run.qos:
            heard = [node_id for node_id in nodes if not fabric.is_flooded(node_id)]
            self.counters.dropped_qos0_slow += count * (len(nodes) - len(heard))
            nodes = heard
        body = encode_run(run.publisher, run.v5, int(run.total), int(run.head), run.data[pos:end])
        self.forward_sender.publish_run(body, int(run.qos), nodes, connection)
        self.counters.cluster_messages_sent += count * len(nodes)

    def deliver(self, body: bytes) -> None:
        """Deliver a forwarded run to the transient sessions of this node. Raises IndexError for malformed bytes."""
        run = _read_run(body)
        pos = run.pos
        head = run.head
        route = self.routes.lookup(run.topic())
        self.state.work.steps += int(run.steps(len(route.transient)))
        self.counters.cluster_messages_received += run.count()
        if not run.qos:
            self.copy(run, route.transient, None)
            return
        prefix = body[pos : pos + head]
        at = run.pos
        while at < run.end:
            rest = body[at + run.head + 2 : at + run.total]
            for recipient in route.transient:
                self.send(run, route, recipient, None, prefix, rest)
            at += run.total

    def copy(self, run: Run, recipients: list[Recipient], publisher: Session | None) -> None:
        """Copy a run of QoS 0 messages to each recipient: in one piece where the packets fit, else one by one."""
        if not recipients:
            return
        data = run.data[run.pos : run.end]
        size = len(data)
        count = run.count()
        counters = self.counters
        v5 = run.v5
        for recipient in recipients:
            session = recipient.session
            other = session.connection
            if other is None or other.state != OPEN:
                continue
            terms = recipient.terms_for(session is publisher)
            if terms is None:
                continue
            if other.v5 != v5 or terms.identifiers or other.alias_out is not None or run.total > other.packet_bytes_max:
                self._copy_each(run, terms)
                continue
            if not other.can_send_qos0():
                counters.dropped_qos0_slow += count
                continue
            other.out.append(data)
            other.out_bytes += size
            if other.lane is not None:
                other.lane.room -= size
            if not other.dirty:
                other.touch()
            counters.publish_sent_qos0 += count
            counters.publish_payload_bytes_sent += count * int(run.total - run.body)

    def _copy_each(self, run: Run, recipient: Recipient) -> None:
        """Send each message of a QoS 0 run to a recipient that needs another encoding."""
        topic = run.topic()
        at = run.pos
        while at < run.end:
            payload = run.data[at + run.body : at + run.total]
            message = Message(topic, payload, 0, False, b"", run.publisher, self.state.clock.time, 0)
            self.publishing.queue.send_qos0(recipient.session, message, False, recipient.identifiers)
            at += run.total

    def send(
        self, run: Run, route: Route, recipient: Recipient, publisher: Session | None, prefix: bytes, rest: bytes
    ) -> None:
        """Send one message of QoS 1 or 2; `prefix`: its first `head` bytes, `rest`: all behind the packet id."""
        session = recipient.session
        other = session.connection
        qos = run.qos
        if (
            other is not None
            and recipient.qos >= qos
            and recipient.plain
            and other.v5 == run.v5
            and other.alias_out is None
            and not session.ready
            and len(session.inflight) < session.window
            and run.total <= other.packet_bytes_max
            and session is not publisher
            and other.can_send()
        ):
            packet_id = session.next_packet_id
            if packet_id in session.inflight:
                packet_id = session.take_packet_id()
            else:
                session.next_packet_id = packet_id + 1 if packet_id < PACKET_IDS else 1
            session.inflight[packet_id] = SENT_QOS1 if qos == 1 else SENT_QOS2
            out = other.out
            out.append(prefix)
            out.append(U16[packet_id])
            out.append(rest)
            other.out_bytes += int(run.total)
            if not other.dirty:
                other.touch()
            if qos == 1:
                self.counters.publish_sent_qos1 += 1
            else:
                self.counters.publish_sent_qos2 += 1
            return
        payload = rest[1:] if run.v5 else rest
        message = Message(route.topic, payload, int(qos), False, b"", run.publisher, self.state.clock.time, 0)
        self.publishing.send(recipient, message, publisher)
