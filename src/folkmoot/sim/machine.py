"""A machine and its process: running, hanging, dead, without power, cut off, with a full or slow disk.

Owns the machine's clock, which may differ from the world's, and what waits for a process that does not run.
`folkmoot.sim.host` does what the running process does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.core import Core, PeerCore
from folkmoot.sim.disk import Disk
from folkmoot.sim.network import Link, Server
from folkmoot.sim.peering import Peering
from folkmoot.sim.pipe import CUT, STOPPED
from folkmoot.sim.world import START_US, World

__all__ = ["Machine"]

_STALL_US: Final = 250 * MILLISECOND
"""A sync that takes longer is reported to the node."""


class Machine(Server):
    """One machine; `node` is None while its process is down.

    Every start of a process is a new life: an action planned in an earlier life finds another number and does nothing.
    """

    def __init__(self, world: World, rng: Rng, name: str, disk: Disk) -> None:
        self.world = world
        self.rng = rng
        self.name = name
        self.disk = disk
        self.node: Core | None = None
        self.peering: Peering | None = None  # None: no cluster
        self.life = 0
        self.emptied_us: list[int] = []  # when what its disk had was lost, or set back
        self.births = 0  # times that it began with an empty disk
        self.blank = (
            False  # its folder was emptied or set back: it knows less than the others until all are whole again
        )
        self.incomplete = False  # its disk lacks what it has confirmed last, and its next process knows that
        self.used: object = None  # the folder that its last process had, as the files of that folder tell
        self.put_out = False  # evicted by an operator's order, until its node is started again
        self.witness = False  # its node votes, and has neither data nor clients
        self.member = True  # it belongs to the cluster, or is about to
        self.node_id = name
        self.id_of_clone = ""  # it runs a copy of this node's folder
        self.build = 1  # 0: a build that lacks the newest features, 1: this one
        self.off = False  # no power: nothing answers for the process that is down
        self.dark = False  # cut off from all others
        self.hung = False  # the process is stopped: its sockets stay open and are not read
        self.paused = False  # and goes on soon: it does not count as failed
        self.links: dict[int, Link] = {}  # open ones, by number
        self.parting: list[Link] = []  # that the node has closed, while their clients could not hear of it
        self.on_fail: Callable[[Machine], None] = lambda _machine: None
        self.on_change: Callable[[], None] = lambda: None  # it started, died, hung or was cut off
        self.clock_offset_us = 0  # of the wall clock
        self.deadlines_by_wall = False  # a planted bug
        self._anchor_us = 0  # what that was when the process started
        self.clock_drift_ppm = 0
        self.clock_percent = 100  # how fast the wall clock goes: 0 stands still
        self._lag_us = 0  # what the wall clock has lost by going slowly, until `_paced_us`
        self._paced_us = world.now
        self.full_since_us = NEVER
        self.full_spans: list[tuple[int, int]] = []
        self._news: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []  # for a process that hangs
        self._stall_told = False
        disk.on_written = self._written

    @property
    def up(self) -> bool:
        """Whether its process runs and can be reached."""
        return self.node is not None and not self.hung and not self.dark

    def set_turn(self) -> None:
        """Something came in: there will be a turn."""
        raise NotImplementedError

    def clock(self) -> int:
        """Return the monotonic clock of the process: it began at the wall clock, and no step moves it."""
        if self.deadlines_by_wall:
            return self.wall()
        return self.steady_ns() // 1000

    def wall(self) -> int:
        """Return what the host believes to be the time, microseconds since 1970."""
        return self._paced() + self.clock_offset_us

    def anchor(self) -> None:
        """A process starts: its monotonic clock begins at the wall clock."""
        self._anchor_us = self.clock_offset_us

    def _paced(self) -> int:
        now = self.world.now
        if self.clock_drift_ppm:
            now += (self.world.now - START_US) * self.clock_drift_ppm // SECOND
        return now - self._lag_us - (self.world.now - self._paced_us) * (100 - self.clock_percent) // 100

    def steady_ns(self) -> int:
        """Return the monotonic clock of the process in nanoseconds: it cannot be set, and drifts within its bound."""
        drift_ns = (self.world.now - START_US) * self.clock_drift_ppm // 1000
        return (self.world.now + self._anchor_us) * 1000 + drift_ns

    def pace(self, percent: int) -> None:
        """Let the wall clock go at this speed from now on: 100 is the right one, 0 stands still."""
        self._lag_us += (self.world.now - self._paced_us) * (100 - self.clock_percent) // 100
        self._paced_us = self.world.now
        self.clock_percent = percent
        self.on_change()
        self.set_clock()

    def adjust(self, offset_us: int) -> None:
        """Set the wall clock to so much before or after the right time; what it had lost is made up."""
        self.clock_offset_us = offset_us + self.world.now - self._paced()
        self.on_change()
        self.set_clock()

    @property
    def clock_error_us(self) -> int:
        """By how much the wall clock is wrong, apart from its drift."""
        return abs(self.wall() - self.world.now)

    def set_clock(self) -> None:
        """The clock was changed: what the process waits for is due at other moments."""

    def wipe(self, *, same_id: bool = False) -> None:
        """Put an empty disk in: the next start is that of a new node at the same address, or of the same id."""
        assert self.node is None, "the disk of a running node stays"
        self.world.mark("empty disk under the same id" if same_id else "empty restart")
        self.world.note(self.name, "empty disk")
        if not same_id:
            self.births += 1
        self.blank = True
        self.emptied_us.append(self.world.now)
        self.disk.wipe()

    def hang(self) -> None:
        """Stop the process (SIGSTOP): no turns, its sockets stay open."""
        if not self.hung:
            self.world.mark("hang")
            self.world.note(self.name, "hang")
            self.hung = True
            self.reach()
            self.on_fail(self)

    def pause(self) -> None:
        """Stop the process for so short a time that it does not count as failed."""
        if not self.hung and self.node is not None:
            self.world.note(self.name, "pause")
            self.hung = True
            self.paused = True
            self.reach()

    def go_on(self) -> None:
        """Let the process go on (SIGCONT)."""
        if self.hung and self.node is not None:
            self.world.note(self.name, "goes on")
            self.hung = False
            self.paused = False
            news = self._news
            self._news = []
            self.reach()
            for life, action, arguments in news:
                if life == self.life:
                    action(*arguments)
            self.set_turn()

    def darken(self, *, on: bool) -> None:
        """Cut the machine off from all others, or connect it again."""
        self.world.note(self.name, "cut off" if on else "reachable again")
        self.dark = on
        self.reach()
        if on:
            self.on_fail(self)

    def reach(self) -> None:
        """Apply to all connections whether the machine can be reached and its process reads."""
        self.away = (STOPPED if self.hung else 0) | (CUT if self.off or self.dark else 0)
        parting = self.parting
        self.parting = []
        for link in [*self.links.values(), *parting]:
            link.stop(STOPPED, on=self.hung)
            if bool(link.to_node.held & CUT) != (self.off or self.dark):
                link.stop(CUT, on=self.off or self.dark)
        self.parting = [link for link in parting if link.to_client.held & CUT]
        if self.peering is not None and self.peering.mesh is not None:
            self.peering.mesh.update()
        self.on_change()

    def tell(self, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action` when the process runs: now, or when it goes on, or never if it dies before."""
        if self.hung:
            self._news.append((self.life, action, arguments))
        elif self.node is not None:
            action(*arguments)

    def _stalled(self, what: str, since_us: int) -> None:
        if self.peering is not None and self.node is not None:
            cast("PeerCore", self.node).stalled(what, since_us, self.clock())
            self.set_turn()

    # Disk

    def fill(self) -> None:
        """The disk is full."""
        self.world.note(self.name, "disk full")
        self.world.mark("disk full")
        if self.full_since_us == NEVER:
            self.full_since_us = self.world.now
        self._storage(full=True)
        self.world.later(_STALL_US, self._watch, self.life)

    def free(self) -> None:
        """There is room on the disk again."""
        if self.full_since_us < NEVER:
            self.world.note(self.name, "disk has room")
            self.full_spans.append((self.full_since_us, self.world.now))
            self.full_since_us = NEVER
            self.disk.free()
            self._storage(full=False)

    def _storage(self, full: bool) -> None:
        if self.node is not None:
            self.tell(self._room, full)

    def _room(self, full: bool) -> None:
        assert self.node is not None, "see tell"
        self.node.storage(full, "no space left on device" if full else "", self.clock())
        self.set_turn()

    def stall(self, duration_us: int) -> None:
        """Let the disk stand still for a while; a watchdog tells the node when a sync takes too long."""
        self.world.note(self.name, f"disk stalls for {duration_us}")
        self.disk.stall(duration_us)
        self.world.later(_STALL_US, self._watch, self.life)

    def _watch(self, life: int) -> None:
        since = self.disk.syncing_since_us
        if life == self.life and self.node is not None and not self._stall_told:
            if since <= self.world.now - _STALL_US:
                self._stall_told = True
                self.world.mark("stalled disk reported")
                self.tell(self._stalled, "disk", since + self.clock() - self.world.now)
            elif since < NEVER or self.disk.stall_until_us > self.world.now or self.disk.full:
                self.world.later(_STALL_US // 2, self._watch, life)

    def _written(self, token: int) -> None:
        if self.node is not None:
            self.tell(self._durable, token)

    def _durable(self, token: int) -> None:
        assert self.node is not None, "see tell"
        if self._stall_told and self.disk.syncing_since_us == NEVER:
            self._stall_told = False
            self._stalled("disk", 0)
        self.node.written(token, self.clock())
        self.set_turn()
