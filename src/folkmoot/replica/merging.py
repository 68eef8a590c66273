"""Merging the branches of a healed split, at the leader: before it opens a partition, while nobody serves it.

One branch after the other, each page or step in a turn of its own: ask the branch's node for all rows, read this node's
rows, make the plan (`merge`), write it as changes of the partition, about `_TURN_BYTES` per turn. A row MERGED records
the progress, so that another leader can continue, and finally that the branch is merged, with all branches that it has
merged itself. The branch's node then follows as a learner. The store is read only when earlier changes are on the disk.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR, INFO, WARNING, Event
from folkmoot.membership.divergence import YES, includes
from folkmoot.membership.holding import COMPLETE, Holding, later
from folkmoot.merge.merge import Merge
from folkmoot.merge.merged import TakenBranch, as_taken, decode_mark, encode_mark, ends_of, known_ends, mark_key
from folkmoot.merge.side import Side, last_shared_counter
from folkmoot.merge.summary import HealSummary
from folkmoot.peer.kind import ASK_OFFER
from folkmoot.replica.intake import Intake
from folkmoot.replica.lead import Lead
from folkmoot.replica.offer import AskNotice, OfferNotice, encode_ask
from folkmoot.replica.page import read_page
from folkmoot.replica.replica_states import MERGING, OPEN, ReplicaStates
from folkmoot.store.batch import PUT
from folkmoot.store.epoch import tag_of
from folkmoot.store.key import (
    ABSORBED,
    CHUNK,
    HISTORY,
    LEFTOVER,
    MERGED,
    STAMP,
    STREAM,
    end_of,
    kind_prefix,
    partition_end,
    partition_start,
)

__all__ = ["Merges"]

_TURN_BYTES: Final = 1 << 20  # of operations in one turn, approximately
_TAKEN_MAX: Final = 16  # branches of a partition that are remembered
_HEALS_MAX: Final = 16
_DONE: Final = b"\xff\xff"
_TRIES: Final = 3  # to read a branch, before it counts as lost
_ROWS_HELD: Final = 500_000  # of all partitions that merge at the same time, both sides; a single one may have more


class Merges:
    """The partitions that merge branches; `done`: those that have finished, to be taken.

    heals: summaries of the newest heals, oldest first.
    """

    def __init__(self, replica_states: ReplicaStates, lead: Lead) -> None:
        self.replica_states = replica_states
        self.lead = lead
        self.done: list[int] = []
        self._homes: dict[int, dict[str, tuple[bool, list[str]]]] = {}
        self.heals: list[dict[str, object]] = []
        self._active: dict[int, Intake] = {}
        self._marks: list[dict[bytes, TakenBranch]] = [{} for _ in range(replica_states.partitions)]  # by key
        self._absorbs: dict[int, None] = {}  # partitions in which rows ABSORBED may be
        self._heal = HealSummary()
        self._began_us = 0
        self._sources: dict[str, bool] = {}

    def installed(self) -> None:
        """A new view: the partitions that it names begin again, from their recorded progress.

        What is merged already is not planned again, so where connections may stay is known until the partition opens.
        """
        view = self.replica_states.view
        assert view is not None, "it is installed"
        mine = [self.replica_states.node_id]
        self._active.clear()
        leaders = [replicas[:1] for replicas in view.replicas]
        self._homes = {number: homes for number, homes in self._homes.items() if leaders[number : number + 1] == [mine]}
        self.done.clear()

    def load(self, partition: int) -> bool:
        """Read what was merged before, when this node takes a partition over; the rows are on its disk.

        A node that cannot read it must not lead: it would merge the same changes twice.
        """
        prefix = kind_prefix(partition, MERGED)
        taken: list[Holding] = []
        marks: dict[bytes, TakenBranch] = {}
        try:
            self.replica_states.stamps.load(partition)
            for key, value in self.replica_states.reader.scan(prefix, end_of(prefix), _TAKEN_MAX * 4):
                branch = marks[key] = decode_mark(key, value)
                if branch.cursor == _DONE:
                    taken.append(branch.holding)
            if self._is_there(partition, ABSORBED) or self._is_there(partition, LEFTOVER):
                self._absorbs[partition] = None
        except (CorruptStore, ValueError, IndexError) as fault:
            self.replica_states.spoil(partition, f"what was merged before cannot be read: {fault}")
            return False
        self.lead.taken[partition] = taken
        self._marks[partition] = marks
        return True

    def begin(self, partition: int, nodes: list[str]) -> None:
        """Merge the branches of these nodes, the longest first: shorter copies of the same branch add nothing."""
        found: list[tuple[str, Holding]] = []
        for node_id in nodes:
            report = self.lead.reports.get(node_id, {}).get(partition)
            if report is not None and report.holding.state == COMPLETE:
                place = 0
                while place < len(found) and not later(report.holding, found[place][1]):
                    place += 1
                found.insert(place, (node_id, report.holding))
        if not self._active:
            self._heal = HealSummary()
            self._began_us = self.replica_states.now
            self._sources = {}
        self._active[partition] = Intake([node_id for node_id, _holding in found])
        self.step()

    def runnable(self) -> bool:
        """Whether there is something to write at once."""
        for partition, merging in self._active.items():
            if (merging.planned or merging.offered) and self._settled(partition):
                return True
        return False

    def step(self) -> None:
        """Advance a few merges, fewer if they are large: a page or a step of the plan each."""
        running = 0
        rows = sum([len(merging.rows) + len(merging.own) for merging in self._active.values()])
        for partition in list(self._active):
            if running >= self.replica_states.config.copy_parallel:
                return
            merging = self._active[partition]
            if self.replica_states.phases[partition] != MERGING:
                del self._active[partition]
                continue
            if running and rows > _ROWS_HELD and not merging.source:
                continue
            running += 1
            if self._settled(partition):
                self._go_on(partition, merging)

    def _settled(self, partition: int) -> bool:
        """Whether the store shows all that was written, and the replicas follow."""
        recent = self.replica_states.recent
        if recent.held_bytes > max(recent.bytes_max, _TURN_BYTES):
            return False
        return self.replica_states.durable_seqs[partition] >= self.replica_states.writer.sequence(partition)

    def _go_on(self, partition: int, merging: Intake) -> None:
        if merging.planned:
            self._write(partition, merging)
        elif merging.offered:
            try:
                self._prepare(partition, merging)
            except (CorruptStore, ValueError, IndexError) as fault:
                self._give_up(partition, merging, str(fault))
        elif not merging.source:
            self._next(partition, merging)

    def _next(self, partition: int, merging: Intake) -> None:
        """Ask the next node with a branch."""
        while merging.nodes:
            node_id = merging.nodes.pop(0)
            holding = self._holding_of(node_id, partition)
            if holding is None or self._is_taken(partition, holding):
                continue
            merging.source = node_id
            merging.cursor = partition_start(partition)
            merging.forget_rows()
            merging.offered = False
            merging.reached = partition_start(partition)
            merging.side = []
            merging.units = []
            merging.next = 0
            self._sources[node_id] = True
            self._ask(partition, merging)
            return
        del self._active[partition]
        self.done.append(partition)
        # The uncommitted changes of branches are settled when all replicas have the result.
        self.lead.opening_seqs[partition] = self.replica_states.writer.sequence(partition)
        self.lead.join_known(partition)
        self.lead.advance(partition)
        if not self._active:
            self._report()

    def _holding_of(self, node_id: str, partition: int) -> Holding | None:
        report = self.lead.reports.get(node_id, {}).get(partition)
        return None if report is None else report.holding

    def _seen(self, partition: int) -> list[Holding]:
        return [self.replica_states.holding(partition), *self.lead.taken[partition]]

    def _is_taken(self, partition: int, holding: Holding) -> bool:
        for known in self._seen(partition):
            if includes(known, holding) == YES:
                return True
        return False

    def _ask(self, partition: int, merging: Intake) -> None:
        ask = AskNotice(partition, merging.cursor, self._seen(partition))
        self.replica_states.out.append((merging.source, ASK_OFFER, encode_ask(self.replica_states.epoch, ask)))

    def offered(self, node_id: str, offer: OfferNotice) -> None:
        """Take a page of a branch; `step` goes on."""
        partition = offer.partition
        merging = self._active.get(partition)
        if merging is None or merging.source != node_id or merging.cursor != offer.start:
            return
        if merging.planned or merging.offered:
            return
        if not offer.end:
            self._give_up(partition, merging, f"{node_id} cannot read its copy")
            return
        merging.side = offer.side
        merging.lineage = offer.lineage
        merging.lives = offer.lives
        for key, value in offer.rows:
            merging.rows[key] = value
        merging.cursor = offer.end
        if offer.end < partition_end(partition):
            self._ask(partition, merging)
            return
        merging.offered = True

    def _give_up(self, partition: int, merging: Intake, why: str) -> None:
        """Give up an unreadable branch, as any damaged copy, after several tries and if no other node has it."""
        if merging.offered and merging.reached < partition_end(partition):
            del self._active[partition]  # the branch is sound, but this copy is not
            self.replica_states.spoil(partition, why)
            return
        source = merging.source
        merging.tries[source] = merging.tries.get(source, 0) + 1
        if merging.tries[source] < _TRIES:
            merging.nodes.append(source)
            merging.source = ""
            self._next(partition, merging)
            return
        self.replica_states.event(ERROR, "branch_lost", partition, why)
        merging.summary = HealSummary()  # not that of the previous branch
        merging.summary.drop(why, 1)
        merging.taken = {}
        merging.units = []
        merging.forget_rows()
        merging.planned = True

    def _prepare(self, partition: int, merging: Intake) -> None:
        """Read a page of this copy, or make a step of the plan; raises CorruptStore, ValueError, IndexError."""
        if merging.reached < partition_end(partition):
            self._read_own(partition, merging)
        elif merging.steps is None:
            self._begin_plan(partition, merging)
        else:
            for _ in merging.steps:
                return
            self._end_plan(partition, merging)

    def _begin_plan(self, partition: int, merging: Intake) -> None:
        replica_states = self.replica_states
        holding = self._holding_of(merging.source, partition)
        assert holding is not None, "it was asked because of its report"
        fork = last_shared_counter(replica_states.view, merging.lineage)
        mine = Side(merging.own, self._seen(partition), fork)
        merging.taken = {key: decode_mark(key, value) for key, value in merging.rows.items() if key[2] == MERGED}
        others = [holding, *[other.holding for other in merging.taken.values() if other.cursor == _DONE]]
        theirs = Side(merging.rows, others, fork)
        mine.meet(holding)
        theirs.meet(replica_states.holding(partition))
        merge = Merge(partition, mine, theirs, holding)
        view = replica_states.view
        if view is not None and view.trunk > 0:
            merge.trunk = tag_of(view.trunk)
        merge.they_live = merging.lives
        merge.taken = [branch for branch in self._marks[partition].values() if branch.cursor == _DONE]
        merging.ends = ends_of(merging.rows, known_ends(merge.taken, holding))
        try:
            own = replica_states.holding(partition)
            merge.taken.append(as_taken(own, merge.lines, merging.rows, replica_states.reader))
        except CorruptStore as fault:
            del self._active[partition]  # as in `_give_up`
            replica_states.spoil(partition, str(fault))
            return
        merging.merge = merge
        merging.steps = merge.steps()

    def _end_plan(self, partition: int, merging: Intake) -> None:
        merge = merging.merge
        holding = self._holding_of(merging.source, partition)
        assert merge is not None, "it was begun"
        assert holding is not None, "it was asked because of its report"
        mark = self._marks[partition].get(mark_key(partition, holding))
        merging.units = [unit for unit in merge.units if mark is None or unit.name > mark.cursor]
        merging.summary = merge.summary
        merging.planned = True
        homes = self._homes.setdefault(partition, {})
        for client, here in merge.homes.items():
            homes[client.decode()] = (here, merging.side)
        merging.forget_rows()

    def _read_own(self, partition: int, merging: Intake) -> None:
        """Read a page of this copy's rows, without records of streams: these are only appended to."""
        replica_states = self.replica_states
        chunks = kind_prefix(partition, CHUNK)
        behind = end_of(chunks)
        start = merging.reached
        end = chunks if start < chunks else partition_end(partition)
        page, following = read_page(replica_states.reader, start, end, replica_states.config.page_bytes)
        merging.own.update({key: value for key, value in page if key[2] != HISTORY and key[2] != STREAM})
        merging.reached = behind if following == chunks else following

    def _write(self, partition: int, merging: Intake) -> None:
        """Write the next units and the progress."""
        writer = self.replica_states.writer
        size = 0
        while merging.next < len(merging.units) and size < _TURN_BYTES:
            unit = merging.units[merging.next]
            merging.next += 1
            for kind, key, body in unit.ops:
                if kind == PUT:
                    writer.put(partition, key, body)
                else:
                    writer.delete(partition, key)
                size += len(key) + len(body)
        holding = self._holding_of(merging.source, partition)
        assert holding is not None, "it was asked because of its report"
        cursor = _DONE if merging.next == len(merging.units) else merging.units[merging.next - 1].name
        if cursor == _DONE:  # only now all of what the branch has taken in is here
            for key, taken in merging.taken.items():
                self._mark(partition, key, taken)
        branch = TakenBranch(holding, cursor)
        branch.ends = merging.ends
        self._mark(partition, mark_key(partition, holding), branch)
        if cursor == _DONE:
            self._end(partition, merging, holding)

    def _mark(self, partition: int, key: bytes, branch: TakenBranch) -> None:
        """Note how far a branch is taken in, unless it is known that it is further."""
        known = self._marks[partition].get(key)
        if known is not None and known.cursor >= branch.cursor:
            return
        self._marks[partition][key] = branch
        self.replica_states.writer.put(partition, key, encode_mark(branch))
        if branch.cursor == _DONE:
            self.lead.taken[partition].append(branch.holding)

    def _end(self, partition: int, merging: Intake, holding: Holding) -> None:
        taken = self.lead.taken[partition]
        while len(taken) > _TAKEN_MAX:
            oldest = mark_key(partition, taken.pop(0))
            self.replica_states.writer.delete(partition, oldest)
            self._marks[partition].pop(oldest, None)
        self._heal.add(merging.summary)
        fields = merging.summary.fields()
        fields["partition"] = partition
        fields["from"] = [merging.source]
        fields["branch"] = f"{holding.epoch}:{holding.seq}"
        if merging.summary.chunks:
            self._absorbs[partition] = None
        level = WARNING if merging.summary.dropped else INFO
        self.replica_states.events.append(Event(level, "branch_merged", fields))
        merging.planned = False
        merging.offered = False
        merging.source = ""

    def _report(self) -> None:
        """Report the heal when all its partitions are merged here."""
        if not self._sources:
            return
        fields = self._heal.fields()
        fields["epoch"] = self.replica_states.epoch
        fields["from"] = sorted(self._sources)
        fields["time_us"] = self._began_us + self.replica_states.shift_us
        fields["took_us"] = self.replica_states.now - self._began_us
        self.heals.append(fields)
        if len(self.heals) > _HEALS_MAX:
            del self.heals[0]
        # Where the other side had no changes of its own, as after a common stop, there is nothing to report.
        self.replica_states.events.append(Event(INFO if self._heal.is_empty() else WARNING, "healed", dict(fields)))

    def take_homes(self, partition: int) -> dict[str, tuple[bool, list[str]]]:
        """Return the clients of a merged partition whose connections may stay at these nodes only, or not there.

        At other nodes the packet ids of the client stand for other messages than in its session now.
        """
        return self._homes.pop(partition, {})

    def tidy(self) -> None:
        """Forget the times of changes, once all known nodes are back and have the merged partitions."""
        view = self.replica_states.view
        if view is None or not view.replicas or not view.is_whole():
            return
        for partition in range(self.replica_states.partitions):
            led = self.replica_states.phases[partition] == OPEN and not view.learners[partition]
            if led and (self.replica_states.stamps.count(partition) or self._has_absorbed(partition)):
                self._sweep(partition)

    def _has_absorbed(self, partition: int) -> bool:
        """Whether it is recorded where records came from, and no others are still to be appended."""
        try:
            if partition not in self._absorbs or self._is_there(partition, LEFTOVER):
                return False
        except CorruptStore:
            return False  # who reads the copy next says so
        del self._absorbs[partition]
        return True

    def _is_there(self, partition: int, kind: int) -> bool:
        prefix = kind_prefix(partition, kind)
        return bool(self.replica_states.reader.scan(prefix, end_of(prefix), 1))

    def _sweep(self, partition: int) -> None:
        """Remove the stamps, where records came from, and the progress of merges that nobody goes on with.

        Which branches were merged is still known: a node that the other side had let in may come later with one of
        them, and is none of those that are known here.
        """
        writer = self.replica_states.writer
        for kind in (STAMP, ABSORBED):
            prefix = kind_prefix(partition, kind)
            writer.delete_range(partition, prefix, end_of(prefix))
        self.replica_states.stamps.forget(partition)
        for key, mark in list(self._marks[partition].items()):
            if mark.cursor != _DONE:
                writer.delete(partition, key)
                del self._marks[partition][key]
