"""Excuses by times: whether the cluster was disturbed or split in the time of a case, whoever was concerned.

Judges the family without `--topologies`, whose runs the present core passes only with these excuses. Counts nothing.
"""

# ruff: noqa: ARG002 - a question has the facts that one of the two judges asks for

from __future__ import annotations

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.mqtt.packet import V31
from folkmoot.sim.fact import Life, Message, SessionRecord, Sub
from folkmoot.sim.judge import Judge
from folkmoot.sim.network import Link
from folkmoot.sim.profile import NEVER_EXPIRES_S
from folkmoot.sim.trouble import Trouble

__all__ = ["Windows"]


class Windows(Judge):
    """Answers by the ledger of faults."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__()
        self.trouble = trouble
        self.world = trouble.world

    # Deliveries

    def sent_before(self, message: Message) -> bool:
        """Whether a machine may have failed since."""
        return not self.trouble.alone and self.trouble.disturbed(message.first_us)

    def matched_otherwise(self, record: SessionRecord, message: Message) -> bool:
        """Whether there were two sides in the life of the session."""
        return self.trouble.torn(record.created_us)

    def expires_late(self, message: Message) -> bool:
        """Whether a machine may have failed since."""
        return not self.trouble.alone and self.trouble.disturbed(message.first_us)

    def out_of_order(self, record: SessionRecord | None, message: Message, later: Message) -> bool:
        """Whether they went different ways, or there were two sides."""
        if self.trouble.torn(message.first_us) and (record is None or self._is_parted(record, [message, later])):
            return True
        return self._may_come_late(message, later)

    def _may_come_late(self, message: Message, later: Message) -> bool:
        """Whether a message may come behind a later one of its lane, because no acknowledgement keeps their order."""
        if self.trouble.alone:
            return False
        first = message.attempts[0]
        if message.qos:  # it had no answer, and its publisher used another node: docs/limits.md
            moved = later.attempts[0].link is not first.link and message.acked_us > first.link.ended_us
            return moved and self.trouble.has_lost_link(first.sent_us - SECOND, self.world.now)
        if self.trouble.failed(first.link.server.name, first.sent_us - SECOND, self.world.now):
            return True  # it waited at a stopped node, and its publisher used another one
        sent = later.attempts[0]  # or the later one waited for it, until its connection ended
        return sent.link.ended_us < NEVER and self.trouble.disturbed(sent.sent_us, sent.link.ended_us)

    def _is_parted(self, record: SessionRecord, messages: list[Message]) -> bool:
        """Whether the publisher, or the client of the session, may have got answers on both sides."""
        since_us = messages[0].first_us
        links = [attempt.link for message in messages for attempt in message.attempts]
        return self.trouble.parted(links + record.links_since(since_us), since_us)

    def delivered_twice(self, record: SessionRecord, message: Message, *, shared: bool) -> bool:
        """Whether both sides of a split may have delivered it."""
        if not self.trouble.torn(0 if message.is_will else message.first_us):
            return False
        if message.is_will or shared or self._is_parted(record, [message]):
            return True  # the sides do not know each other's deliveries, and take each other's clients for dead
        if message.once and self.trouble.interrupted(message.first_us, message.acked_us):
            return True  # one side has it, and the client is at the other side, which has not
        # The session is a new one, and MQTT 3.1 cannot tell the client: it uses both.
        return record.version == V31 and self.trouble.bereft(record.links, message.first_us)

    def repeats_qos0(self, message: Message) -> int:
        """QoS 0 is sent before the message is on disk: after a crash its publisher, or the node, repeats it."""
        if self.trouble.disturbed(message.first_us):
            return -1
        return self.trouble.count(0) if message.is_will or message.staged else 0

    def repeats_scan(self, record: SessionRecord) -> int:
        """Return the faults since the session began."""
        return self.trouble.count(record.created_us)

    def lost_on_its_way(self, record: SessionRecord, message: Message, publisher: SessionRecord | None) -> bool:
        """Whether the node of the message failed, gave up a link, or was cut off from the node of the subscriber.

        Or the others have removed it for bad links: then it has disconnected its clients.
        """
        if record.persistent:
            return False
        if message.once and publisher is not None and publisher.persistent:
            return False  # it is stored until it has arrived
        since, until = message.first_us - SECOND, self.world.now  # an order to evict takes time, and so does a view
        if self.trouble.has_lost_link(since, until):
            return True
        for attempt in message.attempts:
            put_out = attempt.link.expelled and self.trouble.disturbed(since, until)
            if put_out or self.trouble.failed(attempt.link.server.name, since, until):
                return True
            if record.link is not None and self.trouble.separated(attempt.link, record.link, message.first_us, until):
                return True
        return False

    def unknown_there(self, record: SessionRecord, sub: Sub, message: Message) -> bool:
        """Whether a side without the subscription may have taken it."""
        since, until = message.first_us, min(message.acked_us, self.world.now)
        last = message.attempts[-1].link
        if record.version == V31 and sub.link is not None:
            if not self.trouble.reaches(sub.link, sub.since_us, last, since, until):
                return True  # MQTT 3.1 cannot report that a session is new because all its copies were unreachable
        if not self.trouble.torn(since, until):
            return self.trouble.torn(sub.since_us) and record.expiry_low_s < NEVER_EXPIRES_S
        if record.expiry_low_s < NEVER_EXPIRES_S or sub.link is None:
            return True  # a side that does not see the client lets its session expire
        return not self.trouble.reaches(sub.link, sub.since_us, last, since, until)

    def comes_after_heal(self, record: SessionRecord, message: Message, later: Message, link: Link) -> bool:
        """Whether the machines were separated."""
        return self.trouble.separated(message.attempts[-1].link, link, message.first_us, self.world.now)

    def gap_of_qos0(self, earlier: Message) -> bool:
        """Whether a machine may have failed since."""
        return not self.trouble.alone and self.trouble.disturbed(earlier.first_us)

    def group_twice(self, message: Message, records: list[SessionRecord]) -> bool:
        """Whether a machine may have failed since."""
        return self.trouble.disturbed(message.first_us)

    def group_missed(self, message: Message, members: list[tuple[SessionRecord, Sub]]) -> bool:
        """Whether there were two sides since the first member asked."""
        return self.trouble.torn(min([sub.asked_us for _, sub in members]))

    def sent_after_unsubscribe(self, record: SessionRecord, message: Message) -> bool:
        """Whether there were two sides in the life of the session."""
        return self.trouble.torn(record.created_us)

    def of_earlier_session(self, record: SessionRecord, message: Message, earlier: list[SessionRecord]) -> bool:
        """Never: a session inherits the subscriptions of an earlier one that may be merged."""
        return False

    # Sessions

    def began_elsewhere(self, record: SessionRecord, life: Life) -> bool:
        """Whether there were two sides in the life of the session."""
        return self.trouble.torn(record.created_us)

    def without_copy(self, record: SessionRecord, life: Life) -> bool:
        """Whether the side of this connection may have no copy of the session."""
        return not self.trouble.reaches(record.links[0], record.created_us, life.link, life.connect_us, self.world.now)

    def expires_elsewhere(self, record: SessionRecord) -> bool:
        """Whether there were two sides in the life of the session."""
        return self.trouble.torn(record.created_us)

    def is_unknown_there(self, lives: list[Life], life: Life, slack_us: int) -> bool:
        """Whether it could expire earlier, and there were two sides in its life."""
        finite = any(one.expiry_low_s < NEVER_EXPIRES_S for one in lives)
        return finite and self.trouble.torn(lives[0].accepted_us)

    def lost_at(self, record: SessionRecord) -> int:
        """Return the end of the connection, or the failure of its node."""
        last = record.links[-1]
        return min(last.cut_us, self.trouble.failed_at(last.server.name, last.opened_us))

    def outlives_expiry(self, record: SessionRecord) -> bool:
        """Whether a new leader may have started the expiry again."""
        return not self.trouble.alone and self.trouble.disturbed(record.links[-1].cut_us)

    def unfenced(self, older: Link, newer: Link | None) -> bool:
        """Whether no other node could tell this one."""
        if self.trouble.alone or not self.trouble.disturbed(older.opened_us):
            return False
        if self.trouble.cut_off(older.opened_us) or older.server.name in self.trouble.weak:
            return True
        return self.trouble.failed(older.server.name, older.opened_us, self.world.now)

    def shares_ids(self, record: SessionRecord) -> bool:
        """Whether there were two sides in the life of the session."""
        return self.trouble.torn(record.created_us)

    # Streams

    def stored_twice(self, message: Message) -> bool:
        """Whether there were two sides, or half of the machines were lost."""
        since_us = 0 if message.is_will else message.first_us  # each side publishes the wills of the other's clients
        return self.trouble.torn(since_us) or (bool(message.attempts[1:]) and self.trouble.halved(since_us))

    def replayed_elsewhere(self, record: SessionRecord, *, dup: bool) -> bool:
        """Whether the client may have used both sides of a split."""
        trouble = self.trouble
        if not dup:
            return False
        for span in trouble.splits:
            if trouble.parted(record.links_since(span.begin_us), span.begin_us):
                return True
        return False

    def repeats_replay(self, received_us: int) -> bool:
        """A crash after QoS 0 records were sent may lose the position."""
        return bool(self.trouble.count(0))

    def trimmed_elsewhere(self, message: Message) -> bool:
        """Whether there were two sides since."""
        return self.trouble.torn(message.first_us)

    # Retained messages

    def retained_elsewhere(self, record: SessionRecord, message: Message, others: list[Message]) -> bool:
        """Whether there were two sides since."""
        return self.trouble.torn(message.first_us)

    def unordered(self, message: Message, other: Message) -> bool:
        """Whether the machines of the two writes were separated."""
        if not message.attempts or not other.attempts:
            return False
        first, second = message.attempts[-1], other.attempts[-1]
        since = min(message.first_us, other.first_us)
        until = max(first.sent_us, min(other.acked_us, self.world.now))
        return self.trouble.separated(first.link, second.link, since, until)

    def pending(self, message: Message, ended_us: int) -> bool:
        """Whether a machine may have failed: leaders still have to pass it on, and wait for each other then."""
        return not self.trouble.alone and self.trouble.disturbed(message.first_us, ended_us)

    # Wills

    def will_twice(self, life: Life) -> bool:
        """Whether there were two sides since."""
        return self.trouble.torn(life.connect_us)

    def will_unsure(self, life: Life, until_us: int) -> bool:
        """Whether the side without its node may have taken the client for dead."""
        return self.trouble.torn(life.connect_us, until_us)

    def client_given_up(self, life: Life, until_us: int) -> bool:
        """Whether its node failed while the connection was open."""
        return self.trouble.failed(life.link.server.name, life.connect_us, until_us - 1)

    def joined_later(self, life: Life, follower: Life) -> bool:
        """Whether the machines were separated."""
        return self.trouble.separated(life.link, follower.link, life.connect_us, follower.accepted_us)

    def withdrawal_unknown(self, life: Life, since_us: int, until_us: int) -> bool:
        """Never: nothing in this family has needed it."""
        return False

    def will_early(self, life: Life, until_us: int) -> bool:
        """Whether the other nodes may have taken its node for dead."""
        if self.trouble.alone:
            return False
        since = life.connect_us
        return self.trouble.torn(since, until_us) or self.trouble.failed(life.link.server.name, since, until_us)

    def goodbye_lost(self, life: Life, until_us: int) -> bool:
        """Whether there was a fault soon after it."""
        return self.trouble.disturbed(life.goodbye_us, until_us)

    def put_out(self, life: Life) -> bool:
        """Whether the node has said that it ended the connection."""
        return life.link.expelled

    def due_until(self, life: Life, due_us: int, delay_us: int, slack_us: int) -> int:
        """A new leader of the session may restart the delay."""
        for span in self.trouble.spans:
            if span.overlaps(life.link.ended_us, due_us + slack_us):
                due_us = min(span.end_us, self.world.now) + delay_us
        return due_us

    # Others

    def staged_lost(self) -> bool:
        """Whether there were ever two sides."""
        return self.trouble.torn(0)

    def unserved(self, since_us: int) -> bool:
        """Whether there was a fault."""
        return self.trouble.disturbed(since_us)
