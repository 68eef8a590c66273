"""Taking over a partition: the new leader waits for all reports that may show a change, and adopts the longest copy.

It waits for the ISR, in which each member has every acknowledged change (`membership/projection`), and for branches,
whose changes it merges. The end of the adopted copy may have been committed or not. So before anybody sees it, the new
leader commits it as it commits its own changes: it is on the disks of the ISR (PacificA, section 2.3).
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.event import ERROR, WARNING, Event
from folkmoot.kernel.pack import get_u16, u16, u64
from folkmoot.membership.divergence import YES, includes
from folkmoot.membership.holding import COMPLETE, DAMAGED, DOUBTFUL, NONE, PARTIAL, Holding, later
from folkmoot.peer.kind import TAIL
from folkmoot.replica.change import decode_changes
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.lead import Lead
from folkmoot.replica.merging import Merges
from folkmoot.replica.notice import Report
from folkmoot.replica.phase import (
    ADOPTED,
    ADOPTS,
    BEGINS,
    CANNOT_READ,
    HAS_MERGED,
    MERGES,
    MERGING,
    OPEN,
    SHARED,
    SHARES,
    STARTS,
)
from folkmoot.replica.replica import Replica
from folkmoot.replica.suffix import fetch, frames_of, suffix_of

__all__ = ["Takeover", "partition_of_tail"]

_MORE: Final = 0
_LAST: Final = 1
_CANNOT: Final = 2
_HEAD_BYTES: Final = 11
_PATIENCE_US: Final = 2 * SECOND  # for reports, before a partition can open
_TRIES: Final = 5  # then all members are to begin anew (RENEW), and to report again


class Takeover:
    """The partitions that this node is to lead and has not opened; `ready`: those that it may open now."""

    def __init__(self, context: ReplicaContext, lead: Lead, merges: Merges) -> None:
        self.context = context
        self.lead = lead
        self.merges = merges
        self.ready: list[int] = []
        self._expected: dict[Replica, list[str]] = {}  # the nodes that have not reported yet
        self._asked: dict[Replica, str] = {}  # the node that sends the missing changes
        self._writing: dict[Replica, int] = {}  # adopted up to this sequence, not on the disk yet
        self._shared: list[Replica] = []  # in phase SHARED, not committed yet
        self._since_us = 0  # time of the view, or of the last check
        self._tries = 0

    def installed(self) -> None:
        """A new view: takeovers begin anew, and with them merges, also of partitions that it leaves as they are.

        They live on what others say in one view. Followers join the stream of changes by their reports of this view,
        and the answers that a takeover or a merge waits for are dropped as of an earlier one. It takes a round trip if
        nothing is missing here. What takes long, reading the rows, goes on (`leadership/recovery`), and so do the
        records of a branch, from the progress that is noted.
        """
        self._expected.clear()
        self._asked.clear()
        self._writing.clear()
        self._shared.clear()
        self._since_us = self.context.now
        self._tries = 0

    def due_us(self) -> int:
        """Return when to check the missing reports, NEVER if there are none."""
        return self._since_us + _PATIENCE_US if self._expected or self._asked else NEVER

    def step(self) -> None:
        """Log which reports have been missing for long, and ask again."""
        context = self.context
        if context.now < self.due_us():
            return
        self._since_us = context.now
        self._tries += 1
        nodes: dict[str, bool] = {}
        for expected in self._expected.values():
            for node_id in expected:
                nodes[node_id] = True
        for replica, source in self._asked.items():
            nodes[source] = True
            self._fetch(replica, source, replica.holding())
        fields: dict[str, object] = {"epoch": context.epoch, "for": sorted(nodes)}
        fields["partitions"] = len(self._expected) + len(self._asked)
        fields["waited_us"] = self._tries * _PATIENCE_US
        if self._tries == 1 or self._tries % _TRIES == 0:
            context.events.append(Event(WARNING, "takeover_waits", fields))
        if self._tries % _TRIES == 0:
            context.renew = True

    def begin(self, replica: Replica, replicas: list[str]) -> None:
        """Begin to take over a partition in the view that is being installed."""
        context = self.context
        replica.go(BEGINS)
        replica.shared_seq = -1  # of an earlier leadership, perhaps of another lineage
        self._expected[replica] = [node_id for node_id in replicas if node_id != context.node_id]

    def begun(self) -> None:
        """The view is installed: continue with partitions that wait for no report."""
        for replica in list(self._expected):
            if not self._expected[replica]:
                self._compare_reports(replica)

    def lost(self, replica: Replica) -> None:
        """This node does not lead a partition any more."""
        if replica.number in self.ready:
            self.ready.remove(replica.number)
        if replica in self._shared:
            self._shared.remove(replica)

    def reported(self, node_id: str) -> None:
        """Go on after all reports of a node have come."""
        for replica in list(self._expected):
            expected = self._expected[replica]
            if node_id in expected:
                expected.remove(node_id)
                if not expected:
                    self._compare_reports(replica)

    def _compare_reports(self, replica: Replica) -> None:
        """Adopt the copy here, get what a newer one has besides, or make way for that one."""
        context = self.context
        del self._expected[replica]
        mine = replica.holding()
        if mine.state == DAMAGED:
            replica.event(ERROR, "cannot_lead", "the copy here is damaged")
            replica.withdraw()
            return
        assert context.view is not None
        replicas = context.view.replicas[replica.number] if context.view.replicas else []
        longest = mine
        source = ""
        best = self._best_state(replica, replicas)
        for node_id in replicas:  # what only others have was not acknowledged
            report = replica.reports.get(node_id)
            if best == NONE or report is None or report.holding.state != best or report.holding.seq == 0:
                continue
            if later(report.holding, longest):
                longest = report.holding
                source = node_id
        if mine.state in (PARTIAL, DOUBTFUL):
            # The last copy in sync stays so, whatever becomes of it; or this one has lost rows since it was in sync.
            if best == COMPLETE or (best == DOUBTFUL and mine.state == PARTIAL):
                replica.spoil("the copy here is partial, and another member has a better one")
                return
            replica.event(ERROR, "partial_leads", "no member has a complete copy, and the best one is partial")
        if context.planted.own_tail or not source:
            self._adopted(replica)
        elif includes(longest, mine) != YES:
            # A later leadership has gone on without the end of the copy here: what is only there was acknowledged to
            # nobody, or by nobody that is left. The one that has gone on leads.
            replica.withdraw()
        else:
            self._fetch(replica, source, mine)

    def _best_state(self, replica: Replica, replicas: list[str]) -> int:
        """Return of which worth the copies of others are that this one is compared with; NONE: none can be better.

        Those that are complete; if none is here either, those in doubt: each has everything up to its position.
        """
        states = [replica.state]
        for node_id in replicas:
            report = replica.reports.get(node_id)
            if report is not None and report.holding.seq > 0 and node_id != self.context.node_id:
                states.append(report.holding.state)
        if COMPLETE in states:
            return COMPLETE
        return DOUBTFUL if DOUBTFUL in states[1:] else NONE

    def _fetch(self, replica: Replica, source: str, mine: Holding) -> None:
        self._asked[replica] = source
        context = self.context
        fetch(context, source, Report(replica.number, mine, replica.durable_seq))

    def answer(self, replica: Replica, node_id: str, report: Report) -> None:
        """Answer a new leader that asks for the changes after its position."""
        context = self.context
        head = u64(context.epoch) + u16(replica.number)
        changes = suffix_of(replica, report.holding)
        if changes is None:
            context.send(node_id, TAIL, head + bytes([_CANNOT]))
            return
        frames = frames_of(replica.number, changes)
        for number, parts in enumerate(frames, 1):
            mark = bytes([_LAST if number == len(frames) else _MORE])
            context.send(node_id, TAIL, b"".join([head, mark, *parts]))

    def tail(self, replica: Replica, node_id: str, body: bytes) -> None:
        """Apply the changes that this node lacked; raises ValueError."""
        if self._asked.get(replica, "") != node_id:
            return
        if body[10] == _CANNOT:
            del self._asked[replica]
            # It has all that is here, and more, which it has only as rows. So it leads, and this copy is filled.
            # Nobody should have acknowledged more than is here; but a folder that was set back says so, too.
            replica.withdraw()
            return
        for partition, change in decode_changes(body, _HEAD_BYTES, self.context.partitions):
            if partition != replica.number or not replica.is_next(change):
                self._behind(replica, f"what {node_id} sent does not follow")
                return
            replica.apply(change)
        if body[10] == _LAST:
            del self._asked[replica]
            self._adopted(replica)

    def _behind(self, replica: Replica, why: str) -> None:
        del self._asked[replica]
        replica.spoil(why)

    def _adopted(self, replica: Replica) -> None:
        """Everything is here; the broker reads rows from the store, so they must be on the disk first."""
        if replica.durable_seq < 0:
            # It was being filled, in another lineage: the rows that came have no place among the changes. A write
            # behind them tells when they are on the disk.
            replica.rate_durably(replica.state)
        self._writing[replica] = replica.sequence
        self.written()

    def written(self) -> None:
        """More is on the disk here: partitions may be ready."""
        context = self.context
        for replica in list(self._writing):
            if replica.durable_seq >= self._writing[replica]:
                del self._writing[replica]
                if not self.merges.load(replica):
                    continue
                branches = [] if context.view is None else context.view.branches.get(replica.number, [])
                if branches and self._makes_way(replica):
                    continue  # the next configuration says who leads
                if branches:
                    replica.go(MERGES)
                    self._share(replica)
                    replica.opening_seq = NEVER
                    self.merges.begin(replica, branches)
                elif self._is_committed(replica):
                    replica.go(ADOPTS)
                    self.ready.append(replica.number)
                else:
                    replica.go(SHARES)
                    self._share(replica)
                    self._shared.append(replica)
        self.look()

    def _makes_way(self, replica: Replica) -> bool:
        """Whether the copy here was never filled, and a branch is to lead: this node has asked for that (`role`)."""
        view = self.context.view
        is_left = view is not None and replica.number in view.recovering
        return is_left and replica.state == NONE and not replica.sequence

    def _is_committed(self, replica: Replica) -> bool:
        """Whether all members of the ISR have said that they have exactly what was adopted here, on their disks."""
        context = self.context
        view = context.view
        if view is None or context.planted.dirty_tail:
            return True
        mine = replica.holding()
        for node_id in view.replicas[replica.number] if view.replicas else []:
            if node_id != context.node_id:
                report = replica.reports.get(node_id)
                if report is None or report.holding.state == DAMAGED:
                    return False
                its = report.holding
                if its.epoch != mine.epoch or its.seq != mine.seq or report.durable_seq < mine.seq:
                    return False
        return True

    def look(self) -> None:
        """More may be committed: partitions may be ready."""
        for replica in list(self._shared):
            if replica.settled:
                self._shared.remove(replica)
                self.ready.append(replica.number)

    def may_start(self, replica: Replica) -> bool:
        """Whether a partition can be started now, or serves already: this node lacks no change."""
        phase = replica.phase
        return phase in (ADOPTED, OPEN) or (phase == SHARED and replica not in self._shared)

    def cannot_read(self, replica: Replica, why: str) -> None:
        """The rows of a partition cannot be read: another node must lead it, if possible."""
        replica.spoil(why)
        replica.go(CANNOT_READ)
        replica.opened = False
        if replica in self.lead.opening:
            self.lead.opening.remove(replica)

    def start(self, replica: Replica) -> bool:
        """Open a partition, if this node is still its leader."""
        context = self.context
        phase = replica.phase
        if phase != ADOPTED and phase != SHARED:
            return False
        replica.go(STARTS)
        replica.opened = True
        if phase == ADOPTED:
            self._share(replica)
        if not context.solo:
            self.lead.opening.append(replica)
        return True

    def _share(self, replica: Replica) -> None:
        """Begin to send changes of a partition to its followers, starting with the adopted ones."""
        context = self.context
        replica.state = COMPLETE
        if context.solo:
            replica.settled = True
            return  # no node will ask for the origin of the adopted changes
        begun = not replica.sequence
        replica.write_history(replica.sequence)
        if begun and context.is_away():
            key, stamp = replica.stamps.begin(context.now + context.shift_us)
            context.writer.put(replica.number, key, stamp)
        replica.opening_seq = replica.sequence
        self.lead.join_known(replica)

    def merge(self) -> None:
        """Continue merging branches; partitions with all branches merged may be opened when that is committed."""
        self.merges.step()
        for replica in self.merges.done:
            if replica.phase == MERGING:
                replica.go(HAS_MERGED)
                self._shared.append(replica)
        self.merges.done.clear()
        self.look()


def partition_of_tail(body: bytes, partitions: int) -> int:
    """Return the partition of the body of TAIL; raises ValueError."""
    if len(body) < _HEAD_BYTES:
        raise ValueError("a TAIL ends too early")
    partition = get_u16(body, 8)
    if partition >= partitions:
        raise ValueError(f"a TAIL names partition {partition}, which does not exist")
    return partition
