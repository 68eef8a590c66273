"""One seed of faults against a simulated cluster, and a healed end in which everything has to be well again."""

from __future__ import annotations

from folkmoot.kernel.rng import Rng
from folkmoot.membership.control_option import ControlOptions
from tests.membership.simulated_control import MS, Cluster, Machine, S

__all__ = ["run_faults"]


class Faults:
    """The faults of one seed."""

    def __init__(self, seed: int, planted: list[str]) -> None:
        self.forks = seed % 2 == 0

        def tune(options: ControlOptions) -> None:
            options.forks = self.forks

        self.cluster = Cluster(seed, 2 + seed % 5, tune)
        self.cluster.planted = planted
        self.rng = self.cluster.rng
        self.later = Rng(seed + 1_000_003)  # for what was added later: the other runs stay as they are
        self.copies: dict[str, list[tuple[object, int, int]]] = {}
        self.reset_at = -3 * S
        self.kinds = [
            self.kill_or_start,
            self.kill_or_start,
            self.stop,
            self.stutter,
            self.cut_pair,
            self.cut_some,
            self.cut_off,
            self.split,
            self.bridge,
            self.heal,
            self.heal,
            self.lag,
            self.slow,
            self.reset,
            self.power,
            self.disk,
            self.join,
            self.ask,
        ]

    def any(self) -> Machine:
        """Return a machine."""
        return self.cluster.machines[self.rng.below(len(self.cluster.machines))]

    def run(self) -> int:
        """Let faults happen, heal everything, and return how long it took until all was well."""
        cluster = self.cluster
        for machine in cluster.machines:
            cluster.at(self.rng.below(3 * S), lambda machine=machine: self.start(machine))  # type: ignore[misc]
        cluster.run(3 * S)
        if self.rng.chance(4, 5):
            cluster.until(cluster.is_whole, 20 * S)
        for _ in range(2 + self.rng.below(8)):
            kind = self.kinds[self.rng.below(len(self.kinds))]
            cluster.log.append(f"{cluster.now / 1e9:.3f} == {kind.__name__}")
            kind()
            cluster.run(self.rng.below((200 * MS, 2 * S, 8 * S)[self.rng.below(3)]))
        self.heal()
        for machine in cluster.machines:
            control = machine.control
            if control is not None and (control.fault or control.stopping or control.has_left):
                cluster.kill(machine)
            if machine.control is None:
                self.start(machine)
            elif control is not None:
                control.leaving = False
        cluster.log.append(f"{cluster.now / 1e9:.3f} == the end")
        self.stay()
        cluster.run(S)
        self.stay()
        took = cluster.until(self.is_well, 60 * S)
        if self.later.chance(1, 4):
            self.stall_successor()
        return took

    def stall_successor(self) -> None:
        """The controller ends, and the disk of its successor stands still as soon as it is elected: others serve soon.

        Its vote is durable, and no entry of its term is.
        """
        cluster = self.cluster
        leading = [one for one in cluster.machines if one.control is not None and one.control.controller is not None]
        if len(leading) != 1 or len([one for one in cluster.machines if not one.witness]) < 3:
            return
        cluster.log.append(f"{cluster.now / 1e9:.3f} == stall_successor")
        cluster.kill(leading[0])
        cluster.until(lambda: successor(cluster) is not None, 20 * S)
        stalled = successor(cluster)
        assert stalled is not None
        stalled.disk_stalled = True
        cluster.run(S)
        self.start(leading[0])
        cluster.until(lambda: self.are_live(stalled), 20 * S)
        stalled.disk_stalled = False
        cluster.until(self.is_well, 60 * S)

    def stay(self) -> None:
        """Take all leaves back, at whoever knows the leader."""
        for machine in self.cluster.machines:
            for other in self.cluster.machines:
                if machine.control is not None:
                    machine.control.stay(other.name)

    def is_well(self) -> bool:
        """Tell whether all are up; who is put out or was told to leave is started again."""
        self.start_again()
        return self.cluster.is_whole()

    def are_live(self, without: Machine) -> bool:
        """Tell whether all but one have a lease, as `is_well` does."""
        self.start_again()
        return all(machine.is_live(self.cluster.now) for machine in self.cluster.machines if machine is not without)

    def start_again(self) -> None:
        """Start again who is put out, or was told to leave."""
        for machine in self.cluster.machines:
            control = machine.control
            if control is not None and (control.fault or control.has_left):
                self.cluster.kill(machine)
                self.start(machine)

    def start(self, machine: Machine) -> None:
        """Start a machine, if it does not run."""
        if machine.control is None:
            self.cluster.start(machine)

    def kill_or_start(self) -> None:
        """End a process, or start one."""
        machine = self.any()
        if machine.control is None:
            self.start(machine)
        else:
            self.cluster.kill(machine)

    def stop(self) -> None:
        """Stop a process for a while."""
        self.cluster.stop(self.any(), self.rng.below(4 * S))

    def stutter(self) -> None:
        """Stop a process again and again."""
        machine = self.any()
        length = 50 * MS + self.rng.below(350 * MS)
        for number in range(3 + self.rng.below(12)):
            self.cluster.at(number * (length + 10 * MS), lambda: self.cluster.stop(machine, length))

    def cut_pair(self) -> None:
        """Cut one link, in one direction or both."""
        one, other = self.any(), self.any()
        if one is not other:
            self.cluster.cut(one, other, True)
            self.cluster.cut(other, one, self.rng.chance(1, 2))

    def cut_some(self) -> None:
        """Cut a share of all directions."""
        for one in self.cluster.machines:
            for other in self.cluster.machines:
                if one is not other and self.rng.chance(2, 5):
                    self.cluster.cut(one, other, True)

    def cut_off(self) -> None:
        """Cut one machine off."""
        machine = self.any()
        self.cluster.isolate(machine, self.cluster.machines, True)

    def split(self) -> None:
        """Cut the machines into two sides."""
        sides = [self.rng.chance(1, 2) for _ in self.cluster.machines]
        for at, one in enumerate(self.cluster.machines):
            for to, other in enumerate(self.cluster.machines):
                if one is not other:
                    self.cluster.cut(one, other, sides[at] != sides[to])

    def bridge(self) -> None:
        """Cut the machines into two sides that both reach one machine."""
        self.split()
        machine = self.any()
        self.cluster.isolate(machine, self.cluster.machines, False)

    def lag(self) -> None:
        """Let bytes of a machine, or to it, take long."""
        machine = self.any()
        for other in self.cluster.machines:
            if other is not machine and self.rng.chance(2, 3):
                self.cluster.link(machine, other).lag[self.rng.below(2)] = self.rng.below(600 * MS)

    def slow(self) -> None:
        """Let a disk be slow."""
        self.any().disk_lag = self.rng.below(800 * MS)

    def reset(self) -> None:
        """A firewall between two machines answers as if nothing listened, or two such firewalls before one machine.

        One proves nothing where three are up in a lineage. Two are the proof of an end, for both sides at one moment:
        who is behind them gives its lease back. Then it may get another one over a link that ends a little later. The
        only two prove each other's end, too: what a member says on its lease alone is not certain then, what is stored
        is.
        """
        one, other = self.any(), self.any()
        if one is other or one.control is None or other.control is None or self.cluster.now < self.reset_at + 3 * S:
            return
        live = [machine.control for machine in self.cluster.machines if machine.is_live(self.cluster.now)]
        if len([control for control in live if control is not None and control.lineage == one.control.lineage]) < 3:
            return
        self.reset_at = self.cluster.now
        self.cluster.reset(one, other)
        third = self.cluster.machines[self.later.below(len(self.cluster.machines))]
        if third.control is None or third in (one, other) or len(live) < 4:
            return
        self.cluster.reset(one, third)
        left = [machine for machine in self.cluster.machines if machine not in (one, other, third)]
        if self.later.chance(2, 3):
            self.cluster.at(self.later.below(3 * S // 2), lambda: self.close(one, left))

    def close(self, one: Machine, others: list[Machine]) -> None:
        """Break all connections of a machine to some others, which can be made anew."""
        for other in others:
            link = self.cluster.link(one, other)
            if link.up:
                self.cluster.close(one, other, link)

    def heal(self) -> None:
        """Let everything be reached, and nothing be slow."""
        for machine in self.cluster.machines:
            machine.disk_lag = 0
        for link in self.cluster.links.values():
            link.lag = [0, 0]
        for one in self.cluster.machines:
            for other in self.cluster.machines:
                if one is not other:
                    self.cluster.cut(one, other, False)

    def power(self) -> None:
        """End all processes, and start some at once."""
        for machine in self.cluster.machines:
            self.cluster.kill(machine)
        for machine in self.cluster.machines:
            if self.rng.chance(3, 4):
                delay = self.rng.below(3 * S)
                self.cluster.at(delay, lambda machine=machine: self.start(machine))  # type: ignore[misc]

    def disk(self) -> None:
        """Copy a disk for later; set one back, or empty one, while others are whole."""
        machine = self.any()
        old = self.copies.setdefault(machine.name, [])
        if self.rng.chance(1, 2) or not self.cluster.is_whole():
            if machine.control is not None:
                old.append(self.cluster.copy(machine))
            return
        if len(self.cluster.machines) < 3:
            return
        self.cluster.kill(machine)
        if old and self.rng.chance(2, 3):
            store, disk, incarnation = old[self.rng.below(len(old))]
            self.cluster.restore(machine, (store, disk, incarnation))  # type: ignore[arg-type]
        elif machine is not self.cluster.machines[0]:
            # The first of the seeds with an empty disk, out of reach of all others, founds another cluster.
            self.cluster.wipe(machine)
        self.start(machine)

    def join(self) -> None:
        """Add machines."""
        if len(self.cluster.machines) < 8:
            for _ in range(1 + self.rng.below(2)):
                self.start(self.cluster.add())

    def ask(self) -> None:
        """Let an operator ask for something."""
        machine, other = self.any(), self.any()
        if machine.control is None:
            return
        kind = self.rng.below(5)
        if kind == 0 and len(self.cluster.machines) > 3:
            machine.control.leave(other.name)
        elif kind == 1:
            machine.control.stay(other.name)
        elif kind == 2:
            machine.control.evict(other.name)
        elif kind == 3 and machine is not other and len(self.cluster.machines) > 2:
            machine.control.stopping = True
        else:
            machine.control.requests.put(f"k{self.rng.below(3)}", b"x", -1, "test")


def successor(cluster: Cluster) -> Machine | None:
    """Return the machine that leads the log, None without one."""
    for machine in cluster.machines:
        if machine.control is not None and machine.control.log is not None and machine.control.log.is_leader:
            return machine
    return None


def run_faults(seed: int, planted: list[str] | None = None) -> int:
    """Run one seed; return how long it took in the end until all was well; raises Violation."""
    return Faults(seed, planted or []).run()
