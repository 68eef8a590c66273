"""Faults of processes and clocks that need no budget, because every disk keeps what it has.

Stutter (stops of 50 to 400 ms in a row), kills at any moment, all power lost at different moments, rolling upgrades
between two builds; clocks that run slow, stand still and jump. Owns when each ends.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.acting import Acting, Action
from folkmoot.sim.fault_link import LinkFaults
from folkmoot.sim.host import Host
from folkmoot.sim.site import Site
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World

__all__ = ["ProcessFaults"]

_STOP_US: Final = (50 * MILLISECOND, 400 * MILLISECOND)
_JUMPS_US: Final = (5 * SECOND, 60 * SECOND, 3600 * SECOND, 86_400 * SECOND)
_LIVES_US: Final = (50 * MILLISECOND, 500 * MILLISECOND, 3 * SECOND)
"""How long a process lives at most that is restarted again and again."""

_WRONG_US: Final = 100 * MILLISECOND
"""A clock that is further from the right time is wrong."""


class ProcessFaults(Acting):
    """Faults of processes and clocks, as actions to be drawn. `links` cuts machines off; `alone`: it may do so."""

    def __init__(self, world: World, rng: Rng, site: Site, trouble: Trouble, links: LinkFaults, alone: bool) -> None:
        super().__init__(world, rng, site, trouble)
        self.links = links
        self.alone = alone
        self._stuttering: dict[str, bool] = {}
        self._looping: dict[str, bool] = {}
        self._upgrading = False

    def actions(self) -> list[tuple[int, str, Action]]:
        """Return (weight, name, action) of each fault."""
        return [
            (2, "stutters", self.stutter),
            (2, "kills", self.kill),
            (2, "uneven power loss", self.lose_power),
            (4, "restart loops", self.loop),
            (1, "upgrades", self.upgrade),
            (1, "slow clocks", self.slow_clock),
            (2, "wrong clocks", self.step_clock),
        ]

    def heal(self) -> None:
        """End everything, for good."""
        self.end_all()
        self._stuttering.clear()
        self._looping.clear()
        self._upgrading = False
        for host in self.site.hosts:
            self._right(host)

    def lasting(self) -> int:
        """Draw how long something lasts, microseconds."""
        return SECOND + self.rng.below((3 * SECOND, 15 * SECOND)[self.rng.below(2)])

    def _perhaps_alone(self, host: Host, lasts_us: int) -> None:
        """Perhaps cut the machine off for about as long."""
        if self.alone and self.rng.chance(1, 2):
            self.links.isolate([host], lasts_us + self.rng.below(SECOND))

    # Processes

    def stutter(self) -> None:
        """Stop a process for a short time, again and again."""
        running = [host for host in self.site.running if host.up and host.name not in self._stuttering]
        for host in self._shuffled(running)[:1]:
            lasts = self.lasting()
            stop = _STOP_US[0] + self.rng.below(_STOP_US[1] - _STOP_US[0])
            self.start_stutter(host, stop, MILLISECOND * self.rng.between(1, 60), lasts)
            self._perhaps_alone(host, lasts)

    def start_stutter(self, host: Host, stop_us: int, go_us: int, lasts_us: int) -> None:
        """Stop a process for `stop_us` and let it go on for `go_us`, in turn."""
        self._note(f"stutter of {stop_us} us in {stop_us + go_us} us at", [host])
        self.world.mark("stutter")
        self.trouble.disturb()
        self._stuttering[host.name] = True
        self._stop(host, stop_us, go_us, self.world.now + lasts_us)

    def _note(self, what: str, hosts: list[Host]) -> None:
        self.world.note("world", f"{what} {' '.join([host.name for host in hosts])}")

    def _stop(self, host: Host, stop_us: int, go_us: int, end_us: int) -> None:
        if self.world.now >= end_us or host.node is None:
            self._stuttering.pop(host.name, None)
            return
        host.pause()
        self._until(stop_us, self._go_on, host, stop_us, go_us, end_us)

    def _go_on(self, host: Host, stop_us: int, go_us: int, end_us: int) -> None:
        host.go_on()
        self._until(go_us, self._stop, host, stop_us, go_us, end_us)

    def kill(self) -> None:
        """Kill any process, whatever else is going on: its disk stays."""
        for host in self._shuffled(self.site.running)[:1]:
            self.world.mark("kill")
            self.trouble.disturb()
            self.trouble.fail([host])
            host.crash()
            self._until(self.duration(), self.start, host)

    def loop(self) -> None:
        """Restart a process again and again, often before the others have noticed, or before it is up."""
        for host in self._shuffled([host for host in self.site.running if host.name not in self._looping])[:1]:
            self.start_loop(host, self.lasting(), _LIVES_US[self.rng.below(len(_LIVES_US))])

    def start_loop(self, host: Host, lasts_us: int, life_us: int) -> None:
        """Kill a process again and again, each time after at most `life_us`, and start it soon after that."""
        self.world.mark("restart loop")
        self._note(f"restart loop of up to {life_us} us at", [host])
        self._looping[host.name] = True
        self._kill_again(host, life_us, self.world.now + lasts_us)

    def _kill_again(self, host: Host, life_us: int, end_us: int) -> None:
        if self.world.now >= end_us:
            self._looping.pop(host.name, None)
            return
        if host.node is not None:
            self.trouble.disturb()
            self.trouble.fail([host])
            host.crash()
        down_us = self.rng.below((5 * MILLISECOND, 300 * MILLISECOND)[self.rng.below(2)])
        self._until(down_us, self.start, host)
        self._until(down_us + MILLISECOND + self.rng.below(life_us), self._kill_again, host, life_us, end_us)

    def lose_power(self) -> None:
        """All machines lose their power, one after the other while clients go on, and come back in another order."""
        running = self._shuffled(self.site.running)
        self.world.mark("uneven power loss")
        self._note("uneven power loss", running)
        self.trouble.disturb()
        self.trouble.fail(running)
        at = 0
        for host in running:
            self._until(at, self._power_off, host)
            at += self.rng.below((50 * MILLISECOND, 4 * SECOND)[self.rng.below(2)])
        together = self.rng.chance(1, 2)
        for host in self._shuffled(running):
            self._until(at + MILLISECOND, self.start, host)
            at += self.rng.below(20 * MILLISECOND if together else 3 * SECOND)

    def _power_off(self, host: Host) -> None:
        if host.node is not None:
            host.crash()

    def upgrade(self) -> None:
        """Restart all nodes one after the other, each with the other build."""
        running = self._shuffled([host for host in self.site.running if host.member])
        if self._upgrading or not running:
            return
        self._upgrading = True
        self.world.mark("rolling upgrade")
        self.trouble.disturb()
        self._upgrade(running, 1 - running[0].build)

    def _upgrade(self, left: list[Host], build: int) -> None:
        while left and (left[0].node is None or left[0].hung):
            left.pop(0)
        if not left:
            self._upgrading = False
            return
        host = left.pop(0)
        self._note(f"upgrade to build {build}:", [host])
        self.trouble.fail([host])
        if self.rng.chance(1, 4):
            host.crash()
            self._until(self.rng.below(SECOND), self._upgraded, host, left, build)
        else:
            host.stop(lambda: self._until(self.rng.below(SECOND), self._upgraded, host, left, build))

    def _upgraded(self, host: Host, left: list[Host], build: int) -> None:
        host.build = build
        self.start(host)
        self._until(SECOND // 2 + self.rng.below(5 * SECOND), self._upgrade, left, build)

    # Clocks

    def slow_clock(self) -> None:
        """Let the wall clock of a machine run slow or stand still: of less than half of the machines at a time."""
        for host in self._with_right_clock():
            lasts = self.lasting()
            self.set_pace(host, (0, 0, 0, 10, 50, 90)[self.rng.below(6)])
            self._until(lasts, self._right, host)
            self._perhaps_alone(host, lasts)

    def step_clock(self) -> None:
        """Set the wall clock of a machine wrong: of less than half of the machines at a time."""
        for host in self._with_right_clock():
            lasts = self.lasting()
            jump = _JUMPS_US[self.rng.below(len(_JUMPS_US))]
            self.jump(host, jump if self.rng.chance(2, 3) else -jump)
            self._until(lasts, self._right, host)

    def _with_right_clock(self) -> list[Host]:
        """Draw a machine whose clock may be wrong too; none if that would be half of them."""
        members = [host for host in self.site.hosts if host.member]
        wrong = [host for host in members if host.clock_error_us > _WRONG_US]
        if 2 * (len(wrong) + 1) >= len(members) and len(members) > 2:
            return []
        return [host for host in self._shuffled(members) if host not in wrong][:1]

    def set_pace(self, host: Host, percent: int) -> None:
        """Let a clock go at this speed."""
        self.world.mark("clock stands still" if percent == 0 else "clock runs slow")
        self._note(f"clock at {percent} %:", [host])
        self.trouble.disturb()
        host.pace(percent)

    def jump(self, host: Host, offset_us: int) -> None:
        """Set a clock wrong by so much."""
        self.world.mark("clock jumps ahead" if offset_us > 0 else "clock jumps back")
        self._note(f"clock wrong by {offset_us}:", [host])
        self.trouble.disturb()
        host.adjust(offset_us)

    def _right(self, host: Host) -> None:
        if host.clock_percent != 100 or host.clock_error_us > _WRONG_US:
            self.world.note(host.name, "clock is right")
            host.pace(100)
            host.adjust(0)
