"""Members of shared subscriptions, and what a group must have got in the end (MQTT 5 section 4.8.2).

A *gift* is a message that a group has given to a session. The ledger knows when each of them came, came again, was
acknowledged or refused, and when the session ended.
"""

from __future__ import annotations

import random

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.kind import PUBACK, PUBREC
from folkmoot.mqtt.packet import V5, Ack, Publish, Subscribe
from tests.harness.peer import properties
from tests.harness.simulated_cluster import SimulatedCluster
from tests.simulated_cluster.drawn import OPEN, REFUSED, DrawnClient, Ledger, Message, Wish, matches

__all__ = ["Gift", "GroupLedger", "Member", "topic_of"]

QUOTA_EXCEEDED = 0x97
UNKNOWN = 1 << 62  # a moment of the ledger that has not come
UNCOUNTED_US = 2 * SECOND  # a message waits less than a second at each of two nodes on its way to its leader


class Gift:
    """A message of a group, given to one session. Moments of 0 have not come."""

    def __init__(self, group: str, member: Member, message: Message, packet: Publish) -> None:
        self.group = group
        self.member = member
        self.session = member.sessions
        self.message = message
        self.qos = packet.qos
        self.came_us = member.came_us
        self.again: list[tuple[int, bool]] = []  # when it came again, and whether it was marked DUP
        self.acked_us = 0  # when PUBACK or PUBREC was sent
        self.refused_us = 0
        self.will_refuse = False

    def __repr__(self) -> str:
        times = f"{self.came_us} acked={self.acked_us} refused={self.refused_us} again={self.again}"
        return f"Gift({self.group} to {self.member.name} session {self.session} qos={self.qos} {times})"

    @property
    def released_us(self) -> int:
        """When the session was over, or its connection if it is transient; 0: it lasts."""
        return self.member.over_us.get(self.session, 0)


class GroupLedger(Ledger):
    """What was given to groups."""

    def __init__(self) -> None:
        super().__init__()
        self.gifts: dict[tuple[str, int], list[Gift]] = {}

    def of(self, group: str, message: Message) -> list[Gift]:
        """Return the gifts of a message."""
        return self.gifts.get((group, message.number), [])


class Member(DrawnClient):
    """A client whose filters may be shared; by the subscription identifier it knows for which of them a message is."""

    ledger: GroupLedger

    def __init__(
        self,
        cluster: SimulatedCluster,
        ledger: GroupLedger,
        name: str,
        rng: random.Random,
        *,
        version: int,
        persistent: bool,
        filters: list[tuple[str, int]],
        window: int,
    ) -> None:
        super().__init__(cluster, ledger, name, version=version, persistent=persistent, filters=filters, window=window)
        self.rng = rng
        self.refuses = 0.0  # how often it answers with a reason code that refuses
        self.begins_anew = 0.0  # how often it connects with a clean start
        self.over_us: dict[int, int] = {}  # by session: when it has ended
        self.over: dict[int, int] = {}  # the same, as moment of the ledger, when the server has certainly ended it
        self.unanswered: dict[int, Gift] = {}  # by packet id

    def connect(self, site: str, clean: bool = False) -> None:
        """Open a connection, sometimes with a clean start: its session ends, and with it what the groups gave it."""
        super().connect(site, clean or (self.begins_anew > 0 and self.rng.random() < self.begins_anew))

    def _subscribe_packet(self, packet_id: int, name: str) -> Subscribe:
        made = properties(subscription_ids=[list(self.filters).index(name) + 1]) if self.version == V5 else None
        return Subscribe(packet_id, [(name.encode(), self.filters[name])], made)

    def _arrives(self, packet: Publish) -> None:
        message = self.ledger.messages.get(int(packet.payload))
        assert message is not None, f"A2: {self} gets {packet}"
        assert message.topic == packet.topic.decode(), f"A2: {self} gets {packet}"
        name = self._filter_of(packet)
        assert matches(topic_of(name), message.topic), f"A2: {self} gets {packet} for {name}"
        assert packet.qos == min(message.qos, self.filters[name]), f"{self} gets {packet} of {message} for {name}"
        self._look_at_expiry(message, packet)
        if name.startswith("$share"):
            assert not packet.retain, f"[MQTT-3.8.4-4] {self} gets {packet} for {name}"
            self._is_given(name.split("/")[1], message, packet)
        elif self._is_new(packet, message.number):
            self._note_arrival(message, packet)

    def _filter_of(self, packet: Publish) -> str:
        if self.version != V5:
            (name,) = self.filters
            return name
        assert packet.properties is not None, f"{self} gets {packet} without an identifier"
        (number,) = packet.properties.subscription_ids
        return list(self.filters)[number - 1]

    def _look_at_expiry(self, message: Message, packet: Publish) -> None:
        """What has expired is not given to anybody anew, and each receiver learns how much is left [MQTT-3.3.2-6]."""
        if not message.expiry_s:
            return
        waited_us = self.came_us - message.sent_us
        how = f"{self} gets {packet} of {message} {waited_us} us after it was sent, for {message.expiry_s} s"
        # Where each message needs several copies, it may wait before its node reads it until a node is back.
        anywhere = self.cluster.min_in_sync > 1
        troubles = [us for site, us in self.ledger.troubles if anywhere or site == message.site]
        is_slow = any(message.sent_us >= us - SECOND for us in troubles)
        assert isinstance(message.client, DrawnClient)
        spare_us = UNCOUNTED_US if message.client.persistent else 0
        if message.sends == 1 and not packet.dup and not is_slow:
            assert waited_us <= message.expiry_s * SECOND + spare_us, f"A1: {how}"
        if self.version == V5:
            left_s = None if packet.properties is None else packet.properties.message_expiry
            assert left_s is not None, how
            if message.sends == 1 and not is_slow:
                left_us = message.expiry_s * SECOND - waited_us
                high_s = max(1, (left_us + spare_us + SECOND - 1) // SECOND)  # 1 of what was sent before
                assert max(0, left_us // SECOND) <= left_s <= high_s, how

    def _is_given(self, group: str, message: Message, packet: Publish) -> None:
        gifts = self.ledger.gifts.setdefault((group, message.number), [])
        known = next((one for one in gifts if one.member is self and one.session == self.sessions), None)
        number = message.number * 100 + int(group[1:])  # a member may get it for two groups
        if not self._is_new(packet, number):
            assert known is not None, f"{self} has {message}"
            self.unanswered[packet.packet_id] = known
            return
        if known is None:
            known = Gift(group, self, message, packet)
            known.will_refuse = self.version == V5 and self.rng.random() < self.refuses
            gifts.append(known)
        else:
            known.again.append((self.came_us, packet.dup))
        if not packet.qos:
            return
        self.unanswered[packet.packet_id] = known
        if known.will_refuse:
            self.owed[-1].code = QUOTA_EXCEEDED
            self.held.pop(packet.packet_id, None)  # whoever refuses forgets the packet id

    def _answered(self, ack: Ack) -> None:
        if ack.kind not in (PUBACK, PUBREC):
            return
        gift = self.unanswered.pop(ack.packet_id, None)
        if gift is None or self.peer is None or self.peer.connection is None:
            return
        if ack.code >= REFUSED:
            gift.refused_us = gift.refused_us or self.cluster.now
        else:
            gift.acked_us = gift.acked_us or self.cluster.now

    def _accepted(self, present: bool) -> None:
        super()._accepted(present)
        for session, moment in self.over.items():
            if moment == UNKNOWN:
                self.over[session] = self.ledger.tick()

    def _end_session(self) -> None:
        if self.sessions and self.sessions not in self.over_us:
            self.over_us[self.sessions] = self.cluster.now
            lives = self.anew or any(peer.connection is not None for peer, _ in self.left)
            self.over[self.sessions] = UNKNOWN if lives else self.ledger.tick()
        self.unanswered.clear()
        super()._end_session()

    def lasting_wish(self, group: str, message: Message) -> Wish | None:
        """Return its subscription to the group, if that was there before the message, and has been since."""
        for wish in self.wishes:
            is_there = wish.session == self.sessions and self.has_session and wish.since < message.sent
            if wish.name.startswith(f"$share/{group}/") and is_there and not wish.until:
                return wish if matches(topic_of(wish.name), message.topic) else None
        return None

    def is_member(self, topic: str, group: str) -> bool | None:
        """Whether it is a member of a group that gets a topic; None: it cannot know."""
        for name in self.filters:
            if name.startswith(f"$share/{group}/") and matches(topic_of(name), topic):
                return self.sure.get(name) if self.state == OPEN or self.persistent else False
        return False


def topic_of(name: str) -> str:
    """Return the filter of topics in a filter that may be shared."""
    return name.split("/", 2)[2] if name.startswith("$share/") else name
