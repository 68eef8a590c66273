"""A few nodes whose roles come from one sequence of configurations: `Transition`, `view_of`, `Replication`.

One log, whose entries every node applies in order, each after another delay and several at a time, so that it skips
some. Nodes propose commands (JOIN, START, ALTER_ISR, WITHDRAW, RENEW) and others are drawn (AWAY, LEAD, PLACE, STRAIN);
they arrive late, twice, or not at all. Links are cut and lose what is in them; a node may be cut off from the log.

No leases: a member may be marked away while it acts. So an outdated leader may begin, and lacks what was committed in
later configurations, which only its lease keeps it from telling. But what it calls committed counts, and must be in the
copies of all later leaders. Every node may crash at any time, and comes back with its disk.
"""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.kernel.rng import Rng
from folkmoot.membership.command import (
    ENDED,
    SILENT,
    Activate,
    Command,
    Join,
    Lead,
    MarkAway,
    Place,
    PlaceItem,
    Renew,
    Strain,
    Withdraw,
    encode_command,
)
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_format import decode_configuration, encode_configuration
from folkmoot.membership.divergence import YES, includes
from folkmoot.membership.holding import COMPLETE
from folkmoot.membership.lifecycle import ACTIVE, is_up
from folkmoot.membership.placement_plan import PlanLimits, plan
from folkmoot.membership.projection import isr_request, view_of
from folkmoot.membership.transition import Transition
from folkmoot.membership.view import View
from folkmoot.peer.kind import SHIP
from tests.membership.reference import founded, member, process
from tests.replica.replica import Cell, Fault, World, Write

ASK_US = 60 * MILLISECOND  # after this time what was asked for is asked for again


class Site(Cell):
    """One node: its own copy of the log's state, and the configuration whose roles it has."""

    def __init__(self, group: Group, node_id: str, disk: int) -> None:
        super().__init__(group, node_id)
        self.group = group
        self.disk_id = disk
        self.cut_off = False  # from the log
        self.installed: ClusterConfiguration | None = None
        self.changes: dict[int, list[tuple[Write, int]]] = {}
        self.asked_us = 0

    def start(self) -> None:
        super().start()
        self.transition = Transition(ClusterConfiguration())
        self.installed = None
        self.changes = {}
        self.wanted: set[int] = set()
        self.adopted: list[int] = []  # taken over in an earlier configuration
        self.asked_us = 0

    def apply(self, upto: int) -> None:
        """Apply the log up to an entry, and take the roles of the newest configuration."""
        configuration = self.transition.configuration
        while configuration.index < upto:
            self.transition.apply(configuration.index + 1, self.group.entries[configuration.index])
        if not configuration.is_founded():
            return
        view = view_of(configuration)
        me = view.member(self.node_id)
        known = 0 if self.base is None else self.base.epoch
        if me is not None and me.incarnation == self.incarnation and view.epoch > known:
            self.installed = decode_configuration(encode_configuration(configuration))
            self.base = view
            self.in_view = True
            self.filled = []
            self.wanted.clear()
            self.adopted = list(self.replication.ready)
            self.replication.install(view, self.group.now)
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
        commands: list[Command] = []
        if not is_up(one.state) or one.incarnation != self.incarnation:
            return [Activate(self.disk_id, one.version, process(self.incarnation, self.disk_id))]
        if self.installed is not None:
            request = isr_request(self.installed, self.node_id, self.filled)
            if request is not None:
                commands.append(request)
        if self.wanted:
            commands.append(Withdraw(self.disk_id, self.incarnation, sorted(self.wanted)))
        if self.replication.renew:
            self.replication.renew = False
            commands.append(Renew(self.disk_id, self.incarnation))
        return commands

    def turn(self) -> None:
        self.wanted.update(self.replication.unfit)
        self.replication.unfit.clear()
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


class Group(World):
    """The nodes, the log, its proposals, and the links."""

    def __init__(self, seed: int, nodes: int, partitions: int, planted: str = "") -> None:
        super().__init__(seed, nodes, partitions, planted)
        self.sites = [Site(self, f"n{number}", 10 + number) for number in range(nodes)]
        self.cells = {site.node_id: site for site in self.sites}
        self.entries: list[bytes] = []
        self.transition = Transition(ClusterConfiguration())
        self.cuts: set[tuple[str, str]] = set()
        self.links: dict[tuple[str, str], int] = {}  # how often it was cut
        self.places: dict[tuple[int, int], tuple[str, int, int]] = {}
        self.since: dict[bytes, int] = {}  # by mark the epoch in which it was committed
        self.gone_since: dict[bytes, int] = {}
        self.installs = 0
        self.skipped = 0
        self.accepted: dict[str, int] = {}
        self.quiet = False

    @property
    def configuration(self) -> ClusterConfiguration:
        return self.transition.configuration

    # The log

    def append(self, command: Command) -> None:
        result = self.transition.apply_command(self.configuration.index + 1, command)
        self.entries.append(encode_command(command))
        self.configuration.check()
        name = type(command).__name__
        if result.is_accepted():
            self.accepted[name] = self.accepted.get(name, 0) + 1
            self.log.append(f"{self.now} {self.configuration.index} {command!r}")
        for site in self.sites:
            if site.alive and not site.cut_off:
                self.deliver(site)

    def deliver(self, site: Site) -> None:
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

    def propose(self, site: Site | None, command: Command) -> None:
        """Propose a command: it arrives late, sometimes very late, and sometimes twice."""
        for _ in range(2 if self.rng.chance(1, 6) and not self.quiet else 1):
            late = 30 if self.rng.chance(1, 6) and not self.quiet else 1

            def arrive() -> None:
                if site is None or not site.cut_off:
                    self.append(command)

            self.at(self.now + self.rng.below(10 * MILLISECOND) * late, arrive)

    # Links

    def send(self, cell: Cell, node_id: str, kind: int, body: bytes) -> None:
        """In order, once, while both live and the link is not cut: then all that is in it is lost."""
        other = self.cells[node_id]
        pair = (min(cell.node_id, node_id), max(cell.node_id, node_id))
        if not other.alive or pair in self.cuts or (self.lossy and kind == SHIP and self.rng.chance(1, 20)):
            return
        incarnation, cuts = other.incarnation, self.links.get(pair, 0)
        link = (cell.node_id, cell.incarnation, node_id, incarnation)
        when = max(self._arrival.get(link, 0), self.now + self.rng.between(50, self.delay_us))
        self._arrival[link] = when

        def arrive() -> None:
            if other.alive and other.incarnation == incarnation and self.links.get(pair, 0) == cuts:
                other.replication.receive(cell.node_id, kind, body, self.now)
                other.turn()

        self.at(when, arrive)

    def cut(self, one: str, other: str) -> None:
        pair = (min(one, other), max(one, other))
        if one != other:
            self.cuts.add(pair)
            self.links[pair] = self.links.get(pair, 0) + 1

    def mend(self, pair: tuple[str, str]) -> None:
        """The link works again, and its ends ask for another configuration, as what they have sent was lost."""
        self.cuts.discard(pair)
        for node_id in pair:
            site = self.cells[node_id]
            if site.alive:
                site.replication.renew = True

    def isolate(self, site: Site) -> None:
        site.cut_off = True
        for other in self.sites:
            self.cut(site.node_id, other.node_id)

    def rejoin(self, site: Site) -> None:
        site.cut_off = False
        for pair in [pair for pair in sorted(self.cuts) if site.node_id in pair]:
            self.mend(pair)
        if site.alive:
            self.deliver(site)

    # The oracle

    def check_start(self, cell: Cell, partition: int) -> None:
        """A leader begins with all reports of its configuration, and with the longest copy in sync."""
        super().check_start(cell, partition)
        assert cell.base is not None
        assert isinstance(cell, Site)
        if partition in cell.adopted:
            return
        mine = cell.replication.replica_states.holding(partition)
        for node_id in cell.base.replicas[partition]:
            other, one = self.cells[node_id], cell.base.member(node_id)
            if one is None or not other.alive or one.incarnation != other.incarnation:
                continue
            if other.base is None or other.base.epoch < cell.base.epoch:
                raise Fault(f"{self.now} {cell.node_id} begins to lead {partition} before {node_id} has reported")
            theirs = other.replication.replica_states.holding(partition)
            if theirs.state != COMPLETE or other.base.epoch > cell.base.epoch or self._lost_tail(cell):
                continue
            if includes(theirs, mine) == YES and includes(mine, theirs) != YES:
                raise Fault(f"{self.now} {cell.node_id} leads {partition} with {mine!r}, {node_id} has {theirs!r}")

    def _lost_tail(self, cell: Cell) -> bool:
        """Whether a longer copy was no longer in memory where it was."""
        return any(event.kind == "tail_lost" for event in cell.replication.events) or any(
            "tail_lost" in line for line in self.log
        )

    def _compare(self, cell: Cell, partition: int, what: str) -> None:
        """A leader has what was committed in its configuration and in earlier ones; see the module's text."""
        assert cell.base is not None
        have = {key for key, _value in cell.rows(partition)}
        missing = [key for key in self.must_have[partition] - have if self.since[key] <= cell.base.epoch]
        extra = [key for key in self.must_not[partition] & have if self.gone_since[key] <= cell.base.epoch]
        if missing or extra:
            raise Fault(f"{self.now} {what}, lacks {len(missing)} rows and has {len(extra)} that are gone")

    def check_committed(self, cell: Cell, write: Write) -> None:
        super().check_committed(cell, write)
        assert cell.base is not None
        for key in write.puts:
            self.since.setdefault(key, cell.base.epoch)
        for key in write.deletes:
            self.gone_since.setdefault(key, cell.base.epoch)

    def note_place(self, site: Site, write: Write, seq: int, token: int) -> None:
        change = (site.node_id, site.incarnation, token)
        before = self.places.setdefault((write.partition, seq), change)
        if before != change:
            raise Fault(f"{self.now} {before} and {change} are committed at {write.partition}:{seq}")

    # What happens

    def draw(self, rng: Rng) -> None:
        """Draw one thing that happens to the cluster."""
        site = self.sites[rng.below(len(self.sites))]
        what = rng.below(20)
        one = self.configuration.members.get(site.disk_id)
        if what == 0 and site.alive:
            self.crash(site)
        elif what <= 2 and not site.alive:
            site.start()
            self.deliver(site)
            site.turn()
        elif what == 3:
            self.isolate(site)
        elif what <= 6 and site.cut_off:
            self.rejoin(site)
        elif what == 7:
            self.cut(site.node_id, self.sites[rng.below(len(self.sites))].node_id)
        elif what <= 9 and self.cuts:
            pairs = sorted(self.cuts)
            pair = pairs[rng.below(len(pairs))]
            if not self.cells[pair[0]].cut_off and not self.cells[pair[1]].cut_off:  # type: ignore[attr-defined]
                self.mend(pair)
        elif what <= 12 and one is not None and (rng.chance(1, 6) or site.cut_off or not site.alive):
            why = SILENT if site.alive else ENDED
            self.propose(None, MarkAway(site.disk_id, one.incarnation, one.version, why))
        elif what == 13 and one is not None:
            self.propose(None, Strain(site.disk_id, one.incarnation, one.version, rng.chance(1, 2), rng.chance(1, 2)))
        elif what <= 17:
            self.draw_role(rng)

    def draw_role(self, rng: Rng) -> None:
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

    def crash(self, cell: Cell, empty: bool = False) -> None:
        cell.alive = False
        cell.disk_busy = False
        self.log.append(f"{self.now} {cell.node_id} crashes")

    def write_some(self, rng: Rng) -> None:
        for site in self.sites:
            if not site.alive:
                continue
            for _ in range(rng.below(3)):
                partition = rng.below(self.partitions)
                if site.replication.leads(partition):
                    site.write(partition, rng)
            site.turn()

    # The end

    def settle(self) -> None:
        """End all faults, let the planner work, and check what has to hold then."""
        self.lossy = False
        self.quiet = True
        for pair in sorted(self.cuts):
            self.mend(pair)
        for site in self.sites:
            self.rejoin(site)
            if not site.alive:
                site.start()
            self.deliver(site)
        before = self.commits
        for turn in range(400):
            for site in self.sites:
                one = self.configuration.members.get(site.disk_id)
                if one is not None and is_up(one.state) and one.is_strained():
                    self.propose(None, Strain(site.disk_id, one.incarnation, one.version, False, False))
            for command in plan(self.configuration, PlanLimits(), [], []):
                self.propose(None, command)
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
        self.view = view_of(self.configuration)
        for partition in range(self.partitions):
            if not self.view.replicas[partition]:
                raise Fault(f"nobody leads {partition}")
            self.check_equal(partition)

    def why_not(self) -> str:
        for site in self.sites:
            if site.transition.configuration.index != len(self.entries):
                return f"{site.node_id} applies"
            view: View | None = site.base
            if view is None or view.epoch != view_of(self.configuration).epoch:
                return f"{site.node_id} has another view"
        self.view = view_of(self.configuration)
        self.view_due = False
        return super().why_not()


def run_group(seed: int, planted: str = "", steps: int = 100) -> Group:
    """Draw crashes, cuts, commands and writes from the seed, then rest."""
    rng = Rng(seed)
    nodes = rng.between(2, 5)
    group = Group(seed, nodes, rng.between(1, 4), planted)
    group.vary(rng, 60)
    group.lossy = seed % 4 == 0
    first = [site.disk_id for site in group.sites[: rng.between(1, nodes)]]
    begin = founded(first, group.partitions, min(group.config.replicas, nodes))
    for one in begin.members:
        one.node_id = f"n{one.disk - 10}"
    for site in group.sites:
        site.start()
    group.append(begin)
    for number in range(group.partitions):
        group.propose(None, Place([PlaceItem(number, 0, first[: group.config.replicas])]))
    for _ in range(steps):
        if rng.chance(1, 2):
            group.draw(rng)
        group.write_some(rng)
        group.run(group.now + rng.between(1, 40) * MILLISECOND)
    group.settle()
    return group
