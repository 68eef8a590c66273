"""A few nodes in one process: Replication on stores that write late and lose what is not written, links with delays.

Views are made as membership makes them, but by the harness: promises (holdings, newest view, filled learners) are taken
one after the other while the nodes go on, then the view is installed at each of them at another time. A client writes
rows at whoever leads; the oracle knows what was committed and what must be gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.membership.assign import assign
from folkmoot.membership.ring import Ring
from folkmoot.membership.view import View
from folkmoot.membership.view_format import decode_view, encode_view
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import SHIP
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.replica.replication import Replication
from folkmoot.store.batch import Batch
from folkmoot.store.epoch import make_epoch
from folkmoot.store.key import META, QUEUE, kind_prefix, partition_end, partition_start, plain_key
from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import Writer

VIEW_KEY = plain_key(0, META, b"view")


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
        stored = self.store.get(VIEW_KEY)
        self.base: View | None = None if stored is None else decode_view(stored[16:])
        self.in_view = False
        self.promised = 0
        self.filled: list[tuple[int, str]] = []
        self.unfit: set[int] = set()
        self.disk: deque[Batch] = deque()
        self.disk_busy = False
        self.waiting: dict[int, list[Write]] = {}
        self.committed = 0
        self.written = 0

    def member(self) -> Member:
        return Member(self.node_id, self.incarnation, f"{self.node_id}:1", self.node_id, ACTIVE)

    def commit(self, chain: list[View]) -> None:
        """Install a view, and before it those that were missed, unless a later one was promised meanwhile."""
        if chain[-1].epoch == self.promised:
            for view in chain:
                member = view.member(self.node_id)
                newer = self.base is None or view.epoch > self.base.epoch
                if newer and member is not None and member.incarnation == self.incarnation:
                    self.install(view)
            self.turn()

    def install(self, view: View) -> None:
        self.base = view
        self.in_view = True
        self.filled = [
            (p, node) for p, node in self.filled if view.leader_of(p) == self.node_id and node in view.learners[p]
        ]
        self.world.view_due = self.world.view_due or bool(self.filled)
        self.world.news.discard(self.node_id)
        self.replication.install(view, self.world.now)
        self.writer.private(VIEW_KEY, encode_view(view))
        if view not in self.world.installed:
            self.world.installed.append(view)

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
        closed, ready = list(replication.closed), list(replication.ready)
        replication.closed.clear()
        replication.ready.clear()
        for partition in closed:
            if replication.leads(partition):
                raise Fault(f"{self.node_id} closes and leads {partition}")
        for partition in ready:
            world.check_start(self, partition)
            replication.start(partition, world.now)
        for entry in replication.filled:
            if entry not in self.filled:
                self.filled.append(entry)
                world.view_due = True
        replication.filled.clear()
        if replication.unfit:
            self.unfit.update(replication.unfit)
            replication.unfit.clear()
            world.news.add(self.node_id)
        batch = self.writer.take()
        replication.seal(batch, world.now)
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
        due = max(replication.next_wake(), world.now + MILLISECOND)
        if due < world.now + SECOND:
            world.at(due, self.wake_of(self.incarnation))

    def wake_of(self, incarnation: int) -> Callable[[], None]:
        def wake() -> None:
            # Many wakes may be asked for; one per millisecond is enough.
            if self.alive and self.incarnation == incarnation and self.world.now > self.woken_us:
                self.woken_us = self.world.now
                self.replication.wake(self.world.now)
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
    """The nodes, their links, the views and the oracle; everything that is random comes from the seed."""

    def __init__(self, seed: int, nodes: int, partitions: int, planted: str = "", row_bytes: int = 60) -> None:
        self.rng = Rng(seed)
        self.partitions = partitions
        self.row_bytes = row_bytes
        self.config = ClusterConfig()
        self.config.digest_us = 20 * MILLISECOND
        self.config.drop_wait_us = 30 * MILLISECOND  # short, so that views come while copies go
        self.config.planted = [planted] if planted else []
        self.now = 0
        self.counter = 0
        self.marks = 0
        self.must_have: list[set[bytes]] = [set() for _ in range(partitions)]
        self.must_not: list[set[bytes]] = [set() for _ in range(partitions)]
        self.live: list[list[bytes]] = [[] for _ in range(partitions)]
        self.commits = 0
        self.log: list[str] = []
        self.lossy = False
        self.delay_us = 2 * MILLISECOND
        self.install_us = 20 * MILLISECOND
        self.view: View | None = None
        self.installed: list[View] = []
        self.view_due = False
        self.news: set[str] = set()  # whose copies call for a view; with the installation of one that is forgotten
        self.proposing = 0
        self.proposals = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._arrival: dict[tuple[str, int, str, int], int] = {}
        self.cells = {f"n{number}": Cell(self, f"n{number}") for number in range(nodes)}

    # -- time ---------------------------------------------------------------------------------------------------------

    def vary(self, rng: Rng, install_ms: int = 100) -> None:
        """Draw how many copies there are, and how slow and how small things are; install_ms: of a view, at most."""
        self.config.replicas = rng.between(2, 3)
        self.delay_us = rng.between(1, 20) * MILLISECOND
        self.install_us = rng.between(1, install_ms) * MILLISECOND
        if rng.chance(1, 3):
            self.config.recent_bytes_max = 2_000
        if rng.chance(1, 2):
            self.config.page_bytes = 200

    def at(self, when: int, what: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (when, self._count, what))

    def run(self, until: int) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _count, what = heappop(self._queue)
            what()
        self.now = until

    def send(self, cell: Cell, node_id: str, kind: int, body: bytes) -> None:
        """In order, once, while both live; a lossy link (which the real one is not) loses changes."""
        other = self.cells[node_id]
        if not other.alive or (self.lossy and kind == SHIP and self.rng.chance(1, 20)):
            return
        incarnation = other.incarnation
        link = (cell.node_id, cell.incarnation, node_id, incarnation)
        when = max(self._arrival.get(link, 0), self.now + self.rng.between(50, self.delay_us))
        self._arrival[link] = when

        def arrive() -> None:
            if other.alive and other.incarnation == incarnation:
                other.replication.receive(cell.node_id, kind, body, self.now)
                other.turn()

        self.at(when, arrive)

    # -- members ------------------------------------------------------------------------------------------------------

    def living(self) -> list[Cell]:
        return [cell for cell in self.cells.values() if cell.alive]

    def start(self, node_id: str) -> None:
        self.cells[node_id].start()
        self.view_due = True

    def may_crash(self, cell: Cell) -> bool:
        """Whether a replica that is in sync by the newest view, and has installed it, stays for each partition."""
        if self.view is None or self.proposing:
            return False
        for replicas in self.view.replicas:
            if not any(self._in_sync(self.cells[node_id]) for node_id in replicas if node_id != cell.node_id):
                return False
        return True

    def _in_sync(self, cell: Cell) -> bool:
        return cell.alive and cell.in_view and cell.base is self.view

    def crash(self, cell: Cell, empty: bool = False) -> None:
        cell.alive = False
        self.news.discard(cell.node_id)
        if empty:
            cell.store = MemoryStore()
        self.view_due = True
        self.log.append(f"{self.now} {cell.node_id} crashes{' and loses its disk' if empty else ''}")

    # -- views --------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Begin a proposal when one is due; to be called now and then."""
        if not (self.view_due or self.news) or self.proposing or not self.living():
            return
        self.view_due = False
        self.proposals += 1
        self.proposing = self.proposals
        number = self.proposals
        self.counter += 1
        epoch = make_epoch(self.counter, "test")
        members = self.living()
        promises: dict[str, tuple[int, list[object]]] = {}

        def promise_of(cell: Cell) -> Callable[[], None]:
            def promise() -> None:
                if self.proposing != number:
                    return
                if not cell.alive:
                    self.proposing = 0
                    self.view_due = True
                    return
                cell.promised = epoch
                found: list[object] = [cell.replication.holdings(), cell.base, list(cell.filled), cell.in_view]
                promises[cell.node_id] = (cell.incarnation, found)
                if len(promises) == len(members):
                    self.at(self.now + self.rng.below(5 * MILLISECOND), decide)

            return promise

        def decide() -> None:
            self.proposing = 0
            for cell in members:
                if not cell.alive or promises[cell.node_id][0] != cell.incarnation:
                    self.view_due = True
                    return
            self._decide(epoch, members, {node_id: entry[1] for node_id, entry in promises.items()})

        for cell in members:
            self.at(self.now + self.rng.below(10 * MILLISECOND), promise_of(cell))

    def _decide(self, epoch: int, cells: list[Cell], promises: dict[str, list[object]]) -> None:
        members = [cell.member() for cell in cells]
        ring = Ring(View(epoch, members), self.partitions, self.config.replicas)
        holdings = {node_id: entry[0] for node_id, entry in promises.items()}
        bases = {node_id: entry[1] for node_id, entry in promises.items() if isinstance(entry[1], View)}
        serving = [node_id for node_id, entry in promises.items() if entry[3]]
        filled = {node_id: entry[2] for node_id, entry in promises.items()}
        tops = sorted([base.epoch for node_id, base in bases.items() if node_id in serving or not serving])
        previous = next((view for view in self.installed if tops and view.epoch == tops[-1]), None)
        branches: dict[int, list[str]] = {}
        kept, fill = assign(members, ring, previous, holdings, bases, filled, branches, serving)  # type: ignore[arg-type]
        view = View(epoch, members, kept, fill, branches=branches)
        self.view = view
        chain = [view]
        if previous is not None:
            between = [one for one in self.installed if tops[0] < one.epoch <= tops[-1]]
            chain = [*sorted(between, key=lambda one: one.epoch)[-3:], view]
        self.log.append(f"{self.now} view {self.counter}: {kept} filling {fill}")
        for cell in cells:
            late = 20 if self.rng.chance(1, 10) else 1
            self.at(self.now + self.rng.below(self.install_us * late), self._commit_of(cell, cell.incarnation, chain))

    def _commit_of(self, cell: Cell, incarnation: int, chain: list[View]) -> Callable[[], None]:
        def commit() -> None:
            if cell.alive and cell.incarnation == incarnation:
                cell.commit(chain)

        return commit

    # -- the oracle ---------------------------------------------------------------------------------------------------

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

    def settle(self) -> None:
        """End all faults, let views and copies come to rest, and check what has to hold then."""
        self.lossy = False
        for cell in self.cells.values():
            if not cell.alive:
                self.start(cell.node_id)
        for turn in range(200):
            self.look()
            if turn == 20:
                self.write_everywhere()
            self.run(self.now + 100 * MILLISECOND)
            if turn > 40 and self.at_rest():
                break
        else:
            raise Fault("does not come to rest: " + self.why_not())
        for partition in range(self.partitions):
            self.check_equal(partition)

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
        if view is None or self.view_due or self.news or self.proposing:
            return "views change"
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


def run_seed(seed: int, planted: str = "", steps: int = 150, lossy: bool = False) -> World:
    """Crashes, restarts, empty restarts and writes drawn from the seed, then rest."""
    rng = Rng(seed)
    nodes = rng.between(2, 5)
    world = World(seed, nodes, rng.between(1, 6), planted)
    world.vary(rng)
    world.lossy = lossy
    first = rng.between(1, nodes)
    for number, node_id in enumerate(world.cells):
        if number < first:
            world.start(node_id)
    for _ in range(steps):
        world.look()
        for cell in world.living():
            for _ in range(rng.below(3)):
                partition = rng.below(world.partitions)
                if cell.replication.leads(partition):
                    cell.write(partition, rng)
            cell.turn()
        what = rng.below(30)
        if what == 0:
            victims = [cell for cell in world.living() if world.may_crash(cell)]
            if victims:
                world.crash(victims[rng.below(len(victims))], rng.chance(1, 4))
        elif what <= 2:
            dead = [cell for cell in world.cells.values() if not cell.alive]
            if dead:
                world.start(dead[rng.below(len(dead))].node_id)
        world.run(world.now + rng.between(1, 40) * MILLISECOND)
    world.settle()
    return world
