"""A client of MQTT 5 over asyncio that notes everything it sends and sees; it knows no broker and corrects nothing.

Its session outlives connections: it repeats what was not acknowledged when the server says that the session is
present, and forgets it otherwise, as 4.1 and 4.4 of the standard demand. Whether the server kept its word is judged
later, from the history.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass

from tests.jepsen import wire
from tests.jepsen.history import Recorder, payload_of, value_of

__all__ = ["NEVER", "Client", "Outgoing"]

NEVER = 0xFFFF_FFFF
KEEP_ALIVE_S = 10
PING_S = 2.0
PING_WAIT_S = 8.0
CONNACK_WAIT_S = 8.0
DIAL_WAIT_S = 2.0
CHUNK = 1 << 16

NUMBERS = itertools.count(1)  # of connections, one process has all clients of a run


@dataclass
class Outgoing:
    """A message of QoS 1 or 2 on its way."""

    topic: str
    value: str
    qos: int
    retain: bool
    sent_s: float
    released: bool = False


class Client:
    """One client id, with one connection at a time.

    addresses: host and port by the name of a node.
    """

    def __init__(
        self,
        recorder: Recorder,
        client_id: str,
        addresses: dict[str, tuple[str, int]],
        *,
        expiry_s: int = NEVER,
    ) -> None:
        self.recorder = recorder
        self.id = client_id
        self.addresses = addresses
        self.expiry_s = expiry_s
        self.node = ""
        self.number = 0
        self.connected = False
        self.present = False
        self.inflight: dict[int, Outgoing] = {}
        self.received: set[int] = set()  # QoS 2, until PUBREL
        self.arrivals = 0
        self.seen: set[str] = set()  # topics of retained messages of this connection
        self.pinged_s = 0.0  # when the oldest unanswered PINGREQ was sent
        self._next_id = 0
        self._waiting: dict[tuple[int, int], asyncio.Future[wire.Packet]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._pinging: asyncio.Task[None] | None = None

    # --- the connection

    async def connect(self, node: str, *, clean: bool = False, will: wire.Will | None = None) -> bool:
        """Whether the node has accepted a new connection; the one before, if any, is dropped."""
        self.drop("replaced")
        host, port = self.addresses[node]
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), DIAL_WAIT_S)
        except (OSError, TimeoutError):
            return False
        self.node, self.number, self._writer = node, next(NUMBERS), writer
        self.seen = set()
        self.pinged_s = 0.0
        noted = None
        if will is not None:
            noted = {"topic": will.topic, "value": value_of(will.payload), "qos": will.qos, "delay": will.delay_s}
        self._note("connect", c=self.id, node=node, clean=clean, expiry=self.expiry_s, will=noted)
        answer = self._expect(wire.CONNACK, 0)
        self._reading = asyncio.create_task(self._read(reader, self.number))
        self._send(wire.connect(self.id, clean=clean, expiry_s=self.expiry_s, keep_alive_s=KEEP_ALIVE_S, will=will))
        packet = await self._answer(answer, CONNACK_WAIT_S)
        if packet is None or packet.code:
            self.drop("no CONNACK" if packet is None else "refused")
            return False
        self._pinging = asyncio.create_task(self._ping(self.number))
        return True

    def drop(self, why: str = "") -> None:
        """End the connection without a word."""
        self._close("client", why)

    def disconnect(self, code: int = 0) -> None:
        """Say goodbye, and end the connection; 4: the will is to be published."""
        if self._writer is not None:
            self._note("disconnect", d="out", code=code)
            self._send(wire.disconnect(code))
            self._writer.close()  # after what was written
        self._close("client", "disconnect")

    # --- messages

    def publish(self, topic: str, value: str, qos: int, *, retain: bool = False) -> int:
        """Send a message; its packet id."""
        packet_id = self._free_id() if qos else 0
        if qos:
            self.inflight[packet_id] = Outgoing(topic, value, qos, retain, self._now_s())
        self._publish(packet_id, topic, value, qos, retain=retain, dup=False)
        return packet_id

    async def subscribe(self, filters: list[tuple[str, int]], wait_s: float = CONNACK_WAIT_S) -> bool:
        """Whether the server has accepted all of them."""
        packet_id = self._free_id()
        answer = self._expect(wire.SUBACK, packet_id)
        self._note("subscribe", id=packet_id, filters=[list(one) for one in filters])
        self._send(wire.subscribe(packet_id, filters))
        packet = await self._answer(answer, wait_s)
        return packet is not None and all(code < 0x80 for code in packet.codes)

    async def unsubscribe(self, filters: list[str], wait_s: float = CONNACK_WAIT_S) -> bool:
        """Whether the server has confirmed it."""
        packet_id = self._free_id()
        answer = self._expect(wire.UNSUBACK, packet_id)
        self._note("unsubscribe", id=packet_id, filters=filters)
        self._send(wire.unsubscribe(packet_id, filters))
        return await self._answer(answer, wait_s) is not None

    def ping(self) -> None:
        """Ask whether the server is there."""
        self._note("pingreq")
        self._send(wire.pingreq())
        self.pinged_s = self.pinged_s or self._now_s()

    def oldest_s(self) -> float:
        """For how long the oldest message has been waiting for its acknowledgement, in seconds."""
        oldest = next(iter(self.inflight.values()), None)
        return self._now_s() - oldest.sent_s if oldest is not None else 0.0

    # --- inside

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()

    def _note(self, kind: str, **fields: object) -> None:
        self.recorder.add(kind, k=self.number, **fields)

    def _send(self, data: bytes) -> None:
        if self._writer is not None:
            self._writer.write(data)

    def _publish(self, packet_id: int, topic: str, value: str, qos: int, *, retain: bool, dup: bool) -> None:
        noted = {"topic": topic, "value": value, "qos": qos, "retain": retain, "dup": dup, "id": packet_id}
        self._note("publish", d="out", **noted)
        payload = payload_of(value)
        self._send(wire.publish(topic, payload, qos=qos, retain=retain, dup=dup, packet_id=packet_id))

    def _acknowledge(self, kind: int, packet_id: int) -> None:
        self._note(wire.NAMES[kind], d="out", id=packet_id, code=0)
        self._send(wire.acknowledge(kind, packet_id))

    def _free_id(self) -> int:
        while True:
            self._next_id = self._next_id % 0xFFFF + 1
            if self._next_id not in self.inflight:
                return self._next_id

    def _expect(self, kind: int, packet_id: int) -> asyncio.Future[wire.Packet]:
        found: asyncio.Future[wire.Packet] = asyncio.get_running_loop().create_future()
        self._waiting[kind, packet_id] = found
        return found

    @staticmethod
    async def _answer(expected: asyncio.Future[wire.Packet], wait_s: float) -> wire.Packet | None:
        try:
            return await asyncio.wait_for(expected, wait_s)
        except (TimeoutError, ConnectionError):
            return None

    async def _read(self, reader: asyncio.StreamReader, number: int) -> None:
        parser, why = wire.Parser(), "end"
        try:
            while data := await reader.read(CHUNK):
                for packet in parser.feed(data):
                    if number != self.number or self._writer is None:
                        return
                    self._handle(packet)
        except OSError as error:
            why = type(error).__name__
        except wire.Malformed as error:
            why = f"malformed: {error}"
        if number == self.number:
            self._close("peer", why)

    async def _ping(self, number: int) -> None:
        while True:
            await asyncio.sleep(PING_S)
            if number != self.number:
                return
            if self.pinged_s and self._now_s() - self.pinged_s > PING_WAIT_S:
                self.drop("no PINGRESP")
                return
            self.ping()

    def _handle(self, packet: wire.Packet) -> None:
        kind, name = packet.kind, wire.NAMES[packet.kind]
        if kind == wire.PUBLISH:
            self._arrived(packet)
        elif kind in (wire.PUBACK, wire.PUBREC, wire.PUBREL, wire.PUBCOMP):
            self._note(name, d="in", id=packet.id, code=packet.code)
            self._acknowledged(packet)
        elif kind == wire.CONNACK:
            self._note(name, code=packet.code, present=packet.present)
            if not packet.code:
                self._resume(packet.present)
            self._resolve(packet)
        elif kind == wire.PINGRESP:
            self._note(name)
            self.pinged_s = 0.0
        elif kind == wire.DISCONNECT:
            self._note(name, d="in", code=packet.code)
        else:
            self._note(name, id=packet.id, codes=packet.codes)
            self._resolve(packet)

    def _resolve(self, packet: wire.Packet) -> None:
        future = self._waiting.pop((packet.kind, packet.id), None)
        if future is not None and not future.done():
            future.set_result(packet)

    def _resume(self, present: bool) -> None:
        """4.4: repeat in the order of sending; without a session there is nothing to repeat."""
        self.connected, self.present = True, present
        if not present:
            self.inflight.clear()
            self.received.clear()
        for packet_id, message in self.inflight.items():
            if message.released:
                self._acknowledge(wire.PUBREL, packet_id)
            else:
                qos, retain = message.qos, message.retain
                self._publish(packet_id, message.topic, message.value, qos, retain=retain, dup=True)
            message.sent_s = self._now_s()

    def _arrived(self, packet: wire.Packet) -> None:
        self.arrivals += 1
        value = value_of(packet.payload)
        noted = {"topic": packet.topic, "value": value, "qos": packet.qos, "retain": packet.retain}
        self._note("publish", d="in", **noted, dup=packet.dup, id=packet.id)
        if packet.retain:
            self.seen.add(packet.topic)
        if packet.qos == 1:
            self._acknowledge(wire.PUBACK, packet.id)
        elif packet.qos == 2:
            self.received.add(packet.id)
            self._acknowledge(wire.PUBREC, packet.id)

    def _acknowledged(self, packet: wire.Packet) -> None:
        if packet.kind == wire.PUBREL:
            self.received.discard(packet.id)
            self._acknowledge(wire.PUBCOMP, packet.id)
        elif packet.kind == wire.PUBREC and packet.code < 0x80:
            if packet.id in self.inflight:
                self.inflight[packet.id].released = True
            self._acknowledge(wire.PUBREL, packet.id)
        else:
            self.inflight.pop(packet.id, None)

    def _close(self, by: str, why: str) -> None:
        if self._writer is None:
            return
        self._note("close", by=by, why=why)
        if why != "disconnect":
            self._writer.transport.abort()
        self._writer, self.connected = None, False
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(why))
                future.exception()  # nobody may be waiting for it any more
        self._waiting.clear()
        for task in (self._reading, self._pinging):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
