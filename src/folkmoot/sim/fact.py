"""What the clients of a run know: messages, sessions, subscriptions and connections, seen from outside of the node.

Owns no judgement (see the checkers) and nothing that only the node knows. A time is NEVER until it has happened.
"""

from __future__ import annotations

from functools import lru_cache

from folkmoot.kernel.clock import NEVER
from folkmoot.mqtt.packet import Properties, Publish
from folkmoot.sim.network import Link
from folkmoot.store.transaction import PUBLISHER_PREFIX
from folkmoot.topics.name import matches, split_share

__all__ = ["LONG_EXPIRY_S", "Attempt", "Lane", "Life", "Message", "SessionRecord", "Sub"]

LONG_EXPIRY_S = 1800
"""Nothing with an expiry interval of this length expires in a run."""


class Attempt:
    """One sending of a message: when, over which link, and after how many bytes of it the packet ends."""

    def __init__(self, sent_us: int, link: Link, order: int) -> None:
        self.sent_us = sent_us
        self.link = link
        self.end_bytes = link.sent_bytes
        self.order = order  # counts all sendings of a run

    @property
    def read(self) -> bool:
        """Whether the node has read it."""
        return self.link.read_bytes >= self.end_bytes


class Message:
    """One application message of one publisher. Its payload identifies it: no two are equal."""

    def __init__(self, number: int, publisher: str, packet: Publish) -> None:
        self.number = number
        self.publisher = publisher
        self.topic = packet.topic
        self.payload = packet.payload
        self.qos = packet.qos
        self.retain = packet.retain
        self.properties: Properties | None = packet.properties
        self.lane: Lane | None = None
        self.index = 0  # its place in the lane
        self.attempts: list[Attempt] = []
        self.acked_us = NEVER  # PUBACK or PUBREC with success came
        self.settled_us = NEVER  # from then on its publisher will not send it again
        self.refused = False
        self.once = packet.qos == 2  # applied once, however often it is sent
        self.is_will = False
        self.will_link: Link | None = None  # the connection whose will it is
        self.staged = publisher.startswith(PUBLISHER_PREFIX)  # part of a transaction
        self.received_us = NEVER  # when the first application received it

    @property
    def first_us(self) -> int:
        """When it was sent first."""
        return self.attempts[0].sent_us if self.attempts else NEVER

    @property
    def expiry_s(self) -> int | None:
        """Its message expiry interval."""
        return None if self.properties is None else self.properties.message_expiry

    @property
    def may_expire(self) -> bool:
        """Whether it may expire within a run: one with a long interval is owed like one without."""
        return self.expiry_s is not None and self.expiry_s < LONG_EXPIRY_S

    @property
    def acked(self) -> bool:
        """Whether the node took responsibility for it."""
        return self.acked_us < NEVER

    def __repr__(self) -> str:
        retain = " retain" if self.retain else ""
        return f"m{self.number}({self.publisher} {self.topic.decode()} qos {self.qos}{retain})"


class Lane:
    """Messages that must stay in order: of one publisher, on one topic, with one QoS, in the order of sending."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.messages: list[Message] = []


class Sub:
    """One subscription of one session, as far as its client can know.

    It may be effective from `asked_us` to `gone_us`, and must be from `since_us` (SUBACK) to `until_us` (UNSUBSCRIBE).
    """

    def __init__(self, name: bytes, options: int, identifier: int, now: int) -> None:
        share = split_share(name)
        self.name = name
        self.group = name if share is not None else b""
        self.filter = name if share is None else share[1]
        self.options = options
        self.identifier = identifier
        self.asked_us = now
        self.since_us = NEVER
        self.until_us = NEVER
        self.gone_us = NEVER
        self.asks = 1  # SUBSCRIBE packets: each may bring the retained messages
        self.granted = options & 3
        self.link: Link | None = None  # over which SUBACK came first

    @property
    def qos(self) -> int:
        """The largest QoS with which messages come."""
        return self.granted

    @property
    def no_local(self) -> bool:
        """Whether own messages do not come."""
        return bool(self.options & 4)

    @property
    def retain_as_published(self) -> bool:
        """Whether RETAIN is forwarded."""
        return bool(self.options & 8)

    def sure(self, since_us: int, until_us: int = NEVER) -> bool:
        """Whether it must have been effective from `since_us` until then, or now."""
        return self.since_us <= since_us and self.until_us >= until_us


class SessionRecord:
    """One session, from the CONNACK that created it to its end; a client id may have several, one after another."""

    def __init__(self, number: int, client_id: str, version: int, expiry_s: int, now: int) -> None:
        self.number = number
        self.client_id = client_id
        self.version = version
        self.expiry_s = expiry_s
        self.expiry_low_s = expiry_s  # when a DISCONNECT that changes it may have been lost, it is between two values
        self.created_us = now
        self.lapsed_us = -1  # when its client came back last after the expiry had passed, and found it all the same
        self.ended = False
        self.link: Link | None = None
        self.attached_us = now  # when that was accepted
        self.got_us = 0  # when its client got something last
        self.links: list[Link] = []
        self.lives: list[Life] = []  # those of `links`: each with the expiry that it has left
        self.packet_bytes_max = NEVER
        self.subs: dict[bytes, Sub] = {}
        self.every: list[Sub] = []  # also those that are gone: their messages may still come
        self.copies: dict[int, int] = {}  # message number -> copies that the application got
        self.qos_copies: dict[tuple[int, int], int] = {}  # by (message number, QoS)
        self.fresh_copies: dict[tuple[int, int], int] = {}  # without DUP
        self.link_copies: dict[int, int] = {}  # over the present link
        self.ever: dict[int, int] = {}  # message number -> the first QoS it came with
        self.held: dict[int, bool] = {}  # QoS 2 messages that came, and whose PUBREL may not have come
        self.newest: dict[tuple[int, int], int] = {}  # (lane, QoS) -> greatest index that came
        self.cursor: dict[int, int] = {}  # lane -> the first index that was not looked at for gaps
        self.waiting: dict[int, int] = {}  # messages that may wait in its queue -> sendings; kept when queues are short
        self.taken: dict[int, int] = {}  # messages that came, and when: their acknowledgements may be on their way
        self.spared: dict[int, bool] = {}  # messages that a full queue may have dropped
        self.possible: dict[bytes, list[Sub]] = {}  # by topic; forgotten when a subscription changes
        self.replays: dict[tuple[str, int, bool], int] = {}  # (stream, partition, QoS > 0) -> the next place in the log
        self.replayed: dict[tuple[str, int, bool], int] = {}  # as `replays`, by the session before, if it may be joined
        self.replayed_us: dict[tuple[str, int, int], int] = {}  # (stream, partition, offset) of QoS 0 -> when it came
        # It began where no node had a copy of the earlier session, which may be merged into it later.
        self.began_without_copy = False
        self.replayer = False  # subscribes to streams and nothing else

    @property
    def persistent(self) -> bool:
        """Whether it outlives its connection."""
        return self.expiry_s > 0

    def matching(self, topic: bytes) -> list[Sub]:
        """Return all subscriptions, past ones included, that may bring messages on `topic`."""
        subs = self.possible.get(topic)
        if subs is None:
            subs = [sub for sub in self.every if _matches(sub.filter, topic)]
            self.possible[topic] = subs
        return subs

    def links_since(self, since_us: int) -> list[Link]:
        """Return the connections that had not ended before then."""
        return [link for link in self.links if link.ended_us >= since_us]

    def __repr__(self) -> str:
        return f"session {self.number} of {self.client_id}"


class Life:
    """One connection of a client, from its CONNECT: what decides about its will."""

    def __init__(self, client_id: str, version: int, link: Link, clean: bool, now: int) -> None:
        self.client_id = client_id
        self.version = version
        self.link = link
        self.clean = clean
        self.connect_us = now
        self.connect_bytes = 0  # of the link, when CONNECT is complete
        self.expiry_low_s = 0  # of its session; a DISCONNECT that changes it may get lost
        self.expiry_high_s = 0
        self.will: Message | None = None
        self.will_delay_s = 0
        self.accepted_us = NEVER
        self.refused = False
        self.resumed = False  # session present
        self.goodbye_us = NEVER  # DISCONNECT sent
        self.goodbye_bytes = 0
        self.goodbye_code = 0
        self.next: Life | None = None

    @property
    def goodbye_read(self) -> bool:
        """Whether the node has read DISCONNECT."""
        return self.goodbye_us < NEVER and self.link.read_bytes >= self.goodbye_bytes

    def __repr__(self) -> str:
        return f"{self.link.name} of {self.client_id}"


@lru_cache(maxsize=65_536)
def _matches(topic_filter: bytes, topic: bytes) -> bool:
    return matches(topic_filter, topic)
