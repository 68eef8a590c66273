"""A7: the will of a connection is published exactly once if it ended without DISCONNECT, and otherwise never.

MQTT 5 sections 3.1.2.5, 3.1.3.2.2, 3.1.4. Judges at the end of a run, when every delay has passed, by the messages of
sessions that subscribed to all wills.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.sim.fact import Life
from folkmoot.sim.ledger import Ledger

__all__ = ["MAYBE", "NO", "YES", "WillChecker"]

NO = "no"
YES = "yes"
MAYBE = "maybe"

_GOODBYE_US = 5 * SECOND
"""A DISCONNECT is not acknowledged: a crash this soon after it may undo it."""


class WillChecker:
    """Judges every connection that had a will.

    `watchers`: client ids with a QoS 2 subscription to all wills since the beginning.
    """

    def __init__(self, ledger: Ledger, watchers: list[str]) -> None:
        self.ledger = ledger
        self.world = ledger.world
        self.trouble = ledger.trouble
        self.judge = ledger.judge
        self.watchers = watchers
        self.outcomes: dict[int, str] = {}  # by the number of the will, as judged last

    def finish(self) -> None:
        """After all faults and delays."""
        for client_id in self.ledger.lives:
            for life in self.ledger.lives[client_id]:
                if life.will is not None:
                    self._judge(life)

    def _judge(self, life: Life) -> None:
        """Judge both bounds: how often a will must be published, and how often it may be."""
        will = life.will
        assert will is not None, "only lives with a will are judged"
        outcome = self.outcomes[will.number] = self.outcome(life)
        if outcome != MAYBE:
            self.world.mark(f"will {outcome}")
            self.judge.judge("A7")
        once = outcome == NO or not self.judge.will_twice(life)
        if outcome == YES and once:
            self.judge.judge("A7")
        for watcher in self.watchers:
            record = self.ledger.current.get(watcher)
            if record is None or record.created_us > life.connect_us:
                continue
            count = record.copies.get(will.number, 0)
            if outcome == YES and count == 0 and not self.ledger.queue_limit:
                self.world.violate("A7", f"the will of {life} was never published")
            if outcome == NO and count:
                self.world.violate("A7", f"the will of {life} was published, and the connection {self._story(life)}")
            if count and self._is_early(life):
                self.world.violate("A7", f"the will of {life} was published before its delay of {life.will_delay_s} s")
            if will.qos == 2 and count > 1 and once:
                self.world.violate("A7", f"the will of {life} was published {count} times")

    def _is_early(self, life: Life) -> bool:
        """Whether the will came before its delay although nothing ended the session."""
        will = life.will
        assert will is not None, "only lives with a will are judged"
        follower = life.next
        if follower is not None and follower.connect_us <= will.received_us:
            return False
        delay_us = min(life.will_delay_s, life.expiry_low_s) * SECOND
        if will.received_us >= life.link.cut_us + delay_us - self.ledger.slack_us:
            return False
        return not self.judge.will_early(life, will.received_us)

    def _story(self, life: Life) -> str:
        if life.goodbye_us < NEVER:
            return "ended with DISCONNECT"
        if life.link.cut_us == NEVER:
            return "lives"
        return "was resumed before the delay had passed"

    def outcome(self, life: Life) -> str:
        """Return whether the will must have been published (YES), must not (NO), or may be either (MAYBE)."""
        link = life.link
        if link.read_bytes < life.connect_bytes or life.refused:
            return NO
        if life.accepted_us == NEVER:
            return MAYBE
        outcome = self._of_accepted(life)
        if outcome == NO and self.judge.client_given_up(life, min(link.cut_us, link.ended_us)):
            return MAYBE
        return outcome

    def _of_accepted(self, life: Life) -> str:
        link = life.link
        if life.goodbye_us < NEVER and life.goodbye_code == 0:
            if not life.goodbye_read or self.judge.put_out(life):
                # The DISCONNECT was lost with its connection, or came when the node had ended it already.
                return MAYBE if link.ended_us == NEVER else self._after_loss(life)
            follower = life.next
            if follower is not None and follower.link.first_read_us < link.last_read_us:
                return MAYBE  # it may have been taken over before it had said DISCONNECT: a node read the next CONNECT
            if self.judge.goodbye_lost(life, life.goodbye_us + _GOODBYE_US):
                return MAYBE
            return self._withdrawn(life, life.goodbye_us, life.goodbye_us)
        if link.ended_us == NEVER:
            return self._unless_dead_elsewhere(life, self.world.now)
        return self._after_loss(life)

    def _withdrawn(self, life: Life, since_us: int, until_us: int) -> str:
        """The will was withdrawn in this time: by a DISCONNECT, or by the return of the client."""
        if self.judge.withdrawal_unknown(life, since_us, until_us):
            return MAYBE
        return self._unless_dead_elsewhere(life, until_us)

    def _unless_dead_elsewhere(self, life: Life, until_us: int) -> str:
        """The client was connected or came back: only a side without its node may have taken it for dead until then."""
        return MAYBE if self.judge.will_unsure(life, until_us) else NO

    def _after_loss(self, life: Life) -> str:
        """The connection ended without DISCONNECT: only the return of the client before the delay can stop the will."""
        # The end of the session brings the will before its delay does [MQTT-3.1.3-9].
        high_us = min(life.will_delay_s, life.expiry_high_s) * SECOND
        if high_us == 0:
            return YES
        due_low, due_high = self._due(life, min(life.will_delay_s, life.expiry_low_s) * SECOND, high_us)
        follower = life.next
        while follower is not None:
            if follower.connect_us > due_high + self.ledger.slack_us:
                return YES
            if follower.accepted_us == NEVER:
                if follower.link.read_bytes >= follower.connect_bytes:
                    return MAYBE
            elif not follower.resumed:
                # A new session has ended the old one; or they become one, and the client was back in time.
                return MAYBE if not follower.clean and self.judge.joined_later(life, follower) else YES
            elif follower.accepted_us >= due_low - self.ledger.slack_us:
                return MAYBE
            else:
                return self._withdrawn(life, follower.connect_us, follower.accepted_us)
            follower = follower.next
        return YES if self.world.now > due_high + self.ledger.slack_us else MAYBE

    def _due(self, life: Life, low_us: int, high_us: int) -> tuple[int, int]:
        """Return the earliest and the latest moment at which the delay is over."""
        low = min(life.link.cut_us, life.link.ended_us) + low_us
        high = life.link.ended_us + high_us
        if not self.trouble.alone:
            return low, self.judge.due_until(life, high, high_us, self.ledger.slack_us)
        host = self.ledger.hosts[0]
        for started_us, stopped_us in zip(host.starts_us[1:], host.stops_us, strict=False):
            # A restarted node may restart the delay: it does not know how long it was away, and its last writes may not
            # have reached the disk.
            if life.link.ended_us <= stopped_us <= high + self.ledger.slack_us:
                high = started_us + high_us
        return low, high
