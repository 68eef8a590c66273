"""The time of a node: for what is stored, and for what nodes compare. Deadlines within a process do not use it.

A node has three clocks. `now` only measures durations: it is the monotonic clock of the machine, and no setting of a
clock moves it. The wall clock of the machine says what day it is, and may be wrong. `time` is what this node writes
into rows and messages: `now` plus a shift that most wall clocks support, its own and those of the nodes that it asks.

It is a hybrid clock in the sense of Kulkarni et al. (Logical Physical Clocks, 2014): it follows physical clocks, stays
within a bound of them, and does not go back. Two things differ. The physical clock is the median of several, because a
maximum would let one wrong clock move all. And a correction by more than the bound may set `time` back: standing still
for days would be worse for what is new. What must be ordered has a clock of its own that never goes back
(`folkmoot.merge.stamp`, `folkmoot.streams.log`).

`expiry_time` decides what has expired. It is never ahead of `time`, runs at most twice as fast as `now`, and is 0 until
the time is known: so no step of any clock expires much at once.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND

__all__ = ["BOUND_US", "OPINION_US", "START_US", "NodeClock", "Opinion"]

BOUND_US: Final = 10 * SECOND
"""A clock that is further from the time of its node is wrong: the default."""

OPINION_US: Final = 60 * SECOND
"""What a node has said of its clock counts for this long."""

START_US: Final = 2 * SECOND
"""A node that has just started waits so long for other clocks before it believes its own: the default."""


class Opinion:
    """What another node has said of its clocks, relative to `now` of this node.

    wall_us: by how much its wall clock is ahead of it; time_us: the same for its time; settled: it knows its time;
    seen_us: when it said so.
    """

    def __init__(self, wall_us: int, time_us: int, settled: bool, seen_us: int) -> None:
        self.wall_us = wall_us
        self.time_us = time_us
        self.settled = settled
        self.seen_us = seen_us


class NodeClock:
    """Decides the time of one node. `alone`: it knows of no other node, and need not wait for one.

    shift_us: `time` less `now`, unless `time` stands still. off: the own wall clock is further than `bound_us` from
    `time`. divided: no majority of the known clocks agrees. set_by_us: by how much `time` was last set by more than the
    bound; whoever reports it sets it to 0.
    """

    def __init__(self, bound_us: int = BOUND_US, start_us: int = START_US, alone: bool = True) -> None:
        self.bound_us = bound_us
        self.start_us = start_us
        self.alone = alone
        self.now = 0
        self.time = 0
        self.expiry_time = 0
        self.shift_us = 0
        self.own_us = 0  # the own wall clock less `now`
        self.settled = False
        self.off = False
        self.divided = False
        self.clocks = 1  # whose opinions were counted last
        self.set_by_us = 0
        self.changed = False  # there may be something to report, and whoever does sets this to False
        self.follow_all: bool = False  # planted bugs of tests: the clock that is furthest ahead counts,
        self.follow_own: bool = False  # or the own one
        self._began_us = 0
        self._accompanied = False  # the clock of another node was heard
        self._opinions: dict[str, Opinion] = {}

    def begin(self, wall_us: int, now: int) -> None:
        """The node starts; to be called once, before anything else."""
        self.now = self._began_us = now
        self.own_us = self.shift_us = wall_us - now
        self.time = wall_us
        self._judge()

    def tick(self, now: int) -> None:
        """Go on to `now`, which never goes back."""
        before = self.time
        time = now + self.shift_us
        if time > before:
            self.time = time
            if self.expiry_time == before:  # as always, but after a step
                self.expiry_time = time
        if self.expiry_time != self.time and self.settled:
            self.expiry_time = min(self.expiry_time + 2 * (now - self.now), self.time)
        self.now = now

    def set_wall(self, wall_us: int) -> None:
        """The wall clock of this machine shows this at `now`."""
        self.own_us = wall_us - self.now
        self._judge()

    def hear(self, node_id: str, opinion: Opinion) -> None:
        """Another node has said what its clocks show."""
        self._opinions[node_id] = opinion
        self._accompanied = True
        self._judge()

    def forget(self, node_id: str) -> None:
        """The opinion of a node counts no more."""
        if self._opinions.pop(node_id, None) is not None:
            self._judge()

    def look(self) -> None:
        """Decide again, because time has passed: to be called every few seconds."""
        old = [node_id for node_id, opinion in self._opinions.items() if self.now - opinion.seen_us > OPINION_US]
        for node_id in old:
            del self._opinions[node_id]
        self._judge()

    def opinions(self) -> dict[str, Opinion]:
        """Return what other nodes have said, by node; not to be changed."""
        return self._opinions

    def _judge(self) -> None:
        walls = [opinion.wall_us for opinion in self._opinions.values()]
        walls.append(self.own_us)
        walls.sort()
        self.clocks = len(walls)
        middle = walls[(len(walls) - 1) // 2]  # of two, the earlier one
        support = 0
        for wall in walls:
            if abs(wall - middle) <= self.bound_us:
                support += 1
        self.divided = 2 * support <= len(walls)
        if self.follow_all:
            self._move(max(walls[-1], self.shift_us))
        elif self.follow_own:
            self._move(self.own_us)
        elif self.divided:
            self._choose(walls[0])
        elif len(walls) > 1:
            self._move(middle)
        elif not self._accompanied and (self.alone or not self.settled):  # nobody has answered so far
            if self.alone or self.now - self._began_us >= self.start_us:
                self._move(middle)
        elif abs(middle - self.shift_us) <= self.bound_us:
            self._move(middle)
        # else the others are away: a step of the own clock that none of them has confirmed must not take over
        self.changed = True
        self.off = self.settled and abs(self.own_us - self.shift_us) > self.bound_us

    def _choose(self, earliest_us: int) -> None:
        """No majority: keep the time if there is one, but all nodes must have the same, the earliest of theirs.

        What expires late does less harm than what expires early.
        """
        times = [opinion.time_us for opinion in self._opinions.values() if opinion.settled]
        if times:
            earliest_us = min(times)
        if self.settled:
            if times and self.shift_us - earliest_us > self.bound_us:
                self._move(earliest_us)
        elif times or self.now - self._began_us >= self.start_us:
            self._move(earliest_us)

    def _move(self, shift_us: int) -> None:
        """Adopt a shift. Forward at once; back by standing still, or, beyond the bound, at once as well."""
        moved_us = shift_us - self.shift_us
        self.shift_us = shift_us
        if abs(moved_us) > self.bound_us:
            self.set_by_us += moved_us
        time = self.now + shift_us
        if time > self.time or self.time - time > self.bound_us:
            self.time = time
        if not self.settled or self.follow_all or self.follow_own:
            self.settled = True
            self.expiry_time = self.time
        elif self.expiry_time > self.time:
            self.expiry_time = self.time
