"""Hypothesis strategies for legal packets of each version, with any properties that the packet may hold."""

from __future__ import annotations

from hypothesis import strategies as st

from folkmoot.mqtt.kind import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBLISH,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    WILL,
)
from folkmoot.mqtt.packet import (
    V5,
    V31,
    V311,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)

__all__ = ["garbage", "packets", "publishes", "versions"]

versions = st.sampled_from([V31, V311, V5])
flags = st.integers(0, 1)
u16 = st.integers(0, 65_535)
u32 = st.integers(0, 0xFFFF_FFFF)
ids = st.integers(1, 65_535)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
pairs = st.lists(st.tuples(texts, texts), max_size=3)
binaries = st.binary(max_size=12)
topics = (
    st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=8)
    .map(lambda text: text.encode())
    .filter(lambda topic: topic != b"")
)
filters = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8).map(str.encode)

# Table 2-4 of MQTT 5.0 written a second time, by packet: attribute and values.
MESSAGE = {
    "payload_format": flags,
    "message_expiry": u32,
    "content_type": texts,
    "response_topic": topics,
    "correlation_data": binaries,
}
SHARED = {
    "session_expiry": u32,
    "auth_method": texts,
    "auth_data": binaries,
    "receive_max": ids,
    "topic_alias_max": u16,
    "packet_max": st.integers(1, 0xFFFF_FFFF),
}
REASON: dict[str, st.SearchStrategy[object]] = {"reason": texts}
subscription_ids = st.integers(1, 268_435_455)
HELD: dict[int, dict[str, st.SearchStrategy[object]]] = {
    WILL: {**MESSAGE, "will_delay": u32},
    CONNECT: {**SHARED, "request_problem": flags, "request_response": flags},
    CONNACK: {
        **SHARED,
        **REASON,
        "assigned_client_id": texts,
        "server_keep_alive": u16,
        "response_info": texts,
        "server_reference": texts,
        "max_qos": flags,
        "retain_available": flags,
        "wildcard_available": flags,
        "subscription_ids_available": flags,
        "shared_available": flags,
    },
    PUBLISH: {**MESSAGE, "topic_alias": ids, "subscription_ids": st.lists(subscription_ids, max_size=3)},
    4: REASON,
    5: REASON,
    6: REASON,
    7: REASON,
    SUBSCRIBE: {"subscription_ids": st.lists(subscription_ids, max_size=1)},
    SUBACK: REASON,
    UNSUBSCRIBE: {},
    UNSUBACK: REASON,
    DISCONNECT: {**REASON, "session_expiry": u32, "server_reference": texts},
    AUTH: {**REASON, "auth_method": texts, "auth_data": binaries},
}


@st.composite
def held(draw: st.DrawFn, version: int, kind: int) -> Properties | None:
    """Some of the properties of a packet, None for none and before MQTT 5.0."""
    if version != V5:
        return None
    made = Properties()
    for name, values in HELD[kind].items():
        if draw(st.booleans()):
            setattr(made, name, draw(values))
    made.user_properties = draw(pairs)
    if made.auth_data is not None and made.auth_method is None:
        made.auth_method = "M"
    return made if made.fields() else None


@st.composite
def _connect(draw: st.DrawFn, version: int) -> Connect:
    will = None
    if draw(st.booleans()):
        will = Will(
            draw(topics), draw(binaries), draw(st.integers(0, 2)), draw(st.booleans()), draw(held(version, WILL))
        )
    username = draw(st.none() | texts)
    password = draw(st.none() | binaries) if version == V5 or username is not None else None
    return Connect(
        version, draw(texts), draw(st.booleans()), draw(u16), username, password, will, draw(held(version, CONNECT))
    )


def connects() -> st.SearchStrategy[Connect]:
    """Any legal CONNECT of any version."""
    return versions.flatmap(_connect)


@st.composite
def publishes(draw: st.DrawFn, version: int) -> Publish:
    """Any legal PUBLISH of a version."""
    qos = draw(st.integers(0, 2))
    properties = draw(held(version, PUBLISH))
    topic = draw(topics)
    if properties is not None and properties.topic_alias is not None and draw(st.booleans()):
        topic = b""
    dup = qos > 0 and draw(st.booleans())
    return Publish(
        topic, draw(st.binary(max_size=300)), qos, draw(st.booleans()), dup, draw(ids) if qos else 0, properties
    )


@st.composite
def _ack(draw: st.DrawFn, version: int) -> Ack:
    kind = draw(st.integers(4, 7))
    if version != V5:
        return Ack(kind, draw(ids))
    codes = [0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99] if kind < 6 else [0x00, 0x92]
    return Ack(kind, draw(ids), draw(st.sampled_from(codes)), draw(held(version, kind)))


@st.composite
def _subscribe(draw: st.DrawFn, version: int) -> Subscribe:
    if version == V5:
        options = st.builds(lambda qos, middle, handling: qos | middle << 2 | handling << 4, *[st.integers(0, 2)] * 3)
        entry = st.tuples(filters.filter(lambda name: not name.startswith(b"$share/")), options)
    else:
        entry = st.tuples(filters, st.integers(0, 2))
    return Subscribe(draw(ids), draw(st.lists(entry, min_size=1, max_size=4)), draw(held(version, SUBSCRIBE)))


@st.composite
def _answer(draw: st.DrawFn, version: int) -> Packet:
    if draw(st.booleans()):
        codes = st.sampled_from([0, 1, 2, 0x80] if version != V5 else [0, 1, 2, 0x80, 0x87, 0x8F, 0xA2])
        return Suback(draw(ids), draw(st.lists(codes, min_size=1, max_size=4)), draw(held(version, SUBACK)))
    codes = st.sampled_from([0x00, 0x11, 0x80, 0x8F])
    listed = draw(st.lists(codes, min_size=1, max_size=4)) if version == V5 else []
    return Unsuback(draw(ids), listed, draw(held(version, UNSUBACK)))


@st.composite
def _ending(draw: st.DrawFn, version: int) -> Packet:
    if version != V5:
        return Disconnect()
    if draw(st.booleans()):
        return Disconnect(draw(st.sampled_from([0, 4, 0x80, 0x8E, 0xA2])), draw(held(version, DISCONNECT)))
    properties = draw(held(version, AUTH)) or Properties()
    properties.auth_method = properties.auth_method or "M"
    return Auth(draw(st.sampled_from([0, 0x18, 0x19])), properties)


@st.composite
def _connack(draw: st.DrawFn, version: int) -> Connack:
    code = draw(st.integers(0, 5) if version != V5 else st.sampled_from([0, 0x80, 0x84, 0x9F]))
    present = code == 0 and version != V31 and draw(st.booleans())
    return Connack(present, code, draw(held(version, CONNACK)))


def packets(version: int) -> st.SearchStrategy[Packet]:
    """Any legal packet of a version."""
    unsubscribe = st.builds(Unsubscribe, ids, st.lists(filters, min_size=1, max_size=4), held(version, UNSUBSCRIBE))
    return st.one_of(
        _connect(version),
        _connack(version),
        publishes(version),
        _ack(version),
        _subscribe(version),
        _answer(version),
        unsubscribe,
        _ending(version),
        st.sampled_from([Pingreq(), Pingresp()]),
    )


@st.composite
def garbage(draw: st.DrawFn) -> tuple[int, bytes, int]:
    """A first byte, a body and a version: noise, or a legal packet with some bytes changed."""
    from folkmoot.mqtt.encode import encode
    from folkmoot.mqtt.framer import Framer

    version = draw(versions)
    if draw(st.booleans()):
        return draw(st.integers(0, 255)), draw(st.binary(max_size=60)), version
    first, body = Framer(10_000).feed(encode(draw(packets(version)), version))[0]
    changed = bytearray(body)
    for _ in range(draw(st.integers(1, 4))):
        if changed:
            changed[draw(st.integers(0, len(changed) - 1))] = draw(st.integers(0, 255))
    return first, bytes(changed[: draw(st.integers(0, len(changed)))]), version
