"""The outbox of a partition: messages that other partitions must get exactly once, because of a change of this one.

A change is atomic in one partition only. Where it belongs together with a publication to others (a QoS 2 packet id
becomes known, a will is published, a message leaves the queue of a lost member), it also writes a row OUTBOX with the
message and its destinations. When the change is committed, the leader sends the message to them, in order. When all
have confirmed, it deletes the row, and the turn that wrote it is complete. A new leader goes on with the rows that it
finds; receivers recognise repeated entries by their numbers (`mark`).

Numbers of a partition only grow: a leader begins beyond all that any leader of an earlier view can have used. Each side
of a split gives numbers of its own: an entry is known by its number together with the lineage in which it got it, and a
merge keeps both.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.channel.forward_sender import ForwardSender, first_number
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_varint, varint
from folkmoot.partition.partition import Led, Partition
from folkmoot.session.connection import Connection
from folkmoot.session.session import Session
from folkmoot.store.epoch import tag_of
from folkmoot.store.key import outbox_key
from folkmoot.store.message import Message
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import (
    ASKED_AGAIN,
    RETAIN,
    Envelope,
    OutboxEntry,
    Task,
    decode_envelope,
    encode_application,
    encode_envelope,
    get_names,
    put_names,
)
from folkmoot.turn.state import State

__all__ = ["Outbox", "decode_outbox_entry", "encode_outbox_entry"]

_FORMAT: Final = b"\x01"


class Outbox:
    """The outbox entries of the partitions that this node leads, from their rows until all have confirmed."""

    def __init__(self, state: State, led: Led, fabric: Fabric, commits: Commits, forward_sender: ForwardSender) -> None:
        self.state = state
        self.led = led
        self.fabric = fabric
        self.commits = commits
        self.forward_sender = forward_sender
        self._unsent: deque[tuple[int, OutboxEntry]] = deque()  # entries whose turn is not committed: (token, entry)

    def is_needed(self, home: int) -> bool:
        """Whether messages of `home` for others need a row: where this node leads everything, a turn is one batch."""
        fabric = self.fabric
        return not fabric.alone and (bool(fabric.others) or fabric.leaderless or self.busy(home))

    def busy(self, home: int) -> bool:
        """Whether entries are under way that later messages must not overtake."""
        memory = self.led.get(home)
        return memory is not None and bool(memory.outbox)

    def count(self, home: int) -> int:
        """Return how many entries are not confirmed by all."""
        memory = self.led.get(home)
        return 0 if memory is None else len(memory.outbox)

    def moving(self, home: int) -> int:
        """Return how many of them are under way: those that wait for a partition without a leader are not."""
        return self.count(home) - self.forward_sender.stranded.get(home, 0)

    def follow(self, session: Session, connection: Connection) -> None:
        """Put later messages of a client behind the outbox entries of its partition (A3)."""
        if self.busy(session.partition):
            session.ordered_token = self.commits.newest_token()
            connection.fast = False

    def put(
        self,
        home: int,
        message: Message,
        producer: bytes,
        number: int,
        flags: int,
        tasks: list[Task],
        nodes: dict[str, list[bytes]],
        connection: Connection | None = None,
        is_earlier: bool = False,
    ) -> None:
        """Add a message for partitions and nodes (with groups there) to this turn's change of `home`.

        flags: FROM_CLIENT, TO_GROUPS. connection: over which it was published. is_earlier: another node has deferred
        it.
        """
        assert self.state.leads[home], "only its leader changes a partition"
        memory = self.led[home]
        sequence = memory.outbox_next
        memory.outbox_next = sequence + 1
        lineage = tag_of(self.fabric.epoch)
        entry = OutboxEntry(home, sequence, lineage, flags, encode_application(message, producer, number))
        entry.tasks = tasks
        entry.nodes = nodes
        if connection is not None:
            connection.outbox_order = self.forward_sender.order
            connection.outbox_open += 1
            entry.connection = connection
        entry.receipt = self.commits.receipts.current
        key = self._key(entry)
        self.state.writer.put(home, key, encode_outbox_entry(entry))
        self._add(memory, entry, is_earlier)

    def _key(self, entry: OutboxEntry) -> bytes:
        return outbox_key(entry.home, entry.sequence, entry.lineage)

    def _add(self, memory: Partition, entry: OutboxEntry, is_earlier: bool) -> None:
        memory.outbox[(entry.sequence, entry.lineage)] = entry
        self.forward_sender.promise(entry, is_earlier)
        self.commits.ask(1, len(entry.body))
        entry.token = self.state.writer.token
        if [task for task in entry.tasks if task.bits & RETAIN]:
            entry.ticket = self.forward_sender.barrier.begin()
        self._unsent.append((entry.token, entry))

    # -- under way ----------------------------------------------------------------------------------------------------

    def committed(self) -> None:
        """More turns are committed: send their entries."""
        unsent = self._unsent
        while unsent and unsent[0][0] <= self.commits.committed_token:
            entry = unsent.popleft()[1]
            if not entry.over:
                self.forward_sender.hand(entry)

    def finish(self) -> None:
        """Delete the entries that all have confirmed; call `complete` afterwards."""
        forward_sender = self.forward_sender
        if forward_sender.finished:
            finished = forward_sender.finished
            forward_sender.finished = []
            for entry in finished:
                if not entry.over:
                    del self.led[entry.home].outbox[(entry.sequence, entry.lineage)]
                    self.state.writer.delete(entry.home, self._key(entry))
                    self._end(entry)

    def _end(self, entry: OutboxEntry) -> None:
        entry.over = True
        entry.let_overtake()
        self.forward_sender.forget(entry)
        self.forward_sender.barrier.end(entry.ticket)
        if entry.released:
            self.forward_sender.unstrand(entry)
        else:
            self.commits.answered(entry.token, 1, len(entry.body))

    # -- leaders come and go ------------------------------------------------------------------------------------------

    def begin(self, memory: Partition, entries: list[OutboxEntry]) -> None:
        """Begin to lead a partition, in the installed view.

        entries: its rows, in order; they are sent when all replicas have them.
        """
        memory.outbox_next = first_number(self.fabric.epoch) + 1
        for entry in entries:
            memory.outbox_next = max(memory.outbox_next, entry.sequence + 1)
            entry.flags |= ASKED_AGAIN
            if not self.fabric.planted.outbox_forgotten:
                self._add(memory, entry, True)
        self.forward_sender.barrier.found()

    def renumber(self) -> None:
        """A view was installed: a number belongs to one view, so that none is given twice in a lineage."""
        first = first_number(self.fabric.epoch) + 1
        for memory in self.led:
            memory.outbox_next = max(memory.outbox_next, first)

    def forget(self, memory: Partition) -> None:
        """End the leadership of a partition: its new leader goes on with the entries under way."""
        entries = memory.outbox
        memory.outbox = {}
        for entry in entries.values():
            if entry.receipt is not None:
                entry.receipt.partial = True
            self._end(entry)


def encode_outbox_entry(entry: OutboxEntry) -> bytes:
    """Return the value of an OUTBOX row: the nodes with their groups, then an envelope with tasks and message."""
    out: list[bytes] = [_FORMAT, varint(len(entry.nodes))]
    for node_id, groups in entry.nodes.items():
        put_names(out, [node_id.encode()])
        put_names(out, groups)
    envelope = Envelope(entry.sequence, 0, entry.flags, entry.body)
    envelope.tasks = entry.tasks
    encode_envelope(envelope, out)
    return b"".join(out)


def decode_outbox_entry(home: int, sequence: int, lineage: int, data: bytes) -> OutboxEntry:
    """Read the value of an OUTBOX row, with the numbers in its key; raises CorruptStore."""
    if data[:1] != _FORMAT:
        raise CorruptStore(f"an outbox row has format {data[:1].hex() or 'nothing'}; this version reads format 1")
    nodes: dict[str, list[bytes]] = {}
    try:
        count, pos = get_varint(data, 1)
        for _ in range(count):
            names: list[bytes] = []
            groups: list[bytes] = []
            pos = get_names(data, pos, names)
            pos = get_names(data, pos, groups)
            nodes[names[0].decode()] = groups
        envelope, pos = decode_envelope(data, pos)
    except (IndexError, UnicodeDecodeError):
        raise CorruptStore("an outbox row is damaged: it ends too early") from None
    if pos != len(data):
        raise CorruptStore("an outbox row is damaged: it is too long")
    entry = OutboxEntry(home, sequence, lineage, envelope.flags, envelope.body)
    entry.nodes = nodes
    entry.tasks = envelope.tasks
    return entry
