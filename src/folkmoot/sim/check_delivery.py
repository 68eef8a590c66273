"""A1 to A5: what sessions receive. Nothing invented, nothing lost, in order, QoS 2 once, and complete from SUBACK on.

Judges every message that a client receives, and at the end the messages that it did not receive.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.mqtt.packet import Properties, Publish
from folkmoot.sim.check_late import LATE_US, LateChecker
from folkmoot.sim.fact import Message, SessionRecord, Sub
from folkmoot.sim.ledger import Ledger
from folkmoot.sim.network import Link

__all__ = ["DeliveryChecker", "same_properties"]

_LATE_US = 8 * SECOND
"""How long a message may be under way: the node may not read its publisher while its disk is slow or full."""

_SENT_US = 2 * SECOND
"""How long a message that a node has sent may be under way to its client: disks are slow, a lease is awaited."""

_ANSWER_US = 1 * SECOND
"""How long a received message may count as unacknowledged at its node: clients take up to 400 ms to answer."""

_OVERTAKEN_US = 5 * SECOND
"""A message that was acknowledged so long before another one was sent comes before it."""

_OVERHEAD_BYTES = 200
"""What the properties of a PUBLISH may add to topic and payload when a client limits the size of packets."""


class DeliveryChecker:
    """Judges deliveries of ordinary (not replayed) messages."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.world = ledger.world
        self.judge = ledger.judge
        self.late: LateChecker | None = None

    # While it runs

    def sent(self, message: Message) -> None:
        """A message was sent: it may wait in queues of sessions, and short queues drop what exceeds them."""
        own = self.ledger.queue_limit
        shared = self.ledger.shared_limit
        if not own and not shared:
            return
        full = False
        for record in self.ledger.records:
            if record.ended or not record.matching(message.topic):
                continue
            record.waiting[message.number] = record.waiting.get(message.number, 0) + 1
            waiting = sum(record.waiting.values()) + self._unanswered(record)
            if own and waiting >= own:
                self._spare(record)
            full = full or 0 < shared <= waiting
        if full:  # one session has enough for the quota of its user, and another one may lose what comes now
            for record in self.ledger.records:
                if not record.ended:
                    self._spare(record)

    def _spare(self, record: SessionRecord) -> None:
        self.world.mark("queue may be full")
        for number in record.waiting:
            record.spared[number] = True

    def _unanswered(self, record: SessionRecord) -> int:
        """Return how many received messages of a session may still be in its queue: acknowledgements are slow."""
        link = record.link
        since_us = min(self.world.now, NEVER if link is None else link.cut_us) - _ANSWER_US
        record.taken = {number: at for number, at in record.taken.items() if at >= since_us}
        return len(record.taken)

    def held(self, record: SessionRecord, link: Link, message: Message, dup: bool) -> None:
        """A message came, and is handed to the application at PUBREL."""
        if message.expiry_s is not None:
            self._check_expired(record, link, message, dup)
        record.held[message.number] = True
        self._check_late(record, link, message, dup)

    def received(self, record: SessionRecord, link: Link, packet: Publish, late: bool) -> None:
        """A message was handed to the application of a session. late: at PUBREL."""
        message = self.ledger.by_payload.get(packet.payload)
        if message is None:
            self._received_clear(record, packet)
            return
        if message.topic != packet.topic:
            self.world.violate("A2", f"{record} got {message} on {packet.topic!r}")
            return
        plain, groups = self._subs(record, message)
        asked = plain + groups
        if not _accounts_for(asked, message, packet):
            earlier = self.earlier_subs(record, message, packet)
            if not asked and not earlier:
                self.world.violate("A2", f"{record} got {message} and never asked for it")
            if not asked:
                return
            asked += earlier
        self._check_form(record, message, packet, asked)
        if not groups and not packet.retain and message.first_us < NEVER:
            self._check_exactly(record, message, packet, plain)
        if message.expiry_s is not None and not late:
            self._check_expired(record, link, message, packet.dup)
        replayed = packet.retain and message.retain
        if not replayed and not groups and message.lane is not None:
            self._check_order(record, message, packet)
        if not late and not packet.retain:
            self._check_late(record, link, message, packet.dup)
        self._count(record, message, packet)
        self._check_copies(record, message, packet, plain, groups)
        if message.lane is not None and message.number not in record.ever:
            record.ever[message.number] = packet.qos
            if plain and not groups and not replayed:
                self._check_gap(record, link, message)
                if message.qos == 0:
                    self._is_live(record, link, message, message)  # counts a case that has come out well
        else:
            record.ever.setdefault(message.number, packet.qos)

    def _check_late(self, record: SessionRecord, link: Link, message: Message, dup: bool) -> None:
        """Check that a message comes soon, the first time, if it is owed since it was acknowledged."""
        first = not dup and message.number not in record.ever and not message.is_will and message.acked
        plain = self._subs(record, message)[0]
        since = [sub.since_us for sub in plain if sub.sure(message.first_us)]
        if self.late is not None and first and since:
            self.late.received(record, link, message, max(record.attached_us, min(since)))
        record.got_us = self.world.now

    def _received_clear(self, record: SessionRecord, packet: Publish) -> None:
        # An empty payload clears a retained message; as a message it could be any of those of its topic.
        if packet.payload or packet.topic not in self.ledger.clears:
            self.world.violate("A2", f"{record} got what nobody published: {packet}")
        elif not record.matching(packet.topic):
            cleared = self.ledger.clears[packet.topic]
            if not any(self.earlier_subs(record, message, packet) for message in cleared):
                self.world.violate("A2", f"{record} got {packet} and never asked for it")

    def _subs(self, record: SessionRecord, message: Message) -> tuple[list[Sub], list[Sub]]:
        matching = record.matching(message.topic)
        own = message.publisher == record.client_id and not message.is_will  # the node publishes a will
        plain = [sub for sub in matching if not sub.group and not (own and sub.no_local)]
        return plain, [sub for sub in matching if sub.group]

    def earlier_subs(self, record: SessionRecord, message: Message, packet: Publish) -> list[Sub]:
        """Return the subscriptions of an earlier session of the client for which the message may come, if any."""
        found: list[Sub] = []
        earlier: list[SessionRecord] = []
        for other in self.ledger.records[: record.number]:
            if other.client_id == record.client_id:
                plain, groups = self._subs(other, message)
                if _accounts_for(plain + groups, message, packet):
                    found += plain + groups
                    earlier.append(other)
        return found if found and self.judge.of_earlier_session(record, message, earlier) else []

    def _check_form(self, record: SessionRecord, message: Message, packet: Publish, subs: list[Sub]) -> None:
        if packet.qos not in [min(message.qos, sub.options & 3) for sub in subs]:  # [MQTT-3.8.4-8]
            options = [sub.options for sub in subs]
            self.world.violate("A2", f"{record} got {message} with QoS {packet.qos}, from options {options}")
        if packet.retain and not message.retain:
            self.world.violate("A2", f"{record} got {message} as retained")
        if packet.dup and message.first_us < NEVER and len(message.attempts) == 1 and not message.retain:
            unmoved = message.first_us > self.ledger.lives[record.client_id][-1].accepted_us
            if unmoved and self.ledger.trouble.alone:  # another leader may have sent it before the session moved
                self.world.violate("protocol", f"{record} got {message} with DUP for the first time [MQTT-3.3.1-3]")
        if packet.properties is None or record.version < 5:
            return
        if not same_properties(message.properties, packet.properties):
            self.world.violate("A2", f"{record} got {message} with other properties: {packet.properties}")
        known = [sub.identifier for sub in subs]
        for identifier in packet.properties.subscription_ids:
            if identifier not in known:
                self.world.violate("A2", f"{record} got {message} with subscription identifier {identifier}")
        expiry = packet.properties.message_expiry
        slack_s = self.ledger.slack_us // SECOND
        if message.expiry_s is None:
            return
        if expiry is None or expiry > message.expiry_s + slack_s:  # [MQTT-3.3.2-6]
            self.world.violate("A2", f"{record} got {message} with expiry {expiry} of {message.expiry_s}")

    def _check_exactly(self, record: SessionRecord, message: Message, packet: Publish, subs: list[Sub]) -> None:
        """Check the consequences of the subscriptions when none of them has changed since the message was sent."""
        since = message.first_us
        if not all(sub.sure(since) or sub.gone_us < since for sub in subs):
            return
        if self.judge.matched_otherwise(record, message):
            return
        present = [sub for sub in subs if sub.sure(since)]
        qos = min(message.qos, max([sub.granted for sub in present], default=0))
        if packet.qos != qos:  # [MQTT-3.3.4-2] [MQTT-3.8.4-8]
            self.world.violate("A2", f"{record} got {message} with QoS {packet.qos} instead of {qos}")
        if packet.properties is None or record.version < 5:
            return
        wanted = sorted([sub.identifier for sub in present if sub.identifier])
        if sorted(packet.properties.subscription_ids) != wanted:  # [MQTT-3.3.4-3] [MQTT-3.3.4-4]
            ids = packet.properties.subscription_ids
            self.world.violate("A2", f"{record} got {message} with subscription identifiers {ids} instead of {wanted}")

    def _check_expired(self, record: SessionRecord, link: Link, message: Message, dup: bool) -> None:
        """A message is not sent for the first time after its expiry [MQTT-3.3.2-5], except for known delays.

        DUP says that it may have been sent before, and excuses where nothing proves that it was not.
        """
        if not message.attempts or message.expiry_s is None or link.troubled or not self.ledger.ages:
            return
        last = message.attempts[-1]
        over_us = last.sent_us + message.expiry_s * SECOND
        by_us = over_us + _LATE_US + self.ledger.slack_us
        if dup:
            if message.acked:  # a node has had it by then
                by_us = min(by_us, message.acked_us + message.expiry_s * SECOND + _SENT_US + self.ledger.slack_us)
            if self._may_have_been_sent(record, link, message, by_us):
                return
        self.judge.judge("expiry")
        late_us = self.world.now - over_us
        if self.world.now > by_us and not last.link.troubled:
            self.world.violate("expiry", f"{record} got {message} {late_us / SECOND:.1f} s after its expiry")

    def _may_have_been_sent(self, record: SessionRecord, link: Link, message: Message, until_us: int) -> bool:
        """Whether a node may have sent a message to a session before this connection, and until then.

        Not over a connection that the client has left with a full window, because what the node sends comes in order:
        a message that had not come by then had to wait for an acknowledgement.
        """
        if message.number in record.ever or message.number in record.held:
            return True
        for life in self.ledger.lives[record.client_id]:
            former = life.link
            if former is link or former.opened_us > until_us or former.ended_us < message.first_us:
                continue
            if not former.left_full:
                return True
        return False

    def _check_order(self, record: SessionRecord, message: Message, packet: Publish) -> None:
        assert message.lane is not None, "what was sent has a lane"
        key = (message.lane.number, packet.qos)
        newest = record.newest.get(key, -1)
        if message.index > newest:
            record.newest[key] = message.index
            if message.index > 0:
                self.judge.out_of_order(record, message.lane.messages[message.index - 1], message)
            return
        if message.number in record.ever or (record.began_without_copy and message.first_us < record.created_us):
            return
        later = message.lane.messages[newest]
        if self.judge.out_of_order(record, message, later):
            return
        # The late one may be a repetition after the other had come; but not where its first copy must have come.
        if len(message.attempts) == 1 or (self._is_due(record, message) and not self._was_full(message)):
            self.world.violate("A3", f"{record} got {message} for the first time after {later}")

    def _count(self, record: SessionRecord, message: Message, packet: Publish) -> None:
        number = message.number
        message.received_us = min(message.received_us, self.world.now)
        record.copies[number] = record.copies.get(number, 0) + 1
        record.qos_copies[(number, packet.qos)] = record.qos_copies.get((number, packet.qos), 0) + 1
        record.link_copies[number] = record.link_copies.get(number, 0) + 1
        if not packet.dup:
            record.fresh_copies[(number, packet.qos)] = record.fresh_copies.get((number, packet.qos), 0) + 1
        if record.waiting.pop(number, 0):
            record.taken[number] = self.world.now

    def _check_copies(
        self, record: SessionRecord, message: Message, packet: Publish, plain: list[Sub], groups: list[Sub]
    ) -> None:
        number = message.number
        excused = self.judge.delivered_twice(record, message)
        if excused or record.copies[number] == 1:
            return
        applied = 1 if message.once or message.qos == 0 else len(message.attempts)
        more = raised = 0
        if record.qos_copies.get((number, 0), 0):  # one of them left before the message was on disk
            more = self.judge.repeats_qos0(message)
            # The next leader does not give it with QoS 0 again, but it does where the client has asked for more since.
            raised = int(more != 0 and any(sub.qos and sub.since_us > message.first_us for sub in plain))
            more = more if more >= 0 else max(0, len(message.attempts) - applied)
        applied += more if packet.qos == 0 else 0
        names: list[bytes] = []
        for sub in groups:
            if sub.group not in names:
                names.append(sub.group)
        allowed = applied * ((1 if plain else 0) + len(names))
        if message.retain:
            # A crash after QoS 0 messages were sent may lose the position of a scan: they come again.
            asked_us = min([sub.asked_us for sub in plain], default=record.created_us)
            again = self.judge.repeats_scan(asked_us, packet.qos)
            allowed += sum([sub.asks for sub in plain]) * (1 + again)
        if record.link_copies[number] > allowed + (max(more, raised) if packet.qos else 0):
            self.world.violate("A2", f"{record} got {message} {record.link_copies[number]} times over one connection")
        fresh = record.fresh_copies.get((number, packet.qos), 0)
        if fresh > allowed:
            self.world.violate("A2", f"{record} got {message} {fresh} times without DUP")
        count = record.qos_copies[(number, packet.qos)]
        if packet.qos != 1 and count > allowed:
            promise = "A4" if packet.qos else "A2"
            self.world.violate(promise, f"{record} got {message} {count} times with QoS {packet.qos}")

    # What is missing

    def _was_full(self, message: Message) -> bool:
        return self.ledger.was_full(message.first_us, min(message.acked_us, self.world.now))

    def _is_due(self, record: SessionRecord, message: Message) -> bool:
        """Whether an acknowledged message must reach the session (QoS 1 and 2)."""
        sub = self._owing_sub(record, message, NEVER)
        if sub is None or self.judge.lost_on_its_way(record, message, self.ledger.current.get(message.publisher)):
            return False
        return not self.judge.unknown_there(record, sub, message)

    def _owing_sub(self, record: SessionRecord, message: Message, until_us: int) -> Sub | None:
        """Return a subscription, in force until then, for which the session must get an acknowledged message."""
        if message.qos == 0 or not message.payload or message.may_expire:
            return None
        if message.number in record.spared:
            return None
        if len(message.payload) + len(message.topic) + _OVERHEAD_BYTES > record.packet_bytes_max:
            return None
        own = message.publisher == record.client_id
        for sub in record.matching(message.topic):
            if sub.granted and not sub.group and sub.sure(message.first_us, until_us) and not (own and sub.no_local):
                return sub
        return None

    def _check_gap(self, record: SessionRecord, link: Link, message: Message) -> None:
        """A message came: earlier ones of its lane have come too, or must not come."""
        lane = message.lane
        assert lane is not None, "what was sent has a lane"
        at = record.cursor.get(lane.number, 0)
        while at < message.index:
            earlier = lane.messages[at]
            at += 1
            if earlier.number in record.ever or earlier.number in record.held or earlier.refused:
                continue
            if earlier.acked and not self._was_full(earlier) and self._is_due(record, earlier):
                if self.judge.comes_after_heal(earlier, message, link):
                    continue  # the end of the run checks that it has come
                self.world.violate("A1", f"{record} got {message} and never {earlier}, acknowledged before")
            elif earlier.qos == 0 and self._is_live(record, link, earlier, message):
                self.world.violate("A5", f"{record} got {message} and not {earlier}, sent before over the same links")
        record.cursor[lane.number] = max(at, message.index + 1)

    def _is_live(self, record: SessionRecord, link: Link, earlier: Message, later: Message) -> bool:
        """Whether a QoS 0 message must have come, because a later one came over the same connections."""
        if earlier.attempts[0].link is not later.attempts[0].link or link.troubled or not earlier.payload:
            return False
        if earlier.number in record.spared or earlier.may_expire:
            return False
        if self.ledger.was_full(earlier.first_us, self.world.now):
            return False
        if len(earlier.payload) + len(earlier.topic) + _OVERHEAD_BYTES > record.packet_bytes_max:
            return False
        accepted = self.ledger.lives[record.client_id][-1].accepted_us
        own = earlier.publisher == record.client_id
        for sub in record.matching(earlier.topic):
            if sub.group or (own and sub.no_local):
                continue
            if sub.sure(earlier.first_us) and accepted <= earlier.first_us:
                return not self.judge.gap_of_qos0(earlier)
        return False

    def finish(self) -> None:
        """After all faults, at rest: all acknowledged messages have come (A1, A5)."""
        for record in self.ledger.records:
            if not record.persistent and record.link is not None and record.link.cut_us < NEVER:
                self._finish_transient(record, record.link)
            if record.ended or record.replayer or (not record.persistent and not self._alive(record)):
                continue
            for message in self.ledger.messages:
                if message.acked and self._is_due(record, message) and message.number not in record.ever:
                    self.world.violate("A1", f"{record} never got {message}, sent after SUBACK and acknowledged")
                    return
        self._finish_groups()

    def _finish_transient(self, record: SessionRecord, link: Link) -> None:
        """A transient session is over: while it was connected, it has got what was due, if it had time for it."""
        if link.troubled or record.replayer or len(record.links) > 1:
            return
        sent = [self.ledger.messages[number].first_us for number in record.ever]
        came_us = max([at for at in sent if at < NEVER], default=0)
        for message in self.ledger.messages:
            if not message.acked or self._owing_sub(record, message, link.cut_us) is None or self._was_full(message):
                continue
            # Nothing has come since, or what was sent later.
            waited = max(message.acked_us, record.got_us) + LATE_US < link.cut_us
            if waited or message.acked_us + _OVERTAKEN_US < min(came_us, link.cut_us):
                if self.judge.lost_with_its_session(record, message, self.ledger.current.get(message.publisher)):
                    continue
                if message.number not in record.ever and message.number not in record.held:
                    self.world.violate("A1", f"{record}, which was transient, never got {message}, acknowledged before")
                    return

    def _alive(self, record: SessionRecord) -> bool:
        link = record.link
        return link is not None and link.cut_us == NEVER

    def _finish_groups(self) -> None:
        groups: dict[bytes, list[tuple[SessionRecord, Sub]]] = {}
        for record in self.ledger.records:
            for sub in record.every:
                if sub.group:
                    groups.setdefault(sub.group, []).append((record, sub))
        for name in sorted(groups):
            for message in self.ledger.messages:
                if message.qos and message.payload and groups[name][0][0].matching(message.topic):
                    self._check_group(name, groups[name], message)

    def _check_group(self, name: bytes, members: list[tuple[SessionRecord, Sub]], message: Message) -> None:
        """One member of a shared subscription gets the message, if no member has left in between; QoS 2 exactly one."""
        present = [(record, sub) for record, sub in members if sub.gone_us > message.first_us]
        if not present or any(sub not in record.matching(message.topic) for record, sub in present):
            return
        if any(len(record.matching(message.topic)) > 1 for record, _ in present):
            return  # another subscription of the member may have matched
        got = [record for record, _ in present if message.number in record.ever]
        twice = message.once and len(got) > 1 and all(record.ever[message.number] == 2 for record in got)
        if twice and not self.judge.group_twice(message, got):
            self.world.violate("A4", f"{got} of group {name!r} all got {message}")
        stable = all(
            not record.ended and record.persistent and sub.granted and sub.until_us == NEVER for record, sub in present
        )
        spared = message.may_expire or any(
            message.number in record.spared or record.packet_bytes_max < NEVER for record, _ in present
        )
        due = message.acked and any(sub.since_us <= message.first_us for _, sub in present)
        if due and stable and not spared and not self.judge.group_missed(message, present) and not got:
            self.world.violate("A1", f"no member of group {name!r} got {message}, sent after SUBACK and acknowledged")


def _accounts_for(subs: list[Sub], message: Message, packet: Publish) -> bool:
    """Whether a message may come with this QoS and these subscription identifiers from these subscriptions."""
    if packet.qos not in [min(message.qos, sub.options & 3) for sub in subs]:
        return False
    known = [sub.identifier for sub in subs]
    return packet.properties is None or all(one in known for one in packet.properties.subscription_ids)


def same_properties(sent: Properties | None, got: Properties) -> bool:
    """Whether a server forwarded what it must not alter (MQTT 5 section 3.3.2.3)."""
    if sent is None:
        sent = Properties()
    return (
        sent.payload_format == got.payload_format
        and sent.content_type == got.content_type
        and sent.response_topic == got.response_topic
        and sent.correlation_data == got.correlation_data
        and sent.user_properties == got.user_properties  # [MQTT-3.3.2-18]
    )
