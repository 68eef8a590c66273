"""A script for a node: what happens to it, step by step, and everything that it wants done, as text."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import strategies as st

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
    V31,
    V311,
    Ack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    Unsubscribe,
    Will,
)
from folkmoot.node import Connection, Node, NodeConfig, PeerInfo
from folkmoot.store.batch import Batch
from folkmoot.store.memory import MemoryStore
from folkmoot.streams.config import StreamConfig
from tests.harness.peer import properties

__all__ = ["FLOW", "Cut", "Player", "Step", "scripts", "whole"]

Step = tuple[str, int, object]
Cut = Callable[[bytes], list[bytes]]

FLOW = "flow"  # begins what a turn wants of the transports of clients
START = 1_700_000_000 * SECOND
SLOTS = 4
VERSIONS = [V5, V311, V5, V31]  # the protocol that each slot speaks

TOPICS = [b"a", b"a/b", b"a/c", b"s/1", b"s/2"]
FILTERS = [b"a", b"a/#", b"+/b", b"#", b"s/1", b"$share/g/a/#", b"$share/g/a/b", b"$stream/log/earliest/#", b"bad/#/x"]
PAYLOADS = [b"", b"x", b"yy", bytes(200), bytes(2_000)]
FAULTS = [b"\xff\xff", b"\x00\x00", b"\x36\x00", b"\x62\x02\0\0"]


def whole(data: bytes) -> list[bytes]:
    """Do not cut."""
    return [data]


class Author:
    """Writes scripts: clients that come, subscribe, publish, acknowledge, and sometimes do wrong, in any order."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def script(self, length: int) -> list[Step]:
        """Return a script in which all slots connect first."""
        return [self.open(slot) for slot in range(SLOTS)] + [self.step() for _ in range(length)]

    def step(self) -> Step:
        """Return any step."""
        random, slot = self.random, self.random.randrange(SLOTS)
        what = random.choices(
            ["send", "turn", "written", "open", "lose", "time", "writable", "storage"], [60, 15, 15, 4, 2, 3, 3, 1]
        )[0]
        if what == "open":
            return self.open(slot)
        if what == "send":
            return what, slot, self.packets(VERSIONS[slot])
        if what == "written":
            return what, random.randint(1, 3), None
        if what == "time":
            return what, random.choice([1, SECOND, SECOND, 6 * SECOND, 60 * SECOND]), None
        return what, slot, random.random() < (0.7 if what == "writable" else 0.3)

    def open(self, slot: int) -> Step:
        """Return the step in which a new connection says CONNECT."""
        random, version, made = self.random, VERSIONS[slot], None
        will = Will(random.choice(TOPICS), b"will", random.randint(0, 2), random.random() < 0.5)
        if version == V5:
            made = properties(
                session_expiry=random.choice([None, 5, 1_000]),
                receive_max=random.choice([None, 1, 3]),
                topic_alias_max=random.choice([None, 1]),
            )
        client_id = random.choice("abcd") if random.random() < 0.3 else "abcd"[slot]
        clean = random.random() < 0.4
        return (
            "open",
            slot,
            Connect(version, client_id, clean, 30, will=will if random.random() < 0.3 else None, properties=made),
        )

    def packets(self, version: int) -> bytes:
        """Return a few packets of an open connection, or a run of equal ones."""
        random = self.random
        if random.random() < 0.3:
            return self.run(version)
        return b"".join([encode(self.packet(version), version) for _ in range(random.randint(1, 4))])

    def run(self, version: int) -> bytes:
        """Return PUBLISH packets that differ in their identifiers only; sometimes there is a fault in it."""
        random, data = self.random, b""
        packet = self.publish(version)
        packet.retain = False
        if random.random() < 0.7:
            packet.properties = None
        for _ in range(random.randint(2, 5)):
            packet.packet_id = random.randint(1, 6) if packet.qos else 0
            data += encode(packet, version)
        if packet.qos and random.random() < 0.1:
            behind = packet.topic + packet.packet_id.to_bytes(2, "big")
            data += encode(packet, version).replace(behind, packet.topic + b"\0\0", 1)
        elif random.random() < 0.05:
            data += random.choice(FAULTS)
        return data

    def packet(self, version: int) -> Packet:
        """Return one packet of an open connection."""
        random = self.random
        what, packet_id = random.random(), random.randint(1, 6)
        if what < 0.45:
            return self.publish(version)
        if what < 0.7:
            return Ack(random.choice([PUBACK, PUBACK, PUBREC, PUBREL, PUBCOMP]), packet_id)
        if what < 0.9:
            return Subscribe(packet_id, [(random.choice(FILTERS), random.randint(0, 2))])
        if what < 0.95:
            return Unsubscribe(packet_id, [random.choice(FILTERS)])
        return Disconnect() if what > 0.995 else Pingreq()

    def publish(self, version: int) -> Publish:
        """Return a PUBLISH."""
        random, made = self.random, None
        if version == V5 and random.random() < 0.4:
            pairs = [("folkmoot-producer", "p"), ("folkmoot-seq", str(random.randint(1, 20)))]
            made = properties(
                message_expiry=random.choice([None, 0, 3]),
                topic_alias=random.choice([None, 1]),
                user_properties=pairs if random.random() < 0.5 else None,
            )
        qos = random.randint(0, 2)
        payload = random.choice(PAYLOADS)
        return Publish(
            random.choice(TOPICS), payload, qos, random.random() < 0.15, False, random.randint(1, 6) if qos else 0, made
        )


def _script(seed: int, length: int) -> list[Step]:
    return Author(seed).script(length)


scripts: st.SearchStrategy[list[Step]] = st.builds(_script, st.integers(0, 2**64), st.integers(0, 120))


class Player:
    """Plays a script to a node on a store in memory and writes down all effects of every turn.

    backlog_bytes: from so much that is not durable on the node defers publications; how far it has got in the bytes of
    a connection by then depends on how they were cut, and so does the order of what others send meanwhile.
    """

    def __init__(self, backlog_bytes: int = 6_000) -> None:
        config = NodeConfig()
        config.partitions = 8
        config.limits.page_rows = 4
        config.limits.sys_interval_us = 7 * SECOND
        config.limits.queue_messages_max = 6
        config.limits.write_backlog_bytes_max = backlog_bytes
        config.limits.queue_qos0_offline = True
        config.streams = [StreamConfig("log", b"s/#", 2)]
        self.now = START
        self.store = MemoryStore()
        self.tables = MemoryStore()
        self.node = Node(config, self.tables, 1)
        self.trace: list[str] = []
        self.slots: list[Connection | None] = [None] * SLOTS
        self.pending: list[Batch] = []
        self.node.open(self.now)
        self.turn()

    def play(self, script: list[Step], cut: Cut) -> list[str]:
        """Play the whole script, then let the node come to rest; return what it wanted."""
        for step in script:
            self.step(step, cut)
        for _ in range(50):
            self.turn()
            self.written(len(self.pending))
            self.node.wake(self.now)
        self.turn()
        self.trace.append(f"rows {self.store.items()!r}")
        return self.trace

    def step(self, step: Step, cut: Cut) -> None:
        """Do one step."""
        what, number, thing = step
        connection = self.slots[number % SLOTS]
        if what == "open":
            assert isinstance(thing, Connect)
            self.lose(number)
            made = self.node.connect(number, PeerInfo("tcp", f"192.0.2.{number}:1"), self.now)
            self.slots[number] = made
            for chunk in cut(encode(thing, thing.version)):
                self.node.receive(made, chunk, self.now)
        elif what == "send" and connection is not None:
            assert isinstance(thing, bytes)
            for chunk in cut(thing):
                self.node.receive(connection, chunk, self.now)
        elif what == "lose":
            self.lose(number)
        elif what == "turn":
            self.turn()
        elif what == "written":
            self.written(number)
        elif what == "time":
            self.now += number
            self.node.wake(self.now)
        elif what == "writable" and connection is not None:
            self.node.writable(connection, bool(thing), self.now)
        elif what == "storage":
            self.node.storage(bool(thing), "test", self.now)

    def lose(self, number: int) -> None:
        """The network connection of a slot breaks."""
        connection = self.slots[number]
        if connection is not None:
            self.slots[number] = None
            self.node.lost(connection, "reset", self.now)

    def written(self, count: int) -> None:
        """The oldest batches become durable."""
        for batch in self.pending[:count]:
            self.store.apply(batch)
            self.node.written(batch.token, self.now)
        del self.pending[:count]

    def turn(self) -> None:
        """End a turn."""
        effects = self.node.drain(self.now)
        if effects.apply:
            batch = Batch(effects.apply_token)
            batch.ops = effects.apply
            self.tables.apply(batch)
            self.node.applied(self.now)
        if effects.write is not None:
            self.pending.append(effects.write)
            self.trace.append(f"write {effects.write.token} {effects.write.ops!r}")
        for connection in effects.outputs:
            self.trace.append(f"output {connection.id} {connection.take_output()!r}")
        for connection in effects.closes:
            self.trace.append(f"close {connection.id}")
            self.node.lost(connection, "closed", self.now)
        self.trace.append(
            f"{FLOW} pauses {[one.id for one in effects.pauses]} resumes {[one.id for one in effects.resumes]}"
        )
        self.trace.append(
            f"checks {effects.checks!r} events {effects.events!r} more {effects.more} wake {self.node.next_wake()}"
        )
