"""The nodes of `tests.replica.replica` with roles from one configuration log: `Transition`, `view_of`, `Replication`.

The log itself is taken for granted. Its entries arrive at every node in their order, each after another delay and
several at a time, so that nodes skip some. Nodes ask for what they need (JOIN, START, ALTER_ISR, WITHDRAW, RENEW); this
arrives late, twice, or not at all. Every node may end at any time and comes back with its disk, or without it if
another one in sync is there. Links are cut and keep or lose what is sent; a node may be cut off from the log.

There are no leases here. So a leader that is not the newest one may begin, and lacks what was committed in later
configurations, which only its lease keeps it from telling. But what it calls committed counts, and must be in the
copies of all later leaders. Where the other commands come from is one of two things:

- *Drawn*: whoever acts may be marked as away, and roles change at any moment.
- *Controlled*: as leases and the controller have it. Only processes that have ended, or are cut off, are away, and
  copies and leaderships are planned when all have installed the last change of roles. Then whoever begins to lead
  while it is up has everything.
"""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.kernel.rng import Rng
from folkmoot.membership.command import (
    ENDED,
    REPLACED,
    SILENT,
    Activate,
    Command,
    Found,
    Join,
    Lead,
    MarkAway,
    Place,
    PlaceItem,
    Remove,
    Renew,
    Strain,
    Withdraw,
    encode_command,
)
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_format import decode_configuration, encode_configuration
from folkmoot.membership.divergence import YES, includes
from folkmoot.membership.holding import COMPLETE, DAMAGED
from folkmoot.membership.isr import isr_request
from folkmoot.membership.lifecycle import ACTIVE, is_up
from folkmoot.membership.placement_plan import PlanLimits, plan
from folkmoot.membership.projection import epoch_of, view_of
from folkmoot.membership.transition import Transition
from tests.membership.reference import member, process
from tests.replica.replica import Cell, Fault, World, Write

ASK_US = 60 * MILLISECOND  # after this time what was asked for is asked for again
FIRST_DISK = 10
ENOUGH_BYTES = 1 << 20  # more than these runs change


class LoggedCell(Cell):
    """One node: its own copy of the log's state, and the configuration whose roles it has."""

    def __init__(self, group: LoggedWorld, node_id: str, disk: int) -> None:
        super().__init__(group, node_id)
        self.group = group
        self.disk_id = disk
        self.cut_off = False  # from the log

    def start(self) -> None:
        super().start()
        self.transition = Transition(ClusterConfiguration())
        self.installed: ClusterConfiguration | None = None
        self.changes: dict[int, list[tuple[Write, int]]] = {}
        self.filled: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.unfit: set[int] = set()
        self.adopted: list[int] = []  # taken over in an earlier configuration
        self.asked_us = 0

    def apply(self, upto: int) -> None:
        """Apply the log up to an entry, and take the roles of the newest configuration."""
        configuration = self.transition.configuration
        while configuration.index < upto:
            self.transition.apply(configuration.index + 1, self.group.entries[configuration.index])
        one = configuration.members.get(self.disk_id)
        known = 0 if self.base is None else self.base.epoch
        comes = one is not None and is_up(one.state) and one.incarnation == self.incarnation
        if comes and epoch_of(configuration) > known:
            self.installed = decode_configuration(encode_configuration(configuration))
            self.adopted = list(self.replication.ready)
            self.unfit.clear()
            self.install(view_of(configuration))
            self.group.installs += 1
        self.turn()

    def asks(self) -> list[Command]:
        """What it proposes now."""
        configuration = self.transition.configuration
        if not configuration.is_founded():
            return []
        one = configuration.members.get(self.disk_id)
        if one is None:
            return [Join(member(self.disk_id, self.incarnation, name=self.node_id))]
        if not is_up(one.state) or one.incarnation != self.incarnation:
            return [Activate(self.disk_id, one.version, process(self.incarnation, self.disk_id))]
        commands: list[Command] = []
        request = isr_request(configuration, self.disk_id, self.filled, {}, 1)
        if request is not None:
            commands.append(request)
        if self.unfit:
            replicas = self.replication.replicas
            behind = [number for number in sorted(self.unfit) if replicas[number].state != DAMAGED]
            damaged = [
                (number, configuration.partitions[number].version)
                for number in sorted(self.unfit)
                if replicas[number].state == DAMAGED
            ]
            commands.append(Withdraw(self.disk_id, self.incarnation, behind, damaged))
        if self.replication.renew:
            self.replication.renew = False
            commands.append(Renew(self.disk_id, self.incarnation))
        return commands

    def note(self) -> None:
        """Note which learners are filled, as of which configuration, and which copies are no good."""
        installed = self.installed
        for partition, node_id in self.replication.filled:
            learner = None if installed is None else installed.named(node_id)
            if installed is not None and learner is not None:
                state = installed.partitions[partition]
                told = (state.leader_epoch, learner.started, state.version)
                self.filled[partition, learner.disk] = told
        self.unfit.update(self.replication.unfit)
        super().note()

    def turn(self) -> None:
        """End a turn, and ask for what is needed now and then."""
        token = self.writer.token
        writes = self.waiting.get(token, [])
        super().turn()
        self.adopted.clear()
        if writes:
            self.changes[token] = [(write, self.writer.position(write.partition)[1]) for write in writes]
        if self.group.now - self.asked_us >= ASK_US or (self.filled and not self.asked_us):
            self.asked_us = self.group.now
            for command in self.asks():
                self.group.propose(self, command)

    def check_committed(self) -> None:
        """No two changes are committed at one place of a partition."""
        before = self.committed
        gone = set(self.replication.abandoned)
        super().check_committed()
        for token in sorted(self.changes):
            self.changes[token] = [one for one in self.changes[token] if (token, one[0].partition) not in gone]
        for token in range(before + 1, self.committed + 1):
            for write, seq in self.changes.pop(token, []):
                self.group.note_place(self, write, seq, token)


class LoggedWorld(World):
    """The nodes, the log and its proposals; the cluster begins with `begin`."""

    def __init__(
        self, seed: int, nodes: int, partitions: int, planted: str = "", row_bytes: int = 60, drawn: bool = False
    ) -> None:
        super().__init__(seed, nodes, partitions, planted, row_bytes)
        self.drawn = drawn
        self.sites = [LoggedCell(self, f"n{number}", FIRST_DISK + number) for number in range(nodes)]
        self.cells = {site.node_id: site for site in self.sites}
        self.last_disk = FIRST_DISK + nodes
        self.entries: list[bytes] = []
        self.transition = Transition(ClusterConfiguration())
        self.places: dict[tuple[int, int], tuple[str, int, int]] = {}
        self.since: dict[bytes, int] = {}  # by mark the epoch in which it was committed
        self.gone_since: dict[bytes, int] = {}
        self.installs = 0
        self.skipped = 0
        self.accepted: dict[str, int] = {}
        self.quiet = False  # proposals arrive soon, and once
        self.kept: list[list[int]] = []  # by partition the disks that must stay in the ISR

    @property
    def configuration(self) -> ClusterConfiguration:
        return self.transition.configuration

    def site(self, node_id: str) -> LoggedCell:
        return self.sites[int(node_id[1:])]

    def begin(self, first: int) -> None:
        """Found the cluster with the first nodes."""
        for site in self.sites[:first]:
            site.start()
        members = [member(site.disk_id, site.incarnation, name=site.node_id) for site in self.sites[:first]]
        copies = min(self.config.replicas, len(self.sites))
        self.append(Found(4711, 1, 0, 0, members, self.partitions, copies))

    # -- the log ------------------------------------------------------------------------------------------------------

    def append(self, command: Command) -> bool:
        """Append a command, which reaches the nodes later; False: it was refused."""
        changed = self.configuration.changed
        result = self.transition.apply_command(self.configuration.index + 1, command)
        self.entries.append(encode_command(command))
        self.configuration.check()
        self._check_kept(command)
        if self.view is None or self.configuration.changed != changed:
            self.view = view_of(self.configuration)
        if result.is_accepted():
            name = type(command).__name__
            self.accepted[name] = self.accepted.get(name, 0) + 1
            self.log.append(f"{self.now} {self.configuration.index} {command!r}")
        for site in self.sites:
            if site.alive and not site.cut_off:
                self.deliver(site)
        return result.is_accepted()

    def deliver(self, site: LoggedCell) -> None:
        """Let a node apply what there is by then, or less."""
        incarnation = site.incarnation
        least = self.configuration.index
        late = 20 if self.rng.chance(1, 10) else 1

        def arrive() -> None:
            if site.alive and site.incarnation == incarnation and not site.cut_off:
                newest = self.rng.between(least, len(self.entries))
                self.skipped += max(newest - site.transition.configuration.index - 1, 0)
                site.apply(newest)

        self.at(self.now + self.rng.below(self.install_us * late), arrive)

    def propose(self, site: LoggedCell | None, command: Command) -> None:
        """Propose a command: it arrives late, sometimes very late, and sometimes twice."""
        for _ in range(2 if self.rng.chance(1, 6) and not self.quiet else 1):
            late = 30 if self.rng.chance(1, 6) and not self.quiet else 1

            def arrive() -> None:
                if site is None or not site.cut_off:
                    self.append(command)

            self.at(self.now + self.rng.below(10 * MILLISECOND) * late, arrive)

    def _is_up(self, site: LoggedCell) -> bool:
        """Tell whether the process of a node is up in the newest configuration."""
        one = self.configuration.members.get(site.disk_id)
        return site.alive and one is not None and is_up(one.state) and one.incarnation == site.incarnation

    def _is_lost(self, site: LoggedCell) -> bool:
        """Tell whether the controller takes a member that is up for away: its process has ended, or is cut off."""
        return site.cut_off or not self._is_up(site)

    def _all_follow(self) -> bool:
        """Tell whether everybody who is up has the newest roles."""
        newest = epoch_of(self.configuration)
        bases = [0 if site.base is None else site.base.epoch for site in self.sites if self._is_up(site)]
        return not [epoch for epoch in bases if epoch != newest]

    # -- processes and links ------------------------------------------------------------------------------------------

    def start(self, node_id: str) -> None:
        """Start a process; it learns the log from its beginning on."""
        site = self.site(node_id)
        site.start()
        if not site.cut_off:
            self.deliver(site)
        site.turn()

    def crash(self, cell: Cell, empty: bool = False) -> None:
        """End a process, and perhaps lose its disk: it comes back with another one."""
        super().crash(cell, empty)
        assert isinstance(cell, LoggedCell)
        if empty:
            self.last_disk += 1
            lost, cell.disk_id = cell.disk_id, self.last_disk
            while self.drawn and self._give_up(lost):
                pass

    def _give_up(self, disk: int) -> bool:
        """Remove a disk that was lost, in two steps; False: there is nothing to do."""
        one = self.configuration.members.get(disk)
        if one is None:
            return False
        if is_up(one.state):
            return self.append(MarkAway(disk, one.incarnation, one.version, ENDED))
        return self.append(Remove(disk, one.version, REPLACED, True))

    def may_lose(self, site: LoggedCell) -> bool:
        """Tell whether a disk may be lost: others have everything, and will not leave an ISR until it is removed."""
        kept = [other.disk_id for other in self.sites if other is not site]
        for state in self.configuration.partitions:
            if state.replicas and not [disk for disk in state.isr if disk in kept]:
                return False
        if self.drawn:
            return True  # it is removed at once
        for other in self.sites:
            one = self.configuration.named(other.node_id)
            if other is not site and one is not None and is_up(one.state) and self._is_lost(other):
                return False
        return True

    def is_intact(self) -> bool:
        """Tell whether no member has lost its disk: while it is a member, anything else is a second fault at once."""
        return set(self.configuration.members) <= {site.disk_id for site in self.sites}

    def isolate(self, site: LoggedCell, keeps: bool) -> None:
        """Cut a node off from all others and from the log."""
        site.cut_off = True
        for other in self.sites:
            self.cut(site.node_id, other.node_id, keeps)

    def rejoin(self, site: LoggedCell) -> None:
        """Reach everybody again; both ends do."""
        site.cut_off = False
        for link in [link for link in sorted(self.cuts) if site.node_id in link]:
            self.mend(link)
        if site.alive:
            self.deliver(site)

    def cut_power(self, rng: Rng) -> None:
        """End all processes at once under writes, while some disks stand still, and start them with what they have.

        Nobody is away and no disk is lost: so no copy leaves an ISR, although most lack something that others have.
        """
        for site in self.sites:
            site.disk_busy = site.disk_busy or rng.chance(1, 2)
        for _ in range(rng.between(1, 4)):
            self.write_some(rng)
            self.run(self.now + rng.between(1, 20) * MILLISECOND)
        self.restart_all(self.config.recent_bytes_max >= ENOUGH_BYTES)
        self.settle()
        self.kept = []

    def restart_all(self, keeps: bool) -> None:
        """End all processes at once, and start them; keeps: from now on each ISR keeps its members."""
        for site in self.sites:
            self.crash(site)
        if keeps:
            self.kept = [list(state.isr) for state in self.configuration.partitions]
        for site in self.sites:
            self.start(site.node_id)
        for _ in range(100):
            self.run(self.now + 20 * MILLISECOND)
            for site in self.sites:
                site.turn()
            if self._all_follow() and not [site for site in self.sites if not self._is_up(site)]:
                break
        else:
            raise Fault("not all are up again after a loss of power")

    def _check_kept(self, command: Command) -> None:
        for number, kept in enumerate(self.kept):
            isr = self.configuration.partitions[number].isr
            if not set(kept) <= set(isr):
                raise Fault(f"{self.now} the ISR of {number} was {kept} and is {isr} after {command!r}")

    # -- the controller -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Propose what a controller does."""
        rng = self.rng
        for site in self.sites:
            one = self.configuration.named(site.node_id)
            if one is None or rng.chance(1, 2):
                continue
            if one.disk != site.disk_id:
                self._give_up(one.disk)
            elif is_up(one.state) and self._is_lost(site):
                self.append(MarkAway(one.disk, one.incarnation, one.version, ENDED))
        if self._all_follow():
            limits = PlanLimits(1 + rng.below(8), 1 + rng.below(4), 8)
            members = self.configuration.members
            gone = [disk for disk in self.configuration.disks() if not is_up(members[disk].state) and rng.chance(1, 20)]
            for command in plan(self.configuration, limits, [], gone):
                self.append(command)

    # -- the oracle ---------------------------------------------------------------------------------------------------

    def check_start(self, cell: Cell, partition: int) -> None:
        """A leader begins with all reports of its configuration, and with the longest copy in sync, on all disks."""
        assert isinstance(cell, LoggedCell)
        assert cell.base is not None
        assert cell.installed is not None
        now, then = self.configuration.members.get(cell.disk_id), cell.installed.members[cell.disk_id]
        leased = not self.drawn and now is not None and self._is_up(cell) and now.started == then.started
        what = f"{cell.node_id} is to lead partition {partition}"
        self._compare(cell, partition, what, None if leased else cell.base.epoch)
        if partition in cell.adopted:
            return
        mine = cell.replication.replicas[partition].holding()
        for node_id in cell.base.replicas[partition]:
            other, one = self.cells[node_id], cell.base.member(node_id)
            if one is None or not other.alive or one.incarnation != other.incarnation:
                continue
            if other.base is None or other.base.epoch < cell.base.epoch:
                raise Fault(f"{self.now} {cell.node_id} begins to lead {partition} before {node_id} has reported")
            theirs = other.replication.replicas[partition].holding()
            if theirs.state != COMPLETE or other.base.epoch > cell.base.epoch:
                continue
            if includes(theirs, mine) == YES and includes(mine, theirs) != YES:
                raise Fault(f"{self.now} {cell.node_id} leads {partition} with {mine!r}, {node_id} has {theirs!r}")
            durable = other.replication.replicas[partition].durable_seq
            if includes(theirs, mine) != YES or durable < mine.seq:
                raise Fault(f"{self.now} {cell.node_id} shows {partition} with {mine!r}, {node_id} has {theirs!r}")

    def _compare(self, cell: Cell, partition: int, what: str, epoch: int | None = None) -> None:
        """A leader has what was committed up to a configuration; None: everything. See the module's text."""
        have = {key for key, _value in cell.rows(partition)}
        missing = self.must_have[partition] - have
        extra = self.must_not[partition] & have
        if epoch is not None:
            missing = {key for key in missing if self.since[key] <= epoch}
            extra = {key for key in extra if self.gone_since[key] <= epoch}
        if missing or extra:
            raise Fault(f"{self.now} {what}, lacks {len(missing)} rows and has {len(extra)} that are gone")

    def check_committed(self, cell: Cell, write: Write) -> None:
        super().check_committed(cell, write)
        assert cell.base is not None
        for key in write.puts:
            self.since.setdefault(key, cell.base.epoch)
        for key in write.deletes:
            self.gone_since.setdefault(key, cell.base.epoch)

    def note_place(self, site: LoggedCell, write: Write, seq: int, token: int) -> None:
        change = (site.node_id, site.incarnation, token)
        before = self.places.setdefault((write.partition, seq), change)
        if before != change:
            raise Fault(f"{self.now} {before} and {change} are committed at {write.partition}:{seq}")

    # -- what happens -------------------------------------------------------------------------------------------------

    def draw(self, rng: Rng) -> None:
        """Draw one thing that happens to the cluster, or a command."""
        site = self.sites[rng.below(len(self.sites))]
        what = rng.below(20)
        one = self.configuration.members.get(site.disk_id)
        if what == 0 and site.alive:
            self.crash(site, rng.chance(1, 4) and self.may_lose(site))
        elif what <= 2 and not site.alive:
            self.start(site.node_id)
        elif what == 3:
            self.isolate(site, rng.chance(1, 4))
        elif what <= 6 and site.cut_off:
            self.rejoin(site)
        elif what == 7:
            self.cut(site.node_id, self.sites[rng.below(len(self.sites))].node_id, rng.chance(1, 4))
        elif what <= 9 and self.cuts:
            links = sorted(self.cuts)
            link = links[rng.below(len(links))]
            if not [other for other in self.sites if other.cut_off and other.node_id in link]:
                self.mend(link)
        elif what <= 12 and one is not None and (rng.chance(1, 6) or site.cut_off or not site.alive):
            why = SILENT if site.alive else ENDED
            self.propose(None, MarkAway(site.disk_id, one.incarnation, one.version, why))
        elif what == 13 and one is not None:
            self.propose(None, Strain(site.disk_id, one.incarnation, one.version, rng.chance(1, 2), rng.chance(1, 2)))
        elif what <= 17:
            self._draw_role(rng)

    def _draw_role(self, rng: Rng) -> None:
        number = rng.below(self.partitions)
        state = self.configuration.partitions[number]
        if state.isr and rng.chance(1, 2):
            self.propose(None, Lead(number, state.version, state.isr[rng.below(len(state.isr))]))
            return
        fit = [disk for disk in self.configuration.disks() if self.configuration.members[disk].state == ACTIVE]
        fit += [disk for disk in state.replicas if disk not in fit]
        replicas = [
            fit.pop(rng.below(len(fit))) for _ in range(min(len(fit), rng.between(1, self.config.replicas + 1)))
        ]
        if replicas and (not state.isr or rng.chance(1, 4)):
            self.propose(None, Place([PlaceItem(number, state.version, replicas)]))
        elif replicas:
            added = [*state.replicas, *[disk for disk in replicas if disk not in state.replicas]]
            self.propose(None, Place([PlaceItem(number, state.version, added)]))

    def draw_fault(self, rng: Rng) -> None:
        """Draw a fault of a controlled cluster, or the end of one."""
        what = rng.below(30)
        living = [site for site in self.sites if site.alive]
        if what <= 2:
            dead = [site for site in self.sites if not site.alive]
            if what and dead:
                self.start(dead[rng.below(len(dead))].node_id)
            elif not what and living and self.is_intact():
                victim = living[rng.below(len(living))]
                self.crash(victim, rng.chance(1, 3) and self.may_lose(victim))
        elif what == 3 and rng.chance(1, 4) and self.is_intact():
            for site in living:
                self.crash(site)
        elif what == 4 and living:
            self._strain(living[rng.below(len(living))])
        elif what <= 6 and living and self.is_intact():
            self.isolate(living[rng.below(len(living))], rng.chance(1, 2))
        elif what <= 8:
            for site in self.sites:
                if site.cut_off:
                    self.rejoin(site)

    def _strain(self, site: LoggedCell) -> None:
        """Let a disk be full, or have room again."""
        one = self.configuration.members.get(site.disk_id)
        if one is not None:
            self.append(Strain(one.disk, one.incarnation, one.version, not one.full, False))

    def write_some(self, rng: Rng) -> None:
        for site in self.sites:
            if not site.alive:
                continue
            for _ in range(rng.below(3)):
                partition = rng.below(self.partitions)
                if site.replication.leads(partition):
                    site.write(partition, rng)
            site.turn()

    # -- the end ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """End all faults, let the controller work, and check what has to hold then."""
        self.lossy = False
        self.quiet = True
        for site in self.sites:
            self.rejoin(site)
            if not site.alive:
                self.start(site.node_id)
        for link in sorted(self.cuts):
            self.mend(link)
        before = self.commits
        for turn in range(400):
            for site in self.sites:
                one = self.configuration.members.get(site.disk_id)
                if one is not None and is_up(one.state) and one.is_strained():
                    self.append(Strain(one.disk, one.incarnation, one.version, False, False))
            self.look()
            if turn == 20:
                self.write_everywhere()
            for site in self.sites:
                site.turn()
            self.run(self.now + 100 * MILLISECOND)
            if turn > 40 and self.at_rest():
                break
        else:
            raise Fault("does not come to rest: " + self.why_not())
        self.write_everywhere()
        self.run(self.now + 500 * MILLISECOND)
        if self.why_not():
            raise Fault("does not stay at rest: " + self.why_not())
        assert self.commits > before
        for partition in range(self.partitions):
            self.check_equal(partition)

    def why_not(self) -> str:
        """Return why the world is not at rest."""
        for site in self.sites:
            if not self._is_up(site):
                return f"{site.node_id} is away"
            if site.transition.configuration.index != len(self.entries):
                return f"{site.node_id} applies"
        if not self._all_follow():
            return "roles are on their way"
        for number, state in enumerate(self.configuration.partitions):
            for site in self.sites:
                if site.disk_id not in state.replicas and site.replication.replicas[number].holds():
                    return f"{site.node_id} still has {number}"
        return super().why_not()


def run_drawn(seed: int, planted: str = "", steps: int = 100, narrow: bool = False) -> LoggedWorld:
    """Draw ends of processes, cuts, commands and writes from the seed, then rest."""
    rng = Rng(seed)
    nodes = rng.between(2, 5)
    world = LoggedWorld(seed, nodes, rng.between(1, 4), planted, drawn=True)
    world.vary(rng, 60)
    if narrow:
        world.narrow()
    world.lossy = seed % 4 == 0
    first = rng.between(1, nodes)
    world.begin(first)
    for site in world.sites[first:]:
        world.start(site.node_id)
    disks = [site.disk_id for site in world.sites[: min(first, world.config.replicas)]]
    for number in range(world.partitions):
        world.propose(None, Place([PlaceItem(number, 0, disks)]))
    for _ in range(steps):
        if rng.chance(1, 2):
            world.draw(rng)
        world.write_some(rng)
        world.run(world.now + rng.between(1, 40) * MILLISECOND)
    world.settle()
    world.cut_power(rng)
    return world


def run_controlled(seed: int, planted: str = "", steps: int = 150, narrow: bool = False) -> LoggedWorld:
    """Ends of processes, starts, lost disks, cuts and writes drawn from the seed, under a controller, then rest."""
    rng = Rng(seed)
    nodes = rng.between(2, 5)
    world = LoggedWorld(seed, nodes, rng.between(1, 6), planted)
    world.vary(rng)
    if narrow:
        world.narrow()
    world.lossy = seed % 4 == 0
    world.begin(rng.between(1, nodes))
    for _ in range(steps):
        world.look()
        world.write_some(rng)
        world.draw_fault(rng)
        world.run(world.now + rng.between(1, 40) * MILLISECOND)
    world.settle()
    world.cut_power(rng)
    return world
