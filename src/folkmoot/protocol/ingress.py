"""From bytes to packets: one call handles a whole chunk (MQTT 5 section 2.1; MQTT 3.1.1 section 2.2).

Owns the framing of a connection's input, and the hot path: a run of equal PUBLISH headers is checked once, and with
QoS 0 copied in one piece to the subscribers that take it byte for byte. `control` handles all other packets.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from folkmoot.delivery.express import Express
from folkmoot.delivery.run import Run, Runs
from folkmoot.kernel.errors import CorruptStore
from folkmoot.mqtt import reason
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.kind import PINGREQ, PUBACK, PUBCOMP, PUBLISH, PUBREC
from folkmoot.mqtt.varint import INCOMPLETE, decode_varint
from folkmoot.protocol.closing import Closing
from folkmoot.protocol.control import Control
from folkmoot.protocol.inbound import HANDLED, UNFINISHED, Inbound
from folkmoot.protocol.scrutiny import renew_rights
from folkmoot.routing.route import Route, Routes
from folkmoot.session.connection import CHECKING, CLOSING, NEW, OPEN, REGISTERING, Connection
from folkmoot.turn.state import State
from folkmoot.turn.throttle import FOR_ACKS, FOR_BACKLOG, FOR_HANDSHAKE, FOR_RELAY, Throttle
from folkmoot.turn.work import PACKET_STEPS, RUN_BYTES_MAX, WAITING_BYTES_MAX

__all__ = ["Ingress", "merge_tail"]

# Instead of the position behind a PUBLISH
_MUST_WAIT: Final = -1
_UNFINISHED: Final = -2

# What a client whose password is being checked may send beyond its CONNECT before it is not read.
_EARLY_BYTES_MAX: Final = 1024


def merge_tail(parts: list[bytes]) -> None:
    """Join the small pieces at the end of the list: each costs forty bytes beside its content of one or two."""
    start = len(parts)
    while start and len(parts[start - 1]) < 256:
        start -= 1
    if start < len(parts) - 1:
        parts[start:] = [b"".join(parts[start:])]


class Ingress:
    """Splits the input of all connections into packets."""

    def __init__(
        self,
        state: State,
        throttle: Throttle,
        routes: Routes,
        inbound: Inbound,
        runs: Runs,
        express: Express,
        control: Control,
        closing: Closing,
    ) -> None:
        self.state = state
        self.work = state.work
        self.throttle = throttle
        self.counters = state.counters
        self.routes = routes
        self.cache = routes.cache
        self.inbound = inbound
        self.runs = runs
        self.express = express
        self.control = control
        self.closing = closing

    def receive(self, connection: Connection, data: bytes) -> None:
        """Handle a chunk of input; a fault in it ends this connection and nothing else."""
        self.counters.bytes_received += len(data)
        connection.bytes_in += len(data)
        if connection.queued or connection.paused & FOR_ACKS:
            self._append(connection, data)
            return
        parts = connection.parts
        if parts is not None:
            parts.append(data)
            if len(parts) & 255 == 0:
                merge_tail(parts)
            connection.parts_bytes += len(data)
            if connection.parts_bytes < connection.need_bytes:
                return
            data = b"".join(parts)
            connection.parts = None
        self.handle_packets(connection, data)

    def resume(self, connection: Connection) -> None:
        """Handle input that came while the connection could not take it."""
        parts = connection.parts
        if parts is not None and not connection.queued:
            connection.parts = None
            self.handle_packets(connection, b"".join(parts))
        self.throttle.weigh(connection)

    def handle_packets(self, connection: Connection, data: bytes) -> None:
        """Handle the complete packets of `data`, as far as the client's steps reach, and keep the rest."""
        work = self.work
        if not work.begin(connection):
            self._wait(connection, data, 0)
            return
        before = self._published() if self.state.overload else 0
        try:
            pos = self._take(connection, data, 0)
        except MalformedPacket as fault:
            work.end(connection)
            self._malformed(connection, fault)
            return
        except CorruptStore as damage:  # another name: compiled, one has one type
            work.end(connection)
            self.closing.unreadable(connection, damage)
            return
        spent = work.is_spent()
        work.end(connection)
        if connection.task is not None or (spent and pos < len(data)):
            self._wait(connection, data, pos)
        elif pos < len(data):
            self._keep(connection, data, pos)
        if self.state.overload:
            self._spread(connection, before)

    def _take(self, connection: Connection, data: bytes, pos: int) -> int:
        """Handle complete packets until the client's steps are spent, or it has to wait; return where that is."""
        start = pos
        self._look_at_rules(connection)
        if connection.state != OPEN or not (connection.defers_publishes or connection.has_stash()):
            pos = self._packets(connection, data, pos)
            if connection.defers_publishes and connection.state == OPEN:
                pos = self._sift(connection, data, pos)
        else:
            pos = self._sift(connection, data, pos)
        if pos > start:  # [MQTT-3.1.2-22] whole packets count
            connection.last_seen_us = self.state.now
        return pos

    def _look_at_rules(self, connection: Connection) -> None:
        """Apply the rules of now from this input on: after a reload, connections are judged one after another."""
        if connection.rights is not self.state.policy and connection.state == OPEN:
            renew_rights(connection, self.state.policy)

    def _malformed(self, connection: Connection, fault: MalformedPacket) -> None:
        if connection.state == NEW:
            self._bad_connect(connection, fault)
        else:
            self.closing.disconnect(connection, fault.code, fault.text)

    def _spread(self, connection: Connection, before: int) -> None:
        """Under overload: if the client has published, it is not heard for a while."""
        if self._published() != before and connection.state == OPEN:
            self.throttle.spread(connection)

    def _published(self) -> int:
        counters = self.counters
        received = counters.publish_received_qos0 + counters.publish_received_qos1 + counters.publish_received_qos2
        return received + self.inbound.forwarded

    # -- the waiting list ------------------------------------------------------------------------------------------

    def _wait(self, connection: Connection, data: bytes, pos: int) -> None:
        """Keep `data[pos:]` until the client's next turn. It is not copied: that would cost more with each turn."""
        if connection.state != OPEN and connection.state != NEW:
            self._keep(connection, data, pos)
            return
        assert connection.rest_pos == len(connection.rest), "only the newest input can wait behind other input"
        connection.rest = data
        connection.rest_pos = pos
        self.work.wait(connection)
        self._bound(connection)

    def _append(self, connection: Connection, data: bytes) -> None:
        """Keep what comes while older input waits."""
        if connection.state >= CLOSING:
            return
        parts = connection.parts
        if parts is None:
            connection.parts = [data]
            connection.parts_bytes = len(data)
        else:
            parts.append(data)
            if len(parts) & 255 == 0:
                merge_tail(parts)
            connection.parts_bytes += len(data)
        connection.last_seen_us = self.state.now
        self._bound(connection)

    def _bound(self, connection: Connection) -> None:
        if connection.waiting_bytes() > WAITING_BYTES_MAX:
            self.throttle.pause_reading(connection)

    def is_waiting(self, connection: Connection) -> bool:
        """Whether input can be handled as soon as the client's turn comes."""
        if connection.task is not None or connection.rest_pos < len(connection.rest):
            return True
        if connection.parts is not None and (connection.queued or connection.paused & FOR_ACKS):
            return True
        return not connection.paused and connection.has_stash()

    def serve(self, connection: Connection) -> None:
        """Continue with a client whose turn has come: its unfinished packet, its stash, then newer input."""
        work = self.work
        if connection.state >= CLOSING:
            self.drop(connection)
            return
        if connection.paused & FOR_ACKS:
            return  # `Throttle.unpause` puts it on the list again
        if not work.begin(connection):
            work.wait(connection)
            return
        before = self._published() if self.state.overload else 0
        try:
            self._serve(connection)
        except MalformedPacket as fault:
            work.end(connection)
            self._malformed(connection, fault)
        except CorruptStore as damage:  # another name: compiled, one has one type
            work.end(connection)
            self.closing.unreadable(connection, damage)
        else:
            work.end(connection)
            if self.state.overload:
                self._spread(connection, before)
        if connection.state >= CLOSING:
            self.drop(connection)
            return
        if connection.ending and connection.defers_publishes:  # nothing will end that wait
            self.closing.hear_goodbye(connection)
            self.drop(connection)
            return
        if self.is_waiting(connection):
            work.wait(connection)
        self.throttle.resume_reading(connection)

    def _serve(self, connection: Connection) -> None:
        task = connection.task
        if task is not None:
            if not task.go_on():
                return
            connection.task = None
        work = self.work
        if connection.has_stash() and not connection.paused:
            self._unstash(connection)
        data = connection.rest
        pos = connection.rest_pos
        connection.rest = b""
        connection.rest_pos = 0
        while True:
            if pos < len(data) and connection.task is None and not work.is_spent():
                pos = self._take(connection, data, pos)
            if connection.task is not None or work.is_spent() or connection.state >= CLOSING:
                break
            parts = connection.parts
            if parts is None or connection.state != OPEN:
                break
            # At the end of the complete packets: the incomplete one, and what has come since. Each byte comes here
            # once, and once more as a part of an incomplete packet.
            connection.parts = None
            data = b"".join([data[pos:], *parts])
            pos = 0
        if pos < len(data):
            self._leave(connection, data, pos)
        elif connection.parts is not None and connection.state == OPEN:
            connection.rest = b"".join(connection.parts)
            connection.parts = None

    def _leave(self, connection: Connection, data: bytes, pos: int) -> None:
        """Keep what a turn has left of the input, before what has come meanwhile."""
        if connection.task is not None or (self.work.is_spent() and connection.state in (OPEN, NEW)):
            connection.rest = data
            connection.rest_pos = pos
            return
        parts = connection.parts
        self._keep(connection, data, pos)
        if parts is not None and connection.parts is not None:
            connection.parts.extend(parts)
            connection.parts_bytes += sum([len(part) for part in parts])

    def _unstash(self, connection: Connection) -> None:
        """Handle the stash: input that came while the connection might not publish."""
        connection.defers_publishes = False
        self._look_at_rules(connection)
        while connection.state == OPEN and connection.task is None and not self.work.is_spent():
            data = self.throttle.open_stash(connection)
            if not data:
                return
            pos = self._packets(connection, data, connection.stashed_pos)
            self.throttle.take_from_stash(connection, pos)
            if connection.paused or connection.defers_publishes:
                return

    def drop(self, connection: Connection) -> None:
        """Forget the input of a connection that takes none any more."""
        connection.drop_task()
        connection.rest = b""
        connection.rest_pos = 0
        connection.parts = None
        self.throttle.drop_stash(connection)

    # -- packets --------------------------------------------------------------------------------------------------

    def _sift(self, connection: Connection, data: bytes, pos: int) -> int:
        """Handle only what does not wait for publishing: acknowledgements of deliveries, and pings.

        Everything else goes into the stash, in order: a PUBREL that overtakes its repeated PUBLISH would release the
        packet id twice. Return the end of the last complete packet, or where the client's steps are spent.
        """
        throttle = self.throttle
        work = self.work
        strict = connection.paused & (FOR_BACKLOG | FOR_RELAY) != 0
        size = len(data)
        start = pos  # of the part for the stash
        while pos + 1 < size and connection.state == OPEN and connection.task is None and not work.is_spent():
            length = data[pos + 1]
            body = pos + 2
            if length >= 128:
                length, body = self._length_of(data, pos)
                if length == INCOMPLETE:
                    break
            end = body + length
            if end > size:
                self._check_size(end - pos)
                break
            first = data[pos]
            kind = first >> 4
            work.steps += 1
            free = not strict and kind != PUBLISH and not connection.has_stash() and start == pos
            if free or kind == PUBACK or kind == PUBREC or kind == PUBCOMP or kind == PINGREQ:
                if start < pos:
                    throttle.stash(connection, data[start:pos])
                start = end
                work.steps += PACKET_STEPS
                self.control.packet(connection, first, data[body:end])
            pos = end
        if start < pos and connection.state == OPEN:
            throttle.stash(connection, data[start:pos])
        return pos

    def _bad_connect(self, connection: Connection, fault: MalformedPacket) -> None:
        # A peer that does not speak MQTT gets no answer; one that tried to gets the reason [MQTT-3.1.4-1].
        connection.v5 = connection.version >= 5
        if connection.version == 0:
            self.closing.disconnect(connection, fault.code, fault.text)
            return
        if fault.code == reason.UNSUPPORTED_PROTOCOL_VERSION:  # [MQTT-3.1.2-2]
            self.counters.error_version += 1
        self.closing.refuse(connection, fault.code, fault.text)

    def _keep(self, connection: Connection, data: bytes, pos: int) -> None:
        state = connection.state
        if state == NEW or state == OPEN:
            rest = data[pos:]
            connection.need_bytes = self._need_of(rest)
            connection.parts = [rest]
            connection.parts_bytes = len(rest)
        elif state == CHECKING or state == REGISTERING:
            # Packets may come before CONNACK (section 3.1.4); they wait, and if there are many, reading pauses: the
            # client may have no right to anything.
            connection.need_bytes = _EARLY_BYTES_MAX if state == CHECKING else self.state.limits.connect_bytes_max
            connection.parts = [data[pos:]]
            connection.parts_bytes = len(data) - pos
            if connection.parts_bytes >= connection.need_bytes:
                self.throttle.pause(connection, FOR_HANDSHAKE)

    def _need_of(self, rest: bytes) -> int:
        """Return the length of the packet at the start of `rest`, as far as it is known."""
        length, pos = decode_varint(rest, 1)
        return pos + length if length >= 0 else 2

    def _packets(self, connection: Connection, data: bytes, pos: int) -> int:
        """Handle complete packets until the client's steps are spent, or PUBLISH has to wait; return where that is."""
        size = len(data)
        work = self.work
        while pos < size and not work.is_spent():
            if connection.state == OPEN:
                if pos + 1 >= size:
                    break
                length = data[pos + 1]
                body = pos + 2
                if length >= 128:
                    length, body = self._length_of(data, pos)
                    if length == INCOMPLETE:
                        break
                end = body + length
                if end > size:
                    self._check_size(end - pos)
                    break
                first = data[pos]
                if first >> 4 == 3:
                    at = self._publish(connection, data, pos, body, end)
                    if at < 0:  # the loop ends where the steps are spent
                        if at == _MUST_WAIT:
                            connection.defers_publishes = True
                            return pos
                        continue
                    pos = at
                elif length == 2 and (first == 0x40 or first == 0x50 or first == 0x62 or first == 0x70):
                    work.steps += PACKET_STEPS
                    self.control.short_ack(connection, first, data[body] << 8 | data[body + 1])
                    pos = end
                else:
                    work.steps += PACKET_STEPS
                    self.control.packet(connection, first, data[body:end])
                    pos = end
                    if connection.task is not None:
                        return pos
            elif connection.state == NEW:
                end = self._first_packet(connection, data, pos)
                if end < 0:
                    break
                pos = end
            elif connection.state == CHECKING or connection.state == REGISTERING:
                break
            else:
                return size
        return pos

    def _length_of(self, data: bytes, pos: int) -> tuple[int, int]:
        length, body = decode_varint(data, pos + 1)
        if length < 0 and length != INCOMPLETE:
            raise MalformedPacket(reason.MALFORMED_PACKET, "the remaining length is not a valid variable byte integer")
        if length >= 0:
            self._check_size(body + length - pos)
        return length, body

    def _check_size(self, packet_bytes: int) -> None:
        if packet_bytes > self.state.limits.packet_bytes_max:
            raise MalformedPacket(
                reason.PACKET_TOO_LARGE, f"a packet of {packet_bytes} bytes is larger than the maximum"
            )

    def _first_packet(self, connection: Connection, data: bytes, pos: int) -> int:
        """Handle CONNECT [MQTT-3.1.0-1]; return its end, or -1 if it is incomplete."""
        first = data[pos]
        if first >> 4 != 1:
            raise MalformedPacket(reason.PROTOCOL_ERROR, "the first packet is not CONNECT")
        length, body = decode_varint(data, pos + 1)
        if length == INCOMPLETE:
            return -1
        if length < 0:
            raise MalformedPacket(reason.MALFORMED_PACKET, "the remaining length is not a valid variable byte integer")
        if length > self.state.limits.connect_bytes_max:
            raise MalformedPacket(reason.PACKET_TOO_LARGE, f"a CONNECT of {length} bytes is larger than the maximum")
        end = body + length
        if end > len(data):
            return -1
        self.control.connect(connection, first, data[body:end])
        return end

    # -- PUBLISH --------------------------------------------------------------------------------------------------

    def _publish(self, connection: Connection, data: bytes, pos: i64, body: i64, end: i64) -> int:
        """Handle the PUBLISH at `pos`, and with it those that follow and differ only in their payload.

        Return the position of the next packet, or _MUST_WAIT when even the first one has to wait, or _UNFINISHED when
        the client's steps are spent before the recipients are known.
        """
        topic_end: i64 = body + 2
        if topic_end > end:
            raise MalformedPacket(reason.MALFORMED_PACKET, "PUBLISH ends before its topic")
        topic_end += i64(data[body]) << 8 | i64(data[body + 1])
        if topic_end > end:
            raise MalformedPacket(reason.MALFORMED_PACKET, "PUBLISH ends within its topic")
        first = data[pos]
        if connection.fast and (first == 0x30 or first == 0x32 or first == 0x34):
            run_end = self._express(connection, data, pos, body, topic_end, end, first >> 1 & 3)
            if run_end:
                return int(run_end)
        result = self.inbound.publish(connection, data, int(pos), int(body), int(topic_end), int(end))
        if result == HANDLED:
            self.work.steps += PACKET_STEPS
            connection.messages_in += 1
            return int(end)
        return _UNFINISHED if result == UNFINISHED else _MUST_WAIT

    def _express(
        self, connection: Connection, data: bytes, pos: i64, body: i64, topic_end: i64, end: i64, qos: int
    ) -> i64:
        """Handle a run of PUBLISH packets with the same header and topic.

        Return its end, or 0 if the run needs the general path.
        """
        route = self.cache.get(data[body + 2 : topic_end])
        if route is None or not route.simple:
            return 0
        rest: i64 = topic_end
        if qos:
            if not self.express.takes(connection, route, qos):
                return 0
            rest += 2
        if connection.v5:
            if rest >= end or data[rest] != 0:
                return 0
            rest += 1
        if rest > end:
            return 0
        total: i64 = end - pos
        head: i64 = topic_end - pos
        prefix = data[pos:topic_end]
        size: i64 = len(data)
        copies: i64 = len(route.recipients)
        if copies > 1:  # a run is never divided once it has begun: what it makes is bounded
            size = min(size, max(end, pos + RUN_BYTES_MAX // copies))
        run_end: i64 = end
        while run_end + total <= size and data[run_end : run_end + head] == prefix:
            if connection.v5 and data[run_end + (rest - pos) - 1] != 0:
                break
            run_end += total
        run = Run(data, pos, run_end, total, head, qos, connection.v5, connection.client_id)
        self.work.steps += int(run.steps(copies))
        if qos:
            self.express.run(connection, route, run)
        else:
            self._forward(connection, route, run)
        return run_end

    def _forward(self, connection: Connection, route: Route, run: Run) -> None:
        """Send a run of QoS 0 messages to all subscribers of the topic."""
        count = run.count()
        counters = self.counters
        counters.publish_received_qos0 += count
        counters.publish_payload_bytes_received += count * int(run.total - run.body)
        connection.messages_in += count
        if self.state.meter.on and route.recipients:
            self.state.meter.live(route.topic, 0, count * len(route.recipients), self.state.now)
        self.runs.copy(run, route.recipients, connection.session)
        if route.nodes:
            self.runs.hand_over(run, run.pos, run.end, route.nodes, connection)
        elif not route.recipients:
            counters.publish_unmatched += count
