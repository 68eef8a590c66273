"""Messages between the brokers of a cluster: their kinds, and the format of the frequent ones.

Rare ones are msgpack lists, packed where they are sent. Unknown kinds are ignored, so that versions can mix.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import BYTE, U16, get_u16, get_u32, get_u64, get_varint, u32, u64, varint
from folkmoot.session.connection import Connection
from folkmoot.store.message import Message, decode_message, encode_message
from folkmoot.turn.receipt import Place, Receipt

__all__ = [
    "ANNOUNCE",
    "QUERY_ANSWER",
    "QUERY",
    "ASKED_AGAIN",
    "ASKS_CONFIRM",
    "ASKS_LANDED",
    "ATTACHED",
    "CHOOSE",
    "CONFIRM",
    "DEFER",
    "FORWARD_ACK",
    "ENTER",
    "EXPEL",
    "FROM_CLIENT",
    "HOST",
    "LANDED",
    "LIVE",
    "OF_PARTITION",
    "OUTPUT",
    "OWN",
    "QUEUE",
    "RELAY",
    "RESENT",
    "FORWARD",
    "RETAIN",
    "RUN",
    "STREAM",
    "WITH_RECEIPT",
    "TO_GROUPS",
    "WANTED",
    "Application",
    "OutboxEntry",
    "Envelope",
    "Task",
    "decode_application",
    "decode_envelope",
    "encode_application",
    "encode_expel",
    "encode_refusals",
    "encode_envelope",
    "encode_run",
    "get_names",
    "get_places",
    "put_names",
    "read_run_head",
    "put_places",
]

FORWARD: Final = 32  # publishing: to the leaders of partitions, and to nodes with transient subscribers
FORWARD_ACK: Final = 33  # the answer: all that was asked is committed, but for what the node does not lead
ANNOUNCE: Final = 34  # which filters have subscribers, and where
HOST: Final = 35  # a client has connected here, and its partition is led there
OWN: Final = 36  # the answer: its session is transient and lives at the node that has the connection
RELAY: Final = 37  # packets of a client, for its session
OUTPUT: Final = 38  # bytes for a client, from its session
EXPEL: Final = 39  # a connection must be closed
WANTED: Final = 40  # a new leader asks which clients are connected
ATTACHED: Final = 41  # the answer
QUERY: Final = 42  # a question about what the receiver leads, see `query.question`
QUERY_ANSWER: Final = 43  # the answer
CONFIRM: Final = 44  # an announcement is known
ENTER: Final = 45  # a view: all that follows was sent in it, and all before in an earlier one
LANDED: Final = 46  # the retained messages that were under way at the time of an announcement are kept

# What an announcement asks for
ASKS_CONFIRM: Final = 1
ASKS_LANDED: Final = 2

# The task of a partition for a message
QUEUE: Final = 1
STREAM: Final = 2
RETAIN: Final = 4
CHOOSE: Final = 8  # gives it to a member of some groups at any node: the partition knows the producer's numbers
DEFER: Final = 16  # keeps it in its outbox for partitions that had no leader

# Of a message under way
LIVE: Final = 1  # for the transient subscribers of the node
FROM_CLIENT: Final = 2  # published by a client, not as its will: "no local" applies
TO_GROUPS: Final = 8  # of the transient subscribers of a node, only members of groups
OF_PARTITION: Final = 4  # numbered by the partition whose change it belongs to, not by a node
RUN: Final = 16  # a run of PUBLISH packets instead of a message, only for transient subscribers
WITH_RECEIPT: Final = 32  # the answer is to name partition, position and number of copies
ASKED_AGAIN: Final = 64  # sent to an earlier leader, which may have delivered it: QoS 0 is not sent twice
RESENT: Final = 128  # an earlier leader of its publisher's session was sent its packet too


class Application:
    """A forwarded message, with its idempotent producer, if it has one; flags: of the envelope.

    refused: with TO_GROUPS, names of locations whose members cannot take it.
    """

    def __init__(self, message: Message, producer: bytes, number: int, flags: int) -> None:
        self.message = message
        self.producer = producer
        self.number = number
        self.flags = flags
        self.refused: list[bytes] = []


class Task:
    """The part of one partition in a message: bits of what to do, groups of which one member there gets it.

    choices: with CHOOSE, groups of which one member anywhere gets it; deferred: with DEFER, the tasks of others.
    """

    def __init__(self, partition: int, bits: int) -> None:
        self.partition = partition
        self.bits = bits
        self.groups: list[bytes] = []
        self.choices: list[bytes] = []
        self.deferred: list[Task] = []

    def __repr__(self) -> str:
        return f"Task({self.partition} bits={self.bits} groups={self.groups!r})"


class OutboxEntry:
    """A message that others get exactly once, because of a change of a partition (a row OUTBOX).

    home: the partition; sequence: per partition, only grows; lineage: in which it was given, as a tag; tasks: of other
    partitions; nodes: whose transient subscribers get it, with the groups of which one member there gets it; token: of
    the turn that waits for its end; ticket: at the barrier, if it is retained; left: missing confirmations; due:
    partitions for which it was deferred, until they confirm it; over: another leader owns it by now; receipt: where the
    answers are noted, if anywhere; released: its turn does not wait for it any more; connection: over which it was
    published, as long as the client must not overtake it elsewhere.
    """

    def __init__(self, home: int, sequence: int, lineage: int, flags: int, body: bytes) -> None:
        self.home = home
        self.sequence = sequence
        self.lineage = lineage
        self.flags = flags
        self.body = body
        self.tasks: list[Task] = []
        self.nodes: dict[str, list[bytes]] = {}
        self.token = 0
        self.ticket = 0
        self.left = 0
        self.due: list[int] = []
        self.over = False
        self.released = False
        self.connection: Connection | None = None
        self.receipt: Receipt | None = None

    def let_overtake(self) -> None:
        """Its client may publish at another node: all have it, or no node can take it now."""
        if self.connection is not None:
            self.connection.outbox_open -= 1
            self.connection = None

    def __repr__(self) -> str:
        return (
            f"OutboxEntry({self.home} {self.sequence} tasks={self.tasks!r} nodes={list(self.nodes)} left={self.left})"
        )


class Envelope:
    """A message for one node: for some of the partitions that it leads, and perhaps for its transient subscribers.

    sequence: grows per publishing node, or (home >= 0) per partition with the outbox entry, in one lineage; body: the
    encoded message; groups: of which one transient member at the node gets it; order, ticket, entry, receipt: at its
    sender, the place in the order of sending, the ticket at the barrier, the outbox entry, and where the answer is
    noted; application: at its receiver, the decoded message.
    """

    def __init__(self, sequence: int, token: int, flags: int, body: bytes) -> None:
        self.sequence = sequence
        self.token = token
        self.flags = flags
        self.body = body
        self.home = -1
        self.lineage = 0
        self.order = 0
        self.ticket = 0
        self.entry: OutboxEntry | None = None
        self.connection: Connection | None = None  # over which it was published
        self.receipt: Receipt | None = None
        self.application: Application | None = None
        self.groups: list[bytes] = []
        self.tasks: list[Task] = []

    def __repr__(self) -> str:
        return f"Envelope({self.home} {self.sequence} flags={self.flags} groups={self.groups!r} tasks={self.tasks!r})"


def encode_application(message: Message, producer: bytes, number: int) -> bytes:
    """Return a message with its producer as bytes."""
    if producer:
        return U16[len(producer)] + producer + u64(number) + encode_message(message)
    return U16[0] + encode_message(message)


def decode_application(data: bytes, flags: int) -> Application:
    """Read what `encode_application` has made; raises CorruptStore or IndexError."""
    length = get_u16(data, 0)
    if not length:
        return Application(decode_message(data, 2), b"", 0, flags)
    end = 2 + length
    producer = data[2:end]
    application = Application(decode_message(data, end + 8), producer, get_u64(data, end), flags)
    if flags & TO_GROUPS:
        application.producer = b""
        get_names(producer, 0, application.refused)
    return application


def encode_refusals(locations: list[bytes]) -> bytes:
    """Return what stands in place of the producer in a message with TO_GROUPS: which locations have refused it."""
    if not locations:
        return b""
    out: list[bytes] = []
    put_names(out, locations)
    return b"".join(out)


def encode_run(publisher: str, v5: bool, total: int, head: int, packets: bytes) -> bytes:
    """Return packets of `total` bytes each, whose first `head` bytes end with the topic, with their publisher."""
    name = publisher.encode()
    return b"".join([U16[len(name)], name, b"\x01" if v5 else b"\x00", varint(total), varint(head), packets])


def read_run_head(data: bytes) -> tuple[str, bool, int, int, int]:
    """Read what `encode_run` has made: publisher, version 5, total, head, where the packets begin.

    Raises IndexError when the packets are not as long as said, ValueError for a name that is no text.
    """
    end = 2 + get_u16(data, 0)
    v5 = data[end] == 1
    total, pos = get_varint(data, end + 1)
    head, pos = get_varint(data, pos)
    if pos >= len(data) or not 3 < head <= total or (len(data) - pos) % total:
        raise IndexError("a run of packets ends too early")
    return data[2:end].decode(), v5, total, head, pos


def encode_expel(number: int, code: int, why: str) -> bytes:
    """Return an EXPEL message: which connection, the reason code for its DISCONNECT (0 = none), and why."""
    return varint(number) + BYTE[code] + why.encode()


def put_places(places: list[tuple[int, Place]], out: list[bytes]) -> None:
    """Append to `out` where messages are stored: (number of the message, place) each."""
    out.append(varint(len(places)))
    for sequence, place in places:
        out.append(varint(sequence))
        out.append(U16[place.partition])
        out.append(varint(place.epoch))
        out.append(varint(place.sequence))
        out.append(varint(place.copies))


def get_places(data: bytes, pos: int) -> dict[tuple[int, int], Place]:
    """Return what `put_places` has put at `pos`, by (number of the message, partition); nothing at the end of `data`.

    Raises IndexError.
    """
    found: dict[tuple[int, int], Place] = {}
    if pos >= len(data):
        return found
    count, pos = get_varint(data, pos)
    for _ in range(count):
        number, pos = get_varint(data, pos)
        partition = get_u16(data, pos)
        epoch, pos = get_varint(data, pos + 2)
        sequence, pos = get_varint(data, pos)
        copies, pos = get_varint(data, pos)
        found[(number, partition)] = Place(partition, epoch, sequence, copies)
    return found


def put_names(out: list[bytes], names: list[bytes]) -> None:
    """Append names with their lengths to `out`."""
    out.append(varint(len(names)))
    for name in names:
        out.append(U16[len(name)])
        out.append(name)


def get_names(data: bytes, pos: int, names: list[bytes]) -> int:
    """Append the names at `pos` to `names`; return the position after them. Raises IndexError."""
    count, pos = get_varint(data, pos)
    for _ in range(count):
        end = pos + 2 + get_u16(data, pos)
        names.append(data[pos + 2 : end])
        pos = end
    return pos


def encode_envelope(envelope: Envelope, out: list[bytes]) -> None:
    """Append an envelope's bytes to `out`."""
    out.append(varint(envelope.sequence))
    out.append(BYTE[envelope.flags])
    if envelope.flags & OF_PARTITION:
        out.append(U16[envelope.home] + u32(envelope.lineage))
    put_names(out, envelope.groups)
    _put_tasks(out, envelope.tasks)
    out.append(varint(len(envelope.body)))
    out.append(envelope.body)


def _put_tasks(out: list[bytes], tasks: list[Task]) -> None:
    out.append(varint(len(tasks)))
    for task in tasks:
        out.append(U16[task.partition])
        out.append(BYTE[task.bits])
        put_names(out, task.groups)
        if task.bits & CHOOSE:
            put_names(out, task.choices)
        if task.bits & DEFER:
            _put_tasks(out, task.deferred)


def decode_envelope(data: bytes, pos: int) -> tuple[Envelope, int]:
    """Return the envelope at `pos` and the position after it; raises IndexError when the bytes end too early."""
    sequence, pos = get_varint(data, pos)
    envelope = Envelope(sequence, 0, data[pos], b"")
    pos += 1
    if envelope.flags & OF_PARTITION:
        envelope.home = get_u16(data, pos)
        envelope.lineage = get_u32(data, pos + 2)
        pos += 6
    pos = get_names(data, pos, envelope.groups)
    pos = _get_tasks(data, pos, envelope.tasks, True)
    length, pos = get_varint(data, pos)
    end = pos + length
    if end > len(data):
        raise IndexError("an envelope ends too early")
    envelope.body = data[pos:end]
    return envelope, end


def _get_tasks(data: bytes, pos: int, tasks: list[Task], may_defer: bool) -> int:
    """Append the tasks at `pos` to `tasks`; return the position after them. Raises IndexError."""
    count, pos = get_varint(data, pos)
    for _ in range(count):
        task = Task(get_u16(data, pos), data[pos + 2])
        pos = get_names(data, pos + 3, task.groups)
        if task.bits & CHOOSE:
            pos = get_names(data, pos, task.choices)
        if task.bits & DEFER:
            if not may_defer:
                raise IndexError("what is deferred is not deferred again")
            pos = _get_tasks(data, pos, task.deferred, False)
        tasks.append(task)
    return pos
