"""The sending half of a model client: a window of messages, resent with the same packet ids (MQTT 5 section 4.4).

Owns the messages that wait and those in flight; they are session state and outlive connections.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Properties, Publish
from folkmoot.sim.fact import Message

if TYPE_CHECKING:
    from folkmoot.sim.client import Client

__all__ = ["Outflow"]

_PACKET_IDS: Final = 200
"""Few, so that ids come around."""


class Flight:
    """A message between its first sending and its last acknowledgement."""

    def __init__(self, message: Message, packet_id: int) -> None:
        self.message = message
        self.packet_id = packet_id
        self.released = False  # PUBREC came, PUBREL was sent
        self.asked_us = 0  # when what is to be answered was sent

    @property
    def awaited(self) -> str:
        """What comes next."""
        name = "PUBACK" if self.message.qos == 1 else "PUBCOMP" if self.released else "PUBREC"
        return f"{name} for {self.message}"


class Outflow:
    """Messages on their way from a client to the node, in order."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.pending: deque[Message] = deque()
        self.inflight: dict[int, Flight] = {}
        self.limit = 1
        self._next_id = 1
        self._aliases: dict[bytes, int] = {}
        self._alias_max = 0

    @property
    def idle(self) -> bool:
        """Whether everything was sent and acknowledged."""
        return not self.pending and not self.inflight

    @property
    def waits(self) -> list[tuple[int, str]]:
        """Since when it has waited for which answers."""
        return [(flight.asked_us, flight.awaited) for flight in self.inflight.values()]

    def publish(self, message: Message) -> None:
        """Send a message when its turn comes."""
        self.pending.append(message)
        self.pump()

    def take_id(self) -> int:
        """Return a packet id that is not in use, for SUBSCRIBE too."""
        while self._next_id in self.inflight or self._next_id in self.client.requests:
            self._next_id = self._next_id % _PACKET_IDS + 1
        taken = self._next_id
        self._next_id = taken % _PACKET_IDS + 1
        return taken

    def pump(self) -> None:
        """Send what the window allows."""
        while self.client.online and self.pending:
            message = self.pending[0]
            if message.qos and len(self.inflight) >= self.limit:
                return
            self.pending.popleft()
            packet_id = 0
            if message.qos:
                packet_id = self.take_id()
                self.inflight[packet_id] = flight = Flight(message, packet_id)
                flight.asked_us = self.client.world.now
            self._send(message, packet_id, dup=False)
            if not message.qos:
                self.client.oracle.settled(message)

    def _send(self, message: Message, packet_id: int, dup: bool) -> None:
        topic, properties = self._aliased(message)
        packet = Publish(topic, message.payload, message.qos, message.retain, dup, packet_id, properties)
        self.client.send(packet)
        self.client.oracle.sent(message, self.client.current)

    def _aliased(self, message: Message) -> tuple[bytes, Properties | None]:
        properties = message.properties
        if not self._alias_max:
            return message.topic, properties
        known = self._aliases.get(message.topic)
        if known is None and len(self._aliases) >= self._alias_max:
            return message.topic, properties
        aliased = Properties()
        if properties is not None:
            aliased.payload_format = properties.payload_format
            aliased.message_expiry = properties.message_expiry
            aliased.content_type = properties.content_type
            aliased.response_topic = properties.response_topic
            aliased.correlation_data = properties.correlation_data
            aliased.user_properties = properties.user_properties
        if known is None:
            known = len(self._aliases) + 1
            self._aliases[message.topic] = known
            aliased.topic_alias = known
            return message.topic, aliased
        aliased.topic_alias = known
        self.client.world.mark("topic alias in")
        return b"", aliased

    def connected(self, present: bool, receive_max: int, alias_max: int) -> None:
        """A connection was accepted: resend what is in flight, or start anew when the node has no session."""
        profile = self.client.profile
        self.limit = max(1, min(profile.window, receive_max))
        self._aliases = {}
        self._alias_max = alias_max if profile.uses_aliases else 0
        if present:
            for flight in self.inflight.values():
                self.client.world.mark("resent PUBREL" if flight.released else "resent PUBLISH")
                flight.asked_us = self.client.world.now
                if flight.released:
                    self.client.send(Ack(PUBREL, flight.packet_id))
                else:
                    self._send(flight.message, flight.packet_id, dup=True)
        else:
            self._forget()
        self.pump()

    def _forget(self) -> None:
        """The session is gone: what may be applied twice, or is known by its producer, is sent again as new."""
        again: list[Message] = []
        for flight in self.inflight.values():
            if flight.released:
                continue
            if flight.message.qos == 1 or self.client.profile.producer:
                again.append(flight.message)
            else:
                self.client.world.mark("QoS 2 message given up")
                self.client.oracle.settled(flight.message)
        self.inflight.clear()
        self.pending.extendleft(reversed(again))

    def acknowledged(self, ack: Ack) -> None:
        """PUBACK, PUBREC or PUBCOMP came."""
        flight = self.inflight.get(ack.packet_id)
        client = self.client
        if ack.kind == PUBREC:
            self._received(ack, flight)
            return
        wanted = PUBCOMP if flight is not None and flight.message.qos == 2 else PUBACK
        if flight is None or ack.kind != wanted or (ack.kind == PUBCOMP and not flight.released):
            client.fault(f"unexpected {ack}")
            return
        del self.inflight[ack.packet_id]
        if ack.kind == PUBACK:
            client.oracle.answered(flight.message, ack.code)
        client.oracle.settled(flight.message)
        self.pump()

    def _received(self, ack: Ack, flight: Flight | None) -> None:
        client = self.client
        if flight is None or flight.message.qos != 2:
            client.fault(f"unexpected {ack}")
            return
        client.oracle.answered(flight.message, ack.code)
        if ack.code >= 0x80:
            del self.inflight[ack.packet_id]
            client.oracle.settled(flight.message)
            self.pump()
            return
        flight.released = True
        flight.asked_us = client.world.now
        client.send(Ack(PUBREL, ack.packet_id))
