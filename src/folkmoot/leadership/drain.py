"""Partitions that have a leader again: what was deferred for them comes before what clients send now (A3).

See `channel.deferral`. This node asks all others, and itself, how much is deferred for such a partition: in the outbox
of a home that they lead, or on its way there. A member answers when it has installed this view, so that it defers
nothing more for the partition. While a message moves from the node that defers it to its home, both count it. But the
home may be asked before that, and the node afterwards: then one round of questions misses it, and the next one does
not. So the partition is drained when two rounds in a row have found nothing, in one view. The outbox of a home that is
not open is not known to anybody: clients with such a home wait on.

A node that has just started, or serves again, does not know what was absent: it asks about all partitions.
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

_CLOSED_US: Final = 100 * MILLISECOND
"""The same while nothing is missing but homes that are not open."""

_TRIES_MAX: Final = 20
"""So often a round waits for a member that does not say that it can answer: an older build never does."""


class Drain(Waiter):
    """Asks until nothing deferred is left for the partitions in `Deferral.draining`."""

    def __init__(self, deferral: Deferral, inquiries: Inquiries, inbound: Inbound) -> None:
        self.state = deferral.state
        self.fabric = deferral.fabric
        self.deferral = deferral
        self.inquiries = inquiries
        self.inbound = inbound
        # Partitions that had no leader when this node looked last, or at which it has not looked
        self._absent: dict[int, None] = dict.fromkeys(range(self.state.partitions))
        self._asked: list[int] = []  # in the present round
        self._inquiries: list[Inquiry] = []  # of the present round, without an answer
        self._left: dict[int, int] = {}  # by partition: how much was found in the present round
        self._closed: dict[int, None] = {}  # homes that were not open when the present round began
        self._void = False  # the present round has not asked everybody
        # By partition for which the round before has found nothing: homes that were not open
        self._found_none: dict[int, dict[int, None]] = {}
        self._tries = 0

    def installed(self) -> None:
        """A view was installed."""
        draining = self.deferral.draining
        may_fork = self.fabric.may_fork and not self.fabric.planted.undrained
        for partition, leader in enumerate(self.fabric.leaders):
            if not leader:
                self._absent[partition] = None
                draining.pop(partition, None)
            elif partition in self._absent:
                del self._absent[partition]
                if may_fork:
                    draining[partition] = None
        self._end_round()
        self._found_none = {}
        self._tries = 0
        self.inbound.drained()
        if draining:
            self._ask()

    def stand_down(self) -> None:
        """This node serves no client, and does not see what is absent until it does again."""
        self._absent = dict.fromkeys(range(self.state.partitions))
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
        """It is time for the next round."""
        if self.deferral.draining and not self._asked:
            self._ask()

    def _ask(self) -> None:
        """Begin a round: ask everybody what is deferred."""
        if not self.fabric.defers and self.fabric.others:
            self._tries += 1
            if self._tries > _TRIES_MAX:
                self.deferral.draining.clear()
                self.inbound.drained()
            else:
                self.state.timers.set(self.state.now + _PAUSE_US, TIMER_DRAIN, 0)
            return
        self._asked = list(self.deferral.draining)
        self._left = {partition: self.deferral.left_for(partition) for partition in self._asked}
        self._closed = self._closed_homes()
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
        """A home has opened: its leader knows its outbox."""
        self.due()

    def _finish(self) -> None:
        """All have answered."""
        found_none = [] if self._void else [one for one in self._asked if not self._left[one]]
        self._end_round()
        draining = self.deferral.draining
        before = self._found_none
        self._found_none = {}
        for partition in found_none:
            closed = before.get(partition)
            if closed is None:
                self._found_none[partition] = self._closed
                continue
            closed = {**closed, **self._closed}
            if closed:
                draining[partition] = closed
            else:
                del draining[partition]
        if len(self._found_none) < len(found_none):
            self.inbound.drained()
        if draining:
            if self._found_none:
                self._ask()
                return
            self.inquiries.wait(self)
            is_closed = all(homes is not None for homes in draining.values())
            self.state.timers.set(self.state.now + (_CLOSED_US if is_closed else _PAUSE_US), TIMER_DRAIN, 0)

    def _closed_homes(self) -> dict[int, None]:
        """Return the partitions whose leaders do not know their outboxes yet."""
        fabric = self.fabric
        return {one: None for one, leader in enumerate(fabric.leaders) if leader and not fabric.open[one]}
