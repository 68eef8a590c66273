"""Replication at one node: a change goes to all followers of its partition, and is committed when all replicas have it.

Primary-backup replication with acknowledgements of all replicas (Lin et al.: PacificA, 2008). Makes the parts, and
passes calls and messages on to them: `replica_states` has what is here, `role` takes the roles of a view, `turn` sends
the changes of a turn and reports durable ones, `lead` knows the followers, `takeover` begins to lead, `merging` and
`offer` join branches after a split, `copy` and `source` fill copies, `gap` asks for missed changes, `digest` compares
copies, `drop` removes them. Decides itself whether a change of a leader is applied (`_shipped`).
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.event import ERROR, Event
from folkmoot.membership.holding import Holding
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
from folkmoot.replica.change import decode_changes
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
from folkmoot.replica.progress import progress_of
from folkmoot.replica.replica_states import MERGING, OPEN, ReplicaStates
from folkmoot.replica.role import Roles
from folkmoot.replica.source import Source
from folkmoot.replica.takeover import Takeover
from folkmoot.replica.turn import Turns
from folkmoot.store.batch import Batch
from folkmoot.store.key import history_key
from folkmoot.store.overlay import Overlay
from folkmoot.store.reader import Reader
from folkmoot.store.writer import Writer

__all__ = ["Replication"]

_ANY_SEQ: Final = 1 << 62  # above every sequence


class Replication:
    """All partitions of one node; see the module's text. `now` is in microseconds.

    In a turn: `install`, `receive`, `written`, `wake` in any order; then the node calls `seal` and takes what is in
    the lists.
    """

    def __init__(self, node_id: str, partitions: int, config: ClusterConfig, reader: Reader, writer: Writer) -> None:
        self.replica_states = ReplicaStates(node_id, partitions, config, reader, writer)
        self.lead = Lead(self.replica_states)
        self.merges = Merges(self.replica_states, self.lead)
        self.offers = Offers(self.replica_states)
        self.takeover = Takeover(self.replica_states, self.lead, self.merges)
        self.copies = Copies(self.replica_states)
        self.gaps = Gaps(self.replica_states)
        self.source = Source(self.replica_states, self.lead)
        self.drops = Drops(self.replica_states)
        self.digests = Digests(self.replica_states, self.lead)
        self.roles = Roles(self.replica_states, self.lead, self.takeover)
        self.turns = Turns(self.replica_states, self.lead)
        self.dropped_frames = 0
        self._early = Early()
        self._again = False  # a view took effect at the end of a turn: another turn is needed
        self._untidy = False  # what is kept for absent nodes may be superfluous now

    # -- for the node -------------------------------------------------------------------------------------------------

    @property
    def committed_token(self) -> int:
        """The newest token such that its changes, and those of all before it, are durable on all their replicas."""
        return self.replica_states.pending.committed_token

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
        return self.replica_states.unfit

    @property
    def renew(self) -> bool:
        """Whether another configuration is needed, in which all members report anew (RENEW); to be reset."""
        return self.replica_states.renew

    @renew.setter
    def renew(self, wanted: bool) -> None:
        self.replica_states.renew = wanted

    @property
    def abandoned(self) -> list[tuple[int, int]]:
        """(token, partition): changes that no other leader has taken over; the turns that wait for them have failed."""
        return self.replica_states.pending.abandoned

    @property
    def out(self) -> list[tuple[str, int, bytes]]:
        """Messages to other nodes, in order: (node, kind, body), to be taken after `seal`."""
        return self.replica_states.out

    @property
    def events(self) -> list[Event]:
        """Facts for the log, to be taken."""
        return self.replica_states.events

    def leads(self, partition: int) -> bool:
        """Whether this node serves a partition: it has been started here."""
        return self.replica_states.phases[partition] == OPEN

    def leader_open(self, partition: int) -> bool:
        """Whether the leader of a partition serves it."""
        return self.replica_states.opened[partition]

    def closed(self, partition: int) -> None:
        """A partition that nobody has served has to open again; its leader says so when it has installed the view."""
        if self.replica_states.leaders[partition] != self.replica_states.node_id:
            self.replica_states.opened[partition] = False

    def holdings(self) -> list[Holding]:
        """Return what this node has of each partition, for its START: nothing of it is dropped for a while."""
        self.drops.quiet_since_us = self.replica_states.now
        return [self.replica_states.holding(partition) for partition in range(self.replica_states.partitions)]

    def progress(self) -> dict[str, int]:
        """Return figures for status and metrics: counts of partitions, bytes since the start, pages compared."""
        figures = progress_of(self.replica_states, self.lead, self.copies, self.source, self.drops, self.digests)
        figures["dropped_frames"] = self.dropped_frames + self._early.dropped
        return figures

    @property
    def heals(self) -> list[dict[str, object]]:
        """Summaries of the newest heals in which this node merged branches, oldest first."""
        return self.merges.heals

    # -- time and the disk --------------------------------------------------------------------------------------------

    def open(self, now: int) -> None:
        """Read positions and histories; raises CorruptStore. Called once, before the Writer is used."""
        self.replica_states.now = now
        self.replica_states.open()

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
        self.replica_states.now = now
        self.digests.step()

    def more(self) -> bool:
        """Whether there is work for the next turn."""
        return self._again or self._untidy or self.drops.runnable() or self.merges.runnable()

    def wake(self, now: int) -> None:
        """Do a page of each background task."""
        self.replica_states.now = now
        self._again = False
        if self.replica_states.fresh:
            self._take_effect()
        self.source.step()
        self.gaps.step()
        self.takeover.step()
        if self._untidy:
            self._untidy = False
            self.merges.tidy()
        self.takeover.merge()
        if self.drops.runnable():
            self.drops.step()

    def written(self, token: int, now: int) -> None:
        """The batch with this token, and all before it, are durable."""
        replica_states = self.replica_states
        replica_states.now = now
        if replica_states.fresh:
            self._take_effect()
        self.turns.written(token)
        self.takeover.written()
        if not replica_states.solo:
            self.copies.written()
            self.offers.written()
            self.takeover.merge()
            self.source.step()
            self.digests.written()
        replica_states.pending.advance(now)

    def start(self, partition: int, now: int) -> None:
        """Serve a partition from now on, unless a newer view has taken it away."""
        self.replica_states.now = now
        self._untidy = self.takeover.start(partition) or self._untidy

    # -- the end of a turn --------------------------------------------------------------------------------------------

    def seal(self, batch: Batch | None, now: int) -> None:
        """End the turn, after `Writer.take` and before the batch goes to the disk: it may get more rows here."""
        self.replica_states.now = now
        if self.replica_states.fresh:
            self._take_effect()
            self._again = True  # look at what this has committed
        self.turns.seal(batch)

    # -- views --------------------------------------------------------------------------------------------------------

    def truncate(self, rows: Overlay) -> None:
        """Truncate what this node leads to what is committed, see `ReplicaStates.truncate`."""
        self.replica_states.truncate(rows)
        self.roles.interrupt()

    def install(self, view: View, now: int) -> None:
        """Take the roles of a new view; one that is not newer is ignored.

        Views that are installed one after the other, with no other call between, count as one change: only the last of
        them takes effect.
        """
        replica_states = self.replica_states
        replica_states.now = now
        if replica_states.view is not None and view.epoch <= replica_states.epoch:
            return
        previous = replica_states.view
        was_solo = replica_states.solo and not replica_states.fresh
        for partition in list(replica_states.writer.touched):
            if replica_states.phases[partition] >= MERGING:
                history = replica_states.note_epoch(partition)
                if history:
                    replica_states.writer.put(partition, history_key(partition), history)
        if was_solo:
            replica_states.sync_heads()
        replica_states.view = view
        replica_states.epoch = view.epoch
        replica_states.others = [member.node_id for member in view.members if member.node_id != replica_states.node_id]
        # One that others have left for a while goes on as their leader: they need its changes when they come back.
        replica_states.solo = not replica_states.others and view.is_whole()
        replica_states.writer.enter(view.epoch)
        replica_states.base_seqs = [
            replica_states.writer.sequence(partition) for partition in range(replica_states.partitions)
        ]
        kept = self.roles.kept(previous, view)
        replica_states.reported.installed(kept, replica_states.others, view.known)
        if was_solo and (not replica_states.solo or replica_states.node_id not in kept):
            self.turns.join()
        self.gaps.installed()
        self._untidy = True
        self.offers.installed()
        self.merges.installed()
        self.lead.installed()
        self.takeover.installed()
        for partition in range(replica_states.partitions):
            self.roles.assign(partition, previous, view, kept)
        self.copies.installed()
        self.source.installed()
        self.drops.installed()
        self.digests.installed()
        replica_states.fresh = True

    def _take_effect(self) -> None:
        """The newest of the views installed together takes effect: reports leave, messages that waited are handled.

        The earlier ones do not; a node may skip any of them, see `membership/projection`.
        """
        replica_states = self.replica_states
        replica_states.fresh = False
        if replica_states.solo:
            replica_states.recent.clear_all()
        self.roles.report()
        self.offers.note_sides()
        replica_states.lived = replica_states.view
        replica_states.lives = True
        self.takeover.begun()
        for partition in range(replica_states.partitions):
            self.lead.advance(partition)
        for node_id, kind, body in self._early.take(replica_states.epoch):
            self.receive(node_id, kind, body, replica_states.now)
        if self._early.is_cut:
            replica_states.renew = True  # a report may be lost, which nobody sends again in this view
        replica_states.pending.advance(replica_states.now)

    # -- messages -----------------------------------------------------------------------------------------------------

    def receive(self, node_id: str, kind: int, body: bytes, now: int, is_over: bool = False) -> None:
        """Handle a message between replicas; those of another view are kept or dropped, malformed ones are logged.

        is_over: whether the others have ended the view of this node. What comes late from it must not get into its
        copies: the fork that it may be on its way to would do again what was done after the network had split.
        """
        replica_states = self.replica_states
        replica_states.now = now
        if replica_states.fresh:
            self._take_effect()
        try:
            epoch = epoch_of(body)
            if epoch > replica_states.epoch:
                self._early.keep(node_id, kind, epoch, body)
            elif (
                (epoch < replica_states.epoch and not replica_states.planted.any_epoch)
                or node_id not in replica_states.others
                or is_over
            ):
                self.dropped_frames += 1
            else:
                self._receive(node_id, kind, body)
                if epoch < replica_states.epoch and kind == SHIP:
                    self._ack_stale(node_id, epoch, body)
        except ValueError as fault:
            fields: dict[str, object] = {"node": node_id, "kind": kind, "why": str(fault)}
            replica_states.events.append(Event(ERROR, "replica_nonsense", fields))
        replica_states.pending.advance(now)
        self.takeover.look()

    def _receive(self, node_id: str, kind: int, body: bytes) -> None:
        partitions = self.replica_states.partitions
        if kind == SHIP:
            self._shipped(node_id, body)
        elif kind == DURABLE:
            self.lead.acknowledge(node_id, decode_sequences(body, partitions))
        elif kind == PULL:
            self.source.pull(node_id, decode_pull(body, partitions))
        elif kind == PAGE:
            self.copies.page(node_id, decode_page(body, partitions))
        elif kind == DIGEST:
            self.digests.receive(node_id, decode_compare(body, partitions))
        elif kind == FILLED:
            self.lead.completed(node_id, decode_sequences(body, partitions))
        elif kind == TAIL:
            self.takeover.tail(node_id, body)
        elif kind == ASK_OFFER:
            self.offers.asked(node_id, decode_ask(body, partitions))
        elif kind == OFFER:
            self.merges.offered(node_id, decode_offer(body, partitions))
            self.takeover.merge()
        elif kind == COPY:
            notice = decode_copy(body, partitions)
            if self.replica_states.leaders[notice.partition] == node_id and self.replica_states.follows(
                notice.partition
            ):
                self.gaps.closed(notice.partition)
                self.copies.begin(node_id, notice)
        else:
            self._receive_role(node_id, kind, body)

    def _ack_stale(self, node_id: str, epoch: int, body: bytes) -> None:
        """Break a rule on purpose (a planted bug): tests check that it is detected."""
        changes = decode_changes(body, 8, self.replica_states.partitions)
        entries = [(partition, change.seq) for partition, change in changes]
        self.replica_states.out.append((node_id, DURABLE, encode_sequences(epoch, entries)))

    def _receive_role(self, node_id: str, kind: int, body: bytes) -> None:
        replica_states = self.replica_states
        partitions = replica_states.partitions
        if kind == READY or kind == FETCH:
            noted: dict[int, int] = {}  # by partition the epoch in which the copy there ends
            for report in decode_report(body, partitions):
                if replica_states.leads(report.partition):
                    noted[report.partition] = report.holding.epoch
                    self.lead.report(node_id, report)
                elif kind == FETCH and replica_states.leaders[report.partition] == node_id:
                    self.takeover.answer(node_id, report)
            if kind == READY:
                for partition in range(partitions):
                    if replica_states.leads(partition):
                        replica_states.reported.note(node_id, partition, noted.get(partition, 0))
                self.takeover.reported(node_id)
        elif kind == OPENED:
            for partition, _seq in decode_sequences(body, partitions):
                if replica_states.leaders[partition] == node_id:
                    replica_states.opened[partition] = True
                    self.drops.look(partition)
        elif kind == SETTLED:
            for partition, taken in decode_sequences(body, partitions):
                if replica_states.leaders[partition] == node_id:
                    self._settled(partition, taken == 1)

    def _settled(self, partition: int, taken: bool) -> None:
        """All replicas have what the leader has taken over, and this node's changes are part of it, or not."""
        replica_states = self.replica_states
        replica_states.settled[partition] = True
        if taken:
            replica_states.pending.replicated(partition, _ANY_SEQ)
        else:
            replica_states.pending.abandon(partition)
        self.drops.look(partition)

    def _shipped(self, node_id: str, body: bytes) -> None:
        replica_states = self.replica_states
        for partition, change in decode_changes(body, 8, replica_states.partitions):
            if replica_states.leaders[partition] != node_id or not replica_states.follows(partition):
                if not (replica_states.planted.any_epoch and replica_states.follows(partition)):
                    self.dropped_frames += 1
                    continue
            if replica_states.is_next(partition, change):
                self.gaps.closed(partition)
                self.copies.touch(partition, replica_states.apply(partition, change))
            elif replica_states.planted.gaps and change.seq > replica_states.head_seqs[partition]:
                replica_states.apply(partition, change)
            elif not replica_states.has(partition, change):
                self.gaps.found(partition)
