"""The sender of forwarded messages: to the leaders of partitions, in order, until they are committed.

The node where a message is published numbers it, and keeps the part of each partition until the leader confirms that it
is committed. While a partition changes its leader, its parts wait. They go to the new leader in the same order as soon
as it is open, and it does not apply known ones again (`mark`). Every part names one partition, because partitions move
one by one. The other end is `delivery.forward_receiver`.

Outbox entries (`outbox`) use the same way, with two differences. The partition numbers them, and nodes confirm their
parts for transient subscribers too: each node applies an entry once, whichever leader sends it.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.pack import get_varint, varint
from folkmoot.session.connection import Connection
from folkmoot.store.epoch import counter_of
from folkmoot.store.message import Message
from folkmoot.store.origin import NUMBER_BITS
from folkmoot.turn.ack_tracker import AckTracker
from folkmoot.turn.barrier import Barrier
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import (
    ASKED_AGAIN,
    DEFER,
    FORWARD,
    LIVE,
    OF_PARTITION,
    RETAIN,
    RUN,
    WITH_RECEIPT,
    Envelope,
    OutboxEntry,
    Task,
    encode_application,
    encode_envelope,
    get_places,
)
from folkmoot.turn.receipt import Receipt
from folkmoot.turn.state import State

__all__ = ["STRANDED_BYTES", "ForwardSender", "Part", "first_number"]

_CROWDED_US: Final = SECOND
"""So long a node is given nothing to defer after it has said that it has no room for more."""

STRANDED_BYTES: Final = 1024
"""About what an outbox entry takes in memory beside its message."""

_OF_NODE: Final = -1  # in place of a partition: the part for the transient subscribers of a node


def first_number(epoch: int) -> int:
    """Return a number above all that messages or outbox entries had in earlier views."""
    return counter_of(epoch) << NUMBER_BITS


class Part:
    """The part of one partition in a message, until it is committed; tried: a leader got it, perhaps in vain."""

    def __init__(self, envelope: Envelope, task: Task) -> None:
        self.envelope = envelope
        self.task = task
        self.tried = False

    def __repr__(self) -> str:
        return f"Part({self.envelope.sequence} {self.task!r})"


class ForwardSender:
    """The messages of this node that are not committed elsewhere."""

    def __init__(self, state: State, fabric: Fabric, commits: Commits, barrier: Barrier) -> None:
        self.state = state
        self.fabric = fabric
        self.commits = commits
        self.barrier = barrier
        self.acks = AckTracker(0)
        self.order = 0  # the newest place in the order of sending
        self._sequence = 0
        self._outgoing: dict[str, list[Envelope]] = {}  # of this turn, per node
        # per node, by number of the FORWARD message: uncommitted parts
        self._sent: dict[str, dict[int, list[Part]]] = {}
        self._parked: dict[int, list[Part]] = {}  # by partition without an open leader
        self.due: dict[int, int] = {}  # by partition: how many parts that were deferred it has not confirmed
        self.deferring: dict[int, int] = {}  # by partition without a leader: parts on their way to a home
        self.crowded: dict[str, int] = {}  # by node without room for more to defer: until when it is given nothing
        self.stranded: dict[int, int] = {}  # by home: how many of its outbox entries no turn waits for any more
        # Of outbox entries, to be taken: parts for partitions and clients of this node, and finished entries
        self.own: list[Part] = []
        self.own_live: list[Envelope] = []
        self.finished: list[OutboxEntry] = []

    @property
    def busy(self) -> bool:
        """Whether something is not committed yet."""
        return bool(self._parked or self._outgoing or [sent for sent in self._sent.values() if sent])

    def is_under_way(self, connection: Connection, seq: int) -> bool:
        """Whether a message published over a connection up to this request, or in the same turns, may not have arrived.

        What no node confirms is followed by a flush marker (`mark`), whose answer tells it.
        """
        return seq > 0 and (self._is_asking(connection, seq) or len(self.acks.unconfirmed(seq)) > 0)

    def _is_asking(self, connection: Connection, seq: int) -> bool:
        if self._outgoing and seq > self.acks.sent_seq:
            return True
        for messages in self._sent.values():
            if messages and next(iter(messages)) <= seq:
                return True
        return connection.parked_count > 0 and (connection.outbox_order > 0 or not connection.broken)

    def mark(self, seq: int) -> None:
        """Send flush markers behind a request that not all nodes confirm; to be called when the turn's are sent."""
        for node_id in self.acks.unconfirmed(seq):
            if self.acks.needs_flush(node_id, seq):
                self.fabric.send(node_id, FORWARD, varint(self.acks.sent_seq) + varint(0))

    def _note(self, connection: Connection, qos: int) -> None:
        seq = self.acks.sent_seq + 1
        connection.forwarded_seq = seq
        if qos == 1:
            connection.forwarded_qos1_seq = seq
        elif qos == 0:
            connection.forwarded_qos0_seq = seq

    def begin(self, epoch: int) -> None:
        """A view was installed: number messages beyond those of earlier processes of this node, in earlier views.

        All numbers of a process are below the counter of the view in which the next one begins.
        """
        self.flush()  # so that it can be called back
        self._sequence = max(self._sequence, first_number(epoch))

    def publish(
        self,
        message: Message,
        producer: bytes,
        number: int,
        flags: int,
        tasks: list[Task],
        nodes: dict[str, list[bytes]],
        connection: Connection | None = None,
    ) -> bool:
        """Send a message to partitions that others lead, and to nodes with transient subscribers (and their groups).

        flags: FROM_CLIENT, TO_GROUPS. connection: over which it was published. Return whether a partition gets it. One
        without a leader does not: the turn would wait for it, and with it all later turns, until another view comes.
        What must not be lost is refused before, or is in an outbox.
        """
        if self.fabric.leaderless:
            tasks = self._with_leaders(tasks)
        self._sequence += 1
        self.order += 1
        blank = Envelope(self._sequence, self.state.writer.token, flags, encode_application(message, producer, number))
        blank.order = self.order
        blank.connection = connection
        if connection is not None:
            self._note(connection, message.qos)
        if message.retain and [task for task in tasks if _retains(task)]:
            blank.ticket = self.barrier.begin()
        _ask_for(blank, self.commits.receipts.current)
        envelopes: dict[str, Envelope] = {}
        for node_id, groups in nodes.items():
            if message.qos == 0 and self.fabric.is_flooded(node_id):
                self.state.counters.dropped_qos0_slow += 1
            else:
                envelopes[node_id] = _live(blank, groups)
        for task in tasks:
            self._count_deferring(task, 1)
            self._give(blank, task, envelopes)
        if tasks:
            self.commits.ask(len(tasks), len(tasks) * len(blank.body))
        for node_id, envelope in envelopes.items():
            self._outgoing.setdefault(node_id, []).append(envelope)
        return bool(tasks)

    def _with_leaders(self, tasks: list[Task]) -> list[Task]:
        leaders = self.fabric.leaders
        found = [task for task in tasks if leaders[task.partition]]
        self.state.counters.dropped_absent += len(tasks) - len(found)
        return found

    def publish_run(self, body: bytes, qos: int, nodes: list[str], connection: Connection) -> None:
        """Send a run of packets to nodes with transient subscribers, after all that goes there before it."""
        self._sequence += 1
        self._note(connection, qos)
        for node_id in nodes:
            self._outgoing.setdefault(node_id, []).append(Envelope(self._sequence, 0, LIVE | RUN, body))

    def hand(self, entry: OutboxEntry) -> None:
        """Send an outbox entry, whose row is committed, to all its partitions and nodes."""
        self.order += 1
        blank = Envelope(entry.sequence, 0, entry.flags | OF_PARTITION, entry.body)
        blank.home = entry.home
        blank.lineage = entry.lineage
        blank.order = self.order
        blank.entry = entry
        blank.ticket = entry.ticket
        _ask_for(blank, entry.receipt)
        entry.left = len(entry.tasks) + len(entry.nodes)
        envelopes: dict[str, Envelope] = {}
        for node_id, groups in entry.nodes.items():
            if node_id == self.fabric.node_id:
                self.own_live.append(_live(blank, groups))
            elif node_id in self.fabric.others:
                envelopes[node_id] = _live(blank, groups)
            else:
                self._end_entry(entry)  # the node is gone, and its transient subscribers with it
        for task in entry.tasks:
            if self.state.leads[task.partition]:
                self.own.append(Part(blank, task))
            else:
                self._give(blank, task, envelopes)
        for node_id, envelope in envelopes.items():
            self._outgoing.setdefault(node_id, []).append(envelope)

    def _give(self, blank: Envelope, task: Task, envelopes: dict[str, Envelope]) -> None:
        partition = task.partition
        leader = self.fabric.leaders[partition]
        parked = self._parked.get(partition)
        if parked is not None or not self.fabric.open[partition] or leader == self.fabric.node_id:
            if not leader and _retains(task):
                self.barrier.end(blank.ticket)  # no node can store it: subscriptions do not wait for it
            if not leader and blank.entry is not None:
                self._release(blank.entry, partition)
            if parked is None:
                parked = []
                self._parked[partition] = parked
            parked.append(Part(blank, task))
            _count(blank, 1)
            return
        envelope = envelopes.get(leader)
        if envelope is None:
            envelope = _copy(blank)
            envelopes[leader] = envelope
        envelope.tasks.append(task)

    def flush(self) -> None:
        """Send the envelopes of this turn, one message per node."""
        if not self._outgoing:
            return
        outgoing = self._outgoing
        self._outgoing = {}
        number = self.acks.next_seq()
        for node_id, envelopes in outgoing.items():
            out = [varint(number), varint(len(envelopes))]
            parts: list[Part] = []
            for envelope in envelopes:
                encode_envelope(envelope, out)
                parts.extend([Part(envelope, task) for task in envelope.tasks])
                if envelope.entry is not None and envelope.flags & LIVE:
                    parts.append(Part(envelope, Task(_OF_NODE, 0)))
            if parts:
                self._sent.setdefault(node_id, {})[number] = parts
            else:
                self.acks.sent_without_ack(node_id, number)
            self.fabric.send(node_id, FORWARD, b"".join(out))

    def done(self, node_id: str, body: bytes) -> None:
        """Handle a FORWARD_ACK. Raises IndexError if it is malformed."""
        number, pos = get_varint(body, 0)
        self.acks.acknowledged(node_id, number)
        count, pos = get_varint(body, pos)
        refused: set[int] = set()
        for _ in range(count):
            partition, pos = get_varint(body, pos)
            refused.add(partition)
        places = get_places(body, pos)
        if self.state.partitions + 1 in refused:  # no partition has this number either
            self.crowded[node_id] = self.state.now + _CROWDED_US
        unread = self.state.partitions in refused  # no partition has this number: it stands for the whole message
        for part in self._sent.get(node_id, {}).pop(number, []):
            if unread and part.envelope.entry is None:
                self.commits.fail(part.envelope.token)
                self.end(part)
                continue
            if part.task.partition in refused:
                self.park(part)
                continue
            receipt = part.envelope.receipt
            if receipt is not None:
                place = places.get((part.envelope.sequence, part.task.partition))
                if place is not None:
                    self.commits.receipts.note(receipt, place)
            self.end(part)

    def end(self, part: Part) -> None:
        """Finish a part: it is committed, has failed, or was dropped."""
        entry = part.envelope.entry
        if _retains(part.task):
            self.barrier.end(part.envelope.ticket)
        if entry is None:
            self._count_deferring(part.task, -1)
            self.commits.answered(part.envelope.token, 1, len(part.envelope.body))
        else:
            self._confirm(entry, part.task.partition)
            self._end_entry(entry)

    def _count_deferring(self, task: Task, change: int) -> None:
        if task.bits & DEFER:
            _add_up(self.deferring, [other.partition for other in task.deferred], change)

    def promise(self, entry: OutboxEntry, is_earlier: bool) -> None:
        """Count the parts of an outbox entry that later messages must not overtake, until they are confirmed.

        These are the parts for partitions without a leader; is_earlier: all parts, as others have been published since.
        """
        leaders = self.fabric.leaders
        entry.due = [task.partition for task in entry.tasks if is_earlier or not leaders[task.partition]]
        _add_up(self.due, entry.due, 1)

    def forget(self, entry: OutboxEntry) -> None:
        """An outbox entry is over: all have confirmed it, or another leader has it."""
        _add_up(self.due, entry.due, -1)
        entry.due = []

    def _confirm(self, entry: OutboxEntry, partition: int) -> None:
        if partition in entry.due:
            entry.due.remove(partition)
            _add_up(self.due, [partition], -1)

    def _end_entry(self, entry: OutboxEntry) -> None:
        entry.left -= 1
        if not entry.left:
            self.finished.append(entry)

    def park(self, part: Part) -> None:
        """Make a part wait, in its place, for the next leader of its partition."""
        part.tried = True
        parked = self._parked.setdefault(part.task.partition, [])
        at = len(parked)
        while at and parked[at - 1].envelope.order > part.envelope.order:
            at -= 1
        parked.insert(at, part)
        _count(part.envelope, 1)

    # -- partitions move ----------------------------------------------------------------------------------------------

    def moved(self, partition: int) -> None:
        """A partition has another leader, or one that must open it anew: its uncommitted parts wait.

        Those that are to be retained there are under way again, if the partition had no leader before.
        """
        self._recall(partition)
        if not self.fabric.leaders[partition]:
            return
        for part in self._parked.get(partition, []):
            envelope, entry = part.envelope, part.envelope.entry
            if _retains(part.task) and not self.barrier.is_open(envelope.ticket):
                if entry is None:
                    envelope.ticket = self.barrier.begin()
                elif not entry.over:
                    envelope.ticket = entry.ticket = self.barrier.begin()

    def unanswered(self) -> list[str]:
        """Return the nodes that have not answered messages."""
        return [node_id for node_id, messages in self._sent.items() if messages]

    def parked(self) -> list[int]:
        """Return the partitions for which messages wait until a leader has opened them."""
        return [partition for partition, parts in self._parked.items() if parts]

    def fail_leaderless(self, partition: int) -> None:
        """No node can lead a partition: its messages fail, and clients repeat them. Outbox entries wait."""
        self._recall(partition)
        parked = self._parked.pop(partition, [])
        waiting = [part for part in parked if part.envelope.entry is not None]
        if waiting:
            self._parked[partition] = waiting
        for part in parked:
            _count(part.envelope, -1)
            if _retains(part.task):
                self.barrier.end(part.envelope.ticket)  # a subscription waits only for messages that can come
            if part.envelope.entry is None:
                self.commits.fail(part.envelope.token)
                self.end(part)
            else:
                self._release(part.envelope.entry, partition)

    def _release(self, entry: OutboxEntry, partition: int) -> None:
        """End the waiting of a turn for an entry that no node can take now; call `complete` afterwards.

        It is a row of its home, with copies, and is sent when the partition has a leader again. Until then it must not
        hold up all later turns of this node: whoever subscribes or connects here needs nothing of that partition (A11).
        Nor must it hold up its client, whose later messages for that partition are deferred, or refused, until it has
        a leader.
        """
        if entry.over:  # this node leads its home no more
            return
        if partition not in entry.due:
            entry.due.append(partition)
            _add_up(self.due, [partition], 1)
        if not entry.released:
            entry.released = True
            entry.let_overtake()
            if entry.receipt is not None:
                entry.receipt.partial = True
            self.stranded[entry.home] = self.stranded.get(entry.home, 0) + 1
            self.commits.strand(entry.token, len(entry.body), STRANDED_BYTES)

    def unstrand(self, entry: OutboxEntry) -> None:
        """An entry is over for which no turn has waited any more."""
        left = self.stranded.pop(entry.home) - 1
        if left:
            self.stranded[entry.home] = left
        self.commits.unstrand(len(entry.body) + STRANDED_BYTES)

    def _recall(self, partition: int) -> None:
        for messages in self._sent.values():
            for number, parts in messages.items():
                mine = [part for part in parts if part.task.partition == partition]
                if mine:
                    messages[number] = [part for part in parts if part.task.partition != partition]
                    for part in mine:
                        self.park(part)

    def gone(self, node_id: str) -> None:
        """A node is no member any more: parts for its partitions go to others, those for its subscribers end."""
        self.acks.forget(node_id)
        for parts in self._sent.pop(node_id, {}).values():
            for part in parts:
                if part.task.partition == _OF_NODE:
                    self.end(part)
                else:
                    self.park(part)

    def renew(self, node_id: str) -> None:
        """A member starts anew without a restart: it has forgotten what it has not confirmed."""
        self.acks.forget(node_id)
        for parts in self._sent.pop(node_id, {}).values():
            for part in parts:
                if part.task.partition == _OF_NODE:
                    self._outgoing.setdefault(node_id, []).append(_live(part.envelope, part.envelope.groups))
                else:
                    self.park(part)

    def drop_all(self) -> None:
        """Forget all messages: their clients are disconnected. Outbox entries are rows, and return with them."""
        for messages in self._sent.values():
            for parts in messages.values():
                self._drop(parts)
        for parts in self._parked.values():
            self._drop(parts)
            for part in parts:
                _count(part.envelope, -1)
        for envelopes in self._outgoing.values():
            for envelope in envelopes:
                self._drop([Part(envelope, task) for task in envelope.tasks])
        self.acks = AckTracker(self.acks.sent_seq)
        self._sent.clear()
        self._parked.clear()
        self._outgoing.clear()

    def _drop(self, parts: list[Part]) -> None:
        for part in parts:
            if part.envelope.entry is None:
                self.end(part)

    def opened(self, partition: int) -> list[Part]:
        """The leader of a partition accepts messages: send those that wait, or return them if this node is the leader.

        Messages of a broken connection are dropped: they were not acknowledged, and the client may have sent newer ones
        through another node (A3). They are kept if a newer message of the same connection is in the outbox, and so
        certain.
        """
        self._recall(partition)
        parts: list[Part] = []
        for part in self._parked.pop(partition, []):
            _count(part.envelope, -1)
            if _is_void(part):
                self.end(part)
            elif part.envelope.entry is None or not part.envelope.entry.over:
                parts.append(part)
        leader = self.fabric.leaders[partition]
        if leader == self.fabric.node_id:
            return parts
        for part in parts:
            again = _copy(part.envelope)
            again.tasks.append(part.task)
            if part.tried:
                again.flags |= ASKED_AGAIN
            self._outgoing.setdefault(leader, []).append(again)
        return []


def _retains(task: Task) -> bool:
    """Whether somebody is to retain a message, at once or when what is deferred comes."""
    if not task.bits & DEFER:
        return task.bits & RETAIN != 0
    return any(other.bits & RETAIN for other in [task, *task.deferred])


def _add_up(counts: dict[int, int], partitions: list[int], change: int) -> None:
    for partition in partitions:
        count = counts.get(partition, 0) + change
        assert count >= 0, "what is confirmed was counted"
        if count:
            counts[partition] = count
        else:
            counts.pop(partition, None)


def _copy(envelope: Envelope) -> Envelope:
    """Return an envelope with the same message, without tasks."""
    copy = Envelope(envelope.sequence, envelope.token, envelope.flags & ~LIVE, envelope.body)
    copy.home = envelope.home
    copy.lineage = envelope.lineage
    copy.order = envelope.order
    copy.ticket = envelope.ticket
    copy.entry = envelope.entry
    copy.connection = envelope.connection
    copy.receipt = envelope.receipt
    return copy


def _ask_for(blank: Envelope, receipt: Receipt | None) -> None:
    if receipt is not None:
        blank.receipt = receipt
        blank.flags |= WITH_RECEIPT


def _live(blank: Envelope, groups: list[bytes]) -> Envelope:
    envelope = _copy(blank)
    envelope.flags |= LIVE
    envelope.groups = groups
    return envelope


def _count(envelope: Envelope, parked: int) -> None:
    if envelope.connection is not None:
        envelope.connection.parked_count += parked


def _is_void(part: Part) -> bool:
    """Whether the message was not acknowledged, and its client may use another node by now."""
    connection = part.envelope.connection
    return connection is not None and connection.broken and part.envelope.order > connection.outbox_order
