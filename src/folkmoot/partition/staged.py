"""The content of a staged chunk: MQTT 5 PUBLISH packets, one behind the other.

Owns the check of each packet, with a readable reason, and the conversion of a packet to a message. A packet with QoS 1
or 2 must have a packet id, which has no meaning: these packets are not acknowledged one by one.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.limits import Limits
from folkmoot.mqtt.decode import decode_publish
from folkmoot.mqtt.encode import forward_properties
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.kind import PUBLISH, V5
from folkmoot.mqtt.packet import Properties, Publish
from folkmoot.mqtt.text import check_utf8
from folkmoot.mqtt.varint import decode_varint
from folkmoot.store.message import Message
from folkmoot.topics.name import check_topic
from folkmoot.turn.lifetime import lifetime

__all__ = ["CHUNK_BYTES_MAX", "CHUNK_MESSAGES_MAX", "Fault", "check_packets", "message_at", "packet_end"]

CHUNK_BYTES_MAX: Final = 131_072
"""Bytes of a chunk, unless it is a single packet: what one turn publishes, and one row holds."""

CHUNK_MESSAGES_MAX: Final = 256
"""Packets of a chunk: what one turn publishes."""


class Fault:
    """Why packets cannot be staged: which one, counted from 0 (-1 = all of them), and the reason."""

    def __init__(self, index: int, why: str, too_large: bool) -> None:
        self.index = index
        self.why = why
        self.too_large = too_large

    def __repr__(self) -> str:
        return f"Fault({self.index} {self.why!r})"


def packet_end(data: bytes, pos: int) -> tuple[int, int]:
    """Return where the body of the packet at `pos` begins and ends; raises IndexError when it is not whole."""
    length, start = decode_varint(data, pos + 1)
    end = start + length
    if length < 0 or end > len(data):
        raise IndexError("a packet ends too early")
    return start, end


def check_packets(data: bytes, limits: Limits) -> tuple[int, Fault | None]:
    """Return how many packets there are, and the fault of the first that may not be published, if any."""
    if not data:
        return 0, Fault(-1, "there are no packets", False)
    count = 0
    pos = 0
    while pos < len(data):
        try:
            start, end = packet_end(data, pos)
        except IndexError:
            return count, Fault(count, "it is not whole: its remaining length does not fit", False)
        if end - pos > limits.packet_bytes_max:
            return count, Fault(count, _beyond("it", end - pos, "packet_bytes_max", limits.packet_bytes_max), True)
        why = _fault_of(data[pos], data[start:end], limits)
        if why:
            return count, Fault(count, why, False)
        pos = end
        count += 1
    if count > CHUNK_MESSAGES_MAX:
        return count, Fault(-1, f"{count} packets, a chunk has at most {CHUNK_MESSAGES_MAX}", True)
    if len(data) > CHUNK_BYTES_MAX and count > 1:
        why = f"{len(data)} bytes, a chunk of several packets has at most {CHUNK_BYTES_MAX}"
        return count, Fault(-1, why, True)
    return count, None


def _fault_of(first: int, body: bytes, limits: Limits) -> str:
    if first >> 4 != PUBLISH:
        return "it is not a PUBLISH packet"
    try:
        publish = decode_publish(first, body, V5)
    except MalformedPacket as fault:
        return fault.text
    topic = publish.topic
    if not topic:
        return "the topic is empty"
    if topic[0] == 36:  # b"$"
        return f"the topic {_shown(topic)} begins with $: such topics belong to the server"
    if len(topic) > limits.topic_bytes_max:
        return _beyond("the topic", len(topic), "topic_bytes_max", limits.topic_bytes_max)
    why = check_topic(topic, limits.topic_levels_max)
    if why is not None:
        many = topic.count(b"/") >= limits.topic_levels_max
        return f"{why}: {_shown(topic)}" + (" (limits.topic_levels_max)" if many else "")
    if publish.qos > limits.qos_max:
        return f"QoS {publish.qos} is above the maximum {limits.qos_max} (limits.qos_max)"
    if publish.retain and not limits.retain_available:
        return "retained messages are switched off (limits.retain_available)"
    return "" if publish.properties is None else _property_fault(publish, publish.properties, limits)


def _beyond(what: str, size: int, name: str, limit: int) -> str:
    return f"{what} has {size} bytes, the limit is {limit} (limits.{name})"


def _shown(topic: bytes) -> str:
    """Return a topic as readable text of limited length."""
    return repr(topic[:100].decode("utf-8", "replace"))


def _property_fault(publish: Publish, properties: Properties, limits: Limits) -> str:
    if properties.topic_alias is not None:
        return "it has a topic alias, which belongs to a connection"
    if properties.subscription_ids:
        return "it has a subscription identifier, which only a server may send"
    if len(properties.user_properties) > limits.user_properties_max:
        return f"more than {limits.user_properties_max} user properties (limits.user_properties_max)"
    if properties.payload_format == 1 and limits.check_payload_format and not check_utf8(publish.payload):
        return "the payload is not the UTF-8 that it claims to be"
    return ""


def message_at(data: bytes, pos: int, publisher: str, now: int, limits: Limits) -> tuple[Message, int]:
    """Return the message of the packet at `pos`, published now, and the next position; raises CorruptStore."""
    try:
        start, end = packet_end(data, pos)
        publish = decode_publish(data[pos], data[start:end], V5)
    except (IndexError, MalformedPacket) as fault:
        raise CorruptStore(f"a staged packet is damaged: {fault}") from None
    properties = publish.properties
    forwarded = b"" if properties is None else forward_properties(properties)
    life_us = lifetime(properties, limits)
    expires_us = now + life_us if life_us else 0
    return Message(
        publish.topic, publish.payload, publish.qos, publish.retain, forwarded, publisher, now, expires_us
    ), end
