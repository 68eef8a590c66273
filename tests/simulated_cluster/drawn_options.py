"""Clients that draw the options of their subscriptions anew with each SUBSCRIBE (MQTT 5 section 3.8.3.1).

A client knows which options may be in force: those of the last SUBSCRIBE that was acknowledged before a message was
sent, and those of all later ones.
"""

from __future__ import annotations

import random

from folkmoot.mqtt.kind import PUBACK
from folkmoot.mqtt.packet import Ack, Publish, Suback, Subscribe
from folkmoot.session.subscription import NO_LOCAL, RETAIN_AS_PUBLISHED
from tests.harness.peer import properties
from tests.harness.simulated_cluster import SimulatedCluster
from tests.simulated_cluster.drawn import DrawnClient, Ledger, Message, matches

__all__ = ["Chooser", "Request"]

ALWAYS, IF_NEW, NEVER = 0, 1, 2  # retain handling


class Request:
    """One SUBSCRIBE: its options, and when it was sent and acknowledged, as moments of the ledger."""

    def __init__(self, client: Chooser, name: str, rng: random.Random) -> None:
        self.name = name
        self.session = client.sessions
        self.asked = client.ledger.tick()
        self.acked = 0
        self.no_local = rng.random() < 0.4
        self.as_published = rng.random() < 0.4
        self.handling = rng.choice((ALWAYS, IF_NEW, NEVER))
        self.identifier = rng.choice((0, 1, 2, 3))
        self.may_be_new = client.sure.get(name) is not True

    @property
    def options(self) -> int:
        """The byte of the options, without the QoS."""
        flags = (NO_LOCAL if self.no_local else 0) | (RETAIN_AS_PUBLISHED if self.as_published else 0)
        return flags | self.handling << 4

    @property
    def may_send_retained(self) -> bool:
        """Whether retained messages may come for it."""
        return self.handling == ALWAYS or (self.handling == IF_NEW and self.may_be_new)

    def __repr__(self) -> str:
        flags = f"no_local={self.no_local} as_published={self.as_published} handling={self.handling}"
        return f"Request({self.name} {self.asked}..{self.acked} id={self.identifier} {flags} new={self.may_be_new})"


class Chooser(DrawnClient):
    """A client of MQTT 5 whose subscriptions have options."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        ledger: Ledger,
        name: str,
        rng: random.Random,
        *,
        persistent: bool,
        filters: list[tuple[str, int]],
        window: int,
    ) -> None:
        super().__init__(cluster, ledger, name, persistent=persistent, filters=filters, window=window)
        self.rng = rng
        self.requests: list[Request] = []
        self.asking: dict[int, Request] = {}  # by packet id
        self.flagged: dict[tuple[int, int], int] = {}  # by message and session: how often it came with RETAIN
        self.unanswered: dict[int, int] = {}  # QoS 1: messages of this session without PUBACK, by packet id

    def subscribe(self, name: str) -> None:
        """Send SUBSCRIBE with other options than before."""
        request = Request(self, name, self.rng)
        self.requests.append(request)
        super().subscribe(name)

    def _subscribe_packet(self, packet_id: int, name: str) -> Subscribe:
        request = self.asking[packet_id] = self.requests[-1]
        made = properties(subscription_ids=[request.identifier]) if request.identifier else None
        return Subscribe(packet_id, [(name.encode(), self.filters[name] | request.options)], made)

    def _subscribed(self, packet: Suback) -> None:
        super()._subscribed(packet)
        self.asking.pop(packet.packet_id).acked = self.ledger.tick()

    def possible(self, message: Message) -> list[Request]:
        """Return the requests of this session whose options may have been in force for a message."""
        found: list[Request] = []
        for request in self.requests:
            if request.session == self.sessions and matches(request.name, message.topic):
                if request.acked and request.acked < message.sent:
                    found.clear()
                found.append(request)
        return found

    def _arrives(self, packet: Publish) -> None:
        message = self.ledger.messages.get(int(packet.payload))
        assert message is not None, f"A2: {self} gets {packet}"
        assert message.topic == packet.topic.decode(), f"A2: {self} gets {packet}"
        qos = next(qos for name, qos in self.filters.items() if matches(name, message.topic))
        assert packet.qos == min(message.qos, qos), f"{self} gets {packet} of {message}"
        if not self._is_new(packet, message.number):
            return
        requests = [one for one in self.requests if one.session == self.sessions and matches(one.name, message.topic)]
        live = self.possible(message)
        readers = [one for one in requests if one.may_send_retained]
        self._look_at_identifier(packet, requests if packet.retain else live)
        again = packet.dup and self.unanswered.get(packet.packet_id) == message.number  # [MQTT-4.4.0-1]
        if packet.qos == 1:
            self.unanswered[packet.packet_id] = message.number
        if packet.retain:
            self._flagged(message, readers, live, again)
            return
        how = f"{self} gets {packet} of {message} for {live}"
        assert not message.retain or not live or not all(one.as_published for one in live), f"[MQTT-3.3.1-13] {how}"
        own = message.client is self
        assert not own or not live or not all(one.no_local for one in live), f"[MQTT-3.8.3-3] {how}"
        self._note_arrival(message, packet)

    def _look_at_identifier(self, packet: Publish, requests: list[Request]) -> None:
        found = packet.properties.subscription_ids if packet.properties is not None else []
        allowed = [[one.identifier] if one.identifier else [] for one in requests]
        assert found in allowed, f"[MQTT-3.3.4-3] {self} gets {packet} for {requests}"

    def _answered(self, ack: Ack) -> None:
        if ack.kind == PUBACK and self.peer is not None and self.peer.connection is not None:
            self.unanswered.pop(ack.packet_id, None)

    def _end_session(self) -> None:
        super()._end_session()
        self.unanswered.clear()

    def _flagged(self, message: Message, readers: list[Request], live: list[Request], again: bool) -> None:
        """A message with RETAIN is read for a SUBSCRIBE, or live with Retain As Published; again: not answered yet."""
        published = [one for one in live if one.as_published and not (one.no_local and message.client is self)]
        assert readers or published, f"[MQTT-3.3.1-12] {self} gets {message} with RETAIN for {live}"
        key = (message.number, self.sessions)
        self.flagged[key] = self.flagged.get(key, 0) + (not again)
        self.retained[message.topic] = message.number

    def flags_allowed(self, message: Message) -> int:
        """How often a message may begin to come with RETAIN in this session: for each SUBSCRIBE, and once live."""
        requests = [one for one in self.requests if one.session == self.sessions and matches(one.name, message.topic)]
        readers = [one for one in requests if one.may_send_retained]
        return len(readers) + (message.sends if any(one.as_published for one in requests) else 0)

    def lacks(self, message: Message, strict: bool) -> bool:
        """Whether it must have got an acknowledged message and has not."""
        if any(number == message.number for number, _ in self.flagged):
            return False
        if message.client is self and any(one.no_local for one in self.possible(message)):
            return False
        return super().lacks(message, strict)
