"""Runs of PUBLISH packets: one publisher, one topic, nothing different but payload and packet id.

They are given on as they came, to the transient sessions of this node and, in one piece, to other nodes with
subscribers: what is the same in all packets is looked at once. A target that needs more (another version, an
identifier, a full window) gets messages one by one. Owns no rule of its own: those of `publish` and `queue` are applied
here without an object per message. Whether packets are a run, and may be published, is seen by `ingress` and `express`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

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

__all__ = ["Run", "Runs"]

_LENGTH_AT: Final = 1  # the remaining length follows the first byte


@mypyc_attr(acyclic=True)
class Run:
    """The packets of `total` bytes each in `data[pos:end]`.

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

    def topic(self) -> bytes:
        """Return the topic."""
        at: i64 = self.pos + _LENGTH_AT
        while self.data[at] >= 128:
            at += 1
        return self.data[at + 3 : self.pos + self.head]

    def count(self) -> int:
        """Return the number of packets."""
        return int((self.end - self.pos) // self.total)


class Runs:
    """Gives runs to those who get them."""

    def __init__(self, state: State, routes: Routes, publishing: Publishing, forward_sender: ForwardSender) -> None:
        self.state = state
        self.counters = state.counters
        self.routes = routes
        self.publishing = publishing
        self.forward_sender = forward_sender

    def hand_over(self, run: Run, pos: i64, end: i64, nodes: list[str], connection: Connection) -> None:
        """Pass the packets in `data[pos:end]` on to other nodes, packed once; in order with all that goes there."""
        count = int((end - pos) // run.total)
        fabric = self.forward_sender.fabric
        if fabric.choked and not run.qos:
            heard = [node_id for node_id in nodes if not fabric.is_flooded(node_id)]
            self.counters.dropped_qos0_slow += count * (len(nodes) - len(heard))
            nodes = heard
        body = encode_run(run.publisher, run.v5, int(run.total), int(run.head), run.data[pos:end])
        self.forward_sender.publish_run(body, nodes, connection)
        self.counters.cluster_messages_sent += count * len(nodes)

    def deliver(self, body: bytes) -> None:
        """Give a run of another node to the transient sessions of this one. Raises IndexError for nonsense."""
        publisher, v5, total, head, pos = read_run_head(body)
        run = Run(body, pos, len(body), total, head, body[pos] >> 1 & 3, v5, publisher)
        if run.body > run.total:
            raise IndexError("a run of packets that end too early")
        route = self.routes.lookup(run.topic())
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
        """Copy a run of QoS 0 messages to each target: as it is where the packet fits, else one by one."""
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
            if session is publisher:
                if recipient.own is None:
                    continue
                recipient = recipient.own  # without the identifiers of no-local subscriptions
            if (
                other.v5 != v5
                or recipient.identifiers
                or other.alias_out is not None
                or run.total > other.packet_bytes_max
            ):
                self._copy_each(run, recipient)
                continue
            if not other.can_send():
                counters.dropped_qos0_slow += count
                continue
            other.out.append(data)
            other.out_bytes += size
            if not other.dirty:
                other.touch()
            counters.publish_sent_qos0 += count
            counters.publish_payload_bytes_sent += count * int(run.total - run.body)

    def _copy_each(self, run: Run, recipient: Recipient) -> None:
        """Send each message of a run of QoS 0 messages to a target that needs another encoding."""
        topic = run.topic()
        at = run.pos
        while at < run.end:
            payload = run.data[at + run.body : at + run.total]
            message = Message(topic, payload, 0, False, b"", run.publisher, self.state.now, 0)
            self.publishing.queue.send_qos0(recipient.session, message, False, recipient.identifiers)
            at += run.total

    def send(
        self, run: Run, route: Route, recipient: Recipient, publisher: Session | None, prefix: bytes, rest: bytes
    ) -> None:
        """Send one message of QoS 1 or 2 to a target; `prefix`: its first `head` bytes, `rest`: behind packet id."""
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
        message = Message(route.topic, payload, int(qos), False, b"", run.publisher, self.state.now, 0)
        self.publishing.send(recipient, message, publisher)
