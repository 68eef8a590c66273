"""Replication at one node: a change goes to all followers of its partition, and is committed when all replicas have it.

Primary-backup replication with acknowledgements of all replicas (Lin et al.: PacificA, 2008). Makes the parts, and
passes calls and messages on to them. A `replica` is one partition at this node, with all that is known of it; what the
replicas share is in `context`. `role` takes the roles of a view, `turn` sends the changes of a turn and reports durable
ones, `lead` serves the followers, `takeover` begins to lead, `merging` and `offer` join branches after a split, `copy`
and `source` fill copies, `gap` asks for missed changes, `digest` compares copies, `drop` removes them. Decides itself
whether a change of a leader is applied (`_shipped`).
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.event import ERROR, Event
from folkmoot.kernel.hash import hash64
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.membership.view import View
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import (
    ASK_OFFER,
    COPY,
    DIGEST,
    DURABLE,
    FETCH,
    FILLED,
    OFFER,
    OPENED,
    PAGE,
    PULL,
    READY,
    SETTLED,
    SHIP,
    TAIL,
)
from folkmoot.replica.change import Change, decode_changes
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.copy import Copies
from folkmoot.replica.digest import Digests
from folkmoot.replica.drop import Drops
from folkmoot.replica.early import Early
from folkmoot.replica.gap import Gaps
from folkmoot.replica.lead import Lead
from folkmoot.replica.merging import Merges
from folkmoot.replica.notice import (
    decode_compare,
    decode_copy,
    decode_page,
    decode_pull,
    decode_report,
    decode_sequences,
    encode_sequences,
    epoch_of,
)
from folkmoot.replica.offer import Offers, decode_ask, decode_offer
from folkmoot.replica.phase import MERGING, OPEN
from folkmoot.replica.progress import progress_of
from folkmoot.replica.replica import Replica
from folkmoot.replica.role import Roles
from folkmoot.replica.source import Source
from folkmoot.replica.takeover import Takeover, partition_of_tail
from folkmoot.replica.turn import Turns
from folkmoot.store.batch import Batch
from folkmoot.store.key import history_key, partition_end, partition_start
from folkmoot.store.outline import outlined
from folkmoot.store.overlay import Overlay
from folkmoot.store.position import Positions, read_positions
from folkmoot.store.reader import Reader
from folkmoot.store.writer import Writer

__all__ = ["Replication"]

_ANY_SEQ: Final = 1 << 62  # above every sequence
_RESTORED_BYTES: Final = 16 << 20  # of the log, that a start reads for other nodes: 64,000 changes of 250 bytes


class Replication:
    """All partitions of one node; see the module's text. `now` is in microseconds.

    In a turn: `install`, `receive`, `written`, `wake` in any order; then the node calls `seal` and takes what is in
    the lists.
    """

    def __init__(self, node_id: str, partitions: int, config: ClusterConfig, reader: Reader, writer: Writer) -> None:
        self.context = ReplicaContext(node_id, partitions, config, reader, writer)
        self.replicas = [Replica(number, self.context) for number in range(partitions)]
        self.lead = Lead(self.context)
        self.merges = Merges(self.context, self.lead)
        self.offers = Offers(self.context)
        self.takeover = Takeover(self.context, self.lead, self.merges)
        self.copies = Copies(self.context)
        self.gaps = Gaps(self.context)
        self.source = Source(self.context)
        self.drops = Drops(self.context)
        self.digests = Digests(self.context, self.replicas)
        self.roles = Roles(self.context, self.lead, self.takeover)
        self.turns = Turns(self.context, self.replicas, self.lead)
        self.dropped_frames = 0
        self._early = Early()
        self._again = False  # a view took effect at the end of a turn: another turn is needed
        self._untidy = False  # what is kept for absent nodes may be superfluous now

    # -- for the node -------------------------------------------------------------------------------------------------

    @property
    def committed_token(self) -> int:
        """The newest token such that its changes, and those of all before it, are durable on all their replicas."""
        return self.context.pending.committed_token

    @property
    def ready(self) -> list[int]:
        """Partitions that this node may lead now: to be taken, then restored, then started."""
        return self.takeover.ready

    @property
    def filled(self) -> list[tuple[int, str]]:
        """Learners that have everything: (partition, node), to be taken."""
        return self.lead.filled

    @property
    def unfit(self) -> list[int]:
        """Partitions whose copy here is damaged or too far behind: this node asks to leave their ISRs (WITHDRAW)."""
        return self.context.unfit

    @property
    def renew(self) -> bool:
        """Whether another configuration is needed, in which all members report anew (RENEW); to be reset."""
        return self.context.renew

    @renew.setter
    def renew(self, wanted: bool) -> None:
        self.context.renew = wanted

    @property
    def abandoned(self) -> list[tuple[int, int]]:
        """(token, partition): changes that no other leader has taken over; the turns that wait for them have failed."""
        return self.context.pending.abandoned

    @property
    def out(self) -> list[tuple[str, int, bytes]]:
        """Messages to other nodes, in order: (node, kind, body), to be taken after `seal`."""
        return self.context.out

    @property
    def events(self) -> list[Event]:
        """Facts for the log, to be taken."""
        return self.context.events

    def leads(self, partition: int) -> bool:
        """Whether this node serves a partition: it has been started here."""
        return self.replicas[partition].phase == OPEN

    def has_recovered(self, partition: int) -> bool:
        """Whether this node leads a partition, and all replicas in sync have on their disks what it took over."""
        replica = self.replicas[partition]
        return replica.phase == OPEN and replica.settled

    def leader_open(self, partition: int) -> bool:
        """Whether the leader of a partition serves it."""
        return self.replicas[partition].opened

    def closed(self, partition: int) -> None:
        """A partition that nobody has served has to open again; its leader says so when it has installed the view."""
        replica = self.replicas[partition]
        if replica.leader != self.context.node_id:
            replica.opened = False

    def holdings(self) -> list[Holding]:
        """Return what this node has of each partition, for its START: nothing of it is dropped for a while."""
        self.drops.quiet_since_us = self.context.now
        return [replica.holding() for replica in self.replicas]

    def progress(self) -> dict[str, int]:
        """Return figures for status and metrics: counts of partitions, bytes since the start, pages compared."""
        figures = progress_of(self.replicas, self.context, self.copies, self.source, self.drops, self.digests)
        figures["dropped_frames"] = self.dropped_frames + self._early.dropped
        return figures

    def take_homes(self, partition: int) -> dict[str, tuple[bool, list[str]]]:
        """Return where the clients of a merged partition may stay connected, see `Merges.take_homes`."""
        return self.merges.take_homes(self.replicas[partition])

    def may_start(self, partition: int) -> bool:
        """Whether a partition can be started now, or serves already: this node lacks no change."""
        return self.takeover.may_start(self.replicas[partition])

    def cannot_read(self, partition: int, why: str) -> None:
        """The rows of a partition that this node is to lead cannot be read: another node must, if possible."""
        self.takeover.cannot_read(self.replicas[partition], why)

    def doubt(self) -> None:
        """Mark all copies as doubtful: acknowledged changes may be missing at their ends.

        A disk that becomes another one need not: nobody counts on its copies.
        """
        for replica in self.replicas:
            replica.doubt()

    def oldest_wait(self) -> tuple[bool, list[tuple[int, int]]]:
        """Return what the oldest turn waits for, see `Pending.oldest`."""
        return self.context.pending.oldest([replica.uncommitted for replica in self.replicas])

    def count(self, state: int) -> int:
        """Return how many copies here are in a state."""
        return len([replica for replica in self.replicas if replica.state == state])

    @property
    def heals(self) -> list[dict[str, object]]:
        """Summaries of the newest heals in which this node merged branches, oldest first."""
        return self.merges.heals

    # -- time and the disk --------------------------------------------------------------------------------------------

    def open(self, now: int) -> None:
        """Read positions and histories; raises CorruptStore. Called once, before the Writer is used."""
        context = self.context
        context.now = now
        positions = read_positions(context.reader, context.partitions)
        if not positions.found:
            self._date(positions)
        context.writer.restore(positions)
        for replica in self.replicas:
            number = replica.number
            replica.take_position(positions.epochs[number], positions.sequences[number], positions.found)
        if not context.planted.forgets_recent:
            self._restore_recent()

    def _restore_recent(self) -> None:
        """Remember the newest changes of the process before, as the commit log has them.

        After a loss of power at all nodes, copies differ by what was on its way. Without these changes, the shorter
        ones would have to be filled anew, and would count for nothing meanwhile. A change is remembered only if it
        leads to the position of the copy here, without a gap: what was written by a node without others has no outline.
        """
        context = self.context
        replicas = self.replicas
        for ops in context.reader.logged(min(context.config.recent_bytes_max, _RESTORED_BYTES)):
            try:
                found = outlined(ops)
            except ValueError:  # of a newer build
                for replica in replicas:
                    replica.recent.clear()
                continue
            for one in found:
                if one.partition >= len(replicas):
                    continue
                recent = replicas[one.partition].recent
                if one.is_break:
                    recent.clear()
                else:
                    recent.restore(Change(one.prev_epoch, one.prev_seq, one.epoch, one.seq, one.body))
        for replica in replicas:
            if not replica.recent.leads_to(replica.head_epoch, replica.head_seq):
                replica.recent.clear()

    def _date(self, positions: Positions) -> None:
        """Give partitions filled by an older version a position that only this node has."""
        epoch = hash64(self.context.node_id.encode()) & 0xFFFFFF
        for number in range(self.context.partitions):
            if self.context.reader.scan(partition_start(number), partition_end(number), 1):
                positions.states[number] = COMPLETE
                positions.epochs[number] = epoch
                positions.sequences[number] = 1

    def next_wake(self) -> int:
        """Return when `wake` must be called at the latest, in microseconds, or NEVER."""
        waiting = min(self.gaps.due_us(), self.takeover.due_us())
        return min(self.source.due_us(), self.drops.due_us(), waiting)

    @property
    def background_us(self) -> int:
        """Return from when on a turn should call `work_in_background`."""
        return self.digests.due_us()

    def work_in_background(self, now: int) -> None:
        """Compare a page with other replicas, if it is time to."""
        self.context.now = now
        self.digests.step()

    def more(self) -> bool:
        """Whether there is work for the next turn."""
        return self._again or self._untidy or self.drops.runnable() or self.merges.runnable()

    def wake(self, now: int) -> None:
        """Do a page of each background task."""
        self.context.now = now
        self._again = False
        if self.context.fresh:
            self._take_effect()
        self.source.step()
        self.gaps.step()
        self.takeover.step()
        if self._untidy:
            self._untidy = False
            self.merges.tidy(self.replicas)
        self.takeover.merge()
        if self.drops.runnable():
            self.drops.step()

    def written(self, token: int, now: int) -> None:
        """The batch with this token, and all before it, are durable."""
        context = self.context
        context.now = now
        if context.fresh:
            self._take_effect()
        self.turns.written(token)
        self.takeover.written()
        if not context.solo:
            self.copies.written()
            self.offers.written()
            self.takeover.merge()
            self.source.step()
            self.digests.written()
        context.pending.advance(now)

    def start(self, partition: int, now: int) -> None:
        """Serve a partition from now on, unless a newer view has taken it away."""
        self.context.now = now
        self._untidy = self.takeover.start(self.replicas[partition]) or self._untidy

    # -- the end of a turn --------------------------------------------------------------------------------------------

    def seal(self, batch: Batch | None, now: int) -> None:
        """End the turn, after `Writer.take` and before the batch goes to the disk: it may get more rows here."""
        self.context.now = now
        if self.context.fresh:
            self._take_effect()
            self._again = True  # look at what this has committed
        self.turns.seal(batch)

    # -- views --------------------------------------------------------------------------------------------------------

    def truncate(self, rows: Overlay) -> None:
        """Truncate what this node leads to what is committed; nobody was told of the rest."""
        writer = self.context.writer
        led = [replica for replica in self.replicas if replica.phase >= MERGING]
        changed = dict.fromkeys(writer.touched)
        writer.drop({replica.number: True for replica in led})
        for replica in led:
            replica.truncate(rows, replica.number in changed)
        self.roles.interrupt(self.replicas)

    def install(self, view: View, now: int) -> None:
        """Take the roles of a new view; one that is not newer is ignored.

        Views that are installed one after the other, with no other call between, count as one change: only the last of
        them takes effect.
        """
        context = self.context
        context.now = now
        if context.view is not None and view.epoch <= context.epoch:
            return
        previous = context.view
        was_solo = context.solo and not context.fresh
        for partition in list(context.writer.touched):
            replica = self.replicas[partition]
            if replica.phase >= MERGING:
                history = replica.note_epoch()
                if history:
                    context.writer.put(partition, history_key(partition), history)
        if was_solo:
            for replica in self.replicas:
                replica.sync_head()
        context.view = view
        context.epoch = view.epoch
        context.others = [member.node_id for member in view.members if member.node_id != context.node_id]
        # One that others have left for a while goes on as their leader: they need its changes when they come back.
        context.solo = not context.others and view.is_whole()
        context.writer.enter(view.epoch)
        for replica in self.replicas:
            replica.base_seq = replica.sequence
        kept = self.roles.kept(previous, view)
        for replica in self.replicas:
            replica.reported.installed(kept, context.others, view.known)
        if was_solo and (not context.solo or context.node_id not in kept):
            self.turns.join()
        self.gaps.installed()
        self._untidy = True
        self.offers.installed()
        self.merges.installed()
        self.lead.installed()
        self.takeover.installed()
        for replica in self.replicas:
            self.roles.assign(replica, previous, view, kept)
        self.copies.installed()
        self.source.installed()
        self.drops.installed()
        self.digests.installed()
        context.fresh = True

    def _take_effect(self) -> None:
        """The newest of the views installed together takes effect: reports leave, messages that waited are handled.

        The earlier ones do not; a node may skip any of them, see `membership/projection`.
        """
        context = self.context
        context.fresh = False
        if context.solo:
            for replica in self.replicas:
                replica.recent.drop()
            context.recent_budget.clear()
        self.roles.report(self.replicas)
        self.offers.note_sides()
        context.lived = context.view
        context.lives = True
        self.takeover.begun()
        for replica in self.replicas:
            self.lead.advance(replica)
        for node_id, kind, body in self._early.take(context.epoch):
            self.receive(node_id, kind, body, context.now)
        if self._early.is_cut:
            context.renew = True  # a report may be lost, which nobody sends again in this view
        context.pending.advance(context.now)

    # -- messages -----------------------------------------------------------------------------------------------------

    def receive(self, node_id: str, kind: int, body: bytes, now: int, is_over: bool = False) -> None:
        """Handle a message between replicas; those of another view are kept or dropped, malformed ones are logged.

        is_over: whether the others have ended the view of this node. What comes late from it must not get into its
        copies: the fork that it may be on its way to would do again what was done after the network had split.
        """
        context = self.context
        context.now = now
        if context.fresh:
            self._take_effect()
        try:
            epoch = epoch_of(body)
            if epoch > context.epoch:
                self._early.keep(node_id, kind, epoch, body)
            elif (epoch < context.epoch and not context.planted.any_epoch) or node_id not in context.others or is_over:
                self.dropped_frames += 1
            else:
                self._receive(node_id, kind, body)
                if epoch < context.epoch and kind == SHIP:
                    self._ack_stale(node_id, epoch, body)
        except ValueError as fault:
            fields: dict[str, object] = {"node": node_id, "kind": kind, "why": str(fault)}
            context.events.append(Event(ERROR, "replica_nonsense", fields))
        context.pending.advance(now)
        self.takeover.look()

    def _receive(self, node_id: str, kind: int, body: bytes) -> None:
        replicas = self.replicas
        partitions = len(replicas)
        if kind == SHIP:
            self._shipped(node_id, body)
        elif kind == DURABLE:
            self.lead.acknowledge(node_id, self._sequences(body))
        elif kind == PULL:
            pull = decode_pull(body, partitions)
            self.source.pull(replicas[pull.partition], node_id, pull)
        elif kind == PAGE:
            page = decode_page(body, partitions)
            self.copies.page(replicas[page.partition], node_id, page)
        elif kind == DIGEST:
            compare = decode_compare(body, partitions)
            self.digests.receive(replicas[compare.partition], node_id, compare)
        elif kind == FILLED:
            self.lead.completed(node_id, self._sequences(body))
        elif kind == TAIL:
            self.takeover.tail(replicas[partition_of_tail(body, partitions)], node_id, body)
        elif kind == ASK_OFFER:
            ask = decode_ask(body, partitions)
            if replicas[ask.partition].leader == node_id:
                self.offers.asked(replicas[ask.partition], ask)
        elif kind == OFFER:
            offer = decode_offer(body, partitions)
            self.merges.offered(replicas[offer.partition], node_id, offer)
            self.takeover.merge()
        elif kind == COPY:
            notice = decode_copy(body, partitions)
            replica = replicas[notice.partition]
            if replica.leader == node_id and replica.follows():
                self.gaps.closed(replica)
                self.copies.begin(replica, node_id, notice)
        else:
            self._receive_role(node_id, kind, body)

    def _sequences(self, body: bytes) -> list[tuple[Replica, int]]:
        """Read replicas, each with a number; raises ValueError."""
        entries: list[tuple[Replica, int]] = []
        for partition, number in decode_sequences(body, len(self.replicas)):
            entries.append((self.replicas[partition], number))
        return entries

    def _ack_stale(self, node_id: str, epoch: int, body: bytes) -> None:
        """Break a rule on purpose (a planted bug): tests check that it is detected."""
        changes = decode_changes(body, 8, len(self.replicas))
        entries = [(partition, change.seq) for partition, change in changes]
        self.context.send(node_id, DURABLE, encode_sequences(epoch, entries))

    def _receive_role(self, node_id: str, kind: int, body: bytes) -> None:
        if kind == READY or kind == FETCH:
            noted: dict[int, int] = {}  # by partition the epoch in which the copy there ends
            for report in decode_report(body, len(self.replicas)):
                replica = self.replicas[report.partition]
                if replica.leads():
                    noted[report.partition] = report.holding.epoch
                    self.lead.report(replica, node_id, report)
                elif kind == FETCH and replica.leader == node_id:
                    self.takeover.answer(replica, node_id, report)
            if kind == READY:
                for replica in self.replicas:
                    if replica.leads():
                        replica.reported.note(node_id, noted.get(replica.number, 0))
                self.takeover.reported(node_id)
        elif kind == OPENED:
            for replica, _seq in self._sequences(body):
                if replica.leader == node_id:
                    replica.opened = True
                    self.drops.look(replica)
        elif kind == SETTLED:
            for replica, taken in self._sequences(body):
                if replica.leader == node_id:
                    self._settled(replica, taken == 1)

    def _settled(self, replica: Replica, taken: bool) -> None:
        """All replicas have what the leader has taken over, and this node's changes are part of it, or not."""
        replica.settled = True
        replica.included = taken
        if taken:
            replica.uncommitted.replicated(_ANY_SEQ)
        else:
            replica.uncommitted.abandon()
        self.drops.look(replica)

    def _shipped(self, node_id: str, body: bytes) -> None:
        planted = self.context.planted
        for partition, change in decode_changes(body, 8, len(self.replicas)):
            replica = self.replicas[partition]
            if replica.leader != node_id or not replica.follows():
                if not (planted.any_epoch and replica.follows()):
                    self.dropped_frames += 1
                    continue
            if replica.is_next(change):
                self.gaps.closed(replica)
                self.copies.touch(replica, replica.apply(change))
            elif planted.gaps and change.seq > replica.head_seq:
                replica.apply(change)
            elif not replica.has(change):
                self.gaps.found(replica)
