"""A8: per topic the latest retained message wins, a clear stays cleared, and a wildcard subscription gets all of them.

MQTT 5 section 3.3.1.3. A retained topic is a register. The times at which writes were sent and acknowledged determine
what a reader may see, as for any atomic register (Herlihy and Wing: Linearizability, 1990).
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.mqtt.packet import Publish
from folkmoot.sim.check_will import MAYBE, NO, YES
from folkmoot.sim.fact import Message, SessionRecord
from folkmoot.sim.ledger import Ledger

__all__ = ["RetainedChecker"]


_BEFORE_US: Final = 10 * SECOND
"""A failure so long before the end of a connection may concern the way of its will."""


class RetainedChecker:
    """Judges retained messages as they come, and at the end the result of a fresh wildcard subscription.

    `outcomes`: by the number of a will, whether it was published.
    """

    def __init__(self, ledger: Ledger, outcomes: dict[int, str]) -> None:
        self.ledger = ledger
        self.outcomes = outcomes
        self.world = ledger.world
        self.judge = ledger.judge

    def received(self, record: SessionRecord, packet: Publish) -> None:
        """A session that forwards no RETAIN flags got a retained message."""
        message = self.ledger.by_payload.get(packet.payload)
        if message is None or not message.retain or message.is_will:
            return
        matching = record.matching(packet.topic)
        subs = [sub for sub in matching if not sub.group]
        if not subs or any(sub.retain_as_published for sub in matching):
            return
        asked_us = min([sub.asked_us for sub in subs])
        written = self.ledger.retained[message.topic]
        others = [other for other in written if other is not message and other.acked_us <= asked_us]
        if self.judge.retained_elsewhere(record, others):
            return
        over = self._overwritten(message, asked_us)
        if over is not None:
            self.world.violate("A8", f"{record} got the retained {message}, overwritten by {over} before SUBSCRIBE")

    def finish(self, got: dict[bytes, bytes]) -> None:
        """`got`: topic -> payload, all that a fresh subscription to # has received. Judges every topic."""
        now = self.world.now
        for topic, messages in self.ledger.retained.items():
            written = [message for message in messages if message.attempts and not self._was_refused(message)]
            left = [message for message in written if self._overwritten(message, now) is None]
            payload = got.get(topic, b"")
            if messages[0].is_will:
                self._finish_wills(topic, messages, payload)
            elif payload:
                if all(message.payload != payload for message in left):
                    self.world.violate("A8", f"{topic!r} has {payload[:40]!r} retained, and may have {left}")
            elif not self._may_be_absent(left, written):
                self.world.violate("A8", f"{topic!r} has nothing retained, and must have one of {left}")
        for topic, payload in got.items():
            message = self.ledger.by_payload.get(payload)
            if message is None or message.topic != topic or not message.retain:
                self.world.violate("A8", f"{topic!r} has {payload[:40]!r} retained, which nobody published there")

    def _finish_wills(self, topic: bytes, wills: list[Message], payload: bytes) -> None:
        """Judge a topic to which one client has written by its wills alone, in the order of its connections."""
        outcomes = [self.outcomes.get(will.number, MAYBE) for will in wills]
        certain = [place for place, outcome in enumerate(outcomes) if outcome == YES]
        first = 0
        if certain and wills[certain[-1]].will_link is not None:
            last = wills[certain[-1]]
            link = last.will_link
            # Where partitions move, an older one may stay (docs/limits.md, known defects).
            if link is not None and not self.judge.pending_since(link.ended_us - _BEFORE_US):
                first = certain[-1]
        left = [will for will, outcome in zip(wills[first:], outcomes[first:], strict=True) if outcome != NO]
        self.judge.judge("A8")
        if payload and all(will.payload != payload for will in left):
            self.world.violate("A8", f"{topic!r} has the will {payload[:40]!r} retained, and may have {left}")
        if not payload and certain:
            self.world.violate("A8", f"{topic!r} has no will retained, and must have one of {left}")

    def _may_be_absent(self, left: list[Message], written: list[Message]) -> bool:
        if any(not message.payload or message.may_expire for message in left):
            return True
        # "No message" is the first value of the register: the first acknowledged write overwrites it.
        return not any(message.acked for message in written)

    def _was_refused(self, message: Message) -> bool:
        return message.refused and len(message.attempts) == 1

    def _overwritten(self, message: Message, at_us: int) -> Message | None:
        """Return a write that has certainly replaced `message` by `at_us`, or None."""
        ended = self._ended_us(message)
        written = self.ledger.retained[message.topic]
        others = [other for other in written if other is not message and other.acked_us <= at_us]
        for other in self.judge.ordered(message, others):
            if ended < other.first_us:
                return other
            # A message that is applied once may have been applied at its first sending: a repetition does not reorder
            # it.
            applied = other.attempts[0 if other.once else -1].order
            # Between nodes messages of different QoS take different ways; MQTT orders those of one QoS only (4.6).
            same_way = message.qos == other.qos or self.ledger.trouble.alone
            if same_way and other.publisher == message.publisher and message.attempts[-1].order < applied:
                return other
        return None

    def _ended_us(self, message: Message) -> int:
        """Return the moment from which the node cannot apply `message` any more."""
        last = message.attempts[-1]
        if message.acked:
            return message.acked_us
        if message.settled_us == NEVER:
            return NEVER
        ended = max(message.settled_us, last.link.ended_us)
        if self.ledger.trouble.alone:
            return ended
        # The leaders of its session and its topic still have to pass it on, and wait for each other if one of them
        # fails.
        ended += self.ledger.slack_us
        return NEVER if self.judge.pending(message, ended) else ended
