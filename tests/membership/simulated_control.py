"""Processes with `Control`, links, disks and clocks, and the checkers of what the control of a cluster promises.

Time is in nanoseconds; each machine has a clock of its own rate. A link is what TCP makes of a network: what is sent
while a direction is cut waits; if that lasts, both ends find the link dead and all that waits is lost. A process may be
stopped, killed (its port refuses then) and started again, on its disk, an older copy of it, or an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from heapq import heappop, heappush

from folkmoot.kernel.feature import TOGETHER_BIT
from folkmoot.kernel.rng import Rng
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_format import encode_configuration
from folkmoot.membership.control import Control
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.lifecycle import ACTIVE as LIVING
from folkmoot.membership.lifecycle import is_up
from folkmoot.membership.log_rows import drop_lineages, put_cluster
from folkmoot.membership.projection import BranchSource
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import Writer

__all__ = ["MS", "S", "Cluster", "Machine", "Violation"]

MS = 1_000_000
S = 1_000_000_000
PARTITIONS = 8
STALL = 500 * MS  # after which a write that is not durable is told as a stalled disk
SILENCE = 2 * S  # after which a link without bytes is closed
APART = 6 * S  # two members with leases may be without a link for so long


class Violation(Exception):
    """A promise was broken."""


class Machine:
    """A machine with one process at most."""

    def __init__(self, number: int, disk: int, rate: int) -> None:
        self.number = number
        self.name = f"n{number}"
        self.disk = disk
        self.rate = rate  # of its clock, in thousandths of a thousand
        self.store = MemoryStore()
        self.writer = Writer(PARTITIONS, 1)
        self.pending: list[tuple[int, object]] = []
        self.incarnation = 0
        self.began = 0
        self.lived = 0  # since when it has a lease, as far as was looked
        self.process = 0  # counts processes of this machine, also on other disks
        self.control: Control | None = None
        self.stopped_until = 0
        self.inbox: list[Callable[[], None]] = []  # what happened while it was stopped
        self.wake_at = 0
        self.options = ControlOptions()
        self.seeds: list[str] = []
        self.seeds_unknown = False
        self.witness = False
        self.features = TOGETHER_BIT
        self.is_incomplete = False  # its disk may lack what was confirmed last, and knows it
        self.events: list[str] = []
        self.sent = 0
        self.fill_at = 0
        self.is_frozen = False  # it applies entries, and installs none
        self.disk_lag = 0
        self.disk_stalled = False  # nothing more becomes durable
        self.disk_free = 0  # when the batches under way are durable
        self.copies: dict[int, tuple[int, int]] = {}  # partition -> where its copy was changed last: lineage, counter
        self.at: tuple[int, int] = (0, 0)  # the lineage and index of the configuration that is installed
        self.replicas: dict[int, list[int]] = {}
        self.leading: dict[int, tuple[int, int, list[int]]] = {}  # partition -> (epoch, index, whom it waits for)

    def is_live(self, now: int) -> bool:
        """Tell whether its process runs and has a lease."""
        return self.control is not None and self.stopped_until <= now and self.control.is_live(self.clock(now))

    def clock(self, now: int) -> int:
        """Return what its clock shows."""
        return now // 1000 * self.rate + S


class ChangedCopies(BranchSource):
    """What a machine has changed, by lineages and counters."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def branches(self, configuration: ClusterConfiguration) -> list[int]:
        """Return the partitions whose last change is not of this lineage, nor of what it shares with ancestors."""
        shared = dict(configuration.ancestors)
        shared[configuration.lineage] = 1 << 62
        member = configuration.members.get(self.machine.disk)
        floor = configuration.floor if member is not None and member.started else 0
        copies = sorted(self.machine.copies.items())
        return [number for number, (lineage, counter) in copies if counter > shared.get(lineage, floor)]


class Link:
    """What is between two machines."""

    def __init__(self) -> None:
        self.up = False
        self.ends: tuple[int, int] = (0, 0)  # processes
        self.cut: list[bool] = [False, False]  # by direction: from the lower machine, to it
        self.waiting: list[list[tuple[int, bytes]]] = [[], []]
        self.arrives: list[int] = [0, 0]
        self.number = 0
        self.apart_since = 0
        self.lag = [0, 0]  # what bytes take longer, by direction
        self.bad_since = 0  # since when a direction is cut
        self.good_since = 0


class Cluster:
    """One run; `names` are the machines that it begins with."""

    def __init__(self, seed: int, count: int, options: Callable[[ControlOptions], None] | None = None) -> None:
        self.rng = Rng(seed)
        self.now = 0
        self.order = 0
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.machines: list[Machine] = []
        self.links: dict[tuple[int, int], Link] = {}
        self.configurations: dict[tuple[int, int], bytes] = {}
        self.tune = options
        self.delay_max = 2 * MS
        self.disk_max = 4 * MS
        self.disks = 0
        self.log: list[str] = []
        self.planted: list[str] = []
        for _ in range(count):
            self.add()
        self.at(0, self.watch)

    # Machines

    def add(self) -> Machine:
        """Add a machine; it is not started."""
        self.disks += 1
        machine = Machine(len(self.machines) + 1, self.disks * 10, 1000 + self.rng.below(11))
        options = machine.options
        options.partitions = PARTITIONS
        options.gone_ns = 8 * S
        if self.tune is not None:
            self.tune(options)
        machine.seeds = [f"n{number + 1}" for number in range(3)]
        self.machines.append(machine)
        return machine

    def at(self, delay: int, what: Callable[[], None]) -> None:
        """Let something happen later."""
        self.order += 1
        heappush(self.heap, (self.now + delay, self.order, what))

    def start(self, machine: Machine) -> None:
        """Start a process on the disk of a machine."""
        assert machine.control is None
        machine.incarnation += 1
        machine.process += 1
        machine.writer = Writer(PARTITIONS, 1)
        machine.pending = []
        machine.inbox = []
        me = self.member(machine)
        machine.options.incomplete = machine.is_incomplete
        machine.is_incomplete = False
        machine.control = Control(
            me,
            machine.features,
            machine.options,
            machine.store,
            self.rng.next64() & 0xFFFFFF,
            machine.clock(self.now),
            self.planted,
        )
        machine.control.branches = ChangedCopies(machine)
        machine.control.seeds = list(machine.seeds)
        machine.control.seeds_unknown = machine.seeds_unknown
        machine.control.residents = {one.name: one.name for one in self.machines}
        machine.wake_at = 0
        machine.disk_free = 0
        machine.began = self.now
        machine.at = (0, 0)
        machine.replicas = {}
        machine.leading = {}
        self.turn(machine)
        for other in self.machines:
            if other is not machine and other.control is not None:
                self.dial(machine, other)

    def member(self, machine: Machine) -> Member:
        """Return a process as it introduces itself."""
        me = Member(machine.name, machine.incarnation, machine.name, machine.name, ACTIVE)
        me.disk = machine.disk
        me.witness = machine.witness
        return me

    def kill(self, machine: Machine) -> None:
        """End a process; batches under way reach the disk or not."""
        if machine.control is None:
            return
        kept = self.rng.below(len(machine.pending) + 1)
        for _token, batch in machine.pending[:kept]:
            machine.store.apply(batch)  # type: ignore[arg-type]
        process = machine.process
        control = machine.control
        machine.control = None
        machine.stopped_until = 0
        machine.inbox = []
        for other in self.machines:
            link = self.link(machine, other) if other is not machine else None
            if link is None or not link.up:
                continue
            self.close(machine, other, link)
            self.dial_refused(machine, other, process, control.me.incarnation, control.me.disk, 0)

    def dial_refused(
        self, machine: Machine, other: Machine, process: int, incarnation: int, disk: int, tries: int
    ) -> None:
        """Let another machine dial the port of a process that has ended."""
        delay = self.latency() if tries == 0 else 500 * MS
        self.at(delay, lambda: self.refuse(machine, other, process, incarnation, disk, tries))

    def refuse(self, machine: Machine, other: Machine, process: int, incarnation: int, disk: int, tries: int) -> None:
        """Another machine dials, and is refused if it reaches the host."""
        if other.control is None or tries > 40:
            return
        if self.is_cut(machine, other):
            self.dial_refused(machine, other, process, incarnation, disk, tries + 1)
            return
        if machine.control is not None and machine.process != process:
            return
        self.happen(other, lambda: self._down(other, machine.name, incarnation, disk, True))

    def stop(self, machine: Machine, length: int) -> None:
        """Stop a process for a while (SIGSTOP)."""
        if machine.control is None:
            return
        machine.stopped_until = max(machine.stopped_until, self.now + length)
        process = machine.process
        self.at(length, lambda: self.resume(machine, process))
        if length > SILENCE:
            self.at(SILENCE, lambda: self.silent(machine))

    def silent(self, machine: Machine) -> None:
        """Others close their links to a process that is stopped."""
        if machine.stopped_until <= self.now:
            return
        for other in self.machines:
            if other is not machine:
                link = self.link(machine, other)
                if link.up:
                    self.close(machine, other, link)

    def resume(self, machine: Machine, process: int) -> None:
        """A stopped process goes on."""
        if machine.process != process or machine.control is None or self.now < machine.stopped_until:
            return
        inbox = machine.inbox
        machine.inbox = []
        for what in inbox:
            what()
        self.turn(machine)
        for other in self.machines:
            if other is not machine and other.control is not None and not self.link(machine, other).up:
                self.at(self.latency(), lambda other=other: self.dial(machine, other))  # type: ignore[misc]

    def happen(self, machine: Machine, what: Callable[[], None]) -> None:
        """Let something happen at a process, now or when it is not stopped any more."""
        if machine.control is None:
            return
        if machine.stopped_until > self.now:
            machine.inbox.append(what)
            return
        what()
        if machine.control is not None:
            self.turn(machine)

    # The network

    def latency(self) -> int:
        """Return the time that bytes take."""
        return MS // 20 + self.rng.below(self.delay_max)

    def link(self, one: Machine, other: Machine) -> Link:
        """Return what is between two machines."""
        pair = (one.number, other.number) if one.number < other.number else (other.number, one.number)
        link = self.links.get(pair)
        if link is None:
            link = self.links[pair] = Link()
        return link

    def way(self, sender: Machine, to: Machine) -> int:
        """Return the number of a direction."""
        return 0 if sender.number < to.number else 1

    def is_cut(self, one: Machine, other: Machine) -> bool:
        """Tell whether any direction is cut."""
        link = self.link(one, other)
        return link.cut[0] or link.cut[1]

    def cut(self, sender: Machine, to: Machine, flag: bool) -> None:
        """Cut or heal one direction."""
        link = self.link(sender, to)
        way = self.way(sender, to)
        if link.cut[way] == flag:
            return
        link.cut[way] = flag
        if link.cut[0] or link.cut[1]:
            link.bad_since = link.bad_since or self.now
        else:
            link.bad_since = 0
            link.good_since = self.now
        if flag:
            number = link.number
            self.at(SILENCE + self.rng.below(S // 5), lambda: self.find_dead(sender, to, number))
            return
        waiting = link.waiting[way]
        link.waiting[way] = []
        for kind, body in waiting:
            self.carry(sender, to, kind, body)
        if not link.up:
            self.at(self.rng.below(S), lambda: self.dial(sender, to))

    def isolate(self, lone: Machine, others: Sequence[Machine], on: bool) -> None:
        """Cut a machine off from others in both directions, or mend that."""
        for other in others:
            if other is not lone:
                self.cut(lone, other, on)
                self.cut(other, lone, on)

    def reset(self, one: Machine, other: Machine, both: bool = True) -> None:
        """Cut two machines off from each other by a firewall that answers with resets: each finds a refusing port.

        both: else only the second one is answered, and the first one hears nothing.
        """
        self.isolate(one, [other], True)
        link = self.link(one, other)
        if link.up:
            self.close(one, other, link)
        for here, there in ((one, other), (other, one))[0 if both else 1 :]:
            assert there.control is not None
            end = (there.name, there.control.me.incarnation, there.disk, True)
            self.happen(here, lambda here=here, end=end: self._down(here, *end))  # type: ignore[misc]

    def find_dead(self, one: Machine, other: Machine, number: int) -> None:
        """Close a link that has been silent in a direction."""
        link = self.link(one, other)
        if link.up and link.number == number and (link.cut[0] or link.cut[1]):
            self.close(one, other, link)

    def dial(self, one: Machine, other: Machine) -> None:
        """Make a link, if nothing is in the way; else try again later."""
        link = self.link(one, other)
        if link.up or one.control is None or other.control is None:
            return
        if link.cut[0] or link.cut[1] or one.stopped_until > self.now or other.stopped_until > self.now:
            return  # whoever ends that dials
        link.up = True
        link.number += 1
        link.ends = (one.process, other.process)
        link.waiting = [[], []]
        link.arrives = [self.now, self.now]
        processes = (one.process, other.process)
        for here, there, mine in ((one, other, 0), (other, one, 1)):
            delay = self.latency()
            link.arrives[self.way(there, here)] = self.now + delay
            number = link.number
            self.at(
                delay,
                lambda here=here, there=there, mine=mine, number=number: self.linked(  # type: ignore[misc]
                    here, there, processes, mine, number
                ),
            )

    def linked(self, here: Machine, there: Machine, processes: tuple[int, int], mine: int, number: int) -> None:
        """A link is up at one end."""
        link = self.link(here, there)
        if here.process == processes[mine] and there.process == processes[1 - mine] and link.number == number:
            member = self.member(there)
            self.happen(here, lambda: self._up(here, member))

    def _up(self, here: Machine, member: Member) -> None:
        assert here.control is not None
        here.control.up(member, self.named(member.node_id).features, here.clock(self.now))

    def _down(self, here: Machine, name: str, incarnation: int, disk: int, refused: bool) -> None:
        if here.control is not None:
            here.control.down(name, incarnation, disk, refused, here.clock(self.now))

    def close(self, one: Machine, other: Machine, link: Link) -> None:
        """End a link; all that waits in it is lost."""
        link.up = False
        link.number += 1
        link.waiting = [[], []]
        for here, there in ((one, other), (other, one)):
            if here.control is None:
                continue
            incarnation = there.incarnation
            self.happen(
                here,
                lambda here=here, there=there, incarnation=incarnation: self._down(  # type: ignore[misc]
                    here, there.name, incarnation, there.disk, False
                ),
            )
        if one.control is not None and other.control is not None:
            self.at(20 * MS + self.rng.below(S), lambda: self.dial(one, other))

    def carry(self, sender: Machine, to: Machine, kind: int, body: bytes) -> None:
        """Carry a message, in its order."""
        link = self.link(sender, to)
        if not link.up:
            return
        way = self.way(sender, to)
        if link.cut[way]:
            link.waiting[way].append((kind, body))
            return
        number = link.number
        at = max(self.now + self.latency() + link.lag[way], link.arrives[way])
        link.arrives[way] = at
        self.at(at - self.now, lambda: self.arrive(sender, to, kind, body, number))

    def arrive(self, sender: Machine, to: Machine, kind: int, body: bytes, number: int) -> None:
        """A message arrives."""
        link = self.link(sender, to)
        if link.number == number and link.up:
            name = sender.name
            self.happen(to, lambda: self._receive(to, name, kind, body))

    def _receive(self, to: Machine, name: str, kind: int, body: bytes) -> None:
        assert to.control is not None
        to.control.receive(name, kind, body, to.clock(self.now))

    # Turns

    def turn(self, machine: Machine) -> None:
        """Let a process end a turn."""
        control = machine.control
        assert control is not None
        clock = machine.clock(self.now)
        for _ in range(20):
            if control.is_drained:
                control.stopping = True
            control.step(clock)
            control.collect(machine.writer, clock)
            self.install(machine)
            if control.deadline() > clock:
                break
        self.fill(machine)
        batch = machine.writer.take()
        if batch is not None:
            process = machine.process
            machine.pending.append((batch.token, batch))
            delay = MS // 10 + self.rng.below(self.disk_max) + self.rng.below(machine.disk_lag + 1)
            machine.disk_free = max(machine.disk_free, self.now + delay)
            self.at(machine.disk_free - self.now, lambda: self.durable(machine, process))
        for node_id, kind, body in control.out:
            to = self.named(node_id)
            machine.sent += 1
            self.carry(machine, to, kind, body)
        control.out.clear()
        for event in control.events:
            machine.events.append(event.kind)
            if event.kind == "cluster_forked":
                self.check_fork(machine)
            self.log.append(f"{self.now / 1e9:.3f} {machine.name} {event!r}")
        control.events.clear()
        self.check(machine)
        if control.renewal:
            process = machine.process
            self.at(0, lambda: self.renew(machine, process))
            return
        due = max(control.deadline(), clock + MS)
        wait = (due - clock) * 1000 // machine.rate + 1
        if machine.wake_at <= self.now or machine.wake_at > self.now + wait:
            machine.wake_at = self.now + wait
            process = machine.process
            self.at(wait, lambda: self.wake(machine, process))

    def wake(self, machine: Machine, process: int) -> None:
        """A deadline has come."""
        if machine.process == process and machine.control is not None and self.now >= machine.wake_at:
            self.happen(machine, lambda: None)

    def durable(self, machine: Machine, process: int) -> None:
        """The oldest batch of a process is on the disk."""
        if machine.process != process or machine.control is None:
            return
        if machine.disk_stalled:
            if self.now - machine.disk_free >= STALL:
                machine.control.stalled = True
            self.at(50 * MS, lambda: self.durable(machine, process))
            return
        machine.control.stalled = False
        if machine.pending:
            token, batch = machine.pending.pop(0)
            machine.store.apply(batch)  # type: ignore[arg-type]
            self.happen(machine, lambda: self._written(machine, token))

    def _written(self, machine: Machine, token: int) -> None:
        assert machine.control is not None
        machine.control.written(token, machine.clock(self.now))

    def named(self, name: str) -> Machine:
        """Return a machine."""
        return self.machines[int(name[1:]) - 1]

    # What is checked

    def check(self, machine: Machine) -> None:
        """Check what holds at all times, after a turn of a machine."""
        control = machine.control
        assert control is not None
        configuration = control.configuration
        if configuration is None:
            return
        place = (control.lineage, configuration.index)
        encoded = encode_configuration(configuration)
        if self.configurations.setdefault(place, encoded) != encoded:
            raise Violation(f"two configurations at {place}")
        if machine.witness and configuration.holds(machine.disk):
            raise Violation(f"{machine.name} is a witness and holds data")
        self.check_leaders()

    def install(self, machine: Machine) -> None:
        """Install the configuration at a process, as replication does.

        A new leader waits for the reports of all replicas, in the configuration before and in this one, that are up: a
        report says that its sender has installed this configuration too, so it has stopped leading before it.
        """
        control = machine.control
        assert control is not None
        configuration = control.configuration
        if machine.is_frozen:
            return
        control.installed = 0 if control.log is None else control.log.index
        if configuration is None or (control.lineage, configuration.index) == machine.at:
            return
        self.keep(machine, configuration)
        before = machine.replicas if machine.at[0] == control.lineage else {}
        machine.at = (control.lineage, configuration.index)
        replicas: dict[int, list[int]] = {}
        for number, state in enumerate(configuration.partitions):
            replicas[number] = state.replicas
            known = machine.leading.get(number)
            if state.leader != machine.disk or not control.is_up:
                machine.leading.pop(number, None)
            elif known is None or known[0] != state.leader_epoch:
                waits = [*state.replicas, *before.get(number, [])]
                machine.leading[number] = (state.leader_epoch, configuration.index, waits)
        machine.replicas = replicas

    def keep(self, machine: Machine, configuration: ClusterConfiguration) -> None:
        """Note in which lineage the copies of a machine were changed."""
        control = machine.control
        assert control is not None
        if not control.is_up:
            return
        for number, state in enumerate(configuration.partitions):
            if machine.disk in state.isr and state.leader:
                machine.copies[number] = (configuration.lineage, configuration.counter())

    def fill(self, machine: Machine) -> None:
        """Let a leader fill a learner at times."""
        control = machine.control
        if control is None or control.configuration is None or self.now < machine.fill_at:
            return
        machine.fill_at = self.now + self.rng.below(300 * MS)
        for lineage, number in self.leads(machine):
            assert lineage == control.lineage
            state = control.configuration.partitions[number]
            for disk in state.learners():
                if control.neighbours.is_linked(disk) and control.configuration.can_lead(disk):
                    started = control.configuration.members[disk].started
                    control.requests.filled(number, disk, state.leader_epoch, started, state.version)

    def leads(self, machine: Machine) -> list[tuple[int, int]]:
        """Return the (lineage, partition) that a machine leads under its lease, and has opened."""
        control = machine.control
        if control is None or control.configuration is None or not control.is_live(machine.clock(self.now)):
            return []
        members = control.configuration.members
        led: list[tuple[int, int]] = []
        for number, (_epoch, index, waits) in machine.leading.items():
            reported = True
            for other in self.machines:
                if other is machine or other.disk not in waits or other.disk not in members:
                    continue
                member = members[other.disk]
                if not is_up(member.state) or other.control is None:
                    continue
                if other.at[0] != control.lineage or other.at[1] < index:
                    reported = False
            if reported:
                led.append((control.lineage, number))
        return led

    def check_leaders(self) -> None:
        """No partition of a lineage has two leaders with leases."""
        found: dict[tuple[int, int], Machine] = {}
        for machine in self.machines:
            for place in self.leads(machine):
                other = found.get(place)
                if other is not None:
                    raise Violation(f"{self.now / 1e9:.3f}: {machine.name} and {other.name} lead {place[1]}")
                found[place] = machine

    def check_fork(self, machine: Machine) -> None:
        """Nobody forks beside a process that has had a lease all the time, and that it reaches."""
        for other in self.machines:
            if other is machine or other.control is None or machine.control is None:
                continue
            link = self.link(machine, other)
            steady = other.lived > 0 and min(self.now - link.good_since, self.now - other.lived) > 2 * S
            steady = steady and other.is_live(self.now)
            if link.up and not link.bad_since and not link.lag[0] and not link.lag[1] and steady:
                raise Violation(f"{self.now / 1e9:.3f}: {machine.name} forks, and reaches {other.name}")

    def watch(self) -> None:
        """Look now and then at what may be so for a while, and not for long."""
        for at, one in enumerate(self.machines):
            live = one.is_live(self.now)
            one.lived = (one.lived or self.now) if live else 0
            for other in self.machines[:at]:
                link = self.link(one, other)
                apart = link.bad_since > 0 and live and other.is_live(self.now)
                one_lineage = apart and one.at[0] == other.at[0]
                if not one_lineage or not link.apart_since:
                    link.apart_since = self.now if one_lineage else 0
                elif self.now - link.apart_since > APART:
                    raise Violation(f"{self.now / 1e9:.3f}: {one.name} and {other.name} serve without a link")
        self.at(200 * MS, self.watch)

    # Disks

    def renew(self, machine: Machine, process: int) -> None:
        """Give a disk another identity, as a node does that was told that its folder was set back."""
        if machine.process != process or machine.control is None:
            return
        cluster = machine.control.cluster
        self.kill(machine)
        machine.pending = []
        machine.writer = Writer(PARTITIONS, 1)
        drop_lineages(machine.writer)
        if cluster:
            put_cluster(machine.writer, cluster)
        batch = machine.writer.take()
        assert batch is not None
        machine.store.apply(batch)
        self.disks += 1
        machine.disk = self.disks * 10
        machine.incarnation = self.disks * 1000
        self.start(machine)

    def wipe(self, machine: Machine) -> None:
        """Replace the disk of a machine by an empty one."""
        assert machine.control is None
        machine.store = MemoryStore()
        machine.copies = {}
        self.disks += 1
        machine.disk = self.disks * 10
        machine.incarnation = self.disks * 1000

    def copy(self, machine: Machine) -> tuple[MemoryStore, int, int]:
        """Return a copy of the disk of a machine, for `restore`."""
        return deepcopy(machine.store), machine.disk, machine.incarnation

    def restore(self, machine: Machine, copy: tuple[MemoryStore, int, int]) -> None:
        """Set the disk of a machine back."""
        assert machine.control is None
        machine.store = deepcopy(copy[0])
        machine.disk, machine.incarnation = copy[1], copy[2]

    # Time

    def run(self, length: int) -> None:
        """Let time pass."""
        until = self.now + length
        while self.heap and self.heap[0][0] <= until:
            self.now, _order, what = heappop(self.heap)
            what()
        self.now = until

    def until(self, done: Callable[[], bool], limit: int) -> int:
        """Let time pass until something is so; return how long it took, or raise Violation."""
        began = self.now
        while not done():
            if self.now - began > limit or not self.heap:
                raise Violation(f"not so after {limit / 1e9} s:\n{self.picture()}")
            self.now, _order, what = heappop(self.heap)
            what()
        return self.now - began

    def all_up(self) -> bool:
        """Tell whether all processes are up under leases, in one lineage, and the log is quiet."""
        lineages: dict[int, bool] = {}
        for machine in self.machines:
            control = machine.control
            if control is None:
                continue
            if not control.is_live(machine.clock(self.now)):
                return False
            lineages[control.lineage] = True
        return len(lineages) == 1

    def is_whole(self) -> bool:
        """Tell whether all are up, and every partition has a leader and as many copies in sync as it can."""
        if not self.all_up():
            return False
        for machine in self.machines:
            control = machine.control
            if control is None:
                continue
            configuration = control.configuration
            assert configuration is not None
            able = [disk for disk in configuration.disks() if configuration.members[disk].state == LIVING]
            able = [disk for disk in able if configuration.can_lead(disk)]
            for state in configuration.partitions:
                if state.leader == 0 or len(state.isr) < min(configuration.copies, len(able)):
                    return False
        return True

    def picture(self) -> str:
        """Return what all machines think, for people."""
        lines = []
        for machine in self.machines:
            live = machine.control is not None and machine.control.is_live(machine.clock(self.now))
            lines.append(f"{machine.name} {'live' if live else 'silent'} {machine.control!r}")
        return "\n".join([*self.log[-30:], *lines])
