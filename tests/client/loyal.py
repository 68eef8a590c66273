"""A broker of one function for tests of load clients: correct flows of QoS 0, 1 and 2, in memory, through the codec."""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.client.loadloop import Faults, LoadLoop
from folkmoot.client.loadpublisher import Publisher
from folkmoot.client.loadroute import Route
from folkmoot.client.loadsubscriber import Subscriber
from folkmoot.client.template import MessageLayout, MessageRing
from folkmoot.client.workload import Target
from folkmoot.mqtt.decode import decode
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.framer import Framer
from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Packet, Publish, Suback, Subscribe

TARGET = Target("127.0.0.1", 1)
TOPIC = b"bench/0000/00000"
CONNACK = {4: b"\x20\x02\x00\x00", 5: b"\x20\x03\x00\x00\x00"}


class Wire:
    """The two ends of a client's connection in memory; `fates` decide what becomes of messages on their way out."""

    def __init__(self, peer: Publisher | Subscriber) -> None:
        self.peer = peer
        self.framer = Framer(1 << 28)
        self.inbox: list[Packet] = []
        self.outbox = bytearray()
        peer._send = self.take
        peer.receive(CONNACK[peer.version])

    def take(self, data: bytes) -> int:
        """What the client writes."""
        self.inbox += [decode(first, body, self.peer.version) for first, body in self.framer.feed(data)]
        return len(data)

    def reply(self, packet: Packet) -> None:
        """Put a packet on the way to the client."""
        self.outbox += encode(packet, self.peer.version)

    def deliver(self, bytes_max: int) -> bool:
        """Hand over a chunk; return whether there was one."""
        chunk = bytes(self.outbox[:bytes_max])
        del self.outbox[:bytes_max]
        if chunk:
            self.peer.receive(chunk)
        return bool(chunk)


def honest(publish: Publish) -> list[Publish]:
    """Deliver each message once."""
    return [publish]


class Bench:
    """Publishers and subscribers of one workload without sockets; `fate` says what a broker makes of a message."""

    def __init__(
        self,
        *,
        qos: int,
        version: int = 4,
        publishers: int = 1,
        subscribers: int = 1,
        window: int = 10,
        paced: bool = False,
        fate: Callable[[Publish], list[Publish]] = honest,
    ) -> None:
        self.fate = fate
        self.loop = LoadLoop()
        self.faults = Faults()
        self.next_id = 0
        layout = MessageLayout(version, len(TOPIC), qos, 30)
        self.subscribers = [
            Subscriber(self.loop, TARGET, b"", self.faults, layout, b"bench/0000/+") for _ in range(subscribers)
        ]
        rings = [MessageRing(layout, TOPIC, source, window) for source in range(publishers)]
        self.publishers = [Publisher(self.loop, TARGET, b"", self.faults, ring, 3) for ring in rings]
        if publishers == 1:
            for subscriber in self.subscribers:
                subscriber.expect(rings[0].size, rings[0].cycle)
        self.routes = [Route(publisher, self.subscribers, window, paced=paced) for publisher in self.publishers]
        self.subscriber_wires = [Wire(subscriber) for subscriber in self.subscribers]
        self.publisher_wires = [Wire(publisher) for publisher in self.publishers]
        self.serve(1 << 20)

    def serve(self, bytes_max: int) -> None:
        """Play the broker until nothing moves, in chunks of `bytes_max` bytes."""
        moved = True
        while moved:
            moved = False
            for wire in (*self.publisher_wires, *self.subscriber_wires):
                packets, wire.inbox = wire.inbox, []
                for packet in packets:
                    moved = True
                    self.answer(wire, packet)
            for wire in (*self.publisher_wires, *self.subscriber_wires):
                moved = wire.deliver(bytes_max) or moved
            deferred, self.loop.deferred = self.loop.deferred, []
            for one in deferred:
                one.settle()

    def answer(self, wire: Wire, packet: Packet) -> None:
        """Answer one packet as a broker must."""
        if isinstance(packet, Subscribe):
            wire.reply(Suback(packet.packet_id, [packet.entries[0][1]]))
        elif isinstance(packet, Publish):
            self.publish(wire, packet)
        elif isinstance(packet, Ack) and packet.kind == PUBREC:
            wire.reply(Ack(PUBREL, packet.packet_id))
        elif isinstance(packet, Ack) and packet.kind == PUBREL:
            wire.reply(Ack(PUBCOMP, packet.packet_id))

    def publish(self, wire: Wire, packet: Publish) -> None:
        """Acknowledge a message and send what its fate is to all subscribers."""
        if packet.qos:
            wire.reply(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id))
        for message in self.fate(packet):
            for other in self.subscriber_wires:
                self.next_id = self.next_id % 65_535 + 1
                other.reply(
                    Publish(message.topic, message.payload, message.qos, packet_id=self.next_id if message.qos else 0)
                )

    def start(self, messages_each: int) -> None:
        """Let every publisher begin, up to so many messages."""
        for route in self.routes:
            route.publisher.limit = messages_each
            route.fill()
