"""The nodes of `tests.replica.replica` with roles from a configuration log instead of views that are agreed upon.

The log itself is taken for granted: commands are applied one after the other, and each node installs the views of the
results in their order, at moments of its own, the newest of several at once. What the controller has to see to is so
here by construction: a process is marked as away when it has ended, and copies move when all have installed the last
change of roles. Processes may end at any time, all of them too; a disk is lost only if another one in sync is there.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.kernel.rng import Rng
from folkmoot.membership.cluster_member import DATA, ClusterMember, Process
from folkmoot.membership.command import (
    ENDED,
    REPLACED,
    Activate,
    AlterIsr,
    Command,
    Found,
    IsrItem,
    Join,
    MarkAway,
    Remove,
    Renew,
    Strain,
    Withdraw,
)
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_format import decode_configuration, encode_configuration
from folkmoot.membership.lifecycle import is_up
from folkmoot.membership.placement_plan import PlanLimits, plan
from folkmoot.membership.projection import view_of
from folkmoot.membership.transition import Transition
from tests.replica.replica import Cell, World

LINEAGE = 500


class LoggedWorld(World):
    """A world with a configuration log."""

    def __init__(self, seed: int, nodes: int, partitions: int, planted: str = "") -> None:
        super().__init__(seed, nodes, partitions, planted)
        self.configuration = ClusterConfiguration()
        self.transition = Transition(self.configuration)
        self.disks = {node_id: number + 1 for number, node_id in enumerate(self.cells)}
        self.last_disk = nodes
        self.known: dict[str, ClusterConfiguration] = {}  # what each node has installed
        self.cut: set[str] = set()  # nodes that reach nobody
        self.held: list[tuple[Cell, str, int, bytes]] = []  # messages from and to them, in their order
        self.seen: dict[str, int] = {}  # the entry that each node has installed
        self.due: dict[str, int] = {}  # when the next entry arrives at each node
        self.filled: dict[str, dict[tuple[int, int], tuple[int, int]]] = {}  # by leader: (partition, disk) -> as told

    # -- the log ------------------------------------------------------------------------------------------------------

    def apply(self, command: Command) -> bool:
        """Apply a command, and let the nodes learn of it."""
        if self.configuration.index == 0:
            assert isinstance(command, Found)
        changed = self.configuration.changed
        result = self.transition.apply_command(self.configuration.index + 1, command)
        if self.configuration.changed != changed:
            self.log.append(f"{self.now} {result!r}")
            encoded = encode_configuration(self.configuration)
            self.view = view_of(self.configuration)
            for cell in self.living():  # a node that is cut off learns it later
                late = 20 if self.rng.chance(1, 20) else 1
                when = max(self.due.get(cell.node_id, 0), self.now + self.rng.below(self.install_us * late))
                self.due[cell.node_id] = when
                self.at(when, self._learn_of(cell, cell.incarnation, encoded))
        return result.is_accepted()

    def _learn_of(self, cell: Cell, incarnation: int, encoded: bytes) -> Callable[[], None]:
        def learn() -> None:
            if not cell.alive or cell.incarnation != incarnation:
                return
            if cell.node_id in self.cut:
                self.at(self.now + 10 * MILLISECOND, learn)
                return
            configuration = decode_configuration(encoded)
            if configuration.index <= self.seen.get(cell.node_id, 0):
                return
            self.seen[cell.node_id] = configuration.index
            self.known[cell.node_id] = configuration
            member = configuration.members.get(self.disks[cell.node_id])
            if member is None or not is_up(member.state) or member.incarnation != incarnation:
                return
            view = view_of(configuration)
            if cell.base is None or view.epoch > cell.base.epoch:
                cell.base = view
                cell.in_view = True
                cell.unfit.clear()
                cell.replication.install(view, self.now)
                cell.turn()

        return learn

    def send(self, cell: Cell, node_id: str, kind: int, body: bytes) -> None:
        """Send a message, or hold it while an end of the link is cut off."""
        if cell.node_id in self.cut or node_id in self.cut:
            self.held.append((cell, node_id, kind, body))
        else:
            super().send(cell, node_id, kind, body)

    def heal(self) -> None:
        """Reach everybody again; what was held arrives, if its ends are the same processes."""
        self.cut.clear()
        held, self.held = self.held, []
        for cell, node_id, kind, body in held:
            if cell.alive:
                super().send(cell, node_id, kind, body)

    def begin(self, first: list[str]) -> None:
        """Found the cluster with these nodes."""
        for node_id in first:
            self.cells[node_id].start()
            self.seen[node_id] = 0
        members = [self._joining(self.cells[node_id]) for node_id in first]
        self.apply(Found(1, LINEAGE, 0, 0, members, self.partitions, self.config.replicas))

    def _process(self, cell: Cell) -> Process:
        return Process(cell.incarnation, f"{cell.node_id}:1", cell.node_id, "")

    def _joining(self, cell: Cell) -> ClusterMember:
        return ClusterMember(self.disks[cell.node_id], cell.node_id, DATA, self._process(cell))

    def start(self, node_id: str) -> None:
        """Start a process; it learns the log from its beginning on."""
        cell = self.cells[node_id]
        cell.start()
        self.seen[node_id] = 0
        self.filled.pop(node_id, None)
        self.due[node_id] = self.now
        self.known.pop(node_id, None)
        if self.configuration.index:
            encoded = encode_configuration(self.configuration)
            self.at(self.now + self.rng.below(self.install_us), self._learn_of(cell, cell.incarnation, encoded))

    def may_lose(self, cell: Cell) -> bool:
        """Tell whether a disk may be lost: for each partition another one has everything."""
        kept = [disk for node_id, disk in self.disks.items() if node_id != cell.node_id]
        for state in self.configuration.partitions:
            if state.replicas and not [disk for disk in state.isr if disk in kept]:
                return False
        return True

    def crash(self, cell: Cell, empty: bool = False) -> None:
        """End a process, and perhaps lose its disk."""
        super().crash(cell, empty)
        self.cut.discard(cell.node_id)
        self.held = [one for one in self.held if one[0] is not cell and one[1] != cell.node_id]
        if empty:
            self.last_disk += 1
            self.disks[cell.node_id] = self.last_disk

    # -- the controller -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Propose what is due."""
        self.view_due = False
        rng = self.rng
        for cell in self.cells.values():
            if rng.chance(1, 2):
                self._see(cell)
        for cell in self.living():
            if cell.node_id not in self.cut:
                self._ask(cell)
        if self._all_follow():
            limits = PlanLimits(1 + rng.below(8), 1 + rng.below(4), 8)
            gone = [disk for disk in self.configuration.disks() if not self._is_up(disk) and rng.chance(1, 20)]
            for command in plan(self.configuration, limits, [], gone):
                self.apply(command)

    def _is_up(self, disk: int) -> bool:
        return is_up(self.configuration.members[disk].state)

    def _all_follow(self) -> bool:
        for cell in self.living():
            member = self.configuration.members.get(self.disks[cell.node_id])
            if member is None or not is_up(member.state):
                continue
            if cell.base is None or self.view is None or cell.base.epoch != self.view.epoch:
                return False
        return True

    def _see(self, cell: Cell) -> None:
        """Find out about one node."""
        configuration = self.configuration
        disk = self.disks[cell.node_id]
        member = configuration.named(cell.node_id)
        gone = not cell.alive or cell.node_id in self.cut
        if member is not None and (gone or member.disk != disk or member.incarnation != cell.incarnation):
            if is_up(member.state):
                self.apply(MarkAway(member.disk, member.incarnation, member.version, ENDED))
                return
        if gone or (member is not None and self.seen.get(cell.node_id, 0) < member.version and member.disk == disk):
            return
        if member is not None and member.disk != disk:
            if member.state == 0:
                self.apply(MarkAway(member.disk, member.incarnation, member.version, ENDED))
            else:
                self.apply(Remove(member.disk, member.version, REPLACED, True))
            return
        if member is None:
            self.apply(Join(self._joining(cell)))
        elif not is_up(member.state) or member.incarnation != cell.incarnation:
            self.apply(Activate(disk, member.version, self._process(cell)))

    def _ask(self, cell: Cell) -> None:
        """Let a node ask for what it needs, by what it has installed."""
        known = self.known.get(cell.node_id)
        disk = self.disks[cell.node_id]
        if known is None or not cell.in_view:
            return
        told = self.filled.setdefault(cell.node_id, {})
        for number, node_id in cell.filled:
            learner = known.named(node_id)
            if learner is not None:
                told[number, learner.disk] = (known.partitions[number].leader_epoch, learner.started)
        cell.filled = []
        wanted: dict[int, list[int]] = {}
        for place, (epoch, started) in list(told.items()):
            number = place[0]
            state = known.partitions[number]
            member = known.members.get(place[1])
            learns = place[1] in state.learners() and state.leader == disk and state.leader_epoch == epoch
            if member is None or not learns or member.started != started:
                del told[place]
                continue
            wanted[number] = [*wanted.get(number, state.isr), place[1]]
        items = [IsrItem(n, known.partitions[n].leader_epoch, known.partitions[n].version, wanted[n]) for n in wanted]
        if items and self.rng.chance(1, 2):
            disks = {one for item in items for one in item.isr}
            self.apply(AlterIsr(disk, items, {one: known.members[one].started for one in disks}))
        if cell.replication.renew:
            cell.replication.renew = False
            self.apply(Renew(disk, cell.incarnation))
        if cell.node_id in self.news:
            self.news.discard(cell.node_id)
            unfit = sorted(cell.unfit)
            if not unfit or not self.apply(Withdraw(disk, cell.incarnation, unfit)):
                self.apply(Renew(disk, cell.incarnation))

    def strain(self) -> None:
        """Let a disk be full, or have room again."""
        cells = [cell for cell in self.living() if self.disks[cell.node_id] in self.configuration.members]
        if cells:
            cell = cells[self.rng.below(len(cells))]
            member = self.configuration.members[self.disks[cell.node_id]]
            self.apply(Strain(member.disk, member.incarnation, member.version, not member.full, False))

    def is_intact(self) -> bool:
        """Tell whether no member has lost its disk: to cut another one off then would be a second fault at once."""
        return set(self.configuration.members) <= set(self.disks.values())

    def check_start(self, cell: Cell, partition: int) -> None:
        """Check whoever begins to lead; one that was taken for away has no lease: it may lead, and nobody hears it."""
        member = self.configuration.members.get(self.disks[cell.node_id])
        if member is not None and is_up(member.state) and member.incarnation == cell.incarnation:
            known = self.known[cell.node_id].members.get(member.disk)
            if known is not None and known.started == member.started:
                super().check_start(cell, partition)

    def settle(self) -> None:
        """End the faults, with room on all disks."""
        self.heal()
        for disk in self.configuration.disks():
            member = self.configuration.members[disk]
            if member.full:
                self.apply(Strain(disk, member.incarnation, member.version, False, False))
        super().settle()

    def why_not(self) -> str:
        """Return why the world is not at rest."""
        configuration = self.configuration
        if len(configuration.members) < len(self.cells) or not all(self._is_up(d) for d in configuration.disks()):
            return "members come and go"
        if not self._all_follow():
            return "views are on their way"
        for number, state in enumerate(configuration.partitions):
            for cell in self.living():
                if self.disks[cell.node_id] not in state.replicas and cell.replication.replica_states.holds(number):
                    return f"{cell.node_id} still has {number}"
        return super().why_not()


def run_logged(seed: int, planted: str = "", steps: int = 150, lossy: bool = False) -> LoggedWorld:
    """Ends of processes, starts, lost disks and writes drawn from the seed, then rest."""
    rng = Rng(seed)
    nodes = rng.between(2, 5)
    world = LoggedWorld(seed, nodes, rng.between(1, 6), planted)
    world.vary(rng)
    world.lossy = lossy
    world.begin(list(world.cells)[: rng.between(1, nodes)])
    for _ in range(steps):
        world.look()
        for cell in world.living():
            for _ in range(rng.below(3)):
                partition = rng.below(world.partitions)
                if cell.replication.leads(partition):
                    cell.write(partition, rng)
            cell.turn()
        what = rng.below(30)
        if what == 0 and world.living():
            victim = world.living()[rng.below(len(world.living()))]
            world.crash(victim, rng.chance(1, 3) and world.may_lose(victim))
        elif what <= 2:
            dead = [cell for cell in world.cells.values() if not cell.alive]
            if dead:
                world.start(dead[rng.below(len(dead))].node_id)
        elif what == 3 and rng.chance(1, 4):
            for cell in world.living():
                world.crash(cell)
        elif what == 4:
            world.strain()
        elif what <= 6 and world.living() and world.is_intact():
            world.cut.add(world.living()[rng.below(len(world.living()))].node_id)
        elif what <= 8:
            world.heal()
        world.run(world.now + rng.between(1, 40) * MILLISECOND)
    world.settle()
    return world
