"""The replica of one partition at this node: what it has, its role in the installed view, its phase as leader.

It applies changes of other nodes, and never decides which.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR, Event
from folkmoot.membership.divergence import YES, has_change, includes
from folkmoot.membership.history import decode_history, encode_history, extended, read_history, trimmed
from folkmoot.membership.holding import COMPLETE, DAMAGED, DOUBTFUL, FORGOTTEN, HISTORY_MAX, NONE, PARTIAL, Holding
from folkmoot.membership.view import View
from folkmoot.merge.merged import TakenBranch
from folkmoot.merge.stamp import Stamps
from folkmoot.replica.change import Change, decode_ops, size_of
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.follower import Follower
from folkmoot.replica.notice import Report
from folkmoot.replica.pending import Uncommitted
from folkmoot.replica.phase import IDLE, LOSES, MERGING, next_phase
from folkmoot.replica.recent import Recent
from folkmoot.replica.reported import Reported
from folkmoot.store.batch import PUT
from folkmoot.store.epoch import tag_of
from folkmoot.store.key import HISTORY, history_key
from folkmoot.store.overlay import Overlay
from folkmoot.store.writer import version_of

__all__ = [
    "LEADER",
    "LEARNER",
    "NO_ROLE",
    "REPLICA",
    "Replica",
]

_WHOLE_MAX: Final = HISTORY_MAX // 8  # entries of a history that are kept as long as somebody away has not reported

# Roles in the installed view
NO_ROLE: Final = 0
LEARNER: Final = 1
REPLICA: Final = 2
LEADER: Final = 3


class Replica:
    """One partition at this node.

    leader: of the installed view; opened: it serves in this view; settled: all replicas have what it has taken over.
    head_epoch, head_seq: the position up to the last sealed turn; durable_seq: the sequence up to which rows are on the
    disk, -1: unknown; shared_seq: up to here all of the ISR had the changes on their disks, in some view of this
    leadership, so that each later leader has them; generation: counts the restarts of the copy, so that writes from
    before do not count for it.
    """

    def __init__(self, number: int, context: ReplicaContext) -> None:
        self.number = number
        self.context = context
        self.leader = ""
        self.role: int = NO_ROLE
        self.phase: int = IDLE
        self.opened: bool = False
        self.settled: bool = True
        self.included: bool = False  # the leader has settled it with what is here
        self.copying: bool = False  # it is being filled, with all live changes
        self.head_epoch = 0
        self.head_seq = 0
        self.durable_seq = 0
        self.shared_seq = -1
        self.generation = 0
        self.history: list[tuple[int, int]] = []
        self.base_seq = 0  # last sequence before the epoch of the view
        self.recent = Recent(context.recent_budget)
        self.uncommitted = Uncommitted(number, context.pending)  # of this node's own changes
        # As leader
        self.followers: list[Follower] = []
        self.reports: dict[str, Report] = {}  # of this view, by node
        self.reported = Reported()
        self.stamps = Stamps(number)
        self.opening_seq = 0  # what was taken over is settled when this is committed
        self.taken: list[Holding] = []  # branches that were merged
        self.marks: dict[bytes, TakenBranch] = {}  # by key of the row: how far each branch is merged
        self.lost: dict[str, tuple[int, int]] = {}  # by node the position of a branch that could not be read there
        # Two positions at which the rows of the broker are the same, see `note_aside`
        self._aside: tuple[tuple[int, int], tuple[int, int]] | None = None

    # -- what is here -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> int:
        """What the copy is worth (`membership/holding`); a new value is stored with the next change."""
        return self.context.writer.states[self.number]

    @state.setter
    def state(self, state: int) -> None:
        self.context.writer.states[self.number] = state

    @property
    def sequence(self) -> int:
        """The sequence of the newest change, this turn's included."""
        return self.context.writer.sequence(self.number)

    def take_position(self, epoch: int, seq: int, found: bool) -> None:
        """Take the position that the store has; found: not one that was made up for rows without any."""
        if seq and found:
            self._open_history()
        elif seq:
            self.history = [(epoch, 0)]
        self.durable_seq = seq
        self.sync_head()

    def _open_history(self) -> None:
        """Read the history; a copy whose history cannot be read is filled anew, without effect on the others."""
        try:
            self.history = read_history(self.context.reader, self.number)
        except CorruptStore as fault:
            self.spoil(str(fault))

    def sync_head(self) -> None:
        """Take the position of the Writer as that of the last sealed turn."""
        self.head_epoch, self.head_seq = self.context.writer.position(self.number)

    def holding(self) -> Holding:
        """Return what this node has of the partition, this turn's changes included."""
        context = self.context
        epoch, seq = context.writer.position(self.number)
        state = self.state
        if context.planted.partial_counts and state == PARTIAL:
            state = COMPLETE
        return Holding(state, epoch, seq, self.history)

    def report(self) -> Report:
        """Return what a leader has to know of the copy here.

        A copy that is being filled is partial until its last page is on the disk; one whose filling was interrupted
        counts as damaged.
        """
        holding = self.holding()
        if self.copying:
            holding.state = PARTIAL
            return Report(self.number, holding, -1)
        if holding.state == PARTIAL:
            holding.state = DAMAGED
        report = Report(self.number, holding, self.durable_seq)
        report.may_diverge = holding.seq > 0 and self.may_diverge()
        return report

    def may_diverge(self) -> bool:
        """Whether changes of its epoch that the leader lacks may have been committed.

        That is so if the copy was changed in another lineage: this node said so when it came from there. Those of this
        lineage are in the copies in sync, or were told to nobody.
        """
        view = self.context.view
        return view is None or self.context.node_id in view.branches.get(self.number, [])

    def is_foreign(self) -> bool:
        """Whether what is here was changed in another lineage, where it may have been acknowledged, and not since.

        A copy that is being filled was in sync in none.
        """
        view = self.context.view
        if view is None or not self.sequence or self.copying:
            return False
        return self.may_diverge() or not view.shares(self.context.writer.position(self.number)[0])

    def tell_loss(self) -> None:
        """Say that what is here of another lineage is removed, and that nobody has merged it."""
        holding = self.holding()
        fault = {PARTIAL: "the copy here is incomplete", DAMAGED: "the copy here is damaged"}
        fault[DOUBTFUL] = fault[PARTIAL]
        why = f"{fault.get(holding.state, 'the copy here could not be read')} and was not merged: of its changes of "
        why += f"another lineage, up to {holding.epoch}:{holding.seq}, those that no other node has are lost"
        self.event(ERROR, "branch_lost", why)

    def rows_position(self) -> tuple[int, int]:
        """Return the position of the newest change, but for those that leave the rows of the broker as they are."""
        position = self.context.writer.position(self.number)
        aside = self._aside
        return aside[0] if aside is not None and aside[1] == position else position

    def note_aside(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        """The change that led from one position to the other leaves the rows of the broker as they are."""
        aside = self._aside
        self._aside = (aside[0] if aside is not None and aside[1] == before else before), after

    def is_written(self) -> bool:
        """Whether the store shows all that was written to the partition."""
        return self.durable_seq >= self.sequence

    def is_committed(self) -> bool:
        """Whether all that was written to the partition is committed, and the store shows it."""
        return self.shared_seq >= self.sequence and self.is_written()

    def is_readable(self) -> bool:
        """Whether this side of a split gives out valid stream offsets (promise A9); True without a split.

        It does so in the trunk, except in a partition that was begun empty, or has no leader, while somebody is away.
        """
        context = self.context
        view = context.view
        if view is None:
            return True
        if not view.is_whole() and (view.losses.holders(self.number) or self.stamps.began_empty()):
            return False
        return view.is_trunk

    def holds(self) -> bool:
        """Whether this node has anything of the partition."""
        return self.state != NONE or self.sequence > 0

    def has(self, change: Change) -> bool:
        """Whether a change is certainly here."""
        return has_change(self.holding(), change.epoch, change.seq) == YES

    def is_next(self, change: Change) -> bool:
        """Whether a change follows the newest one here."""
        return change.prev_seq == self.head_seq and change.prev_epoch == self.head_epoch

    # -- roles --------------------------------------------------------------------------------------------------------

    def leads(self) -> bool:
        """Whether this node is the leader in the installed view."""
        return self.role == LEADER

    def is_in_sync(self) -> bool:
        """Whether this node is in the ISR of a partition that another one leads."""
        return self.context.view is not None and self.role == REPLICA

    def follows(self) -> bool:
        """Whether this node gets the changes of the partition from its leader."""
        return self.role == LEARNER or self.role == REPLICA

    def go(self, event: int) -> None:
        """Change the phase as `replica/phase` says."""
        assert event == LOSES or self.role == LEADER, f"partition {self.number} is led by {self.leader}"
        self.phase = next_phase(event, self.phase, self.number)

    # -- as leader ----------------------------------------------------------------------------------------------------

    def follower(self, node_id: str) -> Follower | None:
        """Return a follower, if this node has opened the partition, or merges; else None."""
        if self.phase >= MERGING:
            for follower in self.followers:
                if follower.node_id == node_id:
                    return follower
        return None

    def seen(self) -> list[Holding]:
        """Return the positions up to which all changes are here: its own, and those of merged branches."""
        return [self.holding(), *self.taken]

    def knows(self, holding: Holding) -> bool:
        """Whether the changes of another copy are here, in their order or merged from a branch."""
        for known in self.seen():
            if includes(known, holding) == YES:
                return True
        return False

    def committed_seq(self) -> int:
        """Return the sequence up to which the partition is on the disks of all its replicas in sync."""
        low = self.durable_seq
        if self.context.planted.leader_alone:
            return low
        for follower in self.followers:
            if follower.counts:
                acked_seq = follower.acked_seq if follower.complete else -1
                if acked_seq < low:
                    low = acked_seq
        return low

    def advance(self) -> int:
        """Return the sequence up to which the partition is committed, and remember it."""
        low = self.committed_seq()
        if low > self.shared_seq:
            self.shared_seq = low
        return low

    def lacking(self, seq: int) -> list[str]:
        """Return the nodes for which the commit of a sequence waits."""
        return [
            follower.node_id
            for follower in self.followers
            if follower.counts and (not follower.complete or follower.acked_seq < seq)
        ]

    def copies_of(self, seq: int) -> int:
        """Return how many nodes have what was committed up to `seq` on their disks, whichever node leads.

        What is in sync has it, also one that has not said so since the roles have changed.
        """
        if self.context.solo:
            return 1
        if self.phase < MERGING or self.durable_seq < seq:
            view = self.context.view
            return 1 if view is None or not view.replicas else len(view.replicas[self.number])
        count = 1
        for follower in self.followers:
            if follower.in_sync or (follower.complete and follower.acked_seq >= seq):
                count += 1
        return count

    def missing(self) -> int:
        """Return how many members of the ISR are not complete."""
        count = 0
        for follower in self.followers:
            if follower.in_sync and not (follower.streaming and follower.complete):
                count += 1
        return count

    def healthy(self) -> list[str]:
        """Return the members of the ISR that can be compared with this one."""
        return [f.node_id for f in self.followers if f.in_sync and f.streaming and f.complete]

    # -- the history --------------------------------------------------------------------------------------------------

    def note_epoch(self) -> bytes:
        """Return a new value of the HISTORY row, if this turn's change is the first in its epoch, else nothing."""
        history = self.history
        if history and history[-1][0] == self.context.epoch:
            return b""
        if self.sequence <= self.base_seq:
            return b""
        self._extend()
        return encode_history(self.history)

    def write_history(self, base: int) -> None:
        """Begin the epoch with a change that records it."""
        self.base_seq = base
        self._extend()
        self.context.writer.put(self.number, history_key(self.number), encode_history(self.history))

    def _extend(self) -> None:
        """Add the epoch to the history; trim what no other copy needs, but nothing while a learner is filled."""
        context = self.context
        history = extended(self.history, context.epoch, self.base_seq)
        view = context.view
        if view is None or not view.replicas:
            history = trimmed(history, context.config.history_epochs, [], [])
        elif not view.learners[self.number]:
            history = self._trimmed(history, view)
        self.history = history

    def _trimmed(self, history: list[tuple[int, int]], view: View) -> list[tuple[int, int]]:
        """Return what other copies need of a history; all of it until every known node has reported to this leader.

        Who is away may have been back for a moment, so that its copy ends long before it went away last.
        """
        context = self.context
        anchors = view.anchors()
        if not view.is_whole():  # who is away may have been on another side with somebody who is here
            own = tag_of(view.epoch)
            anchors.extend([epoch for epoch, _ in history if epoch != FORGOTTEN and tag_of(epoch) != own])
        since: list[int] = []
        for node_id in view.known:
            if node_id == context.node_id:
                continue
            epoch = self.reported.epoch_of(node_id)
            if epoch < 0 and (len(history) <= _WHOLE_MAX or view.member(node_id) is not None):
                return history
            if epoch > 0:
                if node_id in view.replicas[self.number]:
                    since.append(epoch)
                else:
                    anchors.append(epoch)
        return trimmed(history, context.config.history_epochs, anchors, since)

    # -- changes ------------------------------------------------------------------------------------------------------

    def apply(self, change: Change) -> list[tuple[int, bytes, bytes]]:
        """Write a change that follows the head into this turn's batch; raises ValueError and writes nothing of it."""
        context = self.context
        writer = context.writer
        ops = decode_ops(self.number, change.body)
        history = self.history
        for kind, key, value in ops:
            if kind == PUT and key[2] == HISTORY:
                history = decode_history(value)
        self.history = history
        # From nothing on it has every change since the first.
        state = COMPLETE if self.state == NONE else self.state
        if state == DOUBTFUL and self._is_certain(change.epoch):
            state = COMPLETE
        range_number = writer.raw(ops, size_of(ops))
        writer.adopt(self.number, change.epoch, change.seq, state)
        if not context.planted.gaps:
            self.recent.add(change)
            before, after = (change.prev_epoch, change.prev_seq), (change.epoch, change.seq)
            context.outline.followed(self.number, before, after, range_number)
        self.head_epoch = change.epoch
        self.head_seq = change.seq
        context.followed.append((self.number, change.seq, self.generation))
        return ops

    def cut(self, epoch: int, seq: int, history: list[tuple[int, int]]) -> None:
        """Begin a copy: live changes follow this position, and the rows here count for nothing until it is filled."""
        self.durable_seq = -1
        self._move(epoch, seq, history, PARTIAL)

    def _move(self, epoch: int, seq: int, history: list[tuple[int, int]], state: int) -> None:
        """Set the position of the copy, forward or back: earlier writes of it do not count."""
        self.generation += 1
        self.shared_seq = min(self.shared_seq, seq)
        self.forget()
        self.head_epoch = epoch
        self.head_seq = seq
        self.history = history
        self.context.writer.adopt(self.number, epoch, seq, state)

    def forget(self) -> None:
        """Forget the newest changes, here and in the log: they do not lead to what comes."""
        self.recent.clear()
        self.context.outline.broken(self.number)

    def clear(self) -> None:
        """Its rows are gone: it is a copy of nothing."""
        self.generation += 1
        self.history = []
        self.context.writer.adopt(self.number, 0, 0, NONE)
        self.head_epoch = self.head_seq = 0
        self.durable_seq = 0

    def truncate(self, rows: Overlay, changed: bool) -> None:
        """Truncate what this node leads to what is committed; nobody was told of the rest. changed: in this turn, too.

        Its rows are restored, and its position: where this copy is compared with another one, it never had the rest.
        """
        context = self.context
        token = self.uncommitted.first_token()
        undo = rows.undo(self.number, token) if token else None
        self.uncommitted.abandon()
        if undo is not None:
            context.writer.raw(undo.ops, size_of(undo.ops))
            self._go_back(version_of(undo.version), undo.ops)
        elif changed:
            self._go_back(context.writer.position(self.number), [])

    def _go_back(self, position: tuple[int, int], ops: list[tuple[int, bytes, bytes]]) -> None:
        """The newest change is this one again. Of its writes only this turn's counts."""
        epoch, seq = position
        self.durable_seq = min(self.durable_seq, seq - 1)  # its rows are not restored yet
        history = [entry for entry in self.history if entry[1] < seq]
        for kind, key, value in ops:
            if key[2] == HISTORY:
                history = decode_history(value) if kind == PUT else []
        self._move(epoch, seq, history, self.state)
        self.context.followed.append((self.number, seq, self.generation))

    # -- faults -------------------------------------------------------------------------------------------------------

    def rate(self, state: int) -> None:
        """Say what the copy is worth at its position; stored with this turn."""
        epoch, seq = self.context.writer.position(self.number)
        self.context.writer.adopt(self.number, epoch, seq, state)

    def rate_durably(self, state: int) -> None:
        """Say what the copy is worth; when this turn is on the disk, so is everything up to its position."""
        self.rate(state)
        self.context.followed.append((self.number, self.sequence, self.generation))

    def doubt(self) -> None:
        """Acknowledged changes may be missing at its end, until a leader of a later time has added to it."""
        if self.state == COMPLETE:
            self.rate(DOUBTFUL)

    def _is_certain(self, epoch: int) -> bool:
        """Whether a leader that has written a change of an epoch has taken over since this process came up.

        It has what the longest copy in sync had, and has sent everything before that change.
        """
        view = self.context.view
        return view is not None and epoch >= view.bases.get(self.context.node_id, epoch + 1)

    def spoil(self, why: str) -> None:
        """Mark the copy as damaged: it must not lead, and is to be filled anew."""
        if self.state == DAMAGED:
            return
        self.rate(DAMAGED)
        self.withdraw()
        self.event(ERROR, "replica_damaged", why)

    def withdraw(self) -> None:
        """Ask to leave the ISR: the copy is damaged, or may lack what was committed."""
        self.context.unfit.append(self.number)

    def event(self, level: str, kind: str, why: str) -> None:
        """Put a fact about the partition into the log."""
        fields: dict[str, object] = {"partition": self.number, "epoch": self.context.epoch, "why": why}
        self.context.events.append(Event(level, kind, fields))
