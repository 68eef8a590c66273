"""Partitions that have a leader again: what was deferred for them comes before what clients send now (A3).

See `channel.deferral`. This node asks all others, and itself, how much is deferred for such a partition: in the outbox
of a home that they lead, or on its way there. A member answers when it has installed this view, so that it defers
nothing more for the partition. While a message moves from the node that defers it to its home, both count it. But the
home may be asked before that, and the node afterwards: then one round of questions misses it, and the next one does
not. So the partition is drained when two rounds in a row have found nothing, in one view, with all homes open.
"""

from __future__ import annotations

from typing import Final

from folkmoot.channel.deferral import Deferral
from folkmoot.kernel.clock import MILLISECOND
from folkmoot.protocol.inbound import Inbound
from folkmoot.query.inquiry import Inquiries, Inquiry, Waiter
from folkmoot.query.question import DEFERRED, FOUND
from folkmoot.turn.state import TIMER_DRAIN

__all__ = ["Drain"]

_PAUSE_US: Final = 10 * MILLISECOND
"""Between a round that has found something and the next one."""


class Drain(Waiter):
    """Asks until nothing deferred is left for the partitions in `Deferral.draining`."""

    def __init__(self, deferral: Deferral, inquiries: Inquiries, inbound: Inbound) -> None:
        self.state = deferral.state
        self.fabric = deferral.fabric
        self.deferral = deferral
        self.inquiries = inquiries
        self.inbound = inbound
        self._absent: dict[int, None] = {}  # partitions without a leader
        self._asked: list[int] = []  # in the present round
        self._inquiries: list[Inquiry] = []  # of the present round, without an answer
        self._left: dict[int, int] = {}  # by partition: how much was found in the present round
        self._found_none: dict[int, None] = {}  # partitions for which the round before has found nothing
        self._void = False  # the present round has not asked everybody

    def installed(self) -> None:
        """A view was installed."""
        draining = self.deferral.draining
        for partition, leader in enumerate(self.fabric.leaders):
            if not leader:
                self._absent[partition] = None
                draining.pop(partition, None)
            elif partition in self._absent:
                del self._absent[partition]
                if self.fabric.defers and not self.fabric.planted.undrained:
                    draining[partition] = None
        self._end_round()
        self._found_none = {}
        self.inbound.drained()
        if draining:
            self._ask()

    def stand_down(self) -> None:
        """This node serves no client: whoever is connected later has nothing deferred that it could overtake."""
        self._absent = {}
        self.deferral.draining.clear()
        self._end_round()
        self._found_none = {}
        self.state.timers.cancel(TIMER_DRAIN, 0)

    def _end_round(self) -> None:
        for inquiry in self._inquiries:
            self.inquiries.drop(inquiry)
        self.inquiries.leave(self)
        self._inquiries = []
        self._asked = []
        self._left = {}
        self._void = False

    def due(self) -> None:
        """It is time for the next round; not everybody answers where a member of an older version has come."""
        if not self.fabric.defers:
            self.deferral.draining.clear()
            self.inbound.drained()
        if self.deferral.draining and not self._asked:
            self._ask()

    def _ask(self) -> None:
        """Begin a round: ask everybody what is deferred."""
        self._asked = list(self.deferral.draining)
        self._left = {partition: self.deferral.left_for(partition) for partition in self._asked}
        numbers = [self.fabric.epoch, *self._asked]
        for node_id in self.fabric.others:
            self._inquiries.append(self.inquiries.ask_node(self, node_id, DEFERRED, b"", numbers, b""))
        if not self._inquiries:
            self._finish()

    def heard(self, inquiry: Inquiry) -> None:
        """Take an answer."""
        if inquiry not in self._inquiries:
            return
        self._inquiries.remove(inquiry)
        answer = inquiry.answer
        asked = [self.fabric.epoch, *self._asked]
        if answer is None or answer.status != FOUND or len(answer.numbers) != len(asked):
            self._void = True
        elif answer.numbers[0] != self.fabric.epoch:
            self._void = True  # it has another view, which comes here soon
        else:
            for partition, count in zip(self._asked, answer.numbers[1:], strict=True):
                self._left[partition] += count
        if not self._inquiries:
            self._finish()

    def again(self) -> None:
        """Leaders may have changed: missing answers will not come."""

    def _finish(self) -> None:
        """All have answered."""
        left, was_asked = self._left, self._asked
        whole = not self._void and self._is_open()
        self._end_round()
        found_none: dict[int, None] = {}
        draining = self.deferral.draining
        before = len(draining)
        for partition in was_asked:
            if whole and not left[partition]:
                if partition in self._found_none:
                    draining.pop(partition, None)
                else:
                    found_none[partition] = None
        self._found_none = found_none
        if len(draining) < before:
            self.inbound.drained()
        if draining:
            pause_us = 0 if len(found_none) == len(draining) else _PAUSE_US
            self.state.timers.set(self.state.now + pause_us, TIMER_DRAIN, 0)

    def _is_open(self) -> bool:
        """Whether all partitions that can have deferred messages are open: their leaders know their outboxes."""
        fabric = self.fabric
        return all(fabric.open[partition] for partition, leader in enumerate(fabric.leaders) if leader)
