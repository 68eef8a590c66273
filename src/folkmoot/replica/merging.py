"""Merging the branches of a healed split, at the leader: before it opens a partition, while nobody serves it.

One branch after the other, each page or step in a turn of its own: ask the branch's node for all rows, read this node's
rows, make the plan (`merge`), write it as changes of the partition, about `_TURN_BYTES` per turn. Records of streams
come last, a page at a time: there may be more of them than fit into the memory. A row MERGED records the progress, so
that another leader can continue, and finally that the branch is merged, with all branches that it has merged itself.
The branch's node then follows as a learner. The store is read only when earlier changes are on the disk.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR, INFO, WARNING, Event
from folkmoot.membership.holding import COMPLETE, Holding, later
from folkmoot.merge.merge import Merge, Unit
from folkmoot.merge.merged import (
    TakenBranch,
    as_taken,
    decode_mark,
    encode_mark,
    ends_of,
    known_ends,
    mark_key,
    note_ends,
)
from folkmoot.merge.side import Side, last_shared_counter
from folkmoot.merge.summary import HealSummary
from folkmoot.peer.kind import ASK_OFFER
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.intake import Intake
from folkmoot.replica.lead import Lead
from folkmoot.replica.offer import AskNotice, OfferNotice, encode_ask
from folkmoot.replica.page import read_page
from folkmoot.replica.phase import MERGING, OPEN
from folkmoot.replica.replica import Replica
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
    log_of_leftover,
    partition_end,
    partition_start,
)

__all__ = ["Merges"]

_TURN_BYTES: Final = 1 << 20  # of operations in one turn, approximately
_TAKEN_MAX: Final = 16  # branches of a partition that are remembered
_HEALS_MAX: Final = 16
_DONE: Final = b"\xff\xff"
_TRIES: Final = 3  # to read a branch, before it counts as lost
_BYTES_HELD: Final = 256 << 20
"""The rows of both sides of all partitions that merge at the same time; of a single partition there may be more."""

_ROW_BYTES: Final = 200  # what a row or an operation takes in memory besides its key and value, approximately


class Merges:
    """The partitions that merge branches; `done`: those that have finished, to be taken.

    heals: summaries of the newest heals, oldest first; bytes_held: which all merges together hold before they read one
    after the other.
    """

    def __init__(self, context: ReplicaContext, lead: Lead) -> None:
        self.context = context
        self.lead = lead
        self.done: list[Replica] = []
        self.bytes_held: int = _BYTES_HELD
        self._homes: dict[Replica, dict[str, tuple[bool, list[str]]]] = {}
        self.heals: list[dict[str, object]] = []
        self._active: dict[Replica, Intake] = {}
        self._absorbs: dict[Replica, None] = {}  # those in which rows ABSORBED may be
        self._heal = HealSummary()
        self._began_us = 0
        self._sources: dict[str, bool] = {}

    def installed(self) -> None:
        """A new view: the partitions that it names begin again, from their recorded progress.

        What is merged already is not planned again, so where connections may stay is known until the partition opens.
        """
        view = self.context.view
        assert view is not None, "it is installed"
        mine = [self.context.node_id]
        self._active.clear()
        leaders = [replicas[:1] for replicas in view.replicas]
        self._homes = {
            one: homes for one, homes in self._homes.items() if leaders[one.number : one.number + 1] == [mine]
        }
        self.done.clear()

    def load(self, replica: Replica) -> bool:
        """Read what was merged before, when this node takes a partition over; the rows are on its disk.

        A node that cannot read it must not lead: it would merge the same changes twice.
        """
        prefix = kind_prefix(replica.number, MERGED)
        taken: list[Holding] = []
        marks: dict[bytes, TakenBranch] = {}
        try:
            replica.stamps.load(self.context.reader)
            for key, value in self.context.reader.scan(prefix, end_of(prefix), _TAKEN_MAX * 4):
                branch = marks[key] = decode_mark(key, value)
                if branch.cursor == _DONE:
                    taken.append(branch.holding)
            if self._is_there(replica, ABSORBED) or self._is_there(replica, LEFTOVER):
                self._absorbs[replica] = None
        except (CorruptStore, ValueError, IndexError) as fault:
            replica.spoil(f"what was merged before cannot be read: {fault}")
            return False
        replica.taken = taken
        replica.marks = marks
        replica.lost = {}
        return True

    def begin(self, replica: Replica, nodes: list[str]) -> None:
        """Merge the branches of these nodes, the longest first: shorter copies of the same branch add nothing."""
        found: list[tuple[str, Holding]] = []
        for node_id in nodes:
            report = replica.reports.get(node_id)
            if report is not None and report.holding.state == COMPLETE:
                place = 0
                while place < len(found) and not later(report.holding, found[place][1]):
                    place += 1
                found.insert(place, (node_id, report.holding))
        if not self._active:
            self._heal = HealSummary()
            self._began_us = self.context.now
            self._sources = {}
        self._active[replica] = Intake(replica, [node_id for node_id, _holding in found])
        self.step()

    def runnable(self) -> bool:
        """Whether there is something to write or to read at once."""
        for merging in self._active.values():
            if (merging.paused or merging.offered) and not merging.planned and not self._may_grow(merging):
                continue
            if merging.paused or ((merging.planned or merging.offered) and self._settled(merging.replica)):
                return True
        return False

    def _may_grow(self, merging: Intake) -> bool:
        """Whether a merge may read more: one at a time while all together hold much."""
        if sum([one.held for one in self._active.values()]) <= self.bytes_held:
            return True
        for one in self._active.values():
            if one.held:
                return one is merging
        return True

    def step(self) -> None:
        """Advance a few merges, fewer if they are large: a page or a step of the plan each."""
        running = 0
        for replica in list(self._active):
            if running >= self.context.config.copy_parallel:
                return
            merging = self._active[replica]
            if replica.phase != MERGING:
                del self._active[replica]
                continue
            if not merging.planned and not self._may_grow(merging):
                continue
            running += 1
            if merging.paused:
                merging.paused = False
                self._ask(merging)
            elif self._settled(replica):
                self._go_on(merging)

    def _settled(self, replica: Replica) -> bool:
        """Whether the store shows all that was written, and the replicas follow."""
        recent = self.context.recent_budget
        if recent.held_bytes > max(recent.bytes_max, _TURN_BYTES):
            return False
        return replica.durable_seq >= replica.sequence

    def _go_on(self, merging: Intake) -> None:
        if merging.planned:
            self._write(merging)
        elif merging.offered:
            try:
                if merging.records:
                    self._plan_records(merging)
                else:
                    self._prepare(merging)
            except (CorruptStore, ValueError, IndexError) as fault:
                self._give_up(merging, str(fault))
        elif not merging.source:
            self._next(merging)

    def _next(self, merging: Intake) -> None:
        """Ask the next node with a branch."""
        replica = merging.replica
        while merging.nodes:
            node_id = merging.nodes.pop(0)
            holding = self._holding_of(replica, node_id)
            if holding is None or replica.knows(holding):
                continue
            merging.begin(node_id, partition_start(replica.number))
            self._sources[node_id] = True
            self._ask(merging)
            return
        del self._active[replica]
        self.done.append(replica)
        # The uncommitted changes of branches are settled when all replicas have the result.
        replica.opening_seq = replica.sequence
        self.lead.join_known(replica)
        self.lead.advance(replica)
        if not self._active:
            self._report()

    def _holding_of(self, replica: Replica, node_id: str) -> Holding | None:
        report = replica.reports.get(node_id)
        return None if report is None else report.holding

    def _ask(self, merging: Intake) -> None:
        replica = merging.replica
        ask = AskNotice(replica.number, merging.cursor, replica.seen())
        self.context.send(merging.source, ASK_OFFER, encode_ask(self.context.epoch, ask))

    def offered(self, replica: Replica, node_id: str, offer: OfferNotice) -> None:
        """Take a page of a branch; `step` goes on."""
        merging = self._active.get(replica)
        if merging is None or merging.source != node_id or merging.cursor != offer.start:
            return
        if merging.offered or (merging.planned and not merging.records):
            return
        if not offer.end:
            self._give_up(merging, f"{node_id} cannot read its copy")
            return
        if merging.records:
            merging.page = [row for row in offer.rows if _is_of_record(row[0])]
            merging.held += _size_of(merging.page)
            merging.cursor = _next_of_records(replica.number, offer.end)
            merging.offered = True
            return
        merging.side = offer.side
        merging.lineage = offer.lineage
        merging.lives = offer.lives
        rows = [row for row in offer.rows if not _is_of_record(row[0])]
        merging.rows.update(rows)
        merging.held += _size_of(rows)
        for key, _value in offer.rows:
            if key[2] == LEFTOVER:
                merging.kept[log_of_leftover(key)] = key
        merging.cursor = _behind_chunks(replica.number, offer.end)
        if merging.cursor < partition_end(replica.number):
            if self._may_grow(merging):
                self._ask(merging)
            else:
                merging.paused = True
            return
        merging.offered = True

    def _give_up(self, merging: Intake, why: str) -> None:
        """Give up an unreadable branch after several tries, with those that are left in between.

        It counts as merged for nobody: another copy of it may come, now or later, which can be read.
        """
        replica = merging.replica
        if merging.offered and not merging.records and merging.reached < partition_end(replica.number):
            del self._active[replica]  # the branch is sound, but this copy is not
            replica.spoil(why)
            return
        source = merging.source
        merging.tries[source] = merging.tries.get(source, 0) + 1
        if merging.tries[source] < _TRIES:
            merging.nodes.append(source)
            merging.source = ""
            self._next(merging)
            return
        holding = self._holding_of(replica, source)
        assert holding is not None, "it was asked because of its report"
        replica.lost[source] = (holding.epoch, holding.seq)
        text = f"{why}: its changes up to {holding.epoch}:{holding.seq} are lost, but for those that another node has"
        replica.event(ERROR, "branch_lost", text)
        self._heal.drop(why, 1)
        merging.forget_rows()
        self._next(merging)

    def _prepare(self, merging: Intake) -> None:
        """Read a page of this copy, or make a step of the plan; raises CorruptStore, ValueError, IndexError."""
        replica = merging.replica
        if merging.reached < partition_end(replica.number):
            self._read_own(merging)
        elif merging.steps is None:
            self._begin_plan(merging)
        else:
            for _ in merging.steps:
                return
            self._end_plan(merging)

    def _begin_plan(self, merging: Intake) -> None:
        replica = merging.replica
        context = self.context
        holding = self._holding_of(replica, merging.source)
        assert holding is not None, "it was asked because of its report"
        fork = last_shared_counter(context.view, merging.lineage)
        mine = Side(merging.own, replica.seen(), fork)
        merging.taken = {key: decode_mark(key, value) for key, value in merging.rows.items() if key[2] == MERGED}
        others = [holding, *[other.holding for other in merging.taken.values() if other.cursor == _DONE]]
        theirs = Side(merging.rows, others, fork)
        mine.meet(holding)
        theirs.meet(replica.holding())
        merge = Merge(replica.number, mine, theirs, holding)
        view = context.view
        if view is not None and view.trunk > 0:
            merge.trunk = tag_of(view.trunk)
        merge.they_live = merging.lives
        merge.taken = [branch for branch in replica.marks.values() if branch.cursor == _DONE]
        merge.reader = context.reader
        merging.ends = known_ends(merge.taken, holding)
        try:
            own = replica.holding()
            with_records = {**merging.rows, **dict.fromkeys(merging.kept.values(), b"")}
            merge.taken.append(as_taken(own, merge.lines, with_records, context.reader))
        except CorruptStore as fault:
            del self._active[replica]  # as in `_give_up`
            replica.spoil(str(fault))
            return
        merging.merge = merge
        merging.steps = merge.steps()

    def _end_plan(self, merging: Intake) -> None:
        replica = merging.replica
        merge = merging.merge
        holding = self._holding_of(replica, merging.source)
        assert merge is not None, "it was begun"
        assert holding is not None, "it was asked because of its report"
        merging.summary = merge.summary
        units = merge.units
        homes = self._homes.setdefault(replica, {})
        for client, here in merge.homes.items():
            homes[client.decode()] = (here, merging.side)
        merge.forget()
        merging.forget_rows()
        merging.merge = merge
        merging.offered = False
        self._begin_writing(merging, holding, units)

    def _begin_writing(self, merging: Intake, holding: Holding, units: list[Unit]) -> None:
        """Write what is planned, but for what an earlier leader has written."""
        mark = merging.replica.marks.get(mark_key(merging.replica.number, holding))
        merging.units = [unit for unit in units if mark is None or unit.name > mark.cursor]
        merging.next = 0
        merging.planned = True
        for unit in merging.units:
            merging.held += sum([len(key) + len(body) + _ROW_BYTES for _kind, key, body in unit.ops])

    def _begin_records(self, merging: Intake) -> None:
        """Ask for the records of streams: they are merged page by page, and not held."""
        merging.records = True
        merging.cursor = kind_prefix(merging.replica.number, CHUNK)
        self._ask(merging)

    def _plan_records(self, merging: Intake) -> None:
        """Plan a page of records, and ask for the next one meanwhile; raises CorruptStore, ValueError, IndexError."""
        holding = self._holding_of(merging.replica, merging.source)
        assert merging.merge is not None, "its other rows are merged"
        assert holding is not None, "it was asked because of its report"
        page = merging.page
        units = merging.merge.records(page)
        note_ends(merging.newest, page)
        merging.page = []
        merging.held = 0
        merging.offered = False
        merging.last = not merging.cursor
        self._begin_writing(merging, holding, units)
        if merging.cursor:
            self._ask(merging)

    def _read_own(self, merging: Intake) -> None:
        """Read a page of this copy's rows, without records of streams: these are only appended to."""
        replica = merging.replica
        context = self.context
        chunks = kind_prefix(replica.number, CHUNK)
        behind = end_of(chunks)
        start = merging.reached
        end = chunks if start < chunks else partition_end(replica.number)
        page, following = read_page(context.reader, start, end, context.config.page_bytes)
        rows = [(key, value) for key, value in page if key[2] not in (HISTORY, STREAM, LEFTOVER)]
        merging.own.update(rows)
        merging.held += _size_of(rows)
        merging.reached = behind if following == chunks else following

    def _write(self, merging: Intake) -> None:
        """Write the next units and the progress."""
        replica = merging.replica
        writer = self.context.writer
        size = 0
        while merging.next < len(merging.units) and size < _TURN_BYTES:
            unit = merging.units[merging.next]
            merging.next += 1
            for kind, key, body in unit.ops:
                if kind == PUT:
                    writer.put(replica.number, key, body)
                else:
                    writer.delete(replica.number, key)
                size += len(key) + len(body)
        holding = self._holding_of(replica, merging.source)
        assert holding is not None, "it was asked because of its report"
        finished = merging.next == len(merging.units)
        if finished and merging.last:
            for key, taken in merging.taken.items():  # only now all of what the branch has taken in is here
                self._mark(replica, key, taken)
            branch = TakenBranch(holding, _DONE)
            branch.ends = ends_of(merging.newest, merging.ends)
            self._mark(replica, mark_key(replica.number, holding), branch)
            self._end(merging, holding)
            return
        if merging.next:
            branch = TakenBranch(holding, merging.units[merging.next - 1].name)
            self._mark(replica, mark_key(replica.number, holding), branch)
        if finished:
            merging.end_plan()
            merging.held = _size_of(merging.page)
            if not merging.records:
                self._begin_records(merging)

    def _mark(self, replica: Replica, key: bytes, branch: TakenBranch) -> None:
        """Note how far a branch is taken in, unless it is known that it is further."""
        known = replica.marks.get(key)
        if known is not None and known.cursor >= branch.cursor:
            return
        replica.marks[key] = branch
        self.context.writer.put(replica.number, key, encode_mark(branch))
        if branch.cursor == _DONE:
            replica.taken.append(branch.holding)

    def _end(self, merging: Intake, holding: Holding) -> None:
        replica = merging.replica
        taken = replica.taken
        while len(taken) > _TAKEN_MAX:
            oldest = mark_key(replica.number, taken.pop(0))
            self.context.writer.delete(replica.number, oldest)
            replica.marks.pop(oldest, None)
        self._heal.add(merging.summary)
        fields = merging.summary.fields()
        fields["partition"] = replica.number
        fields["from"] = [merging.source]
        fields["branch"] = f"{holding.epoch}:{holding.seq}"
        if merging.summary.chunks:
            self._absorbs[replica] = None
        level = WARNING if merging.summary.dropped else INFO
        self.context.events.append(Event(level, "branch_merged", fields))
        merging.offered = False
        merging.source = ""
        merging.end_plan()
        merging.forget_rows()

    def _report(self) -> None:
        """Report the heal when all its partitions are merged here."""
        if not self._sources:
            return
        fields = self._heal.fields()
        fields["epoch"] = self.context.epoch
        fields["from"] = sorted(self._sources)
        fields["time_us"] = self._began_us + self.context.shift_us
        fields["took_us"] = self.context.now - self._began_us
        self.heals.append(fields)
        if len(self.heals) > _HEALS_MAX:
            del self.heals[0]
        # Where the other side had no changes of its own, as after a common stop, there is nothing to report.
        self.context.events.append(Event(INFO if self._heal.is_empty() else WARNING, "healed", dict(fields)))

    def take_homes(self, replica: Replica) -> dict[str, tuple[bool, list[str]]]:
        """Return the clients of a merged partition whose connections may stay at these nodes only, or not there.

        At other nodes the packet ids of the client stand for other messages than in its session now.
        """
        return self._homes.pop(replica, {})

    def tidy(self, replicas: list[Replica]) -> None:
        """Forget the times of changes, once all known nodes are back and have the merged partitions."""
        view = self.context.view
        if view is None or not view.replicas or not view.is_whole():
            return
        for replica in replicas:
            led = replica.phase == OPEN and not view.learners[replica.number]
            if led and (len(replica.stamps) or self._has_absorbed(replica)):
                self._sweep(replica)

    def _has_absorbed(self, replica: Replica) -> bool:
        """Whether it is recorded where records came from, and no others are still to be appended."""
        try:
            if replica not in self._absorbs or self._is_there(replica, LEFTOVER):
                return False
        except CorruptStore:
            return False  # who reads the copy next says so
        del self._absorbs[replica]
        return True

    def _is_there(self, replica: Replica, kind: int) -> bool:
        prefix = kind_prefix(replica.number, kind)
        return bool(self.context.reader.scan(prefix, end_of(prefix), 1))

    def _sweep(self, replica: Replica) -> None:
        """Remove the stamps, where records came from, and the progress of merges that nobody goes on with.

        Which branches were merged is still known: a node that the other side had let in may come later with one of
        them, and is none of those that are known here.
        """
        writer = self.context.writer
        for kind in (STAMP, ABSORBED):
            prefix = kind_prefix(replica.number, kind)
            writer.delete_range(replica.number, prefix, end_of(prefix))
        replica.stamps.forget()
        for key, mark in list(replica.marks.items()):
            if mark.cursor != _DONE:
                writer.delete(replica.number, key)
                del replica.marks[key]


def _is_of_record(key: bytes) -> bool:
    return key[2] == CHUNK or key[2] == LEFTOVER


def _behind_chunks(partition: int, start: bytes) -> bytes:
    """Return where a page begins that has no chunks."""
    chunks = kind_prefix(partition, CHUNK)
    return end_of(chunks) if chunks <= start < end_of(chunks) else start


def _next_of_records(partition: int, start: bytes) -> bytes:
    """Return where the next page of records begins; empty after the last one."""
    leftovers = kind_prefix(partition, LEFTOVER)
    if start < end_of(kind_prefix(partition, CHUNK)) or leftovers <= start < end_of(leftovers):
        return start
    return leftovers if start < leftovers else b""


def _size_of(rows: list[tuple[bytes, bytes]]) -> int:
    """Return what rows take in memory, approximately."""
    return sum([len(key) + len(value) + _ROW_BYTES for key, value in rows])
