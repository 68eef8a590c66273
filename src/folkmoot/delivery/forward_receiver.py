"""The receiver of forwarded messages: applies what other nodes forward once, in order, and confirms it.

Messages for a partition that this node is still taking over wait. Messages for one that it does not lead are refused,
and their sender finds the leader. Messages that this node had to forward to a partition which it leads by now are
applied here, and confirmed as late. The other end is `channel.forward_sender`.
"""

from __future__ import annotations

from collections import deque

from folkmoot.channel.forward_sender import ForwardSender, Part, first_number
from folkmoot.channel.outbox import Outbox
from folkmoot.delivery.publish import Publishing
from folkmoot.delivery.run import Runs, run_topic
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.kernel.pack import get_varint, varint
from folkmoot.partition.mark import LINEAGES_MAX, Marks
from folkmoot.store.epoch import tag_of
from folkmoot.store.origin import is_transaction, origin_of, partition_name
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import (
    ASKED_AGAIN,
    DEFER,
    FORWARD_ACK,
    LIVE,
    RESENT,
    RUN,
    WITH_RECEIPT,
    Application,
    Envelope,
    Task,
    decode_application,
    decode_envelope,
    put_places,
)
from folkmoot.turn.receipt import Place
from folkmoot.turn.state import State
from folkmoot.turn.work import PACKET_STEPS

__all__ = ["ForwardReceiver"]


class _Group:
    """The envelopes of one FORWARD message: confirmed together, when all that could be applied is committed."""

    def __init__(self, node_id: str, number: int) -> None:
        self.node_id = node_id
        self.number = number
        self.left = 0  # tasks that wait for their partition
        self.read = False
        self.first_token = 0  # of the turn that began to apply it
        self.token = 0
        self.refused: list[int] = []  # partitions that this node does not lead
        self.defers = False  # it has something to be deferred
        self.places: list[tuple[int, Place]] = []  # of messages with a receipt, by number


class _Waiting:
    """A task that waits until this node has taken over its partition."""

    def __init__(self, group: _Group, envelope: Envelope, task: Task) -> None:
        self.group = group
        self.envelope = envelope
        self.task = task


class Reception:
    """A FORWARD message that is applied over several turns: its envelopes, and how many of them are applied."""

    def __init__(self, group: _Group, envelopes: list[Envelope], epoch: int) -> None:
        self.group = group
        self.envelopes = envelopes
        self.epoch = epoch
        self.done = 0
        self.answered = False


class ForwardReceiver:
    """Messages forwarded by other nodes, and by this one for partitions that it leads by now."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        commits: Commits,
        marks: Marks,
        forward_sender: ForwardSender,
        outbox: Outbox,
        publishing: Publishing,
        runs: Runs,
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.commits = commits
        self.marks = marks
        self.forward_sender = forward_sender
        self.outbox = outbox
        self.publishing = publishing
        self.runs = runs
        self._applied: deque[tuple[int, Part]] = deque()  # of this node, perhaps not committed: (token, part)
        # By partition and lineage: the newest outbox entry that the transient subscribers of this node got
        self._live: dict[int, dict[int, int]] = {}
        self._waiting: dict[int, list[_Waiting]] = {}  # by partition that this node takes over
        self._finished: deque[_Group] = deque()  # applied, perhaps not committed, in the order of their tokens
        # Partitions with rows that must be read and cannot be: they take nothing until they are opened again. A mark
        # holds the newest number only, so all that follow a refused message are refused as well.
        self._closed: dict[int, bool] = {}
        self.spoiled: list[tuple[int, str]] = []  # newly closed partitions, and why: to be taken
        self._receptions: dict[str, Reception] = {}  # by node, while they are not applied as a whole

    def moved(self, partition: int) -> None:
        """A partition has another leader, or this one must open it again."""
        self._closed.pop(partition, None)
        for waiting in self._waiting.pop(partition, []):
            waiting.group.refused.append(partition)
            self._one_less(waiting.group)
        for entry in [entry for entry in self._applied if entry[1].task.partition == partition]:
            self._applied.remove(entry)  # its new leader knows whether it has applied it
            self.forward_sender.park(entry[1])

    def opened(self, partition: int) -> None:
        """The leader of a partition accepts messages: those that wait go to it, or are applied here."""
        for part in self.forward_sender.opened(partition):
            self._apply_own(part)
        if self.state.leads[partition]:
            for waiting in self._waiting.pop(partition, []):
                self._apply_for(waiting.group, waiting.envelope, waiting.task)
                self._one_less(waiting.group)

    def _apply_own(self, part: Part) -> None:
        try:
            place = self._apply(self.fabric.node_id, part.envelope, part.task, part.tried)
        except CorruptStore as fault:
            self._close(part.task.partition, fault)
            self.forward_sender.park(part)
            return
        if place is not None and part.envelope.receipt is not None:
            self.commits.receipts.note(part.envelope.receipt, place)
        token = self.commits.newest_token()
        if token <= self.commits.committed_token:
            self.forward_sender.end(part)
        else:
            self._applied.append((token, part))

    def receive(self, node_id: str, body: bytes, epoch: int) -> bool:
        """Apply a FORWARD message as far as its partitions are open here. Raises IndexError for malformed bytes.

        epoch: of the view in which it was sent. False: the steps of its node are spent; call `go_on` in a later turn,
        before the next message of that node.
        """
        number, pos = get_varint(body, 0)
        count, pos = get_varint(body, pos)
        group = _Group(node_id, number)
        if not count:  # a flush marker
            self._answer(group)
            return True
        group.first_token = self.commits.newest_token()
        reception = Reception(group, self._decode(group, body, pos, count), epoch)
        if self._go_on(reception):
            return True
        self._receptions[node_id] = reception
        return False

    def is_receiving(self, node_id: str) -> bool:
        """Whether a message of a node is applied in part."""
        return node_id in self._receptions

    def go_on(self, node_id: str) -> bool:
        """Continue with the message of a node; True: it is applied, or there is none."""
        reception = self._receptions.get(node_id)
        if reception is None:
            return True
        del self._receptions[node_id]  # not even a malformed one comes twice
        if self._go_on(reception):
            return True
        self._receptions[node_id] = reception
        return False

    def _go_on(self, reception: Reception) -> bool:
        group = reception.group
        envelopes = reception.envelopes
        work = self.state.work
        while reception.done < len(envelopes):
            envelope = envelopes[reception.done]
            if reception.done and work.is_spent():
                return False
            if not self._prepare(envelope):
                return False
            reception.done += 1
            work.steps += PACKET_STEPS
            if envelope.flags & RUN:
                self.runs.deliver(envelope.body)
            elif envelope.flags & LIVE:
                self._deliver(envelope)
                reception.answered = reception.answered or envelope.home >= 0
            for task in envelope.tasks:
                reception.answered = True
                self._take(group, envelope, task, reception.epoch)
        group.read = True
        if reception.answered and not group.left:
            self._finish(group)
        return True

    def _prepare(self, envelope: Envelope) -> bool:
        """Look up who gets a message; False: the steps are spent, and it is not known yet."""
        application = envelope.application
        if application is not None:
            topic = application.message.topic
        elif envelope.flags & RUN:
            topic = run_topic(envelope.body)
        else:
            return True
        routes = self.runs.routes
        return topic in routes.cache or routes.prepare(topic)

    def _decode(self, group: _Group, body: bytes, pos: int, count: int) -> list[Envelope]:
        """Decode the whole message before any of it is applied; tell the sender when that is impossible."""
        envelopes: list[Envelope] = []
        try:
            for _ in range(count):
                envelope, pos = decode_envelope(body, pos)
                if not envelope.flags & RUN:
                    envelope.application = decode_application(envelope.body, envelope.flags)
                envelopes.append(envelope)
        except (IndexError, ValueError, CorruptStore):
            self.fabric.send(
                group.node_id, FORWARD_ACK, varint(group.number) + varint(1) + varint(self.state.partitions)
            )
            raise
        return envelopes

    def _deliver(self, envelope: Envelope) -> None:
        if envelope.home >= 0 and not self._is_newest(envelope):
            self.state.counters.cluster_requests_repeated += 1
            return
        application = _application_of(envelope)
        groups = envelope.groups
        if application.message.qos == 2 and self._was_for_earlier(envelope):
            groups = []  # [MQTT-4.8.2-5] a member whose session ended with that process may have it
        self.publishing.deliver(application, groups)
        self.state.counters.cluster_messages_received += 1

    def _was_for_earlier(self, envelope: Envelope) -> bool:
        """Whether an outbox entry was for the transient subscribers of an earlier process of this node."""
        began = self.fabric.began
        if envelope.home < 0 or envelope.lineage != tag_of(began):
            return False
        return envelope.sequence < first_number(began)

    def _is_newest(self, envelope: Envelope) -> bool:
        """Whether an outbox entry is new to the transient subscribers of this node; then it is the newest."""
        newest = self._live.setdefault(envelope.home, {})
        if envelope.sequence <= newest.get(envelope.lineage, 0):
            return False
        if envelope.lineage not in newest and len(newest) >= LINEAGES_MAX:
            del newest[next(iter(newest))]
        newest[envelope.lineage] = envelope.sequence
        return True

    def _take(self, group: _Group, envelope: Envelope, task: Task, epoch: int) -> None:
        partition = task.partition
        if partition >= self.state.partitions:
            self.state.event(ERROR, "peer_nonsense", {"node": group.node_id, "what": f"partition {partition}"})
        elif epoch < self.fabric.since[partition]:
            # Some of what was sent before may have been refused: all of it comes again, in order (A1, A3).
            group.refused.append(partition)
        elif self.state.leads[partition]:
            self._apply_for(group, envelope, task)
        elif self.fabric.leaders[partition] == self.fabric.node_id:
            self._waiting.setdefault(partition, []).append(_Waiting(group, envelope, task))
            group.left += 1
        else:
            group.refused.append(partition)

    def _close(self, partition: int, fault: CorruptStore) -> None:
        if partition not in self._closed:
            self._closed[partition] = True
            self.spoiled.append((partition, str(fault)))

    def _apply_for(self, group: _Group, envelope: Envelope, task: Task) -> None:
        group.defers = group.defers or task.bits & DEFER != 0
        try:
            place = self._apply(group.node_id, envelope, task, False)
        except CorruptStore as fault:
            self._close(task.partition, fault)
            group.refused.append(task.partition)
            return
        if place is not None:
            group.places.append((envelope.sequence, place))

    def _apply(self, node_id: str, envelope: Envelope, task: Task, tried: bool) -> Place | None:
        """Apply a task unless it is known; return its place, if it is stored and its publisher asks for a receipt.

        tried: an earlier leader may have applied it, though the envelope does not say so. Raises CorruptStore when a
        row cannot be read: then nothing has been applied, and the task comes again.
        """
        if task.partition in self._closed:
            raise CorruptStore("a row of the partition cannot be read")
        application = _application_of(envelope)
        name, number = node_id.encode(), envelope.sequence
        if is_transaction(application.producer):
            name, number = application.producer, application.number
        elif envelope.home >= 0:
            name = partition_name(envelope.home, envelope.lineage)
        message = application.message
        known = self.marks.newest(task.partition, name)
        is_new = self.marks.advance(task.partition, name, number)
        if is_new and message.source and self.marks.has_packet(task.partition, message.source):
            is_new = False  # a leader at another side of a split was sent its packet, too
        if not is_new and not self.fabric.planted.unmarked:
            self.state.counters.cluster_requests_repeated += 1
            if not envelope.flags & WITH_RECEIPT:
                return None
            epoch, sequence = self.state.writer.position(task.partition)
            return Place(task.partition, epoch, sequence, 0)
        self.state.counters.cluster_messages_received += 1
        message.asked_again = tried or envelope.flags & ASKED_AGAIN != 0
        message.resent = envelope.flags & RESENT != 0
        try:
            return self._perform(envelope, application, task, origin_of(name, number))
        except CorruptStore:
            self.marks.unmark(task.partition, name, known)
            if message.source:
                self.marks.forget_packet(task.partition, message.source)
            raise

    def _perform(self, envelope: Envelope, application: Application, task: Task, origin: bytes) -> Place | None:
        late = envelope.home >= 0 and envelope.lineage != tag_of(self.fabric.epoch)
        if not envelope.flags & WITH_RECEIPT:
            self.publishing.apply(application, task, origin, late)
            return None
        receipts = self.commits.receipts
        receipt = receipts.begin()
        try:
            self.publishing.apply(application, task, origin, late)
        finally:
            receipts.end()
        if receipt.refused:
            return Place(task.partition, 0, 0, 0)
        return receipt.places.get(task.partition)

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
        """More turns are committed: confirm what they applied, and go on with outbox entries."""
        finished = self._finished
        while finished and finished[0].token <= self.commits.committed_token:
            self._answer(finished.popleft())
        applied = self._applied
        while applied and applied[0][0] <= self.commits.committed_token:
            self.forward_sender.end(applied.popleft()[1])
        self.outbox.committed()
        forward_sender = self.forward_sender
        if forward_sender.own_live or forward_sender.own:
            envelopes = forward_sender.own_live
            forward_sender.own_live = []
            for envelope in envelopes:
                self._deliver(envelope)
                forward_sender.end(Part(envelope, Task(-1, 0)))
            parts = forward_sender.own
            forward_sender.own = []
            for part in parts:
                self._apply_own(part)
        self.outbox.finish()

    def fail(self, token: int, partition: int) -> None:
        """The leader changed, and a turn's change is lost: its messages must be sent to the new leader."""
        for group in self._finished:
            if group.first_token <= token <= group.token:
                group.refused.append(partition)
        for reception in self._receptions.values():
            if reception.group.first_token <= token:
                reception.group.refused.append(partition)

    def _answer(self, group: _Group) -> None:
        if group.node_id not in self.fabric.others:
            return
        is_crowded = group.defers and not self.commits.throttle.may_defer()
        out = [varint(group.number), varint(len(group.refused) + is_crowded)]
        out.extend([varint(partition) for partition in group.refused])
        if is_crowded:
            out.append(varint(self.state.partitions + 1))
        if group.places:
            for _, place in group.places:
                self.commits.receipts.count(place)
            put_places(group.places, out)
        self.fabric.send(group.node_id, FORWARD_ACK, b"".join(out))


def _application_of(envelope: Envelope) -> Application:
    """Return the message; an envelope of another node has it decoded."""
    application = envelope.application
    return decode_application(envelope.body, envelope.flags) if application is None else application
