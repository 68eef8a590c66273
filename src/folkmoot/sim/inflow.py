"""The receiving half of a model client: acknowledges in order, and passes each QoS 2 message on once.

Owns the packet ids of QoS 2 flows, which are session state and outlive connections (MQTT 5 sections 4.3.3, 4.4), and
checks what a client can check of a server: Receive Maximum, packet ids, topic aliases, maximum packet size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, Ack, Publish

if TYPE_CHECKING:
    from folkmoot.sim.client import Client

__all__ = ["Inflow"]

_GIVE_UP_US: Final = 20 * SECOND
"""After this a flow is not going on, while its client is connected to a cluster without faults."""


class Inflow:
    """Messages on their way from the node to a client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.incoming: dict[int, Publish] = {}  # QoS 2 flows whose PUBREL has not come
        self._since: dict[int, int] = {}  # when they began
        self._asked: dict[int, int] = {}  # when PUBREC was sent over the present connection, or that one began
        self._open: dict[int, bytes] = {}  # ids that the present connection uses
        self._aliases: dict[int, bytes] = {}
        self._acks: list[Ack] = []
        self._timer_set = False

    @property
    def idle(self) -> bool:
        """Whether no acknowledgement waits and no QoS 2 flow is unfinished."""
        if self.incoming:
            self._give_up_flows()
        return not self._acks and not self.incoming

    @property
    def is_full(self) -> bool:
        """Whether the node may send no further message with QoS 1 or 2 before it gets an acknowledgement."""
        profile = self.client.profile
        return profile.v5 and 0 < profile.receive_max <= len(self._open)

    @property
    def waits(self) -> list[tuple[int, str]]:
        """Since when it has waited for PUBREL, and for which; not where two sides of a split may share packet ids."""
        record = self.client.record
        if not self.incoming or record is None or self.client.oracle.ledger.judge.shares_ids(record):
            return []
        return [
            (self._asked[packet_id], f"PUBREL {packet_id}") for packet_id in self.incoming if packet_id in self._asked
        ]

    def _give_up_flows(self) -> None:
        """Forget flows whose PUBREL never comes because the session went on as it was on another side of a split.

        Their messages come again, with other packet ids (docs/limits.md, When the network splits).
        """
        client = self.client
        before_us = client.world.now - _GIVE_UP_US
        old = [packet_id for packet_id in self.incoming if self._since[packet_id] < before_us]
        if old and client.record is not None and client.oracle.ledger.judge.shares_ids(client.record):
            for packet_id in old:
                del self.incoming[packet_id]

    def connected(self, present: bool) -> None:
        """A connection was accepted; without a session on the other side, forget the flows."""
        self._open = {}
        self._aliases = {}
        self._acks = []
        if not present:
            self.incoming = {}
        self._asked = dict.fromkeys(self.incoming, self.client.world.now)

    def published(self, packet: Publish, size: int) -> None:
        """PUBLISH came, `size` bytes long."""
        client = self.client
        limit = client.profile.packet_bytes_max
        if limit and size > limit:
            client.fault(f"a packet of {size} bytes, the limit is {limit}")
        if not self._resolve_alias(packet):
            return
        if packet.qos == 0:
            client.received(packet)
            return
        self._check_id(packet)
        self._open[packet.packet_id] = packet.payload
        receive_max = client.profile.receive_max
        if receive_max and len(self._open) > receive_max:
            client.fault(f"{len(self._open)} messages in flight, Receive Maximum is {receive_max}")
        if packet.qos == 1:
            client.received(packet)
            self._acknowledge(Ack(PUBACK, packet.packet_id))
            return
        if packet.packet_id in self.incoming:
            client.world.mark("QoS 2 duplicate recognised")
        else:
            self.incoming[packet.packet_id] = packet
            self._since[packet.packet_id] = client.world.now
            if client.profile.late:
                client.held(packet)
            else:
                client.received(packet)
        self._acknowledge(Ack(PUBREC, packet.packet_id))

    def released(self, ack: Ack) -> None:
        """PUBREL came: the flow is over, whether known or not."""
        packet = self.incoming.pop(ack.packet_id, None)
        if packet is not None and self.client.profile.late:
            self.client.received(packet, late=True)
        self._acknowledge(Ack(PUBCOMP, ack.packet_id))

    def _check_id(self, packet: Publish) -> None:
        record = self.client.record
        if record is not None and self.client.oracle.ledger.judge.shares_ids(record):
            return  # two sides of a split give out the same ids
        used = self._open.get(packet.packet_id)
        if used is not None:
            self.client.fault(f"packet id {packet.packet_id} is in flight with {used[:40]!r} and comes with {packet}")
        flow = self.incoming.get(packet.packet_id)
        if flow is not None and (packet.qos != 2 or flow.payload != packet.payload):
            text = f"packet id {packet.packet_id} is of the QoS 2 flow of {flow.payload[:40]!r} and comes with {packet}"
            self.client.fault(text)

    def _resolve_alias(self, packet: Publish) -> bool:
        alias = None if packet.properties is None else packet.properties.topic_alias
        if alias is None:
            return True
        if alias > self.client.profile.alias_max:
            self.client.fault(f"topic alias {alias}, the maximum is {self.client.profile.alias_max}")
            return False
        if packet.topic:
            self._aliases[alias] = packet.topic
        elif alias in self._aliases:
            self.client.world.mark("topic alias out")
            packet.topic = self._aliases[alias]
        else:
            self.client.fault(f"topic alias {alias} was never set")
            return False
        return True

    def _acknowledge(self, ack: Ack) -> None:
        delay = self.client.profile.ack_us
        if not delay or self.client.hasty:
            self.flush()
            self._send(ack)
            return
        self._acks.append(ack)
        if not self._timer_set:
            self._timer_set = True
            self.client.world.after(self.client.rng.below(delay), self._flush_later)

    def _flush_later(self) -> None:
        self._timer_set = False
        self.flush()

    def flush(self) -> None:
        """Send the acknowledgements that waited, in the order in which the messages came [MQTT-4.6.0-2]."""
        acks = self._acks
        self._acks = []
        for ack in acks:
            self._send(ack)

    def _send(self, ack: Ack) -> None:
        if self.client.online:
            if ack.kind == PUBREC:
                self._asked[ack.packet_id] = self.client.world.now
            else:
                self._open.pop(ack.packet_id, None)
            self.client.send(ack)
