"""How a node goes in good order: clients first, then what was asked of others, and then the view without this node.

Two ways lead here: a stop, after which the node is expected back (`depart`), and leaving for good, which begins when
everything has been handed over. Decides when to say goodbye; the agreement is the membership's.
"""

from __future__ import annotations

from typing import Final

from folkmoot.broker.broker import Broker
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.event import INFO
from folkmoot.membership.membership import Membership
from folkmoot.turn.state import State

__all__ = ["Shutdown"]

_NOTICE_US: Final = SECOND  # for the driver to accept no more, and for load balancers to see that this node is leaving
_PATIENCE_US: Final = 5 * SECOND  # for clients that do not go, and for answers that do not come


class Shutdown:
    """The end of one node's membership."""

    def __init__(self, state: State, broker: Broker, membership: Membership) -> None:
        self._state = state
        self._broker = broker
        self._membership = membership
        self._drained_us: int = 0  # since when nothing is left to give
        self._told_us: int = 0  # when clients were sent away

    def step(self) -> None:
        """Look whether a node that leaves has nothing left to give, and whether its clients are gone."""
        membership = self._membership
        now = self._state.now
        if not membership.drained:
            self._drained_us = 0
        elif not self._drained_us:
            self._drained_us = now
        if not self._told_us:
            if self._drained_us and now - self._drained_us >= _NOTICE_US:
                self._told_us = now
                self._state.event(INFO, "leaving", {"clients": len(self._state.connections)})
                self._broker.stop()
        elif not membership.drained and membership.state == "member":
            self._told_us = 0  # somebody has died, and what was handed over is needed here again
            self._state.stopping = False
        elif self._quiet() or now - self._told_us >= _PATIENCE_US:
            membership.depart(now)

    def _quiet(self) -> bool:
        """Whether no client is here, no leader of a partition owes an answer, and all know who has gone."""
        return (
            not self._state.connections
            and not self._broker.forward_sender.busy
            and not self._broker.pending_closes.busy
        )
