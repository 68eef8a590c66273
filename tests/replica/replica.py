"""A few nodes in one process: Replication on stores that write late and lose what is not written, links with delays.

What is here: time, links, disks, clients that write rows at whoever leads, and an oracle that knows what was committed
and what must be gone. Whoever derives from it says where the roles come from (`tests.replica.logged`: from a log).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.membership.view import View
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import SHIP
from folkmoot.replica.replication import Replication
from folkmoot.store.batch import Batch
from folkmoot.store.key import QUEUE, kind_prefix, partition_end, partition_start
from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import Writer


class Fault(AssertionError):
    """A property does not hold."""


class Write:
    """A change that a client made: the marks that it put and removed."""

    def __init__(self, partition: int, puts: list[bytes], deletes: list[bytes]) -> None:
        self.partition = partition
        self.puts = puts
        self.deletes = deletes


class Cell:
    """One node: what survives a crash is `store`."""

    def __init__(self, world: World, node_id: str) -> None:
        self.world = world
        self.node_id = node_id
        self.store = MemoryStore()
        self.incarnation = 0
        self.alive = False

    def start(self) -> None:
        world = self.world
        self.incarnation += 1
        self.alive = True
        self.writer = Writer(world.partitions, 0)
        self.replication = Replication(self.node_id, world.partitions, world.config, self.store, self.writer)
        self.replication.open(world.now)
        world.check_restored(self)
        self.base: View | None = None
        self.disk: deque[Batch] = deque()
        self.disk_busy = False
        self.waiting: dict[int, list[Write]] = {}
        self.committed = 0
        self.written = 0

    def install(self, view: View) -> None:
        """Take the roles of a view."""
        self.base = view
        self.replication.install(view, self.world.now)

    def write(self, partition: int, rng: Rng) -> None:
        """A client's change: new marks, removed marks, a hot row, and now and then a range."""
        world = self.world
        puts, deletes = [], []
        prefix = kind_prefix(partition, QUEUE)
        for _ in range(rng.between(1, 3)):
            world.marks += 1
            key = prefix + bytes([rng.below(4)]) + world.marks.to_bytes(3, "big")
            puts.append(key)
            self.writer.put(partition, key, b"x" * rng.below(world.row_bytes))
            world.live[partition].append(key)
        self.writer.put(partition, prefix + b"\5hot" + bytes([rng.below(4)]), world.marks.to_bytes(4, "big"))
        live = world.live[partition]
        if rng.chance(1, 2):
            key = live.pop(rng.below(len(live)))
            deletes.append(key)
            self.writer.delete(partition, key)
        if rng.chance(1, 10):
            group = prefix + bytes([rng.below(4)])
            middle = world.marks.to_bytes(3, "big") if rng.chance(1, 3) else rng.below(world.marks).to_bytes(3, "big")
            self.writer.delete_range(partition, group, group + middle)
            deletes.extend([key for key in live if group <= key < group + middle])
            world.live[partition] = [key for key in live if not group <= key < group + middle]
        for key in deletes:
            world.must_have[partition].discard(key)
        write = Write(partition, [key for key in puts if key in world.live[partition]], deletes)
        self.waiting.setdefault(self.writer.token, []).append(write)

    def turn(self) -> None:
        """End a turn as the node does."""
        world, replication = self.world, self.replication
        ready = list(replication.ready)
        replication.ready.clear()
        for partition in ready:
            world.check_start(self, partition)
            replication.start(partition, world.now)
        self.note()
        batch = self.writer.take()
        replication.seal(batch, world.now)
        world.note_changes(self)
        if batch is not None:
            self.disk.append(batch)
            self.run_disk()
        self.check_committed()
        for node_id, kind, body in replication.out:
            world.send(self, node_id, kind, body)
        replication.out.clear()
        world.log.extend([f"{world.now} {self.node_id} {event!r}" for event in replication.events])
        replication.events.clear()
        if replication.more():
            world.at(world.now + 100, self.wake_of(self.incarnation))
        due = max(min(replication.next_wake(), replication.background_us), world.now + MILLISECOND)
        if due < world.now + SECOND:
            world.at(due, self.wake_of(self.incarnation))

    def note(self) -> None:
        """Take what the configuration log is to be told: learners that are filled, copies that are no good."""
        self.replication.filled.clear()
        self.replication.unfit.clear()

    def wake_of(self, incarnation: int) -> Callable[[], None]:
        def wake() -> None:
            # Many wakes may be asked for; one per millisecond is enough.
            if self.alive and self.incarnation == incarnation and self.world.now > self.woken_us:
                self.woken_us = self.world.now
                self.replication.wake(self.world.now)
                self.replication.work_in_background(self.world.now)
                self.turn()

        return wake

    woken_us = -1

    def run_disk(self) -> None:
        """Group commit: all that waits is written at once, visible first, told later."""
        if self.disk_busy or not self.disk:
            return
        self.disk_busy = True
        world, incarnation = self.world, self.incarnation
        group = list(self.disk)
        self.disk.clear()

        def visible() -> None:
            if self.alive and self.incarnation == incarnation:
                for batch in group:
                    self.store.apply(batch)
                world.at(world.now + world.rng.below(MILLISECOND), told)

        def told() -> None:
            if self.alive and self.incarnation == incarnation:
                self.disk_busy = False
                self.run_disk()
                self.written = group[-1].token
                self.replication.written(self.written, world.now)
                self.turn()

        slow = 50 if world.rng.chance(1, 30) else 1
        world.at(world.now + world.rng.between(200, 3000) * slow, visible)

    def check_committed(self) -> None:
        """What is called committed must be on the disks of all replicas now."""
        world, replication = self.world, self.replication
        gone = set(replication.abandoned)
        for token, partition in gone:
            if token <= self.committed:
                raise Fault(f"{self.node_id} abandons a change of {partition} in {token} after committing it")
            self.waiting[token] = [write for write in self.waiting.get(token, []) if write.partition != partition]
        replication.abandoned.clear()
        committed = replication.committed_token
        if not self.committed <= committed <= self.written:
            raise Fault(f"{self.node_id} commits {committed} after {self.committed}, written {self.written}")
        for token in range(self.committed + 1, committed + 1):
            for write in self.waiting.pop(token, []):
                world.check_committed(self, write)
        self.committed = committed

    def rows(self, partition: int) -> list[tuple[bytes, bytes]]:
        return self.store.scan(partition_start(partition), partition_end(partition), 1 << 30)


class World:
    """The nodes, their links and the oracle; everything that is random comes from the seed."""

    def __init__(self, seed: int, nodes: int, partitions: int, planted: str = "", row_bytes: int = 60) -> None:
        self.rng = Rng(seed)
        self.partitions = partitions
        self.row_bytes = row_bytes
        self.config = ClusterConfig()
        self.config.digest_us = self.config.digest_pause_us = 20 * MILLISECOND
        self.config.drop_wait_us = 30 * MILLISECOND  # short, so that roles change while copies go
        self.config.planted = [planted] if planted else []
        self.now = 0
        self.marks = 0
        self.must_have: list[set[bytes]] = [set() for _ in range(partitions)]
        self.must_not: list[set[bytes]] = [set() for _ in range(partitions)]
        self.live: list[list[bytes]] = [[] for _ in range(partitions)]
        self.commits = 0
        self.changes: dict[tuple[int, int, int], tuple[int, int, bytes]] = {}  # all that were made, by where they lead
        self.restored = 0
        self.log: list[str] = []
        self.lossy = False
        self.delay_us = 2 * MILLISECOND
        self.install_us = 20 * MILLISECOND
        self.view: View | None = None  # the newest roles
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._arrival: dict[tuple[str, int, str, int], int] = {}
        self.cuts: dict[tuple[str, str], bool] = {}  # links that are cut: whether they keep what is sent
        self._lost: dict[tuple[str, str], int] = {}  # how often a link has lost what was in it
        self._held: list[tuple[Cell, int, Cell, int, int, bytes]] = []
        self.cells = {f"n{number}": Cell(self, f"n{number}") for number in range(nodes)}

    # -- time ---------------------------------------------------------------------------------------------------------

    def vary(self, rng: Rng, install_ms: int = 100) -> None:
        """Draw how many copies there are, and how slow and how small things are; install_ms: of an entry, at most."""
        self.config.replicas = rng.between(2, 3)
        self.delay_us = rng.between(1, 20) * MILLISECOND
        self.install_us = rng.between(1, install_ms) * MILLISECOND
        if rng.chance(1, 3):
            self.config.recent_bytes_max = 2_000
        if rng.chance(1, 2):
            self.config.page_bytes = 200

    def narrow(self) -> None:
        """Let much of a copy be on its way while it changes: small pages, slow links, few changes remembered."""
        self.config.recent_bytes_max = 500
        self.config.page_bytes = 200
        self.delay_us = 20 * MILLISECOND

    def at(self, when: int, what: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (when, self._count, what))

    def run(self, until: int) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _count, what = heappop(self._queue)
            what()
        self.now = until

    # -- links --------------------------------------------------------------------------------------------------------

    def send(self, cell: Cell, node_id: str, kind: int, body: bytes) -> None:
        """In order, once, while both live and the link is there; a lossy one (which no real one is) loses changes."""
        other = self.cells[node_id]
        link = (min(cell.node_id, node_id), max(cell.node_id, node_id))
        if not other.alive or (self.lossy and kind == SHIP and self.rng.chance(1, 20)):
            return
        if link in self.cuts:
            if self.cuts[link]:
                self._held.append((cell, cell.incarnation, other, other.incarnation, kind, body))
            return
        incarnation, lost = other.incarnation, self._lost.get(link, 0)
        way = (cell.node_id, cell.incarnation, node_id, incarnation)
        when = max(self._arrival.get(way, 0), self.now + self.rng.between(50, self.delay_us))
        self._arrival[way] = when

        def arrive() -> None:
            if other.alive and other.incarnation == incarnation and self._lost.get(link, 0) == lost:
                other.replication.receive(cell.node_id, kind, body, self.now)
                other.turn()

        self.at(when, arrive)

    def cut(self, one: str, other: str, keeps: bool) -> None:
        """Cut a link; keeps: what is sent over it arrives when it works again, and is not lost."""
        link = (min(one, other), max(one, other))
        if one != other:
            self.cuts[link] = keeps and self.cuts.get(link, True)
            if not keeps:
                self._lost[link] = self._lost.get(link, 0) + 1

    def mend(self, link: tuple[str, str]) -> None:
        """Let a link work again; where something was lost, its ends have everybody begin anew with everybody."""
        keeps = self.cuts.pop(link)
        held, self._held = self._held, []
        for one in held:
            cell, incarnation, other, began, kind, body = one
            if link != (min(cell.node_id, other.node_id), max(cell.node_id, other.node_id)):
                self._held.append(one)
            elif keeps and cell.alive and (cell.incarnation, other.incarnation) == (incarnation, began):
                self.send(cell, other.node_id, kind, body)
        for node_id in link:
            if not keeps and self.cells[node_id].alive:
                self.cells[node_id].replication.renew = True

    # -- members ------------------------------------------------------------------------------------------------------

    def living(self) -> list[Cell]:
        return [cell for cell in self.cells.values() if cell.alive]

    def crash(self, cell: Cell, empty: bool = False) -> None:
        cell.alive = False
        if empty:
            cell.store = MemoryStore()
        self.log.append(f"{self.now} {cell.node_id} crashes{' and loses its disk' if empty else ''}")

    # -- the oracle ---------------------------------------------------------------------------------------------------

    def note_changes(self, cell: Cell) -> None:
        """Note the changes that a node has made in this turn."""
        for partition in cell.writer.taken:
            recent = cell.replication.replicas[partition].recent
            for change in recent.after(cell.replication.replicas[partition].head_seq - 1) or []:
                known = (change.prev_epoch, change.prev_seq, change.body)
                if self.changes.setdefault((partition, change.epoch, change.seq), known) != known:
                    raise Fault(f"{self.now} {cell.node_id} remembers another change {change!r} of {partition}")

    def check_restored(self, cell: Cell) -> None:
        """What a start finds in the log are changes as their leaders have made them, up to the position of the copy."""
        for replica in cell.replication.replicas:
            changes = [*replica.recent._overdue, *replica.recent._changes]
            position = cell.writer.position(replica.number)
            for change in reversed(changes):
                if (change.epoch, change.seq) != position:
                    raise Fault(f"{self.now} {cell.node_id} restores {change!r} of {replica.number} before {position}")
                position = (change.prev_epoch, change.prev_seq)
                made = self.changes.get((replica.number, change.epoch, change.seq))
                if made != (*position, change.body):
                    raise Fault(f"{self.now} {cell.node_id} restores {change!r} of {replica.number} not as it was made")
                self.restored += 1

    def check_start(self, cell: Cell, partition: int) -> None:
        """Whoever begins to lead has on its disk all that was committed, and nothing that is gone."""
        self._compare(cell, partition, f"{cell.node_id} is to lead partition {partition}")

    def _compare(self, cell: Cell, partition: int, what: str) -> None:
        have = {key for key, _value in cell.rows(partition)}
        missing = self.must_have[partition] - have
        extra = self.must_not[partition] & have
        if missing or extra:
            raise Fault(f"{self.now} {what}, lacks {len(missing)} rows and has {len(extra)} that are gone")

    def check_committed(self, cell: Cell, write: Write) -> None:
        self.commits += 1
        if any("branch_lost" in line for line in self.log):
            return  # a merge cannot read the rows of these tests, and drops what it was to take in
        partition = write.partition
        assert cell.base is not None
        for node_id in cell.base.replicas[partition]:
            member = cell.base.member(node_id)
            if member is None or member.incarnation != self.cells[node_id].incarnation or not self.cells[node_id].alive:
                continue  # had it, and may have lost it since
            store = self.cells[node_id].store
            for key in write.puts:
                if key in self.live[partition] and store.get(key) is None:
                    raise Fault(
                        f"{self.now} {cell.node_id} commits {key.hex()}, which {node_id} does not have on its disk"
                    )
            if any(store.get(key) is not None for key in write.deletes):
                raise Fault(f"{self.now} {cell.node_id} commits a removal that {node_id} does not have on its disk")
        self.must_have[partition].update([key for key in write.puts if key in self.live[partition]])
        self.must_not[partition].update(write.deletes)

    def write_everywhere(self) -> None:
        """So that what a lossy link has lost is missed."""
        for cell in self.living():
            for partition in range(self.partitions):
                if cell.replication.leads(partition):
                    cell.write(partition, self.rng)
            cell.turn()

    def at_rest(self) -> bool:
        return not self.why_not()

    def why_not(self) -> str:
        view = self.view
        wanted = min(self.config.replicas, len(self.cells))
        assert view is not None
        for partition in range(self.partitions):
            if len(view.replicas[partition]) != wanted or view.learners[partition]:
                return f"{partition} has {view.replicas[partition]} and {view.learners[partition]}"
            if not self.cells[view.leader_of(partition)].replication.leads(partition):
                return f"{partition} is not opened by {view.leader_of(partition)}"
        for cell in self.cells.values():
            if cell.replication.committed_token != cell.writer.token - 1:
                return f"{cell.node_id} has committed {cell.replication.committed_token} of {cell.writer.token - 1}"
            for partition in range(self.partitions):
                if not cell.replication.leader_open(partition):
                    return f"{cell.node_id} does not know that {partition} is open"
        return ""

    def check_equal(self, partition: int) -> None:
        assert self.view is not None
        leader = self.cells[self.view.leader_of(partition)]
        rows = leader.rows(partition)
        self._compare(leader, partition, f"{leader.node_id} leads partition {partition} at the end")
        for cell in self.cells.values():
            if cell.node_id in self.view.replicas[partition]:
                if cell.rows(partition) != rows:
                    raise Fault(f"partition {partition} differs between {leader.node_id} and {cell.node_id}")
                if cell.writer.position(partition) != leader.writer.position(partition):
                    raise Fault(f"positions of partition {partition} differ")
            elif cell.rows(partition):
                raise Fault(f"{cell.node_id} has not dropped partition {partition}")
