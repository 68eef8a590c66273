"""The commands of the configuration log, and their bytes: what the data of an entry says.

A command says what its proposer knew (a version, an incarnation, a leader epoch, a number), so that one that was
proposed on outdated knowledge is refused when it is applied (`membership/transition`). Kinds are never used again for
another meaning. A kind or format of a newer build is `UnknownCommand`: a node that does not understand an entry can
not go on, and must not guess.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import BYTE, varint
from folkmoot.membership.cluster_member import ClusterMember, Process, put_member, take_id, take_member, take_process
from folkmoot.membership.cluster_settings import RequestId, take_request
from folkmoot.peer.cursor import Cursor, put_bytes, put_text

__all__ = [
    "ALTER_ISR",
    "AWAY_REASONS",
    "Activate",
    "AlterIsr",
    "COPIES_MAX",
    "CUT_OFF",
    "Command",
    "DELETE",
    "Delete",
    "ENDED",
    "EVICT",
    "EVICTED",
    "Evict",
    "FEATURES",
    "FORGOTTEN",
    "FOUND",
    "Features",
    "Found",
    "IsrItem",
    "JOIN",
    "Join",
    "KINDS",
    "LEAD",
    "LEAVE",
    "LEFT",
    "Lead",
    "Leave",
    "MARK_AWAY",
    "MEMBERS_MAX",
    "MarkAway",
    "PARTITIONS_MAX",
    "PLACE",
    "PRUNE",
    "PUT",
    "Place",
    "PlaceItem",
    "Prune",
    "Put",
    "REMOVE",
    "REMOVE_REASONS",
    "RENEW",
    "REPLACED",
    "REPLICAS_MAX",
    "Remove",
    "Renew",
    "SILENT",
    "START",
    "STAY",
    "STOPPED",
    "STRAIN",
    "Stay",
    "Strain",
    "UnknownCommand",
    "WITHDRAW",
    "Withdraw",
    "decode_command",
    "encode_command",
]

_FORMAT: Final = 1

FOUND: Final = 1
JOIN: Final = 2
START: Final = 3
MARK_AWAY: Final = 4
LEAVE: Final = 5
STAY: Final = 6
EVICT: Final = 7
REMOVE: Final = 8
PLACE: Final = 9
ALTER_ISR: Final = 10
LEAD: Final = 11
STRAIN: Final = 12
PUT: Final = 13
DELETE: Final = 14
FEATURES: Final = 15
WITHDRAW: Final = 17
RENEW: Final = 18
PRUNE: Final = 19
KINDS: Final[dict[int, str]] = {
    FOUND: "found",
    JOIN: "join",
    START: "start",
    MARK_AWAY: "away",
    LEAVE: "leave",
    STAY: "stay",
    EVICT: "evict",
    REMOVE: "remove",
    PLACE: "place",
    ALTER_ISR: "alter-isr",
    LEAD: "lead",
    STRAIN: "strain",
    PUT: "put",
    DELETE: "delete",
    FEATURES: "features",
    WITHDRAW: "withdraw",
    RENEW: "renew",
    PRUNE: "prune",
}
"""The kinds of commands and their names."""

ENDED: Final = 1
SILENT: Final = 2
CUT_OFF: Final = 3
STOPPED: Final = 4
EVICTED: Final = 5
AWAY_REASONS: Final[dict[int, str]] = {
    ENDED: "its process has ended",
    SILENT: "it was not heard of",
    CUT_OFF: "it does not reach the other members",
    STOPPED: "it was stopped in order",
    EVICTED: "its process was put out",
}
"""Why a member is away, for people; newer builds may have further reasons, and 0 is none."""

LEFT: Final = 1
REPLACED: Final = 2
FORGOTTEN: Final = 3
REMOVE_REASONS: Final[dict[int, str]] = {LEFT: "it has left", REPLACED: "its disk was replaced", FORGOTTEN: "forgotten"}
"""Why a member was removed, for people; newer builds may have further reasons."""

MEMBERS_MAX: Final = 4096
PARTITIONS_MAX: Final = 65_536
REPLICAS_MAX: Final = 64  # of one partition: copies, and those that are being moved
COPIES_MAX: Final = 16
_SPARE: Final = -1  # a number that no command has; the encoding of ANY


class UnknownCommand(ValueError):
    """The entry has a format or a kind of a newer build: this node cannot go on until it runs that build."""


class Command:
    """A command of some kind."""

    def __init__(self, kind: int) -> None:
        assert kind in KINDS, "the kind is known"
        self.kind = kind

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return KINDS[self.kind]


class Found(Command):
    """Begin the configuration; the first command of a log, and of no other place.

    Args:
        cluster: The identity of the cluster.
        lineage: The identity of this log.
        parent: The lineage from which it has forked; 0: none.
        parent_index: The last entry of the parent that it descends from.
        members: The first members; they are ACTIVE.
        partitions: Their number, for ever.
        copies: The wanted number of copies of each.
    """

    def __init__(
        self,
        cluster: int,
        lineage: int,
        parent: int,
        parent_index: int,
        members: list[ClusterMember],
        partitions: int,
        copies: int,
    ) -> None:
        super().__init__(FOUND)
        self.cluster = cluster
        self.lineage = lineage
        self.parent = parent
        self.parent_index = parent_index
        self.members = members
        self.partitions = partitions
        self.copies = copies

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        head = varint(self.cluster) + varint(self.lineage) + varint(self.parent) + varint(self.parent_index)
        members = varint(len(self.members)) + b"".join([put_member(member) for member in self.members])
        return head + members + varint(self.partitions) + varint(self.copies)


class Join(Command):
    """Make a disk a member; it is JOINING. `member`: its version is 0."""

    def __init__(self, member: ClusterMember) -> None:
        super().__init__(JOIN)
        self.member = member

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        return put_member(self.member)

    def __repr__(self) -> str:
        return f"join {self.member!r}"


class Activate(Command):
    """START: a process of a member serves.

    It is proposed when the lease of an earlier process on the same disk is certainly over.

    Args:
        disk: Of the member.
        version: Of the member; it counts when the incarnation is known already.
        process: What it says of itself.
        seen: The highest counter of a configuration that it knows, from any lineage; 0: none.
        branches: Partitions, ascending, of which its copy has changes that were acknowledged in another lineage.
    """

    def __init__(
        self, disk: int, version: int, process: Process, seen: int = 0, branches: list[int] | None = None
    ) -> None:
        super().__init__(START)
        self.branches = branches or []
        self.disk = disk
        self.version = version
        self.process = process
        self.seen = seen

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        parts = [varint(self.disk), varint(self.version), self.process.encoded(), varint(self.seen)]
        parts.append(varint(len(self.branches)))
        parts.extend([varint(number) for number in self.branches])
        return b"".join(parts)

    def __repr__(self) -> str:
        branches = f" with branches of {self.branches}" if self.branches else ""
        return f"start {self.disk} incarnation {self.process.incarnation}{branches}"


class MarkAway(Command):
    """AWAY: processes do not serve any more, and their leases are certainly over.

    Those whose leases are over at one moment are marked in one entry: so no partition is left to one of them. Builds
    without the feature TOGETHER (`kernel/feature`) cannot read others.

    Args:
        disk: Of the first one; its incarnation and version follow.
        why: See `AWAY_REASONS`.
        others: The other ones, each without others.
    """

    def __init__(
        self, disk: int, incarnation: int, version: int, why: int, others: list[MarkAway] | None = None
    ) -> None:
        super().__init__(MARK_AWAY)
        self.disk = disk
        self.incarnation = incarnation
        self.version = version
        self.why = why
        self.others: list[MarkAway] = others or []

    def all(self) -> list[MarkAway]:
        """Return a command for each process."""
        return [self, *self.others]

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        parts: list[bytes] = []
        for one in self.all():
            parts += [varint(one.disk), varint(one.incarnation), varint(one.version), BYTE[one.why]]
        if self.others:
            parts.insert(4, varint(len(self.others)))
        return b"".join(parts)

    def __repr__(self) -> str:
        names = [
            f"{one.disk} incarnation {one.incarnation}: {AWAY_REASONS.get(one.why, one.why)}" for one in self.all()
        ]
        return f"away {', '.join(names)}"


class Leave(Command):
    """Let a member hand over what it holds, and leave."""

    def __init__(self, disk: int, version: int) -> None:
        super().__init__(LEAVE)
        self.disk = disk
        self.version = version

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        return varint(self.disk) + varint(self.version)

    def __repr__(self) -> str:
        return f"leave {self.disk}"


class Stay(Command):
    """Take a leave back."""

    def __init__(self, disk: int, version: int) -> None:
        super().__init__(STAY)
        self.disk = disk
        self.version = version

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        return varint(self.disk) + varint(self.version)

    def __repr__(self) -> str:
        return f"stay {self.disk}"


class Evict(Command):
    """Put a process out, whose lease is certainly over: this incarnation does not come back, a later one may."""

    def __init__(self, disk: int, incarnation: int) -> None:
        super().__init__(EVICT)
        self.disk = disk
        self.incarnation = incarnation

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        return varint(self.disk) + varint(self.incarnation)

    def __repr__(self) -> str:
        return f"evict {self.disk} incarnation {self.incarnation}"


class Remove(Command):
    """End a membership. `why`: see `REMOVE_REASONS`; `force`: also if it has the only copy of a partition."""

    def __init__(self, disk: int, version: int, why: int, force: bool) -> None:
        super().__init__(REMOVE)
        self.disk = disk
        self.version = version
        self.why = why
        self.force = force

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        return varint(self.disk) + varint(self.version) + BYTE[self.why] + BYTE[self.force]

    def __repr__(self) -> str:
        return f"remove {self.disk}{' by force' if self.force else ''}: {REMOVE_REASONS.get(self.why, self.why)}"


class PlaceItem:
    """The replicas that one partition is to have, and the version of the partition that its proposer knew."""

    def __init__(self, partition: int, version: int, replicas: list[int]) -> None:
        self.partition = partition
        self.version = version
        self.replicas = replicas

    def __repr__(self) -> str:
        return f"{self.partition}: {self.replicas}"


class Place(Command):
    """Set the replicas of partitions; each item is judged by itself."""

    def __init__(self, items: list[PlaceItem]) -> None:
        super().__init__(PLACE)
        self.items = items

    def body(self) -> bytes:
        """Return the bytes behind format and kind: a table of disks, and the numbers of its rows."""
        disks = sorted({disk for item in self.items for disk in item.replicas})
        row: dict[int, bytes] = {disk: varint(number) for number, disk in enumerate(disks)}
        parts = [varint(len(disks))]
        parts.extend([varint(disk) for disk in disks])
        parts.append(varint(len(self.items)))
        for item in self.items:
            parts.append(varint(item.partition) + varint(item.version) + varint(len(item.replicas)))
            parts.extend([row[disk] for disk in item.replicas])
        return b"".join(parts)

    def __repr__(self) -> str:
        return f"place {', '.join([repr(item) for item in self.items])}"


class IsrItem:
    """The ISR that the leader of one partition asks for.

    Args:
        partition: Its number.
        leader_epoch: The number of the leadership.
        version: Of the partition.
        isr: The wanted ISR, in any order.
        anew: A leadership begins: there were too few copies until now (`node/scarcity`), and the leader took nothing.
    """

    def __init__(self, partition: int, leader_epoch: int, version: int, isr: list[int], anew: bool = False) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.version = version
        self.isr = isr
        self.anew = anew

    def __repr__(self) -> str:
        return f"{self.partition}/{self.leader_epoch}: {self.isr}{' anew' if self.anew else ''}"


class AlterIsr(Command):
    """Ask for other ISRs, as the leader of the partitions; each item is judged by itself.

    This is Kafka's AlterPartition (KIP-497, KIP-841, KIP-903), for all partitions of a leader at once.

    Args:
        leader: The disk that asks.
        items: What it asks for.
        started: By disk, of all members of these ISRs, `ClusterMember.started` as the leader knows it: one that has
            come up again since is not added, also if its process is the same. While it was away the leader did not
            count on it.
    """

    def __init__(self, leader: int, items: list[IsrItem], started: dict[int, int]) -> None:
        super().__init__(ALTER_ISR)
        self.leader = leader
        self.items = items
        self.started = started
        assert {disk for item in items for disk in item.isr} == set(started), "members of ISRs have come up"

    def body(self) -> bytes:
        """Return the bytes behind format and kind: a table of disks with their starts, and the numbers of its rows."""
        disks = sorted(self.started)
        row: dict[int, bytes] = {disk: varint(number) for number, disk in enumerate(disks)}
        parts = [varint(self.leader), varint(len(disks))]
        parts.extend([varint(disk) + varint(self.started[disk]) for disk in disks])
        parts.append(varint(len(self.items)))
        for item in self.items:
            parts.append(varint(item.partition) + varint(item.leader_epoch) + varint(item.version))
            parts.append(BYTE[1 if item.anew else 0] + varint(len(item.isr)))
            parts.extend([row[disk] for disk in item.isr])
        return b"".join(parts)

    def __repr__(self) -> str:
        return f"alter-isr leader {self.leader}: {', '.join([repr(item) for item in self.items])}"


class Lead(Command):
    """Hand the leadership of a partition to a member of its ISR.

    It is proposed when the leader of the partition, whose lease goes on, has ended what it does there.
    """

    def __init__(self, partition: int, version: int, leader: int) -> None:
        super().__init__(LEAD)
        self.partition = partition
        self.version = version
        self.leader = leader

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        return varint(self.partition) + varint(self.version) + varint(self.leader)

    def __repr__(self) -> str:
        return f"lead {self.partition}: {self.leader}"


class Strain(Command):
    """Say what a member suffers from.

    Args:
        disk: Of the member.
        incarnation: Of its process.
        version: Of the member.
        full: Its disk has no room.
        slow: Its disk, or its loop, is slow, but moves.
    """

    def __init__(self, disk: int, incarnation: int, version: int, full: bool, slow: bool) -> None:
        super().__init__(STRAIN)
        self.disk = disk
        self.incarnation = incarnation
        self.version = version
        self.full = full
        self.slow = slow

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        return varint(self.disk) + varint(self.incarnation) + varint(self.version) + BYTE[self.full] + BYTE[self.slow]

    def __repr__(self) -> str:
        return f"strain {self.disk}:{' full' if self.full else ''}{' slow' if self.slow else ''}"


class Withdraw(Command):
    """Take a member out of the ISR of partitions, as it asks itself.

    Args:
        disk: The member.
        incarnation: Its process.
        partitions: Its copies of these are behind: it stays where it is the last in sync.
        damaged: Its copies of these cannot be read, with the versions of the partitions that it knew. Where it is the
            last in sync it stays so, and leads no more until it is started again.
    """

    def __init__(self, disk: int, incarnation: int, partitions: list[int], damaged: list[tuple[int, int]]) -> None:
        super().__init__(WITHDRAW)
        self.disk = disk
        self.incarnation = incarnation
        self.partitions = partitions
        self.damaged = damaged

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        parts = [varint(self.disk), varint(self.incarnation), varint(len(self.partitions))]
        parts.extend([varint(number) for number in self.partitions])
        parts.append(varint(len(self.damaged)))
        parts.extend([varint(number) + varint(version) for number, version in self.damaged])
        return b"".join(parts)

    def __repr__(self) -> str:
        return f"withdraw {self.disk} from {self.partitions} damaged {[number for number, _version in self.damaged]}"


class Renew(Command):
    """Count the configuration up without another change, as a member asks: messages between members were lost.

    With another epoch all members report anew what they have, and tell each other anew what they know.
    """

    def __init__(self, disk: int, incarnation: int) -> None:
        super().__init__(RENEW)
        self.disk = disk
        self.incarnation = incarnation

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        return varint(self.disk) + varint(self.incarnation)

    def __repr__(self) -> str:
        return f"renew {self.disk}"


class Prune(Command):
    """Forget old ancestors of the lineage: everybody follows this one, and nothing of theirs has to be merged any more.

    It is no entry of the time at which it was proposed: whether it fits is judged by the configuration that it meets.

    Args:
        upto: The last counter that is shared with the newest ancestor that is forgotten.
    """

    def __init__(self, upto: int) -> None:
        super().__init__(PRUNE)
        self.upto = upto

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        return varint(self.upto)

    def __repr__(self) -> str:
        return f"prune ancestors up to {self.upto}"


class Put(Command):
    """Set a setting of the whole cluster. `expected`: its number now, ABSENT, or ANY; `request`: None, it has no id."""

    def __init__(self, key: str, value: bytes, expected: int, author: str, request: RequestId | None = None) -> None:
        super().__init__(PUT)
        self.request = request
        assert expected >= _SPARE, "a number, ABSENT or ANY"
        self.key = key
        self.value = value
        self.expected = expected
        self.author = author

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        head = put_text(self.key) + put_bytes(self.value) + varint(self.expected - _SPARE) + put_text(self.author)
        return head + _put_request(self.request)

    def __repr__(self) -> str:
        return f"put {self.key!r} ({len(self.value)} bytes) by {self.author!r}"


class Delete(Command):
    """Remove a setting of the whole cluster. `expected`: its number now, or ANY; `request`: None, it has no id."""

    def __init__(self, key: str, expected: int, author: str, request: RequestId | None = None) -> None:
        super().__init__(DELETE)
        self.request = request
        assert expected >= _SPARE, "a number or ANY"
        self.key = key
        self.expected = expected
        self.author = author

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        head = put_text(self.key) + varint(self.expected - _SPARE) + put_text(self.author)
        return head + _put_request(self.request)

    def __repr__(self) -> str:
        return f"delete {self.key!r} by {self.author!r}"


class Features(Command):
    """Switch features on, for ever; `bits`: one for each."""

    def __init__(self, bits: int) -> None:
        super().__init__(FEATURES)
        self.bits = bits

    def body(self) -> bytes:
        """Return the bytes behind format and kind."""
        return varint(self.bits)

    def __repr__(self) -> str:
        return f"features {self.bits:#x}"


def encode_command(command: Command) -> bytes:
    """Return a command as the data of an entry; raises ValueError if a text or a list in it is too long.

    What no node could read must not get into the log, so the bytes are read once here.
    """
    data = BYTE[_FORMAT] + BYTE[command.kind] + command.body()
    decode_command(data)
    return data


def decode_command(data: bytes) -> Command:
    """Return the command in the data of an entry; raises ValueError, and of that UnknownCommand for newer builds."""
    cursor = Cursor(data, "a command")
    found = cursor.byte()
    if found != _FORMAT:
        raise UnknownCommand(f"a command has format {found}, this build reads format {_FORMAT}: run a newer build")
    kind = cursor.byte()
    if kind not in KINDS:
        raise UnknownCommand(f"a command has kind {kind}, which this build does not know: run a newer build")
    command = _take(cursor, kind)
    if not cursor.done():
        raise ValueError(f"a command of kind {KINDS[kind]} goes on behind its end")
    if data[2:] != command.body():
        raise ValueError(f"a command of kind {KINDS[kind]} has another encoding than its own")
    return command


def _take(cursor: Cursor, kind: int) -> Command:
    """Read the body of a command."""
    if kind == FOUND:
        return _take_found(cursor)
    if kind == JOIN:
        return Join(take_member(cursor))
    if kind == START:
        return _take_start(cursor)
    if kind == MARK_AWAY:
        first = _take_away(cursor)
        if not cursor.done():
            first.others = [_take_away(cursor) for _ in range(cursor.count(MEMBERS_MAX))]
        return first
    if kind == LEAVE:
        return Leave(_disk(cursor), _version(cursor))
    if kind == STAY:
        return Stay(_disk(cursor), _version(cursor))
    if kind == EVICT:
        return Evict(_disk(cursor), _incarnation(cursor))
    if kind == REMOVE:
        return Remove(_disk(cursor), _version(cursor), cursor.byte(), _flag(cursor))
    if kind in (PLACE, ALTER_ISR, LEAD, WITHDRAW, RENEW, STRAIN):
        return _take_of_partitions(cursor, kind)
    if kind == PUT:
        key = cursor.text()
        value = cursor.bytes_()
        expected = _expected(cursor)
        return Put(key, value, expected, cursor.text(), _request(cursor))
    if kind == DELETE:
        key = cursor.text()
        expected = _expected(cursor)
        return Delete(key, expected, cursor.text(), _request(cursor))
    if kind == PRUNE:
        return Prune(take_id(cursor, 1, "counter"))
    assert kind == FEATURES, "every kind is read"
    return Features(take_id(cursor, 0, "set of features"))


def _take_of_partitions(cursor: Cursor, kind: int) -> Command:
    """Read the body of a command about copies and roles."""
    if kind == PLACE:
        return _take_place(cursor)
    if kind == ALTER_ISR:
        return _take_alter(cursor)
    if kind == LEAD:
        return Lead(cursor.integer(), _version(cursor), _disk(cursor))
    if kind == WITHDRAW:
        disk = _disk(cursor)
        incarnation = _incarnation(cursor)
        behind = [cursor.integer() for _ in range(cursor.count(PARTITIONS_MAX))]
        damaged: list[tuple[int, int]] = []
        for _ in range(cursor.count(PARTITIONS_MAX)):
            number = cursor.integer()
            damaged.append((number, _version(cursor)))
        return Withdraw(disk, incarnation, behind, damaged)
    if kind == RENEW:
        return Renew(_disk(cursor), _incarnation(cursor))
    assert kind == STRAIN, "every kind is read"
    return Strain(_disk(cursor), _incarnation(cursor), _version(cursor), _flag(cursor), _flag(cursor))


def _take_found(cursor: Cursor) -> Found:
    cluster = take_id(cursor, 1, "identity of a cluster")
    lineage = take_id(cursor, 1, "lineage")
    parent = take_id(cursor, 0, "lineage")
    parent_index = take_id(cursor, 0, "index")
    members = [take_member(cursor) for _ in range(cursor.count(MEMBERS_MAX))]
    return Found(cluster, lineage, parent, parent_index, members, cursor.integer(), cursor.integer())


def _take_start(cursor: Cursor) -> Activate:
    disk = _disk(cursor)
    version = _version(cursor)
    process = take_process(cursor)
    seen = take_id(cursor, 0, "counter")
    return Activate(disk, version, process, seen, [cursor.integer() for _ in range(cursor.count(PARTITIONS_MAX))])


def _take_place(cursor: Cursor) -> Place:
    disks = [_disk(cursor) for _ in range(cursor.count(MEMBERS_MAX))]
    items: list[PlaceItem] = []
    for _ in range(cursor.count(PARTITIONS_MAX)):
        partition = cursor.integer()
        version = _version(cursor)
        items.append(PlaceItem(partition, version, _take_rows(cursor, disks)))
    return Place(items)


def _take_alter(cursor: Cursor) -> AlterIsr:
    leader = _disk(cursor)
    disks: list[int] = []
    started: dict[int, int] = {}
    for _ in range(cursor.count(MEMBERS_MAX)):
        disks.append(_disk(cursor))
        started[disks[-1]] = take_id(cursor, 0, "counter")
    items: list[IsrItem] = []
    named: set[int] = set()
    for _ in range(cursor.count(PARTITIONS_MAX)):
        partition = cursor.integer()
        leader_epoch = take_id(cursor, 1, "leader epoch")
        version = _version(cursor)
        anew = _flag(cursor)
        items.append(IsrItem(partition, leader_epoch, version, _take_rows(cursor, disks), anew))
        named.update(items[-1].isr)
    if len(named) < len(started):
        raise ValueError("a command lists a disk that is in no ISR")
    return AlterIsr(leader, items, started)


def _take_rows(cursor: Cursor, disks: list[int]) -> list[int]:
    """Read a list of disks as rows of a table."""
    found: list[int] = []
    for _ in range(cursor.count(REPLICAS_MAX)):
        row = cursor.integer()
        if row >= len(disks):
            raise ValueError("a command names a disk that it does not list")
        found.append(disks[row])
    return found


def _take_away(cursor: Cursor) -> MarkAway:
    return MarkAway(_disk(cursor), _incarnation(cursor), _version(cursor), cursor.byte())


def _disk(cursor: Cursor) -> int:
    return take_id(cursor, 1, "identity of a disk")


def _incarnation(cursor: Cursor) -> int:
    return take_id(cursor, 1, "incarnation")


def _version(cursor: Cursor) -> int:
    return take_id(cursor, 0, "version")


def _expected(cursor: Cursor) -> int:
    return take_id(cursor, 0, "expected number") + _SPARE


def _put_request(request: RequestId | None) -> bytes:
    """Return a request id, or nothing, as in entries of earlier builds."""
    if request is None:
        return b""
    return varint(request.disk) + varint(request.incarnation) + varint(request.number) + varint(request.done)


def _request(cursor: Cursor) -> RequestId | None:
    return None if cursor.done() else take_request(cursor)


def _flag(cursor: Cursor) -> bool:
    value = cursor.byte()
    if value > 1:
        raise ValueError(f"{value} is neither yes nor no")
    return value == 1
