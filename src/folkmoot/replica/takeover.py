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
from folkmoot.membership.holding import COMPLETE, DAMAGED, PARTIAL, Holding, later
from folkmoot.peer.kind import TAIL
from folkmoot.replica.change import decode_changes
from folkmoot.replica.lead import Lead
from folkmoot.replica.merging import Merges
from folkmoot.replica.notice import Report
from folkmoot.replica.replica_states import ADOPTED, MERGING, OPEN, SHARED, TAKING, ReplicaStates
from folkmoot.replica.suffix import fetch, frames_of, suffix_of

__all__ = ["Takeover"]

_MORE: Final = 0
_LAST: Final = 1
_CANNOT: Final = 2
_HEAD_BYTES: Final = 11
_PATIENCE_US: Final = 2 * SECOND  # for reports, before a partition can open
_TRIES: Final = 5  # then all members are to begin anew (RENEW), and to report again


class Takeover:
    """The partitions that this node is to lead and has not opened; `ready`: those that it may open now."""

    def __init__(self, replica_states: ReplicaStates, lead: Lead, merges: Merges) -> None:
        self.replica_states = replica_states
        self.lead = lead
        self.merges = merges
        self.ready: list[int] = []
        self._expected: dict[int, list[str]] = {}  # the nodes that have not reported yet
        self._asked: dict[int, str] = {}  # the node that sends the missing changes
        self._writing: dict[int, int] = {}  # adopted up to this sequence, not on the disk yet
        self._shared: list[int] = []  # in phase SHARED, not committed yet
        self._since_us = 0  # time of the view, or of the last check
        self._tries = 0

    def installed(self) -> None:
        """A new view: takeovers begin anew."""
        self._expected.clear()
        self._asked.clear()
        self._writing.clear()
        self._shared.clear()
        self._since_us = self.replica_states.now
        self._tries = 0

    def due_us(self) -> int:
        """Return when to check the missing reports, NEVER if there are none."""
        return self._since_us + _PATIENCE_US if self._expected or self._asked else NEVER

    def step(self) -> None:
        """Log which reports have been missing for long, and ask again."""
        replica_states = self.replica_states
        if replica_states.now < self.due_us():
            return
        self._since_us = replica_states.now
        self._tries += 1
        nodes: dict[str, bool] = {}
        for expected in self._expected.values():
            for node_id in expected:
                nodes[node_id] = True
        for partition, source in self._asked.items():
            nodes[source] = True
            self._fetch(partition, source, replica_states.holding(partition))
        fields: dict[str, object] = {"epoch": replica_states.epoch, "for": sorted(nodes)}
        fields["partitions"] = len(self._expected) + len(self._asked)
        fields["waited_us"] = self._tries * _PATIENCE_US
        if self._tries == 1 or self._tries % _TRIES == 0:
            replica_states.events.append(Event(WARNING, "takeover_waits", fields))
        if self._tries % _TRIES == 0:
            replica_states.renew = True

    def begin(self, partition: int, replicas: list[str]) -> None:
        """Begin to take over a partition in the view that is being installed."""
        replica_states = self.replica_states
        replica_states.phases[partition] = TAKING
        self._expected[partition] = [node_id for node_id in replicas if node_id != replica_states.node_id]

    def begun(self) -> None:
        """The view is installed: continue with partitions that wait for no report."""
        for partition in list(self._expected):
            if not self._expected[partition]:
                self._compare_reports(partition)

    def lost(self, partition: int) -> None:
        """This node does not lead a partition any more."""
        if partition in self.ready:
            self.ready.remove(partition)
        if partition in self._shared:
            self._shared.remove(partition)

    def reported(self, node_id: str) -> None:
        """Go on after all reports of a node have come."""
        for partition in list(self._expected):
            expected = self._expected[partition]
            if node_id in expected:
                expected.remove(node_id)
                if not expected:
                    self._compare_reports(partition)

    def _compare_reports(self, partition: int) -> None:
        """Adopt the copy here, get what a newer one has besides, or make way for that one."""
        replica_states = self.replica_states
        del self._expected[partition]
        mine = replica_states.holding(partition)
        if mine.state == DAMAGED:
            replica_states.event(ERROR, "cannot_lead", partition, "the copy here is damaged")
            replica_states.unfit.append(partition)
            return
        assert replica_states.view is not None
        replicas = replica_states.view.replicas[partition] if replica_states.view.replicas else []
        longest = mine
        source = ""
        others_complete = False
        for node_id in replicas:  # what only others have was not acknowledged
            report = self.lead.reports.get(node_id, {}).get(partition)
            if report is None or report.holding.state != COMPLETE or report.holding.seq == 0:
                continue
            others_complete = True
            if later(report.holding, longest):
                longest = report.holding
                source = node_id
        if mine.state == PARTIAL:
            # The last copy in sync stays so, whatever becomes of it; or this one has lost rows since it was in sync.
            if others_complete:
                replica_states.spoil(partition, "the copy here is partial, and another member has a complete one")
                return
            replica_states.event(
                ERROR, "partial_leads", partition, "no member has a complete copy, and the best one is partial"
            )
        if replica_states.planted.own_tail or not source:
            self._adopted(partition)
        elif includes(longest, mine) != YES:
            # A later leadership has gone on without the end of the copy here: what is only there was acknowledged to
            # nobody, or by nobody that is left. The one that has gone on leads.
            replica_states.unfit.append(partition)
        else:
            self._fetch(partition, source, mine)

    def _fetch(self, partition: int, source: str, mine: Holding) -> None:
        self._asked[partition] = source
        replica_states = self.replica_states
        fetch(replica_states, source, Report(partition, mine, replica_states.durable_seqs[partition]))

    def answer(self, node_id: str, report: Report) -> None:
        """Answer a new leader that asks for the changes after its position."""
        replica_states = self.replica_states
        partition = report.partition
        head = u64(replica_states.epoch) + u16(partition)
        changes = suffix_of(replica_states, partition, report.holding)
        if changes is None:
            replica_states.out.append((node_id, TAIL, head + bytes([_CANNOT])))
            return
        frames = frames_of(partition, changes)
        for number, parts in enumerate(frames, 1):
            mark = bytes([_LAST if number == len(frames) else _MORE])
            replica_states.out.append((node_id, TAIL, b"".join([head, mark, *parts])))

    def tail(self, node_id: str, body: bytes) -> None:
        """Apply the changes that this node lacked; raises ValueError."""
        replica_states = self.replica_states
        if len(body) < _HEAD_BYTES:
            raise ValueError("a TAIL ends too early")
        partition = get_u16(body, 8)
        if self._asked.get(partition, "") != node_id:
            return
        if body[10] == _CANNOT:
            del self._asked[partition]
            # It has all that is here, and more, which it has only as rows. So it leads, and this copy is filled.
            # Nobody should have acknowledged more than is here; but a folder that was set back says so, too.
            replica_states.unfit.append(partition)
            return
        for other, change in decode_changes(body, _HEAD_BYTES, replica_states.partitions):
            if other != partition or not replica_states.is_next(partition, change):
                self._behind(partition, f"what {node_id} sent does not follow")
                return
            replica_states.apply(partition, change)
        if body[10] == _LAST:
            del self._asked[partition]
            self._adopted(partition)

    def _behind(self, partition: int, why: str) -> None:
        del self._asked[partition]
        self.replica_states.spoil(partition, why)

    def _adopted(self, partition: int) -> None:
        """Everything is here; the broker reads rows from the store, so they must be on the disk first."""
        self._writing[partition] = self.replica_states.writer.sequence(partition)
        self.written()

    def written(self) -> None:
        """More is on the disk here: partitions may be ready."""
        replica_states = self.replica_states
        for partition in list(self._writing):
            if replica_states.durable_seqs[partition] >= self._writing[partition]:
                del self._writing[partition]
                if not self.merges.load(partition):
                    continue
                branches = [] if replica_states.view is None else replica_states.view.branches.get(partition, [])
                if branches:
                    replica_states.phases[partition] = MERGING
                    self._share(partition)
                    self.lead.opening_seqs[partition] = NEVER
                    self.merges.begin(partition, branches)
                elif self._is_committed(partition):
                    replica_states.phases[partition] = ADOPTED
                    self.ready.append(partition)
                else:
                    replica_states.phases[partition] = SHARED
                    self._share(partition)
                    self._shared.append(partition)
        self.look()

    def _is_committed(self, partition: int) -> bool:
        """Whether all members of the ISR have said that they have exactly what was adopted here, on their disks."""
        replica_states = self.replica_states
        view = replica_states.view
        if view is None or replica_states.planted.dirty_tail:
            return True
        mine = replica_states.holding(partition)
        for node_id in view.replicas[partition] if view.replicas else []:
            if node_id != replica_states.node_id:
                report = self.lead.reports.get(node_id, {}).get(partition)
                if report is None or report.holding.state == DAMAGED:
                    return False
                its = report.holding
                if its.epoch != mine.epoch or its.seq != mine.seq or report.durable_seq < mine.seq:
                    return False
        return True

    def look(self) -> None:
        """More may be committed: partitions may be ready."""
        for partition in list(self._shared):
            if self.replica_states.settled[partition]:
                self._shared.remove(partition)
                self.ready.append(partition)

    def may_start(self, partition: int) -> bool:
        """Whether a partition can be started now, or serves already: this node lacks no change."""
        phase = self.replica_states.phases[partition]
        return phase in (ADOPTED, OPEN) or (phase == SHARED and partition not in self._shared)

    def cannot_read(self, partition: int, why: str) -> None:
        """The rows of a partition cannot be read: another node must lead it, if possible."""
        replica_states = self.replica_states
        replica_states.spoil(partition, why)
        replica_states.phases[partition] = TAKING
        replica_states.opened[partition] = False
        if partition in self.lead.opening:
            self.lead.opening.remove(partition)

    def start(self, partition: int) -> bool:
        """Open a partition, if this node is still its leader."""
        replica_states = self.replica_states
        phase = replica_states.phases[partition]
        if phase != ADOPTED and phase != SHARED:
            return False
        replica_states.phases[partition] = OPEN
        replica_states.opened[partition] = True
        if phase == ADOPTED:
            self._share(partition)
        if not replica_states.solo:
            self.lead.opening.append(partition)
        return True

    def _share(self, partition: int) -> None:
        """Begin to send changes of a partition to its followers, starting with the adopted ones."""
        replica_states = self.replica_states
        replica_states.states[partition] = COMPLETE
        if replica_states.solo:
            replica_states.settled[partition] = True
            return  # no node will ask for the origin of the adopted changes
        begun = not replica_states.writer.sequence(partition)
        replica_states.write_history(partition, replica_states.writer.sequence(partition))
        if begun and replica_states.away():
            key, stamp = replica_states.stamps.begin(partition, replica_states.now + replica_states.shift_us)
            replica_states.writer.put(partition, key, stamp)
        self.lead.opening_seqs[partition] = replica_states.writer.sequence(partition)
        self.lead.join_known(partition)

    def merge(self) -> None:
        """Continue merging branches; partitions with all branches merged may be opened when that is committed."""
        self.merges.step()
        for partition in self.merges.done:
            if self.replica_states.phases[partition] == MERGING:
                self.replica_states.phases[partition] = SHARED
                self._shared.append(partition)
        self.merges.done.clear()
        self.look()
