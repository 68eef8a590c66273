"""What several subscriptions of one session amount to for one topic, written down a second time."""

from __future__ import annotations

import pytest
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


def recipient_of(*options: int) -> Recipient:
    session = Session("a", 0, False)
    return merge([Subscription(session, b"t", b"t", b"", one, 0) for one in options])


@pytest.mark.parametrize(
    ("published", "granted", "sent"),
    [(0, 0, 0), (0, 1, 0), (0, 2, 0), (1, 0, 0), (1, 1, 1), (1, 2, 1), (2, 0, 0), (2, 1, 1), (2, 2, 2)],
)
def test_a_message_goes_out_with_the_lower_qos(published: int, granted: int, sent: int) -> None:
    """[MQTT-3.8.4-8]: the minimum of the QoS of the message and the Maximum QoS that was granted."""
    assert recipient_of(granted).qos_of(published) == sent


@pytest.mark.parametrize(
    ("published", "options", "sent"),
    [
        (True, [1 | RETAIN_AS_PUBLISHED], True),  # [MQTT-3.3.1-13] 1: RETAIN as in the message that was received
        (False, [1 | RETAIN_AS_PUBLISHED], False),
        (True, [1], False),  # [MQTT-3.3.1-12] 0: RETAIN is 0, whatever it was
        (False, [1], False),
        (True, [1, 1 | RETAIN_AS_PUBLISHED], True),  # one copy for both: that it was retained is not kept from it
    ],
)
def test_retain_is_as_published_if_the_client_asked_for_that(published: bool, options: list[int], sent: bool) -> None:
    assert recipient_of(*options).retain_of(published) is sent


def test_no_local_keeps_a_client_from_its_own_messages_and_from_no_others() -> None:
    """[MQTT-3.8.3-3]: not to a connection with a ClientID equal to the ClientID of the publishing connection."""
    local = recipient_of(1 | NO_LOCAL)
    assert local.terms_for(True) is None
    assert local.terms_for(False) is local
    plain = recipient_of(1)
    assert plain.terms_for(True) is plain
    both = recipient_of(2 | NO_LOCAL, 1)
    assert told(both.terms_for(True)) == (1, False, b"")  # by the other subscription alone
    assert told(both.terms_for(False)) == (2, False, b"")


@given(OPTIONS, st.integers(0, 268_435_455))
def test_a_subscription_alone_has_its_own_terms(options: int, identifier: int) -> None:
    """A member of a group, and a feed, get a copy for this one subscription."""
    subscription = Subscription(Session("a", 0, False), b"t", b"t", b"", options, identifier)
    recipient = subscription.as_recipient()
    assert recipient is subscription.as_recipient()
    assert recipient.session is subscription.session
    assert told(recipient) == expected([(options, identifier)])
