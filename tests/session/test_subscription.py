"""What several subscriptions of one session amount to for one topic, written down a second time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.mqtt.varint import encode_varint
from folkmoot.session.session import Session
from folkmoot.session.subscription import (
    NO_LOCAL,
    RETAIN_AS_PUBLISHED,
    Recipient,
    Subscription,
    encode_identifier,
    merge,
)

OPTIONS = st.builds(
    lambda qos, local, published, handling: qos | local << 2 | published << 3 | handling << 4,
    st.integers(0, 2),
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(0, 2),
)


def told(recipient: Recipient | None) -> tuple[int, bool, bytes] | None:
    return None if recipient is None else (recipient.qos, recipient.retain, recipient.identifiers)


def expected(pairs: list[tuple[int, int]]) -> tuple[int, bool, bytes] | None:
    """Section 3.3.4: the highest QoS, all identifiers; retain as published if one of them wants it."""
    if not pairs:
        return None
    identifiers = b"".join([b"\x0b" + encode_varint(identifier) for _, identifier in pairs if identifier])
    return (
        max(options & 3 for options, _ in pairs),
        any(options & RETAIN_AS_PUBLISHED for options, _ in pairs),
        identifiers,
    )


@given(st.lists(st.tuples(OPTIONS, st.one_of(st.just(0), st.integers(1, 268_435_455))), min_size=1, max_size=5))
def test_one_copy_is_sent_with_what_all_of_them_want(pairs: list[tuple[int, int]]) -> None:
    session = Session("a", 0, False)
    recipient = merge([Subscription(session, b"t", b"t", b"", options, identifier) for options, identifier in pairs])
    assert recipient.session is session
    assert told(recipient) == expected(pairs)
    assert recipient.plain is (recipient.identifiers == b"")
    # [MQTT-3.8.3-3] its own messages come by those that are not "no local" only
    assert told(recipient.own) == expected([pair for pair in pairs if not pair[0] & NO_LOCAL])


@given(OPTIONS)
def test_retain_handling_is_read_from_the_options(options: int) -> None:
    assert Subscription(Session("a", 0, False), b"t", b"t", b"", options, 0).retain_handling == options >> 4


def test_an_identifier_is_a_property_of_publish() -> None:
    assert encode_identifier(0) == b""
    assert encode_identifier(128) == b"\x0b\x80\x01"
    assert encode_identifier(268_435_455) == b"\x0b\xff\xff\xff\x7f"
