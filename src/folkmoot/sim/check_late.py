"""Liveness while nothing is wrong: what comes at last may have come too late.

A run that comes to rest within a minute hides what waits for a timer. Owns since when nothing has been wrong, by what
the simulator did itself, and the bounds: an acknowledged message for a client that is connected comes, a question is
answered, and a client that wants to be connected is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.sim.fact import Message, SessionRecord
from folkmoot.sim.history import History
from folkmoot.sim.network import Link

if TYPE_CHECKING:
    from folkmoot.sim.client import Client

__all__ = ["LATE_US", "LateChecker"]

LATE_US: Final = 10 * SECOND
"""While nothing is wrong, nothing takes this long."""

_SETTLE_US: Final = 20 * SECOND
"""So long after the end of the last fault something may still be wrong: nodes whose links have failed again and again
wait for up to 16 seconds (docs/operate.md)."""

_LOOK_US: Final = 250 * MILLISECOND


class LateChecker:
    """Judges how long things take. `active`: whether a fault is active.

    `asks`: whether to look at questions, too. `admits`: and at clients that want in; where memory is short, they wait.
    """

    def __init__(self, history: History, active: Callable[[], bool], *, asks: bool, admits: bool) -> None:
        self.world = history.world
        self.history = history
        self.judge: Callable[[str], None] = lambda _promise: None  # counts a case
        self._active = active
        self._asks = asks
        self._admits = admits
        self._wrong_us = self.world.now  # the last moment at which a fault was active, as far as was looked
        self._was_active = False
        self._next_look_us = 0
        self._offline_us: dict[str, int] = {}  # since when clients have wanted to be connected in vain

    def look(self, clients: list[Client]) -> None:
        """Take note of whether something is wrong, and look at what clients wait for."""
        now = self.world.now
        active = self._active() or not self.history.whole
        if active or self._was_active:
            self._wrong_us = now  # it may have ended since the last look
        self._was_active = active
        if now < self._next_look_us:
            return
        self._next_look_us = now + _LOOK_US
        for client in clients:
            self._look_at(client)

    def _clear_since(self) -> int:
        """Return since when everything must go on within the bound."""
        return max(self._wrong_us, self.history.changed_us) + _SETTLE_US

    def _look_at(self, client: Client) -> None:
        now = self.world.now
        link = client.link
        if client.online or not client.wanted or not self._admits:
            self._offline_us.pop(client.name, None)
        elif now - max(self._offline_us.setdefault(client.name, now), self._clear_since()) > LATE_US:
            self.world.violate("liveness", f"{client.name} has not been let in for {LATE_US // SECOND} s")
        if not self._asks or link is None or client.life is None or not client.online or _is_hindered(link):
            return
        asked_us, what = client.waits_for
        if now - max(asked_us, client.life.accepted_us, self._clear_since()) > LATE_US:
            text = f"{client.name} has waited for {what} of {link.server.name} for {LATE_US // SECOND} s"
            self.world.violate("liveness", f"{text}, while nothing was wrong")

    def received(self, record: SessionRecord, link: Link, message: Message, owed_us: int) -> None:
        """A client that is connected got an acknowledged message that it was owed since then."""
        now = self.world.now
        if _is_hindered(link):
            return
        self.judge("liveness")
        since_us = max(owed_us, message.acked_us, record.got_us, self._clear_since())
        if now - since_us > LATE_US:
            text = f"{record} got {message} {(now - message.acked_us) / SECOND:.1f} s after it was acknowledged"
            self.world.violate("liveness", f"{text}, and nothing else for {LATE_US // SECOND} s")


def _is_hindered(link: Link) -> bool:
    """Whether something held back the bytes of a connection."""
    return link.troubled or link.cut_us < NEVER or bool(link.to_node.held or link.to_client.held)
