"""Subscriptions, and the terms on which a session gets what matches one or several of them.

Owns no-local, the lower QoS, retain as published and the identifiers: `Recipient` is asked for them wherever a message
goes to a session. MQTT 5 sections 3.3.1.3, 3.3.4, 3.8.3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from folkmoot.mqtt.varint import encode_varint

if TYPE_CHECKING:
    from folkmoot.session.session import Session

__all__ = [
    "NO_LOCAL",
    "QOS_MASK",
    "REPLAY_PREFIX",
    "RETAIN_AS_PUBLISHED",
    "SUBSCRIPTION_BYTES",
    "Subscription",
    "Recipient",
    "encode_identifier",
    "excess_of",
    "merge",
]

QOS_MASK: Final = 3
NO_LOCAL: Final = 4
RETAIN_AS_PUBLISHED: Final = 8
REPLAY_PREFIX: Final = b"$stream/"

SUBSCRIPTION_BYTES: Final = 600
"""The memory that a usual subscription takes, besides what it shares with others; compiled code, 64 bits."""

_LEVELS: Final = 4  # of a filter, and
_TEXT_BYTES: Final = 64  # of its text, which are in these
_LEVEL_BYTES: Final = 300  # of a further level of a filter with wildcards: a branch that nobody else may need


def excess_of(topic_filter: bytes) -> int:
    """Return the memory that a filter takes beyond SUBSCRIPTION_BYTES at most: it may be deep, or long."""
    excess = 2 * max(len(topic_filter) - _TEXT_BYTES, 0)
    if b"#" in topic_filter or b"+" in topic_filter:
        excess += _LEVEL_BYTES * max(topic_filter.count(b"/") + 1 - _LEVELS, 0)
    return excess


class Subscription:
    """One filter of one session: the options byte of SUBSCRIBE and its identifier (0 = none).

    name: the filter as the client wrote it; topic_filter: without `$share/GROUP/` or `$stream/NAME/FROM/`; share: the
    group, or empty.
    """

    def __init__(
        self, session: Session, name: bytes, topic_filter: bytes, share: bytes, options: int, identifier: int
    ) -> None:
        self.session = session
        self.name = name
        self.topic_filter = topic_filter
        self.share = share
        self.options = options
        self.identifier = identifier
        self.absent = False  # shared, and its session has no client now
        self._recipient: Recipient | None = None

    @property
    def retain_handling(self) -> int:
        """When to send retained messages: 0 always, 1 only for a new subscription, 2 never."""
        return self.options >> 4 & 3

    @property
    def is_replay(self) -> bool:
        """Whether it replays a stream; it then gets no live messages."""
        return self.name.startswith(REPLAY_PREFIX)

    def as_recipient(self) -> Recipient:
        """Return its session on the terms of this subscription alone: as a member of a group, or with a feed."""
        if self._recipient is None:
            self._recipient = merge([self])
        return self._recipient

    def __repr__(self) -> str:
        return f"Subscription({self.session.client_id!r} {self.name!r} options={self.options})"


class Recipient:
    """What one session wants of one topic: highest QoS of its matching subscriptions, identifiers of all of them.

    own: the terms for the session's own messages (None = no delivery): No Local concerns only these [MQTT-3.8.3-3].
    """

    def __init__(self, session: Session, qos: int, retain: bool, identifiers: bytes) -> None:
        self.session = session
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.plain = not identifiers
        self.own: Recipient | None = None

    def terms_for(self, own: bool) -> Recipient | None:
        """Return the terms of a message that its client has published itself, or not; None: it gets nothing."""
        return self.own if own else self  # [MQTT-3.8.3-3]

    def qos_of(self, qos: int) -> int:
        """Return the QoS of a message that was published with `qos`: the lower one [MQTT-3.8.4-8]."""
        return min(qos, self.qos)

    def retain_of(self, retain: bool) -> bool:
        """Return the RETAIN flag of a message that was published with `retain` [MQTT-3.3.1-12] [MQTT-3.3.1-13]."""
        return retain and self.retain

    def __repr__(self) -> str:
        return f"Recipient({self.session.client_id!r} qos={self.qos})"


def encode_identifier(identifier: int) -> bytes:
    """Return a subscription identifier as a property of PUBLISH (id 0x0B), or nothing for 0."""
    return b"\x0b" + encode_varint(identifier) if identifier else b""


def merge(subscriptions: list[Subscription]) -> Recipient:
    """Return the recipient for the matching subscriptions of one session.

    One copy is sent, with the highest QoS [MQTT-3.3.4-2].
    """
    recipient = _combine(subscriptions)
    local = [subscription for subscription in subscriptions if not subscription.options & NO_LOCAL]
    if len(local) == len(subscriptions):
        recipient.own = recipient
    elif local:
        recipient.own = _combine(local)
    return recipient


def _combine(subscriptions: list[Subscription]) -> Recipient:
    qos = 0
    retain = False
    identifiers: list[bytes] = []
    for subscription in subscriptions:
        qos = max(qos, subscription.options & QOS_MASK)
        retain = retain or bool(subscription.options & RETAIN_AS_PUBLISHED)
        if subscription.identifier:
            identifiers.append(
                encode_identifier(subscription.identifier)
            )  # [MQTT-3.3.4-3] [MQTT-3.3.4-4] [MQTT-3.3.4-5]
    return Recipient(subscriptions[0].session, qos, retain, b"".join(identifiers))
