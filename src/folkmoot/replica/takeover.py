"""Taking over a partition: the new leader waits for the reports of all that may have a change, and adopts the longest.

Whom it waits for: the replicas of the new view, and those of the views before since the partition was last settled
(all replicas had what its leader had taken over), as far as they are members. So a change that any client was told of
is adopted, and one that waits at a deposed leader too, while that one lives.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.event import ERROR, WARNING, Event
from folkmoot.kernel.pack import get_u16, u16, u64
from folkmoot.membership.divergence import YES, includes
from folkmoot.membership.holding import COMPLETE, DAMAGED, PARTIAL, Holding, later
from folkmoot.peer.kind import FETCH, TAIL
from folkmoot.replica.change import Change, decode_changes, encode_change
from folkmoot.replica.lead import Lead
from folkmoot.replica.merging import Merges
from folkmoot.replica.notice import Report, encode_report
from folkmoot.replica.replica_states import ADOPTED, MERGED, MERGING, OPEN, TAKING, Standing

__all__ = ["Takeover"]

_FRAME_BYTES: Final = 1 << 20
_MORE: Final = 0
_LAST: Final = 1
_CANNOT: Final = 2
_HEAD_BYTES: Final = 11
_PATIENCE_US: Final = 2 * SECOND  # for what others have to say before a partition can open
_TRIES: Final = 5  # then another view is asked for: in it everybody says anew what he has


class Takeover:
    """The partitions that this node is to lead and has not opened; `ready`: those that it may open now."""

    def __init__(self, standing: Standing, lead: Lead, merges: Merges) -> None:
        self.standing = standing
        self.lead = lead
        self.merges = merges
        self.ready: list[int] = []
        self.tails: list[list[str]] = [[] for _ in range(standing.partitions)]
        self._expected: dict[int, list[str]] = {}  # who has not reported yet
        self._asked: dict[int, str] = {}  # who sends what is missing here
        self._writing: dict[int, int] = {}  # adopted up to this sequence, not yet on the disk
        self._since_us = 0  # the view, or the last look at what it waits for
        self._tries = 0

    def installed(self) -> None:
        """A new view: who takes over begins anew."""
        self._expected.clear()
        self._asked.clear()
        self._writing.clear()
        self._since_us = self.standing.now
        self._tries = 0

    def due_us(self) -> int:
        """Return when to look whom it still waits for, NEVER if for nobody."""
        return self._since_us + _PATIENCE_US if self._expected or self._asked else NEVER

    def step(self) -> None:
        """Say whom it waits for, if it does for long, and ask again."""
        standing = self.standing
        if standing.now < self.due_us():
            return
        self._since_us = standing.now
        self._tries += 1
        nodes: dict[str, bool] = {}
        for expected in self._expected.values():
            for node_id in expected:
                nodes[node_id] = True
        for partition, source in self._asked.items():
            nodes[source] = True
            self._fetch(partition, source, standing.holding(partition))
        fields: dict[str, object] = {"epoch": standing.epoch, "for": sorted(nodes)}
        fields["partitions"] = len(self._expected) + len(self._asked)
        fields["waited_us"] = self._tries * _PATIENCE_US
        if self._tries == 1 or self._tries % _TRIES == 0:
            standing.events.append(Event(WARNING, "takeover_waits", fields))
        if self._tries % _TRIES == 0:
            standing.unfit.extend(self._expected)

    def remember(self, partition: int, replicas: list[str]) -> None:
        """A view ends in which these were the replicas of a partition."""
        if self.standing.settled[partition]:
            self.tails[partition] = replicas
            return
        tails = list(self.tails[partition])
        for node_id in replicas:
            if node_id not in tails:
                tails.append(node_id)
        self.tails[partition] = tails

    def begin(self, partition: int, replicas: list[str]) -> None:
        """Take over a partition in the view that is being installed."""
        standing = self.standing
        standing.phases[partition] = TAKING
        expected = [node_id for node_id in replicas if node_id != standing.node_id]
        for node_id in self.tails[partition]:
            if node_id in standing.others and node_id not in expected:
                expected.append(node_id)
        self._expected[partition] = expected

    def begun(self) -> None:
        """The view is installed: go on with those that wait for nobody."""
        for partition in list(self._expected):
            if not self._expected[partition]:
                self._elect(partition)

    def lost(self, partition: int) -> None:
        """This node does not lead a partition any more."""
        if partition in self.ready:
            self.ready.remove(partition)

    def reported(self, node_id: str) -> None:
        """All reports of a node are here."""
        for partition in list(self._expected):
            expected = self._expected[partition]
            if node_id in expected:
                expected.remove(node_id)
                if not expected:
                    self._elect(partition)

    def _elect(self, partition: int) -> None:
        standing = self.standing
        del self._expected[partition]
        mine = standing.holding(partition)
        if mine.state == DAMAGED:
            standing.event(ERROR, "cannot_lead", partition, "the copy here is damaged")
            standing.unfit.append(partition)
            return
        assert standing.view is not None
        replicas = standing.view.replicas[partition] if standing.view.replicas else []
        longest = mine
        source = ""
        others_complete = False
        for node_id in standing.others:
            report = self.lead.reports.get(node_id, {}).get(partition)
            if report is None or report.holding.state != COMPLETE or report.holding.seq == 0:
                continue
            others_complete = True
            if not later(report.holding, longest):
                continue
            if includes(report.holding, mine) == YES:
                longest = report.holding
                source = node_id
            elif node_id in replicas:
                standing.spoil(partition, f"{node_id} has changes of another branch, made later")
                return
        if mine.state == PARTIAL:
            # The placement chooses such a copy when there is no other, or it became one since it was offered.
            if others_complete:
                standing.spoil(partition, "the copy here has holes, and another member has a complete one")
                return
            standing.event(ERROR, "partial_leads", partition, "no member has a complete copy, and the best has holes")
        if standing.planted.own_tail or not source:
            self._adopted(partition)
        else:
            self._fetch(partition, source, mine)

    def _fetch(self, partition: int, source: str, mine: Holding) -> None:
        self._asked[partition] = source
        standing = self.standing
        report = Report(partition, mine, standing.durable[partition])
        standing.out.append((source, FETCH, u64(standing.epoch) + encode_report(report)))

    def answer(self, node_id: str, report: Report) -> None:
        """A new leader asks for the changes after its position."""
        standing = self.standing
        partition = report.partition
        holding = report.holding
        head = u64(standing.epoch) + u16(partition)
        changes: list[Change] | None = None
        if includes(standing.holding(partition), holding) == YES:
            changes = standing.recent.after(partition, holding.seq)
        if changes is None:
            standing.out.append((node_id, TAIL, head + bytes([_CANNOT])))
            return
        parts: list[bytes] = [head + bytes([_MORE])]
        size = 0
        for change in changes:
            parts.append(encode_change(partition, change))
            size += len(change.body)
            if size > _FRAME_BYTES:
                standing.out.append((node_id, TAIL, b"".join(parts)))
                parts = [head + bytes([_MORE])]
                size = 0
        parts[0] = head + bytes([_LAST])
        standing.out.append((node_id, TAIL, b"".join(parts)))

    def tail(self, node_id: str, body: bytes) -> None:
        """The changes come that this node lacks; raises ValueError."""
        standing = self.standing
        if len(body) < _HEAD_BYTES:
            raise ValueError("a TAIL is cut short")
        partition = get_u16(body, 8)
        if self._asked.get(partition, "") != node_id:
            return
        if body[10] == _CANNOT:
            if not standing.writer.sequence(partition):
                self._behind(partition, "nothing is here, and another member has a copy")
                return
            # A replica in sync has all that was committed: what is beyond it nobody was told of.
            standing.event(WARNING, "tail_lost", partition, f"{node_id} does not remember its newest changes")
            del self._asked[partition]
            self._adopted(partition)
            return
        for other, change in decode_changes(body, _HEAD_BYTES, standing.partitions):
            follows = (
                change.prev_seq == standing.head_seqs[partition]
                and change.prev_epoch == standing.head_epochs[partition]
            )
            if other != partition or not follows:
                self._behind(partition, f"what {node_id} sent does not follow")
                return
            standing.apply(partition, change)
        if body[10] == _LAST:
            del self._asked[partition]
            self._adopted(partition)

    def _behind(self, partition: int, why: str) -> None:
        del self._asked[partition]
        self.standing.spoil(partition, why)

    def _adopted(self, partition: int) -> None:
        """All is here; the broker reads rows from the store, so they have to be there first."""
        self._writing[partition] = self.standing.writer.sequence(partition)
        self.written()

    def written(self) -> None:
        """Something is on the disk here."""
        standing = self.standing
        for partition in list(self._writing):
            if standing.durable[partition] >= self._writing[partition]:
                del self._writing[partition]
                if not self.merges.load(partition):
                    continue
                branches = [] if standing.view is None else standing.view.branches.get(partition, [])
                if branches:
                    standing.phases[partition] = MERGING
                    self._share(partition)
                    self.lead.opening_seqs[partition] = NEVER
                    self.merges.begin(partition, branches)
                else:
                    standing.phases[partition] = ADOPTED
                    self.ready.append(partition)

    def may_start(self, partition: int) -> bool:
        """Whether a partition can be started now, or serves already: nothing that others have is missing here."""
        return self.standing.phases[partition] in (ADOPTED, MERGED, OPEN)

    def give_up(self, partition: int, why: str) -> None:
        """The rows of a partition to be led cannot be read: somebody else must lead it, if anybody can."""
        standing = self.standing
        standing.spoil(partition, why)
        standing.phases[partition] = TAKING
        standing.opened[partition] = False
        if partition in self.lead.opening:
            self.lead.opening.remove(partition)

    def start(self, partition: int) -> bool:
        """Open a partition, if it is (still) this node's to open."""
        standing = self.standing
        phase = standing.phases[partition]
        if phase != ADOPTED and phase != MERGED:
            return False
        standing.phases[partition] = OPEN
        standing.opened[partition] = True
        if phase == ADOPTED:
            self._share(partition)
        if not standing.solo:
            self.lead.opening.append(partition)
        return True

    def _share(self, partition: int) -> None:
        """From now on what this node changes in a partition goes to its followers, beginning with what it took over."""
        standing = self.standing
        standing.states[partition] = COMPLETE
        if standing.solo:
            standing.settled[partition] = True
            if not standing.away():
                return  # nobody will ask whose the changes are that were taken over
        begun = not standing.writer.sequence(partition)
        standing.write_history(partition, standing.writer.sequence(partition))
        if begun and standing.away():
            key, stamp = standing.stamps.begin(partition, standing.now)
            standing.writer.put(partition, key, stamp)
        self.lead.opening_seqs[partition] = standing.writer.sequence(partition)
        if not standing.solo:
            self.lead.join_known(partition)

    def merge(self) -> None:
        """Go on with taking in branches; what has taken in all of them may be opened."""
        self.merges.step()
        for partition in self.merges.done:
            if self.standing.phases[partition] == MERGING:
                self.standing.phases[partition] = MERGED
                self.ready.append(partition)
        self.merges.done.clear()
