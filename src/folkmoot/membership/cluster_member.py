"""A member of the configuration: a disk, and the newest process that serves with it."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import BYTE, varint
from folkmoot.membership.lifecycle import JOINING, STATES, is_up
from folkmoot.peer.cursor import Cursor, put_text

__all__ = [
    "DATA",
    "ID_MAX",
    "KINDS",
    "WITNESS",
    "ClusterMember",
    "Process",
    "put_member",
    "take_id",
    "take_member",
    "take_process",
]

DATA: Final = 0  # holds partitions
WITNESS: Final = 1  # votes and holds none
KINDS: Final[list[str]] = ["data", "witness"]

ID_MAX: Final = (1 << 62) - 1
"""The largest disk identity, incarnation, version or set of features: a native integer of the compiled code."""

_WIRE_MAX: Final = 0xFFFF


class Process:
    """What a process says of itself when it starts; immutable.

    Args:
        incarnation: The number of this start; it grows with every start on the same disk.
        address: Where other members reach it.
        zone: What fails together, for spreading: a site, a room, a rack.
        host: The machine, for spreading where several nodes share one.
        wire_min: The oldest version of the wire that it speaks.
        wire_max: The newest one.
        build: Its version, for people.
        features: A bit for each feature that it has.
    """

    def __init__(
        self,
        incarnation: int,
        address: str,
        zone: str,
        host: str,
        wire_min: int = 1,
        wire_max: int = 1,
        build: str = "",
        features: int = 0,
    ) -> None:
        assert 0 < incarnation <= ID_MAX, "incarnations begin at 1"
        assert 0 <= wire_min <= wire_max <= _WIRE_MAX, "a range of versions"
        assert 0 <= features <= ID_MAX, "a set of features"
        self.incarnation = incarnation
        self.address = address
        self.zone = zone
        self.host = host
        self.wire_min = wire_min
        self.wire_max = wire_max
        self.build = build
        self.features = features

    def encoded(self) -> bytes:
        """Return the process as bytes."""
        parts = [varint(self.incarnation), put_text(self.address), put_text(self.zone), put_text(self.host)]
        parts += [varint(self.wire_min), varint(self.wire_max), put_text(self.build), varint(self.features)]
        return b"".join(parts)


def take_id(cursor: Cursor, least: int, what: str) -> int:
    """Read an integer from `least` to `ID_MAX`; raises ValueError."""
    value = cursor.integer()
    if not least <= value <= ID_MAX:
        raise ValueError(f"{value} is no {what}")
    return value


def take_process(cursor: Cursor) -> Process:
    """Read what `Process.encoded` wrote; raises ValueError."""
    incarnation = take_id(cursor, 1, "incarnation")
    address = cursor.text()
    zone = cursor.text()
    host = cursor.text()
    wire_min = cursor.integer()
    wire_max = cursor.integer()
    build = cursor.text()
    features = take_id(cursor, 0, "set of features")
    if not wire_min <= wire_max <= _WIRE_MAX:
        raise ValueError(f"{wire_min} to {wire_max} are no versions of the wire")
    return Process(incarnation, address, zone, host, wire_min, wire_max, build, features)


class ClusterMember:
    """A member; immutable, so that a reader of an earlier configuration keeps what it has read.

    Args:
        disk: The identity of the disk, drawn when the data folder was made; also the id of the member in Raft.
        node_id: The name of the node, unique among the members.
        kind: DATA or WITNESS.
        process: The newest process that is known.
        state: See `membership/lifecycle`.
        full: Its disk has no room: it is given nothing new, and leads only what no other member can lead.
        evicted: The newest incarnation that must not come back; 0: none.
        version: The index of the entry that changed this member last; commands of proposers that know an older one are
            refused.
        started: The counter of the configuration (`ClusterConfiguration.counter`) by which it came up last, 0: it never
            did. While that is the same, it has lost nothing of what it has in memory of the others, nor they of it.
        away: The counter of the configuration by which it went away last; 0: it never did.
        why: The reason (`command.AWAY_REASONS`); 0 while it is up, and if it never was.
        slow: Its disk or its loop is slow, but moves: it leads only what no other member can lead; it keeps copies, and
            is given new ones.
    """

    def __init__(
        self,
        disk: int,
        node_id: str,
        kind: int,
        process: Process,
        state: int = JOINING,
        full: bool = False,
        evicted: int = 0,
        version: int = 0,
        started: int = 0,
        away: int = 0,
        why: int = 0,
        slow: bool = False,
    ) -> None:
        assert 0 < disk <= ID_MAX, "the identity of a disk is positive and has 62 bits"
        assert node_id, "a node has a name"
        assert 0 <= kind < len(KINDS), "the kind is known"
        assert 0 <= state < len(STATES), "the state is known"
        self.disk = disk
        self.node_id = node_id
        self.kind = kind
        self.process = process
        self.state = state
        self.full = full
        self.evicted = evicted
        self.version = version
        self.started = started
        self.away = away
        self.why = why
        self.slow = slow

    @property
    def incarnation(self) -> int:
        """The incarnation of the newest process."""
        return self.process.incarnation

    def can_lead(self) -> bool:
        """Tell whether it holds data and is up."""
        return self.kind == DATA and is_up(self.state)

    def is_strained(self) -> bool:
        """Tell whether it should lead nothing that another member can lead."""
        return self.full or self.slow

    def in_state(self, state: int, version: int) -> ClusterMember:
        """Return the member in another state."""
        found = self.copied(version)
        found.state = state
        return found

    def copied(self, version: int) -> ClusterMember:
        """Return a copy with a newer version, which may be changed until somebody else sees it."""
        found = ClusterMember(self.disk, self.node_id, self.kind, self.process, self.state, self.full, self.evicted)
        found.version = version
        found.started = self.started
        found.away = self.away
        found.why = self.why
        found.slow = self.slow
        return found

    def succeeds(self, before: ClusterMember) -> bool:
        """Tell whether this can be the state right after `before`: its numbers have grown as they must."""
        if self.version <= before.version or self.incarnation < before.incarnation:
            return False
        return self.evicted >= before.evicted and self.started >= before.started and self.away >= before.away

    def __repr__(self) -> str:
        parts = [f"{self.node_id} disk {self.disk} {KINDS[self.kind]} {STATES[self.state]}"]
        parts.append(f"incarnation {self.incarnation} version {self.version}")
        if self.full:
            parts.append("full")
        if self.slow:
            parts.append("slow")
        if self.why:
            parts.append(f"away {self.away} why {self.why}")
        if self.evicted:
            parts.append(f"evicted {self.evicted}")
        return " ".join(parts)


def put_member(member: ClusterMember) -> bytes:
    """Return a member as bytes, with its state."""
    head = varint(member.disk) + put_text(member.node_id) + BYTE[member.kind] + member.process.encoded()
    tail = varint(member.evicted) + varint(member.version) + varint(member.started)
    return (
        head
        + BYTE[member.state]
        + BYTE[member.full]
        + tail
        + varint(member.away)
        + BYTE[member.why]
        + BYTE[member.slow]
    )


def take_member(cursor: Cursor) -> ClusterMember:
    """Read what `put_member` wrote; raises ValueError."""
    disk = take_id(cursor, 1, "identity of a disk")
    node_id = cursor.text()
    kind = cursor.byte()
    process = take_process(cursor)
    state = cursor.byte()
    full = cursor.byte()
    evicted = take_id(cursor, 0, "incarnation")
    version = take_id(cursor, 0, "version")
    started = take_id(cursor, 0, "counter")
    away = take_id(cursor, 0, "counter")
    why = cursor.byte()
    slow = cursor.byte()
    if not node_id or kind >= len(KINDS) or state >= len(STATES) or full > 1 or slow > 1:
        raise ValueError(f"a member {node_id!r} has fields that no member has")
    return ClusterMember(
        disk, node_id, kind, process, state, full == 1, evicted, version, started, away, why, slow == 1
    )
