"""Publishing across nodes, the answering side: requests of other nodes are applied once, in order, and confirmed.

What comes for a partition that this node is still taking over waits; what comes for one that it does not lead is
refused, and its sender finds out who does. What this node has asked of a partition that has come to it is applied here,
and confirmed as late. The asking side is `request`.
"""

from __future__ import annotations

from collections import deque

from folkmoot.channel.forward_sender import Part, Requests
from folkmoot.channel.outbox import Outbox
from folkmoot.delivery.publish import Publishing
from folkmoot.delivery.run import Runs
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.kernel.pack import get_varint, varint
from folkmoot.partition.mark import Marks, partition_origin
from folkmoot.store.origin import origin_of
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import (
    ASKED_AGAIN,
    DONE,
    LIVE,
    RUN,
    WITH_RECEIPT,
    Application,
    Parcel,
    Share,
    decode_application,
    decode_parcel,
    put_places,
)
from folkmoot.turn.receipt import Place
from folkmoot.turn.state import State

__all__ = ["Exchange"]


class _Group:
    """Requests that came in one message: answered together, when all that could be applied is committed."""

    def __init__(self, node_id: str, number: int) -> None:
        self.node_id = node_id
        self.number = number
        self.left = 0  # parts that wait for their partition
        self.read = False
        self.token = 0
        self.refused: list[int] = []  # partitions that this node does not lead
        self.places: list[tuple[int, Place]] = []  # of requests whose publishers ask for them, by number


class _Waiting:
    """A part that waits until this node has taken over its partition."""

    def __init__(self, group: _Group, parcel: Parcel, share: Share) -> None:
        self.group = group
        self.parcel = parcel
        self.share = share


class Exchange:
    """Requests of other nodes, and those of this one for partitions that have come to it."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        commits: Commits,
        marks: Marks,
        requests: Requests,
        outbox: Outbox,
        publishing: Publishing,
        runs: Runs,
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.commits = commits
        self.marks = marks
        self.requests = requests
        self.outbox = outbox
        self.publishing = publishing
        self.runs = runs
        self._applied: deque[tuple[int, Part]] = deque()  # own ones, perhaps not committed: (token, part)
        self._live: dict[int, int] = {}  # by partition: the newest errand that this node's transient subscribers got
        self._waiting: dict[int, list[_Waiting]] = {}  # by partition that this node takes over
        self._finished: deque[_Group] = deque()  # applied, perhaps not committed, in the order of their tokens
        # Partitions with rows that must be read and cannot be: they take nothing until they are opened anew. A mark
        # tells the newest request only, so those that follow one that was refused are refused as well.
        self._closed: dict[int, bool] = {}
        self.spoiled: list[tuple[int, str]] = []  # of these the new ones, and why: to be taken

    def moved(self, partition: int) -> None:
        """A partition has another leader, or this one must open it anew."""
        self._closed.pop(partition, None)
        for waiting in self._waiting.pop(partition, []):
            waiting.group.refused.append(partition)
            self._one_less(waiting.group)
        for entry in [entry for entry in self._applied if entry[1].share.partition == partition]:
            self._applied.remove(entry)  # its new leader knows whether it has it
            self.requests.park(entry[1])

    def foreign(self, partition: int) -> None:
        """A partition goes on as it was at another side of a split, which has used the same numbers for its errands."""
        self._live.pop(partition, None)

    def opened(self, partition: int) -> None:
        """The leader of a partition takes requests: those that wait go to it, or are applied here."""
        for part in self.requests.opened(partition):
            self._apply_own(part)
        if self.state.leads[partition]:
            for waiting in self._waiting.pop(partition, []):
                self._apply_for(waiting.group, waiting.parcel, waiting.share)
                self._one_less(waiting.group)

    def _apply_own(self, part: Part) -> None:
        try:
            place = self._apply(self.fabric.node_id, part.parcel, part.share, part.given)
        except CorruptStore as fault:
            self._close(part.share.partition, fault)
            self.requests.park(part)
            return
        if place is not None and part.parcel.receipt is not None:
            part.parcel.receipt.places[place.partition] = place
        token = self.commits.newest_token()
        if token <= self.commits.committed_token:
            self.requests.end(part)
        else:
            self._applied.append((token, part))

    def receive(self, node_id: str, body: bytes, epoch: int) -> None:
        """Apply the requests of a message, as far as their partitions are open here. Raises IndexError for nonsense.

        epoch: of the view in which it was sent.
        """
        number, pos = get_varint(body, 0)
        count, pos = get_varint(body, pos)
        group = _Group(node_id, number)
        if not count:  # a fence
            self._answer(group)
            return
        answered = False
        for parcel in self._decode(group, body, pos, count):
            if parcel.flags & RUN:
                self.runs.deliver(parcel.body)
            elif parcel.flags & LIVE:
                self._deliver(parcel)
                answered = answered or parcel.home >= 0
            for share in parcel.shares:
                answered = True
                self._take(group, parcel, share, epoch)
        group.read = True
        if answered and not group.left:
            self._finish(group)

    def _decode(self, group: _Group, body: bytes, pos: int, count: int) -> list[Parcel]:
        """Read all of a message before anything of it is done; tell who sent it when that is not possible."""
        parcels: list[Parcel] = []
        try:
            for _ in range(count):
                parcel, pos = decode_parcel(body, pos)
                if not parcel.flags & RUN:
                    parcel.application = decode_application(parcel.body, parcel.flags)
                parcels.append(parcel)
        except (IndexError, ValueError, CorruptStore):
            self.fabric.send(group.node_id, DONE, varint(group.number) + varint(1) + varint(self.state.partitions))
            raise
        return parcels

    def _deliver(self, parcel: Parcel) -> None:
        if parcel.home >= 0:
            if parcel.sequence <= self._live.get(parcel.home, 0):
                self.state.counters.cluster_requests_repeated += 1
                return
            self._live[parcel.home] = parcel.sequence
        application = _application_of(parcel)
        self.publishing.deliver(application, parcel.groups)
        self.state.counters.cluster_messages_received += 1

    def _take(self, group: _Group, parcel: Parcel, share: Share, epoch: int) -> None:
        partition = share.partition
        if partition >= self.state.partitions:
            self.state.event(ERROR, "peer_nonsense", {"node": group.node_id, "what": f"partition {partition}"})
        elif epoch < self.fabric.since[partition]:
            # Of what was sent before, some may have been refused already: all of it comes again, in order (A1, A3).
            group.refused.append(partition)
        elif self.state.leads[partition]:
            self._apply_for(group, parcel, share)
        elif self.fabric.leaders[partition] == self.fabric.node_id:
            self._waiting.setdefault(partition, []).append(_Waiting(group, parcel, share))
            group.left += 1
        else:
            group.refused.append(partition)

    def _close(self, partition: int, fault: CorruptStore) -> None:
        if partition not in self._closed:
            self._closed[partition] = True
            self.spoiled.append((partition, str(fault)))

    def _apply_for(self, group: _Group, parcel: Parcel, share: Share) -> None:
        try:
            place = self._apply(group.node_id, parcel, share, False)
        except CorruptStore as fault:
            self._close(share.partition, fault)
            group.refused.append(share.partition)
            return
        if place is not None:
            group.places.append((parcel.sequence, place))

    def _apply(self, node_id: str, parcel: Parcel, share: Share, given: bool) -> Place | None:
        """Apply a request unless it is known; return where it is, if its publisher wants to know and it is stored.

        given: an earlier leader was asked as well, though the parcel does not say so. Raises CorruptStore when what
        must be read cannot be: then it has done nothing, and comes again.
        """
        if share.partition in self._closed:
            raise CorruptStore("a row of the partition cannot be read")
        origin = node_id.encode() if parcel.home < 0 else partition_origin(parcel.home)
        known = self.marks.newest(share.partition, origin)
        if not self.marks.advance(share.partition, origin, parcel.sequence) and not self.fabric.planted.unmarked:
            self.state.counters.cluster_requests_repeated += 1
            if not parcel.flags & WITH_RECEIPT:
                return None
            epoch, sequence = self.state.writer.position(share.partition)
            return Place(share.partition, epoch, sequence, 0)
        self.state.counters.cluster_messages_received += 1
        application = _application_of(parcel)
        application.message.asked_again = given or parcel.flags & ASKED_AGAIN != 0
        source = origin_of(origin, parcel.sequence)
        try:
            return self._perform(parcel, application, share, source)
        except CorruptStore:
            self.marks.take_back(share.partition, origin, known)
            raise

    def _perform(self, parcel: Parcel, application: Application, share: Share, source: bytes) -> Place | None:
        if not parcel.flags & WITH_RECEIPT:
            self.publishing.apply(application, share, source)
            return None
        receipts = self.commits.receipts
        receipt = receipts.begin()
        try:
            self.publishing.apply(application, share, source)
        finally:
            receipts.end()
        return receipt.places.get(share.partition)

    def _one_less(self, group: _Group) -> None:
        group.left -= 1
        if group.read and not group.left:
            self._finish(group)

    def _finish(self, group: _Group) -> None:
        group.token = self.commits.newest_token()
        if group.token <= self.commits.committed_token:
            self._answer(group)
        else:
            self._finished.append(group)

    def committed(self) -> None:
        """More turns are committed: tell those who asked for what they did, and go on with errands."""
        finished = self._finished
        while finished and finished[0].token <= self.commits.committed_token:
            self._answer(finished.popleft())
        applied = self._applied
        while applied and applied[0][0] <= self.commits.committed_token:
            self.requests.end(applied.popleft()[1])
        self.outbox.committed()
        requests = self.requests
        if requests.own_live or requests.own:
            parcels = requests.own_live
            requests.own_live = []
            for parcel in parcels:
                self._deliver(parcel)
                requests.end(Part(parcel, Share(-1, 0)))
            parts = requests.own
            requests.own = []
            for part in parts:
                self._apply_own(part)
        self.outbox.finish()

    def fail(self, token: int, partition: int) -> None:
        """What a turn did to a partition is in no copy that counts: it is to be asked for again, at the leader."""
        for group in self._finished:
            if group.token == token:
                group.refused.append(partition)

    def _answer(self, group: _Group) -> None:
        if group.node_id not in self.fabric.others:
            return
        out = [varint(group.number), varint(len(group.refused))]
        out.extend([varint(partition) for partition in group.refused])
        if group.places:
            for _, place in group.places:
                self.commits.receipts.count(place)
            put_places(group.places, out)
        self.fabric.send(group.node_id, DONE, b"".join(out))


def _application_of(parcel: Parcel) -> Application:
    """Return the message; of another node's parcel it has been read."""
    application = parcel.application
    return decode_application(parcel.body, parcel.flags) if application is None else application
