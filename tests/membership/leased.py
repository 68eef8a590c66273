"""Processes with leases, leaders that change, messages that are late, lost and repeated, and clocks that drift.

Raft is here what it promises: no leader is elected while another one has its lease, and an entry that was proposed is
either lost or committed before a later leader has applied everything. Time is exact: a clock shows the time in
thousandths of its unit, times a rate from 1000 to 1010, so that no rounding hides a fault at the edge.
"""

from __future__ import annotations

from heapq import heappop, heappush

from folkmoot.membership.lease import GrantedLeases, Lease
from tests.raft.world import Dice, Violation

__all__ = ["PLANTED", "Leased"]

LENGTH = 1000  # of a lease, in units of time of a clock with the lowest rate
PLANTED = [
    "from_receipt",  # the lease counts from the arrival of the answer
    "keeps_returned",  # a lease that was given back goes on
    "no_drift",  # the leader waits a length by its own clock
    "no_wait",  # a new leader waits for nobody
    "old_leader_answers",  # a leader answers although another one may be elected
    "repeat_extends",  # a repeated answer extends the lease once more
    "return_ends",  # a lease that was given back is over, whoever has answered newer heartbeats
    "revoked_answered",  # a leader answers a member although it has proposed to take its leaderships away
    "unapplied_answers",  # a new leader answers before it has applied what earlier ones have proposed
]
BEAT, HEARTBEAT, ANSWER, RETURN, LOOK, COMMIT, START, ENDED, LAPSE, ELECT, APPLIED, STOP, RESTART = range(13)


class Holder:
    """A member: its process and its lease."""

    def __init__(self, disk: int, rate: int) -> None:
        self.disk = disk
        self.rate = rate
        self.incarnation = 1
        self.lease = Lease(LENGTH * 1000)
        self.numbers = 0  # of heartbeats, where the lease does not count them
        self.answered: set[tuple[int, int]] = set()
        self.stopped = 0  # until when the process stands still
        self.ended = False
        self.taken = False  # its leaderships were given to others, by an entry that is committed
        self.known = 1  # the incarnation that the configuration knows
        self.version = 0  # of the member in the configuration

    def clock(self, now: int) -> int:
        return now * self.rate


class Leader:
    """A leader of one term; it goes on for a while after another one was elected."""

    def __init__(self, term: int, rate: int, now: int, planted: str) -> None:
        self.term = term
        self.rate = rate
        elected = self.clock(now) - (2 * LENGTH * 1000 if planted == "no_wait" else 0)
        length = LENGTH * 1000
        self.leases = GrantedLeases(length * 100 // 101 if planted == "no_drift" else length, elected)
        self.leased = True  # by Raft
        self.applied = False
        self.proposed: list[tuple[int, int]] = []  # (disk, version) of those whose leaderships it is about to take

    def clock(self, now: int) -> int:
        return now * self.rate


class Leased:
    """One run."""

    def __init__(self, seed: int, planted: str) -> None:
        assert planted in ("", *PLANTED)
        self.planted = planted
        rng = self.rng = Dice(seed)
        self.now = 0
        self.delay = 1 + rng.below((30, 300, 3000)[rng.below(3)])
        self.loss = rng.below(400)  # in thousandths
        self.returning = (4, 10, 30)[rng.below(3)]  # one heartbeat of so many comes with a return
        self.every = LENGTH // (3 + rng.below(5))
        self.holders = [Holder(disk, self.rate()) for disk in range(1, 2 + rng.below(3))]
        self.leaders = [Leader(1, self.rate(), 0, planted)]
        self.leaders[0].applied = True
        self.heap: list[tuple[int, int, int, tuple[int, ...]]] = []
        self.sequence = 0
        self.granted = 0
        self.taken = 0
        for holder in self.holders:
            self.push(rng.below(self.every), BEAT, holder.disk)
        self.push(LENGTH + rng.below(3 * LENGTH), LAPSE, 1)
        self.push(1, LOOK, 1)

    def rate(self) -> int:
        return (1000, 1010, 1000 + self.rng.below(11))[self.rng.below(3)]

    def push(self, delay: int, kind: int, *what: int) -> None:
        self.sequence += 1
        heappush(self.heap, (self.now + delay, self.sequence, kind, what))

    def send(self, kind: int, *what: int) -> None:
        """Let a message arrive once, twice or never."""
        while not self.rng.chance(self.loss, 1000):
            self.push(1 + self.rng.below(self.delay), kind, *what)
            if not self.rng.chance(1, 6):
                return

    def run(self, until: int) -> None:
        """Let time pass."""
        while self.heap and self.heap[0][0] < until:
            self.now, _sequence, kind, what = heappop(self.heap)
            self.handle(kind, what)
            self.check()

    def leader(self, term: int) -> Leader | None:
        for leader in self.leaders:
            if leader.term == term:
                return leader
        return None

    def handle(self, kind: int, what: tuple[int, ...]) -> None:
        if kind in (BEAT, ANSWER):
            holder = self.holders[what[0] - 1]
            if holder.stopped > self.now:
                self.push(holder.stopped - self.now, kind, *what)
            elif not holder.ended:
                (self.beat if kind == BEAT else self.answer)(holder, what)
        elif kind in (HEARTBEAT, RETURN, ENDED):
            # The nodes know the newest leaders, and may be wrong about which of them leads.
            self.arrive(kind, self.leaders[self.rng.below(len(self.leaders))], what)
        elif kind in (LOOK, COMMIT, START, LAPSE, APPLIED):
            leader = self.leader(what[0])
            if leader is not None:
                (self.look, self.commit, self.start, self.lapse, self.apply)[
                    (LOOK, COMMIT, START, LAPSE, APPLIED).index(kind)
                ](leader, what)
        elif kind == ELECT:
            self.elect()
        else:
            self.restart(self.holders[what[0] - 1])

    # Members

    def beat(self, holder: Holder, what: tuple[int, ...]) -> None:
        rng = self.rng
        self.push(self.every, BEAT, holder.disk)
        if rng.chance(1, self.returning):
            number = holder.lease._number if self.planted == "keeps_returned" else holder.lease.give_back()
            self.send(RETURN, holder.disk, holder.incarnation, number)
        elif rng.chance(1, 40):
            holder.ended = True
            self.push(1 + rng.below(3 * LENGTH), RESTART, holder.disk)
            self.send(ENDED, holder.disk, holder.incarnation)
            return
        elif rng.chance(1, 20):
            holder.stopped = self.now + rng.below(3 * LENGTH)
        holder.numbers += 1
        number = holder.numbers
        if self.planted != "from_receipt":
            number = holder.lease.beat(holder.clock(self.now))
        self.send(HEARTBEAT, holder.disk, holder.incarnation, number)

    def answer(self, holder: Holder, what: tuple[int, ...]) -> None:
        _disk, incarnation, term, number = what
        if incarnation != holder.incarnation:
            return
        if self.planted == "from_receipt":
            number = holder.lease.beat(holder.clock(self.now))
        if holder.lease.answered(term, number):
            holder.answered.add((term, number))
            self.granted += 1
        elif self.planted == "repeat_extends" and (term, number) in holder.answered:
            holder.lease._until_ns += LENGTH * 1000

    def restart(self, holder: Holder) -> None:
        holder.ended = False
        holder.incarnation += 1
        holder.lease = Lease(LENGTH * 1000)
        holder.numbers = 0
        holder.answered = set()
        self.push(1, BEAT, holder.disk)

    # Leaders

    def arrive(self, kind: int, leader: Leader, what: tuple[int, ...]) -> None:
        disk, incarnation = what[:2]
        clock = leader.clock(self.now)
        holder = self.holders[disk - 1]
        if kind == ENDED:
            leader.leases.ended(disk, incarnation, clock)
        elif kind == RETURN:
            taken = leader.leases.given_back(disk, incarnation, what[2], clock)
            if taken and self.planted == "return_ends":
                leader.leases.ended(disk, incarnation, clock)
        else:
            leased = leader.leased or self.planted == "old_leader_answers"
            applied = leader.applied or self.planted == "unapplied_answers"
            # A leader that has not applied everything does not know yet what its predecessors have taken away.
            up = (not holder.taken or not leader.applied) and incarnation == holder.known
            if leased and applied and up and leader.leases.heard(disk, incarnation, what[2], clock):
                self.send(ANSWER, disk, incarnation, leader.term, what[2])
            elif not up and leader.leased and leader.applied:
                self.push(1 + self.rng.below(LENGTH), START, leader.term, disk, incarnation, holder.version)

    def look(self, leader: Leader, what: tuple[int, ...]) -> None:
        """Take leaderships away where the lease is certainly over."""
        if leader is not self.leaders[-1]:
            return
        self.push(1 + self.rng.below(100), LOOK, leader.term)
        for holder in self.holders:
            disk = holder.disk
            if not leader.applied or holder.taken or (disk, holder.version) in leader.proposed:
                continue
            clock = leader.clock(self.now)
            if leader.leases.certainly_over(disk, holder.known, clock) and self.rng.chance(1, 2):
                leader.leases.revoke(disk, holder.known, clock)
                if self.planted == "revoked_answered":
                    leader.leases.restore(disk, holder.known)
                leader.proposed.append((disk, holder.version))
                self.push(1 + self.rng.below(LENGTH), COMMIT, leader.term, disk, holder.version)

    def commit(self, leader: Leader, what: tuple[int, ...]) -> None:
        _term, disk, version = what
        if leader is self.leaders[-1] and (disk, version) in leader.proposed:
            leader.proposed.remove((disk, version))
            self.take(disk, version)

    def take(self, disk: int, version: int) -> None:
        """Apply the entry that takes leaderships away, unless the member has changed since it was proposed."""
        holder = self.holders[disk - 1]
        if holder.version == version:
            holder.version += 1
            holder.taken = True
            self.taken += 1

    def start(self, leader: Leader, what: tuple[int, ...]) -> None:
        """Apply the START of a member: with a new incarnation, or by the one that was taken for away."""
        _term, disk, incarnation, version = what
        holder = self.holders[disk - 1]
        returned = incarnation == holder.known and holder.taken and version == holder.version
        if leader is self.leaders[-1] and (incarnation > holder.known or returned):
            holder.known = incarnation
            holder.version += 1
            holder.taken = False
            leader.leases.restore(disk, incarnation)

    def lapse(self, leader: Leader, what: tuple[int, ...]) -> None:
        """End Raft's lease of the leader: from now on another one can be elected."""
        leader.leased = False
        self.push(1 + self.rng.below(LENGTH), ELECT)

    def elect(self) -> None:
        """Let another leader be elected; it has some of the entries that the last one has proposed."""
        before = self.leaders[-1]
        leader = Leader(before.term + 1, self.rate(), self.now, self.planted)
        leader.proposed = [entry for entry in before.proposed if self.rng.chance(1, 2)]
        self.leaders = [*self.leaders[-1:], leader]
        self.push(1 + self.rng.below(LENGTH), APPLIED, leader.term)
        self.push(LENGTH + self.rng.below(5 * LENGTH), LAPSE, leader.term)
        self.push(1, LOOK, leader.term)

    def apply(self, leader: Leader, what: tuple[int, ...]) -> None:
        """The leader has applied everything of its predecessors."""
        if leader is self.leaders[-1]:
            for disk, version in leader.proposed:
                self.take(disk, version)
            leader.proposed = []
            leader.applied = True

    def check(self) -> None:
        """No lease is valid that is certainly over at the leader, nor one whose leaderships are taken."""
        leader = self.leaders[-1]
        for holder in self.holders:
            if holder.ended or holder.clock(self.now) >= holder.lease.until_ns:
                continue
            if holder.taken:
                raise Violation(f"at {self.now} {holder.disk} serves, although others lead what it led")
            if leader.leases.certainly_over(holder.disk, holder.incarnation, leader.clock(self.now)):
                raise Violation(f"at {self.now} {holder.disk} serves, although leader {leader.term} takes it for over")
