"""All facts of a run in one place: every message, session, subscription and connection that the clients know of.

Owns registration and look-up; judges nothing.
"""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.mqtt.packet import Publish
from folkmoot.sim.causes import Causes
from folkmoot.sim.fact import Attempt, Lane, Life, Message, SessionRecord
from folkmoot.sim.host import Host
from folkmoot.sim.network import Link
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World

__all__ = ["Ledger"]


class Ledger:
    """The facts of one run."""

    def __init__(self, world: World, hosts: list[Host], trouble: Trouble, judge: Causes) -> None:
        self.world = world
        self.hosts = hosts
        self.trouble = trouble
        self.judge = judge  # says what excuses a case
        self.messages: list[Message] = []
        self.by_payload: dict[bytes, Message] = {}
        self.clears: dict[bytes, list[Message]] = {}  # empty retained messages, by topic: their payload identifies none
        self.retained: dict[bytes, list[Message]] = {}  # everything published with RETAIN, by topic
        self.lanes: dict[tuple[str, bytes, int], Lane] = {}
        self.records: list[SessionRecord] = []
        self.current: dict[str, SessionRecord] = {}  # by client id
        self.lives: dict[str, list[Life]] = {}  # by client id
        self.shared_limit = 0  # messages per session, when sessions share the quota of a user in this run; else 0
        self.ages = True  # all nodes tell how long a message has waited for a leader; those of an older build do not
        self.queue_limit = 0  # messages per session, when queues are short in this run; else 0
        self.slack_us = 200 * MILLISECOND  # by how much clients and node may disagree about a moment
        self._orders = 0

    def publish(self, publisher: str, packet: Publish, once: bool) -> Message:
        """Register a message before its publisher has sent it; `once`: repeating it does not apply it again."""
        message = Message(len(self.messages), publisher, packet)
        message.once = message.once or once
        self.messages.append(message)
        if message.payload:
            assert message.payload not in self.by_payload, "payloads are unique"
            self.by_payload[message.payload] = message
        else:
            self.clears.setdefault(message.topic, []).append(message)
        if message.retain:
            self.retained.setdefault(message.topic, []).append(message)
        return message

    def sent(self, message: Message, link: Link) -> None:
        """A message was sent; the first time it gets its place in its lane."""
        self._orders += 1
        if not message.attempts:
            key = (message.publisher, message.topic, message.qos)
            lane = self.lanes.get(key)
            if lane is None:
                lane = Lane(len(self.lanes))
                self.lanes[key] = lane
            message.lane = lane
            message.index = len(lane.messages)
            lane.messages.append(message)
        message.attempts.append(Attempt(self.world.now, link, self._orders))

    def connecting(self, life: Life) -> None:
        """A client opened a connection."""
        lives = self.lives.setdefault(life.client_id, [])
        if lives:
            lives[-1].next = life
        lives.append(life)

    def begin(self, life: Life, expiry_s: int) -> SessionRecord:
        """A new session; the one before, if any, is over."""
        before = self.current.get(life.client_id)
        if before is not None:
            before.ended = True
        record = SessionRecord(len(self.records), life.client_id, life.version, expiry_s, self.world.now)
        self.records.append(record)
        self.current[life.client_id] = record
        return record

    def was_full(self, since_us: int, until_us: int) -> bool:
        """Whether the disk of some node was full at some moment between the two."""
        for host in self.hosts:
            if host.full_since_us <= until_us:
                return True
            if any(begin <= until_us and end >= since_us for begin, end in host.full_spans):
                return True
        return False
