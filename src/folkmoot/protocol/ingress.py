"""From bytes to packets: one call handles a whole chunk (MQTT 5 section 2.1; MQTT 3.1.1 section 2.2).

Owns the framing of a connection's input, and the hot path: a run of equal PUBLISH headers is checked once, and with
QoS 0 copied in one piece to the subscribers that take it byte for byte. `control` handles all other packets.
"""

from __future__ import annotations

from mypy_extensions import i64

from folkmoot.delivery.express import Express
from folkmoot.delivery.run import Run, Runs
from folkmoot.kernel.errors import CorruptStore
from folkmoot.mqtt import reason
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.kind import DISCONNECT, PINGREQ, PUBACK, PUBCOMP, PUBLISH, PUBREC
from folkmoot.mqtt.varint import INCOMPLETE, decode_varint
from folkmoot.protocol.closing import Closing
from folkmoot.protocol.control import Control
from folkmoot.protocol.inbound import Inbound
from folkmoot.routing.route import Route, Routes
from folkmoot.session.connection import CHECKING, NEW, OPEN, REGISTERING, Connection
from folkmoot.turn.state import State
from folkmoot.turn.throttle import FOR_BACKLOG, FOR_HANDSHAKE, FOR_RELAY, Throttle

__all__ = ["Ingress", "merge_tail"]


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
        parts = connection.parts
        if parts is not None:
            parts.append(data)
            if len(parts) & 255 == 0:
                merge_tail(parts)
            connection.parts_bytes += len(data)
            self.state.memory.parts_bytes += len(data)
            if connection.parts_bytes < connection.need_bytes:
                return
            data = self._take_parts(connection, parts)
        self.handle_packets(connection, data)

    def resume(self, connection: Connection) -> None:
        """Handle input that came while the connection could not take it."""
        parts = connection.parts
        if parts is not None:
            self.handle_packets(connection, self._take_parts(connection, parts))

    def _take_parts(self, connection: Connection, parts: list[bytes]) -> bytes:
        self.state.memory.parts_bytes -= connection.parts_bytes
        connection.parts = None
        connection.parts_bytes = 0
        return b"".join(parts)

    def handle_packets(self, connection: Connection, data: bytes) -> None:
        """Handle all complete packets of `data` and keep the rest."""
        held = connection.state == OPEN and (connection.defers_publishes or connection.stash is not None)
        overload = self.state.overload
        before = self._published() if overload else 0
        account = connection.account
        count = connection.messages_in if account is not None and account.quota.paces else -1
        try:
            pos = self._sift(connection, data) if held else self._packets(connection, data)
        except MalformedPacket as fault:
            if connection.state == NEW:
                self._bad_connect(connection, fault)
            else:
                self.closing.disconnect(connection, fault.code, fault.text)
            return
        except CorruptStore as damage:  # another name: compiled, one has one type
            self.closing.unreadable(connection, damage)
            return
        if pos:  # [MQTT-3.1.2-22] whole packets count
            connection.last_seen_us = self.state.now
        if pos < len(data):
            self._keep(connection, data, pos)
        if count >= 0 and connection.messages_in != count and account is not None and connection.state == OPEN:
            self.throttle.pace(connection, account, connection.messages_in - count, len(data))
        if overload and self._published() != before and connection.state == OPEN:
            self.throttle.spread(connection)

    def _published(self) -> int:
        counters = self.counters
        received = counters.publish_received_qos0 + counters.publish_received_qos1 + counters.publish_received_qos2
        return received + self.inbound.forwarded

    def unstash(self, connection: Connection) -> None:
        """Handle the stash: input that came while the connection might not publish."""
        data = self.throttle.take_stash(connection)
        connection.defers_publishes = False
        self.throttle.resume_reading(connection)
        if data and connection.state == OPEN:
            self.handle_packets(connection, data)

    def goodbye(self, connection: Connection) -> None:
        """The client has gone while packets in its stash wait: of these only DISCONNECT counts (A7).

        The others were not answered, so the client sends them again when it returns.
        """
        data = self.throttle.take_stash(connection)
        pos = 0
        while pos < len(data) and data[pos] >> 4 != DISCONNECT:
            length, body = decode_varint(data, pos + 1)
            pos = body + length
        if pos < len(data):
            connection.defers_publishes = False
            self.handle_packets(connection, data[pos:])

    def _sift(self, connection: Connection, data: bytes) -> int:
        """Handle only what does not wait for publishing: acknowledgements of deliveries, and pings.

        Everything else goes into the stash, in order: a PUBREL that overtakes its repeated PUBLISH would release the
        packet id twice. Return the end of the last complete packet.
        """
        throttle = self.throttle
        strict = connection.paused & (FOR_BACKLOG | FOR_RELAY) != 0
        size = len(data)
        pos = 0
        start = 0  # of the part for the stash
        while pos + 1 < size and connection.state == OPEN:
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
            free = not strict and kind != PUBLISH and connection.stash is None and start == pos
            if free or kind == PUBACK or kind == PUBREC or kind == PUBCOMP or kind == PINGREQ:
                if start < pos:
                    throttle.stash(connection, data[start:pos])
                start = end
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
            self.state.memory.parts_bytes += len(rest)
        elif state == CHECKING or state == REGISTERING:
            # Packets may come before CONNACK (section 3.1.4); they wait, and if there are many, reading pauses.
            connection.need_bytes = len(data) - pos + self.state.limits.packet_bytes_max
            connection.parts = [data[pos:]]
            connection.parts_bytes = len(data) - pos
            self.state.memory.parts_bytes += len(data) - pos
            if connection.parts_bytes >= connection.need_bytes // 2:
                self.throttle.pause(connection, FOR_HANDSHAKE)

    def _need_of(self, rest: bytes) -> int:
        """Return the length of the packet at the start of `rest`, as far as it is known."""
        length, pos = decode_varint(rest, 1)
        return pos + length if length >= 0 else 2

    def _packets(self, connection: Connection, data: bytes) -> int:
        size = len(data)
        pos = 0
        while pos < size:
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
                    if at < 0:
                        connection.defers_publishes = True
                        return pos + self._sift(connection, data[pos:])
                    pos = at
                elif length == 2 and (first == 0x40 or first == 0x50 or first == 0x62 or first == 0x70):
                    self.control.short_ack(connection, first, data[body] << 8 | data[body + 1])
                    pos = end
                else:
                    self.control.packet(connection, first, data[body:end])
                    pos = end
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

        Return the position of the next packet, -1 when even the first one has to wait.
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
        connection.messages_in += 1
        if self.inbound.publish(connection, data, int(pos), int(body), int(topic_end), int(end)):
            return int(end)
        return -1

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
        run_end: i64 = end
        while run_end + total <= size and data[run_end : run_end + head] == prefix:
            if connection.v5 and data[run_end + (rest - pos) - 1] != 0:
                break
            run_end += total
        run = Run(data, pos, run_end, total, head, qos, connection.v5, connection.client_id)
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
