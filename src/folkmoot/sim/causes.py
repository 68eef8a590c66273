"""Excuses by causes: what happened to the machines and links that this message, session or connection has used.

What a checker asks before it accuses. Asks `folkmoot.sim.history` (what the simulator did itself) and what clients
have seen; nothing that a node says is an excuse. Every condition is an entry of `folkmoot.sim.excuse`. With the policy
"majority" there are no two sides, so that nothing is excused by them.

Every question is asked for every case, whether something looks wrong or not, and every answer is counted: only so can
the counts tell which share of the cases of a promise was judged at all.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.sim.excuse import EXCUSES
from folkmoot.sim.fact import Life, Message, SessionRecord, Sub
from folkmoot.sim.history import HEAL_US, History
from folkmoot.sim.network import Link
from folkmoot.sim.profile import NEVER_EXPIRES_S

__all__ = ["Causes"]

_TABLE: Final = {(entry.promise, entry.condition) for entry in EXCUSES}

_BEFORE_US: Final = SECOND
"""A failure this long before a message was sent may still concern it: nodes notice it later."""

_UNNOTICED_US: Final = 3 * SECOND
"""How long a node may go on with a leader whose answers do not arrive: a link is silent for so long before it is given
up, and the leader has its lease."""

_NOTICE_US: Final = 8 * SECOND
"""How long nodes may take to notice a split, and to agree on what follows."""

_AFTER_US: Final = 5 * SECOND
"""The longest time for which the end of a connection waits for what came over it (docs/limits.md)."""


class Causes:
    """Answers by the history. `majority`: the policy.

    `judged`: cases by promise. `excused`: cases by (promise, condition). `demands`: looks at what must hold during
    faults, by (demand, why it was not judged; `JUDGED` if it was).
    """

    def __init__(self, history: History, *, majority: bool) -> None:
        self.judged: dict[str, int] = {}
        self.excused: dict[tuple[str, str], int] = {}
        self.demands: dict[tuple[str, str], int] = {}
        self.history = history
        self.world = history.world
        self.majority = majority
        self.alone = len(history.hosts) == 1  # what concerns other nodes excuses nothing then

    # Counting

    def judge(self, promise: str) -> None:
        """Count a case that nothing can excuse."""
        self.judged[promise] = self.judged.get(promise, 0) + 1

    def look_at(self, demand: str, why_not: str) -> None:
        """Count a look at a demand; why_not: the reason that it does not hold at this moment, or `JUDGED`."""
        self.demands[demand, why_not] = self.demands.get((demand, why_not), 0) + 1

    def _excuse(self, promise: str, condition: str) -> bool:
        assert (promise, condition) in _TABLE, f"{promise}, {condition}: not in the table of excuses"
        self.excused[promise, condition] = self.excused.get((promise, condition), 0) + 1
        return True

    def _decide(self, promise: str, condition: str, holds: bool) -> bool:
        if holds:
            return self._excuse(promise, condition)
        self.judge(promise)
        return False

    # Sides

    def _on_two_sides(self, links: list[Link], since_us: int, until_us: int = NEVER) -> bool:
        """Whether these connections may have been on two sides in this time, one of which lacks what the other did."""
        if self.majority:
            return False
        used = [link for link in links if link.cut_us > since_us]
        lost = [link for link in used if self.history.lost_disk(link.server.name, link.cut_us, until_us)]
        return self._are_apart(links, since_us, until_us) or any(
            self._is_forgotten(link, later) for link in lost for later in links if later.opened_us <= until_us
        )

    def _are_apart(self, links: list[Link], since_us: int, until_us: int = NEVER) -> bool:
        """Whether two of the machines of these connections may have served as two sides in this time."""
        if self.majority:
            return False
        names: list[str] = []
        for link in links:
            if link.server.name not in names:
                names.append(link.server.name)
        for place, first in enumerate(names):
            for second in names[place + 1 :]:
                if self.history.apart(first, second, since_us, until_us):
                    return True
        return False

    def _is_forgotten(self, link: Link, later: Link) -> bool:
        """Whether the node of a connection lost its disk, and the later one is on a side that has an older copy.

        What comes up at its machine is another node, which is together with the others and knows nothing. So it counts
        whether anybody on the side of the later connection ran when this one ended, and has kept its disk.
        """
        if not self.history.lost_disk(link.server.name, link.cut_us, later.opened_us):
            return False
        last_us = link.cut_us - 1
        return self.history.unaware(later.server.name, last_us, last_us, later.opened_us, later.opened_us)

    def _is_forked(self, link: Link, since_us: int, until_us: int = NEVER) -> bool:
        """Whether the node of this connection may have been of another side than some other one."""
        return not self.majority and self.history.forked(link.server.name, since_us, until_us)

    def _is_will_of_sides(self, message: Message) -> bool:
        """Whether the node of the connection that had this will may have been of another side than some other one."""
        link = message.will_link
        return link is not None and self._is_forked(link, link.opened_us)

    def _is_unaware(self, message: Message, since_us: int, until_us: int) -> bool:
        """Whether a side that took the message may have gone on from a copy that is older than this time."""
        end = min(message.acked_us, self.world.now)
        return not self.majority and any(
            self.history.unaware(attempt.link.server.name, since_us, until_us, message.first_us, end)
            for attempt in message.attempts
        )

    def _is_uninformed(self, message: Message, link: Link, since_us: int, until_us: int) -> bool:
        """Whether a side that took the message may not know what a client did over this connection in this time.

        Also where a machine took it that came to that side later.
        """
        end = min(message.acked_us, self.world.now)
        return not self.majority and any(
            self.history.uninformed(
                attempt.link.server.name, link.server.name, since_us, until_us, message.first_us, end
            )
            for attempt in message.attempts
        )

    def _links_of(self, record: SessionRecord, messages: list[Message], since_us: int) -> list[Link]:
        return [attempt.link for message in messages for attempt in message.attempts] + record.links_since(since_us)

    # Deliveries

    def matched_otherwise(self, record: SessionRecord, message: Message) -> bool:
        """Whether a message may have been matched with other subscriptions than the client's present ones.

        Yes, if the client changed its subscriptions on another side than the one that took the message. A subscription
        that was made before the sides parted is known to both of them, as it is.
        """
        changed = record.began_without_copy and not self.majority
        taken = [attempt.link for attempt in message.attempts]
        for sub in record.matching(message.topic):
            gone = sub.until_us < NEVER or sub.gone_us < NEVER
            since = sub.gone_us if sub.gone_us < NEVER else sub.asked_us
            until = min(message.acked_us, self.world.now)
            if changed:
                break
            if gone or sub.link is None:
                links = taken + (record.links_since(sub.asked_us) if sub.link is None else [sub.link])
                changed = any(self._is_forked(link, since, until) for link in links)
            else:
                made_us = min(sub.since_us, self.world.now)
                changed = any(self._on_two_sides([link, sub.link], since, made_us + SECOND) for link in taken)
                changed = changed or self._is_uninformed(message, sub.link, since, made_us)
            changed = changed or self._is_unaware(message, since, min(max(since, sub.since_us), self.world.now))
        return self._decide("A2", "subscription changed on another side", changed)

    def out_of_order(self, record: SessionRecord | None, message: Message, later: Message) -> bool:
        """Whether `message` may come after `later`, of the same lane; record None: in a stream.

        Yes, if they were taken on two sides, or overtook each other as docs/limits.md says.
        """
        if self.alone:
            self.judge("A3")
            return False
        since = message.first_us
        links = [attempt.link for attempt in message.attempts + later.attempts]
        until = min(max(message.acked_us, later.acked_us), self.world.now)  # then both have their places everywhere
        apart = self._on_two_sides(links, since, until)
        if record is not None and not apart:
            apart = self._on_two_sides(record.links_since(since), since, until)
        if not apart and not self.majority:
            names = {attempt.link.server.name for attempt in message.attempts}
            both = [attempt for attempt in later.attempts if attempt.link.server.name in names]
            apart = any(self.history.went_over(one.link.server.name, since, one.sent_us) for one in both)
        if apart or self._is_unaware(later, since, min(message.acked_us, self.world.now)):
            return self._excuse("A3", "messages of two sides")
        first, second = message.attempts[0], later.attempts[0]
        moved = second.link is not first.link and first.link.ended_us < NEVER
        ended = min(first.link.ended_us, self.world.now)
        if message.qos == 0 and (moved or second.link.ended_us < NEVER):
            # A failure that begins later than this delays neither of them.
            waited_us = min(max(ended, second.sent_us), second.sent_us + _NOTICE_US)
            if self.history.troubled(first.sent_us - _BEFORE_US, waited_us + _AFTER_US):
                return self._excuse("A3", "QoS 0: its connection ended in a change of leaders")
        unanswered = message.qos > 0 and message.acked_us > first.link.ended_us
        if unanswered and moved:
            transient = record is not None and not record.persistent
            if self.history.troubled(first.sent_us - _BEFORE_US, self.world.now) and transient:
                return self._excuse("A3", "its publisher moved while links of its former node were slow")
        if unanswered and message.qos == 1 and len(message.attempts) > 1:
            again_us = message.attempts[-1].sent_us
            crashes = self.history.falls(first.sent_us - HEAL_US, again_us)
            if crashes > 1 and self.history.down(first.link.server.name, first.sent_us, again_us):
                return self._excuse("A3", "sent again after two crashes")
        if unanswered and len(message.attempts) > 1:
            lacks = self.history.lacks(first.link.server.name, first.sent_us - HEAL_US, ended)
            if lacks > self.history.copies - self.history.least:
                return self._excuse("A3", "refused while too few copies were there, and sent again")
        self.judge("A3")
        return False

    def delivered_twice(self, record: SessionRecord, message: Message) -> bool:
        """Whether a session may get a message more often than it was applied.

        Yes, if publisher or client used two sides, or it was sent again where it was not known to be accepted.
        """
        promise = "A4" if message.qos == 2 else "A2"
        if message.is_will:
            apart = self._is_will_of_sides(message)
            return self._decide("A7", "another side may have taken its client for dead", apart)
        since = message.first_us
        links = [attempt.link for attempt in message.attempts]
        if self._on_two_sides(links, since) or self._on_two_sides(record.links_since(since), since):
            return self._excuse("A4", "publisher or client on two sides")
        if len(message.attempts) > 1 and self._parted_since(message, _NOTICE_US):
            return self._excuse("A4", "sent again on one side, which the other side had accepted")
        self.judge(promise)
        return False

    def repeats_qos0(self, message: Message) -> int:
        """Return how many more copies with QoS 0 a session may get; -1: as many as were sent.

        QoS 0 is sent before the message is on disk: after a failure its publisher, or the node, repeats it.
        """
        more = self.history.falls(0)
        if not message.is_will and not message.staged:
            more = -1 if self.history.troubled(message.first_us - _BEFORE_US, self.world.now) else 0
        if more:
            self._excuse("A2", "QoS 0: sent before it was on disk, and again after a failure")
        return more

    def repeats_scan(self, asked_us: int, qos: int) -> int:
        """Return how often a scan of retained messages, asked for since then, may have begun again.

        Once for each machine that has failed since. The next leader begins anew with those that come with QoS 0; with
        the others only where all copies of a partition have been away.
        """
        falls = self.history.falls(asked_us)
        if qos and falls and self.history.away(asked_us) < self.history.copies:
            falls = 0
        if falls:
            self._excuse("A2", "retained messages are sent again after a failure")
        return falls

    def lost_on_its_way(self, record: SessionRecord, message: Message, publisher: SessionRecord | None) -> bool:
        """Whether a message for a transient session may be lost with what was under way.

        Yes, if the node that took it failed, or could not reach the node of the transient subscriber.
        """
        if record.persistent:
            return False
        if message.once and publisher is not None and publisher.persistent:
            return False  # it is stored until it has arrived
        history = self.history
        since = message.first_us - _BEFORE_US
        until = min(self.world.now, max([attempt.sent_us for attempt in message.attempts], default=0) + HEAL_US)
        for attempt in message.attempts:
            name = attempt.link.server.name
            if history.down(name, since, until):
                return self._excuse("A1", "transient: its node failed, or did not reach the node of the subscriber")
            if record.link is not None:
                where = record.link.server.name
                if history.apart(name, where, since, until) or history.cut(
                    name, where, since, message.first_us + _UNNOTICED_US
                ):
                    return self._excuse("A1", "transient: its node failed, or did not reach the node of the subscriber")
        return False

    def lost_with_its_session(self, record: SessionRecord, message: Message, publisher: SessionRecord | None) -> bool:
        """Whether a message for a transient session that has ended may be lost with its node, or on its way.

        Yes, if the node failed while the message may have been under way, or afterwards, until the connection ended; if
        the two nodes may have been of two sides; or if a partition may have had no leader until then, for which a
        transaction waits.
        """
        link = record.link
        assert link is not None, "it was connected"
        since = message.first_us - _BEFORE_US
        if not self.alone and self.history.down(link.server.name, since, link.cut_us - 1):
            return self._excuse("A1", "transient: its node failed, or did not reach the node of the subscriber")
        if self.lost_on_its_way(record, message, publisher):
            return True
        if self._on_two_sides([link, *[attempt.link for attempt in message.attempts]], since, link.cut_us):
            return self._excuse("A1", "transient: its node failed, or did not reach the node of the subscriber")
        if message.staged and self._is_kept_waiting(message.acked_us, link.cut_us):
            return self._excuse("A1", "transient: it ended while a transaction waited for a partition without a leader")
        self.judge("A1")
        return False

    def _is_kept_waiting(self, since_us: int, until_us: int) -> bool:
        """Whether a partition may have had no leader all the time."""
        return self.history.troubled(since_us, since_us) and not self.history.has_been_whole(since_us, until_us)

    def unknown_there(self, record: SessionRecord, sub: Sub, message: Message) -> bool:
        """Whether the node that took an acknowledged message may not have known the subscription.

        Yes, if a side that did not know the subscription may have taken the message.
        """
        links = [attempt.link for attempt in message.attempts]
        until = min(message.acked_us, self.world.now)
        if sub.link is None:
            self.judge("A1")
            return False
        if self._on_two_sides([*links, sub.link], message.first_us, until):
            # Made before the sides parted, a subscription is known to both of them.
            if any(self._on_two_sides([link, sub.link], sub.asked_us, sub.since_us + SECOND) for link in links):
                return self._excuse("A1", "subscribed on another side")
            if record.expiry_low_s < NEVER_EXPIRES_S:
                return self._excuse("A1", "finite session on two sides")
        if self._is_uninformed(message, sub.link, sub.asked_us, min(sub.since_us, self.world.now)):
            return self._excuse("A1", "subscribed on another side")
        if record.expiry_low_s < NEVER_EXPIRES_S and self._on_two_sides(record.links, record.created_us):
            return self._excuse("A1", "finite session on two sides")
        if message.first_us < record.lapsed_us and any(self._is_forked(one, message.first_us) for one in record.links):
            return self._excuse("A1", "finite session on two sides")
        if self._has_expired_there(record, message):
            return self._excuse("A1", "finite session on two sides")
        self.judge("A1")
        return False

    def _has_expired_there(self, record: SessionRecord, message: Message) -> bool:
        """Whether a session that goes on may have expired on the side that took the message.

        Yes, if that side saw its client leave with a finite expiry, or took it for dead, and did not see it come back.
        """
        if self.majority:
            return False
        until = min(message.acked_us, self.world.now)
        for place, (last, back) in enumerate(pairwise(record.lives), 1):
            if last.expiry_low_s >= NEVER_EXPIRES_S:
                continue
            by_us = self.world.now - last.expiry_low_s * SECOND
            later = [life for life in record.lives[place:] if life is back or life.connect_us <= until]
            for attempt in message.attempts:
                if (
                    self._is_missed(last, attempt.link, by_us)
                    and self._on_two_sides([attempt.link, back.link], message.first_us, until)
                    and all(self._is_unseen(life, attempt.link) for life in later)
                ):
                    return True
        return False

    def _is_unseen(self, life: Life, link: Link) -> bool:
        """Whether a client may have connected where the side of another connection did not see it."""
        return self._on_two_sides([life.link, link], life.connect_us, life.accepted_us)

    def comes_after_heal(self, message: Message, later: Message, link: Link) -> bool:
        """Whether a message may still be on the other side of a split, and come after a later one.

        Yes, if the message was taken on another side than the later one, which has come, or this connection.

        Or the side of this connection has an older copy.
        """
        links = [attempt.link for attempt in [*message.attempts, *later.attempts]]
        now = self.world.now
        apart = self._on_two_sides([*links, link], message.first_us)
        if not apart and not self.majority:
            until_us = min(message.acked_us, now)
            apart = self.history.unaware(link.server.name, message.first_us, until_us, link.opened_us, now)
        return self._decide("A3", "messages of two sides", apart)

    def gap_of_qos0(self, earlier: Message) -> bool:
        """Whether a QoS 0 message may be missing between others of the same connections.

        Yes, if something failed on its way, which leads over the leader of the session, or stood still until others
        took its leaderships; or failed shortly before, since a node that is back, or a side that has been merged, is
        given its leaderships when it has its copies.
        """
        sent_us = earlier.first_us
        failed = self.history.troubled(sent_us - HEAL_US, self.world.now)
        failed = failed or self.history.came_back(sent_us - HEAL_US, sent_us)
        failed = failed or self.history.stuttered(sent_us, self.world.now)
        return self._decide("A5", "QoS 0: a node failed, or links were cut", failed and not self.alone)

    def group_twice(self, message: Message, records: list[SessionRecord]) -> bool:
        """Whether two members of a shared subscription may get one QoS 2 message.

        Yes, if the members that got it used two sides.
        """
        links = [link for record in records for link in record.links_since(message.first_us)]
        links += [attempt.link for attempt in message.attempts]
        return self._decide("A4", "publisher or client on two sides", self._on_two_sides(links, message.first_us))

    def group_missed(self, message: Message, members: list[tuple[SessionRecord, Sub]]) -> bool:
        """Whether no member of a shared subscription may have been known where the message was taken.

        Yes, if no member subscribed on the side that took the message, or the session of one has expired there.
        """
        links = [attempt.link for attempt in message.attempts]
        for record, _ in members:
            here = [*links, *record.links_since(message.first_us)]
            if record.expiry_low_s < NEVER_EXPIRES_S and self._on_two_sides(here, message.first_us):
                return self._excuse("A1", "finite session on two sides")
            if self._has_expired_there(record, message):
                return self._excuse("A1", "finite session on two sides")
        since = min([sub.asked_us for _, sub in members])
        until = min(message.acked_us, self.world.now)
        known = [sub.link for _, sub in members if sub.link is not None]
        return self._decide("A1", "subscribed on another side", self._on_two_sides(links + known, since, until))

    def sent_after_unsubscribe(self, record: SessionRecord, message: Message) -> bool:
        """Whether a message that was published after UNSUBACK may still come.

        Yes, if the client unsubscribed on another side than the one that took the message.
        """
        since = min([sub.until_us for sub in record.matching(message.topic)], default=record.created_us)
        apart = self._on_two_sides(self._links_of(record, [message], since), since)
        return self._decide("A2", "subscription changed on another side", apart)

    def of_earlier_session(self, record: SessionRecord, message: Message, earlier: list[SessionRecord]) -> bool:
        """Whether a message may come to a session for the subscription of an earlier one, which a heal has merged.

        earlier: sessions of the same client that would get it.

        Yes, if the earlier session was on another side when the message was taken, or ended on another one, or went on
        on another one when this one began.

        That is a side that did not know of the new session, so that it was still there when this one began. A heal may
        then have kept its subscriptions. A side publishes a will when it takes the client for dead, at any time of its
        connection or later.
        """
        taken = message.first_us if message.will_link is None else message.will_link.opened_us
        began = record.created_us
        links = [link for record in earlier for link in record.links]
        if any(self._is_forked(link, max(taken, began)) or self._is_forked(link, began, began) for link in links):
            return self._excuse("A2", "for an earlier session, merged in a heal")
        return False

    # Sessions

    def began_elsewhere(self, record: SessionRecord, life: Life) -> bool:
        """Whether the client's session may have gone on, or ended, where this client was not.

        Yes, if the client's connections were on two sides in the life of the session.
        """
        return self._on_two_sides([*record.links, life.link], record.created_us)

    def without_copy(self, record: SessionRecord, life: Life) -> bool:
        """Whether the node of this connection may have had no copy of the session.

        Yes, if its side goes on from an older copy: nobody in it ran when the session began.

        A side keeps partitions closed of which it has no copy.
        """
        if not self.majority:
            began = record.created_us
            if self.history.unaware(life.link.server.name, began, began, life.connect_us, self.world.now):
                return self._excuse("A1", "session begun while all nodes of its side were away")
        if record.every:
            self.judge("A1")
        return False

    def expires_elsewhere(self, record: SessionRecord) -> bool:
        """Whether a session may have expired where its client was not seen.

        Yes, if a side that did not see the client may have let its session expire.
        """
        if self.majority or not any(self._is_forked(link, record.created_us) for link in record.links):
            return False
        return self._excuse("A1", "finite session on two sides")

    def is_unknown_there(self, lives: list[Life], life: Life, slack_us: int) -> bool:
        """Whether a session that never expires now may not exist where its last connections, or all, were not seen.

        lives: the connections of the session, in their order, the last of which made it one that never expires.

        Yes, if the side of this connection saw none at all, or none after one with a finite expiry, which passed.
        """
        if self.majority:
            return False
        for place in range(len(lives) - 1, -1, -1):
            unseen = lives[place]
            if not self._is_forked(unseen.link, unseen.connect_us, unseen.accepted_us):
                return False
            seen = not self._on_two_sides([unseen.link, life.link], unseen.connect_us, life.connect_us)
            if seen and not self._has_gone_over(life, unseen):
                return False
            if not place:
                return self._excuse("A1", "session begun on another side")
            last = lives[place - 1]
            by_us = self.world.now + slack_us - last.expiry_low_s * SECOND
            if last.expiry_low_s < NEVER_EXPIRES_S and self._is_missed(last, life.link, by_us):
                return self._excuse("A1", "finite session on two sides")
        return False

    def _has_gone_over(self, life: Life, unseen: Life) -> bool:
        """Whether the node of a connection may have left the side of an earlier one, which does not know it yet."""
        name, source = life.link.server.name, unseen.link.server.name
        return self.history.may_have_left(name, source, unseen.connect_us, unseen.accepted_us, life.connect_us)

    def _is_missed(self, last: Life, link: Link, by_us: int) -> bool:
        """Whether the client of a connection may have counted as absent by then, on the side of another connection."""
        since, name = last.accepted_us, last.link.server.name
        ended = min(last.link.cut_us, self.history.fell_at(name, since)) <= by_us
        return ended or (since <= by_us and self.history.apart(name, link.server.name, since, by_us))

    def lost_at(self, record: SessionRecord) -> int:
        """Return the earliest moment from which the client of a session may have counted as absent.

        That is the end of the connection, or the failure of its node.
        """
        last = record.links[-1]
        return min(last.cut_us, self.history.fell_at(last.server.name, last.opened_us))

    def outlives_expiry(self, record: SessionRecord) -> bool:
        """Whether a session may live longer than its expiry.

        Yes, if a new leader of the session may have started its expiry again.
        """
        since_us, now = record.links[-1].cut_us - _BEFORE_US, self.world.now
        moved = self.history.troubled(since_us, now) or self.history.hand_over_end(since_us, now) > 0
        return self._decide("session", "a new leader starts the expiry again", moved and not self.alone)

    def unfenced(self, older: Link, newer: Link | None) -> bool:
        """Whether a node could not learn that the client of its connection is elsewhere now.

        Yes, if the two connections were on two sides; newer None: wherever it is.
        """
        if newer is None:
            apart = self._is_forked(older, older.opened_us)
        else:  # a process that has ended says nothing
            apart = self._are_apart([older, newer], newer.opened_us, older.ended_us)
        return self._decide("A6", "connections on two sides", apart)

    def shares_ids(self, record: SessionRecord) -> bool:
        """Whether two nodes may have given out the same packet ids for a session.

        Yes, if nodes of two sides gave out packet ids for the session.
        """
        apart = self._on_two_sides(record.links, record.created_us)
        return self._decide(
            "protocol", "packet ids of two sides", apart or (record.began_without_copy and not self.majority)
        )

    # Streams

    def stored_twice(self, message: Message) -> bool:
        """Whether a stream may have a message more often than it was applied.

        Yes, if it was being forwarded when the network split.
        """
        if message.is_will:
            apart = self._is_will_of_sides(message)
        elif message.staged:
            apart = self._has_forked()
        else:
            links = [attempt.link for attempt in message.attempts]
            # Behind a cut in one direction its node goes on with a leader of the other side, until it notices. The same
            # holds if that side hears again soon, but is not heard: what was sent to it comes then. Where machines
            # reach each other over a third one, leader and copies may be of two sides as soon as they notice.
            until_us = message.first_us + _UNNOTICED_US
            one_way = any(self.history.speaks_one_way(link.server.name, message.first_us, until_us) for link in links)
            partly = any(self.history.is_partly_cut(link.server.name, message.first_us) for link in links)
            apart = self._parted_since(message, _UNNOTICED_US if one_way or partly else 0, around=partly)
            apart = apart or self._on_two_sides(links, message.first_us)
            if not apart and self._is_left_behind(message):
                return self._excuse("A9", "being stored at a node that went down, and came back as a side")
        return self._decide("A9", "being forwarded when the network split", apart)

    def _waits_for_sides(self, message: Message) -> bool:
        """Whether it was acknowledged while machines did not reach each other, and sides parted before they did again.

        With QoS 2 it is a row of its publisher's partition then, which is sent on when a partition has a leader again.
        """
        until = min(message.acked_us, self.world.now)
        over = 0 if self.majority or not message.once else self.history.trouble_end(message.first_us, until)
        return over > 0 and any(self._is_forked(one.link, message.first_us, over) for one in message.attempts)

    def _is_left_behind(self, message: Message) -> bool:
        """Whether a machine that may have been storing the message went down, and forked before it met the others."""
        until = min(message.acked_us, self.world.now)
        return not self.majority and self.history.fell_and_forked(message.first_us - _BEFORE_US, until)

    def _parted_since(self, message: Message, before_us: int, *, around: bool = False) -> bool:
        """Whether the network split, unnoticed by a node that took the message, before it was where it belongs.

        That is before it was acknowledged; or some time later, if partitions were closed then, because sides were being
        merged. A message that is sent again meanwhile may have been taken before the split. around: a machine that the
        node reaches may have it by now, and may be the one that loses others.
        """
        if self.majority:
            return False
        until = min(message.acked_us, self.world.now)
        for attempt in message.attempts:
            name = attempt.link.server.name
            merging = self.history.forked(name, message.first_us, until)
            end_us = until + (_NOTICE_US if merging else 0)
            for holder in self.history.reached_by(name, message.first_us) if around else [name]:
                if self.history.parted(holder, message.first_us - before_us, end_us):
                    return True
        return len(message.attempts) > 1 and self._is_forked(message.attempts[0].link, message.first_us, until)

    def replayed_elsewhere(self, record: SessionRecord) -> bool:
        """Whether a client may get records again because it has used two sides of a split.

        Yes, if the client used two sides.
        """
        return self._decide("A9", "replayed on two sides", self._on_two_sides(record.links, record.created_us))

    def repeats_replay(self, received_us: int) -> bool:
        """Whether a QoS 0 record of a replay that was received then may come again.

        Yes, if something failed when a QoS 0 record was sent: another leader may not have the position.
        """
        failed = self.history.troubled(received_us - SECOND, received_us + SECOND)
        return self._decide("A9", "QoS 0 records are repeated after a failure", failed)

    # Retained messages

    def retained_elsewhere(self, record: SessionRecord, others: list[Message]) -> bool:
        """Whether a subscriber may get a retained message although one of these others has overwritten it.

        others: those to its topic that were acknowledged before the subscriber asked.

        Yes, if one of the others was taken on another side than the subscriber's.
        """
        apart = any(
            self._on_two_sides(self._links_of(record, [other], other.first_us), other.first_us) for other in others
        )
        return self._decide("A8", "writes on two sides", apart)

    def ordered(self, message: Message, others: list[Message]) -> list[Message]:
        """Return the other writes to a topic whose order with this one was not left to the clocks of two sides.

        It was, if the two writes were taken on two sides, or one of them by each side, each at its own time.
        """
        certain = [other for other in others if not self._is_unordered(message, other)]
        self._decide("A8", "writes on two sides", len(certain) < len(others))
        return certain

    def _is_unordered(self, message: Message, other: Message) -> bool:
        links = [attempt.link for attempt in message.attempts + other.attempts]
        apart = self._on_two_sides(links, min(message.first_us, other.first_us))
        return apart or self._waits_for_sides(message) or self._waits_for_sides(other)

    def pending(self, message: Message, ended_us: int) -> bool:
        """Whether a write without an acknowledgement may be applied after its connection has ended.

        No excuse: the outcome of an operation without an answer is open (Herlihy and Wing), unless nothing delays it.
        """
        return self.history.troubled(message.first_us - _BEFORE_US, ended_us)

    def pending_since(self, since_us: int) -> bool:
        """Whether something has failed since then, so that a write that was under way may be applied later."""
        return self.history.troubled(since_us, self.world.now)

    # Wills

    def will_twice(self, life: Life) -> bool:
        """Whether a will may be published twice.

        Yes, if each of two sides may have published it.
        """
        return self._believed_dead(life, self.world.now)

    def will_unsure(self, life: Life, until_us: int) -> bool:
        """Whether other nodes may have taken the client of a connection for dead, or alive.

        Yes, if another side may have taken the client for dead.
        """
        return self._believed_dead(life, until_us)

    def _believed_dead(self, life: Life, until_us: int) -> bool:
        """Whether a side that knows of the connection may have gone on without its node by then.

        Sides that had formed before the client connected, and stayed as they were, know nothing of the others' clients.
        """
        since = life.connect_us
        apart = self._is_forked(life.link, since, until_us) and self.history.changed(since - HEAL_US, until_us)
        return apart and self._excuse("A7", "another side may have taken its client for dead")

    def client_given_up(self, life: Life, until_us: int) -> bool:
        """Whether the others gave up the client of a connection before `until_us`, when that ended.

        Yes, if the connection was open while its node did nothing: a hung node does not close it.
        """
        idle = self.history.down(life.link.server.name, life.connect_us, until_us - 1)
        return idle and self._excuse("A7", "its node hung while it was connected")

    def joined_later(self, life: Life, follower: Life) -> bool:
        """Whether the session of the later connection began on a side that did not know that of the earlier one.

        Yes, if the two were on two sides: a merge joins their sessions.
        """
        apart = self._on_two_sides([life.link, follower.link], life.connect_us, follower.accepted_us)
        return apart and self._excuse("A7", "its client began anew on another side")

    def withdrawal_unknown(self, life: Life, since_us: int, until_us: int) -> bool:
        """Whether a side may have gone on without anybody who knows that the will was withdrawn in this time.

        Yes, if a side goes on from a copy that has the will, and that is older than this time.
        """
        older = not self.majority and self.history.went_on_without(life.connect_us, since_us, until_us)
        return older and self._excuse("A7", "withdrawn while all nodes of a side were away")

    def will_early(self, life: Life, until_us: int) -> bool:
        """Whether a will may be published before its delay is over.

        Yes, if the others may have taken its node for dead: heartbeats that are lost in one direction are enough. Or if
        an operator has put the node out: it keeps its clients for a while, without a lease.
        """
        name = life.link.server.name
        since = max(life.connect_us, until_us - life.will_delay_s * SECOND - _NOTICE_US)
        cut = self.history.forked(name, since, until_us) or self.history.lacks(name, since, until_us) > 0
        out = self.history.down(name, since, until_us) or self.history.put_out(name, since, until_us)
        apart = not self.alone and (out or cut)
        return apart and self._excuse("A7", "its node was away or cut off while it was connected")

    def goodbye_lost(self, life: Life, until_us: int) -> bool:
        """Whether a DISCONNECT that was read may have been forgotten.

        A DISCONNECT is not acknowledged: a failure soon after it may undo it.
        """
        failed = self.history.troubled(life.goodbye_us, until_us)
        return failed and self._excuse("A7", "a node failed soon after DISCONNECT")

    def put_out(self, life: Life) -> bool:
        """Whether the node has ended a connection by itself, before it read the client's DISCONNECT.

        Yes, if the node closed the connection before it had read DISCONNECT.
        """
        return life.link.closed_at_bytes < life.goodbye_bytes

    def due_until(self, life: Life, due_us: int, delay_us: int, slack_us: int) -> int:
        """Return the latest moment at which a delay is over that would be over at `due_us`.

        A new leader of the session may restart the delay.

        There is one some time after the end of the trouble, or when a member that leaves has handed over.
        """
        since_us, until_us = life.link.ended_us - _BEFORE_US, due_us
        end = self.history.trouble_end(since_us, until_us + slack_us)
        while end and end + _NOTICE_US + delay_us > until_us:
            until_us = end + _NOTICE_US + delay_us
            end = self.history.trouble_end(since_us, until_us + slack_us)
        moved_us = self.history.hand_over_end(since_us, until_us + slack_us)
        if moved_us:
            until_us = max(until_us, moved_us + delay_us)
        if until_us > due_us:
            self._excuse("A7", "a new leader starts the delay again")
        return until_us

    # Others

    def staged_lost(self) -> bool:
        """Whether the staged part of a transaction may be gone.

        Yes, if there were ever two sides.
        """
        return self._decide("A10", "staged where a side took over", self._has_forked())

    def _has_forked(self) -> bool:
        return not self.majority and any(self.history.forked(host.name, 0) for host in self.history.hosts)

    def unserved(self, since_us: int) -> bool:
        """Whether the cluster may have been unable to handle a connection since then.

        Yes, if a machine was down, or links were cut.
        """
        failed = self.history.troubled(since_us, self.world.now)
        return self._decide("protocol", "not served after a failure", failed)
