"""How a node ends: its clients are disconnected, its requests are answered, then the others go on without it.

There are two cases: a stop, after which the node is expected back (`depart`), and leaving for good, which begins when
everything has been handed over. Decides when to announce the end; an entry of the configuration log marks the node as
away, or removes it.
"""

from __future__ import annotations

from typing import Final

from folkmoot.broker.broker import Broker
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.event import INFO
from folkmoot.membership.membership import Membership
from folkmoot.turn.state import State

__all__ = ["Shutdown"]

_NOTICE_US: Final = SECOND  # for the driver to stop accepting, and for load balancers to notice that this node leaves
_PATIENCE_US: Final = 5 * SECOND  # for clients that do not disconnect, and for answers that do not come


class Shutdown:
    """The end of one node's membership."""

    def __init__(self, state: State, broker: Broker, membership: Membership) -> None:
        self._state = state
        self._broker = broker
        self._membership = membership
        self._drained_us: int = 0  # since when this node keeps nothing
        self._told_us: int = 0  # when clients were disconnected

    def step(self) -> None:
        """Look whether a leaving node keeps nothing, and whether its clients are disconnected."""
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
        elif not membership.leaves or (not membership.drained and membership.state == "member"):
            self._told_us = 0  # the leave was taken back, or a node has died, and this one has to keep copies again
            self._state.stopping = False
            membership.resume(now)
        elif membership.drained and (self._quiet() or now - self._told_us >= _PATIENCE_US):
            membership.depart(now)

    def _quiet(self) -> bool:
        """Whether no client is connected, no request unanswered, and every end of a connection reported."""
        return (
            not self._state.connections
            and not self._broker.channel.forward_sender.busy
            and not self._broker.proxy.pending_closes.busy
        )
