"""What is kept: entries of the log, the hard state, snapshots; each with its encoding for a disk or a message."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import BYTE, varint
from folkmoot.raft.codec import FORMAT, INTEGER_MAX, Reader, put_bytes, seal, unseal
from folkmoot.raft.configuration import (
    EMPTY,
    Configuration,
    decode_change,
    decode_configuration,
    encode_configuration,
)

__all__ = [
    "CHANGE",
    "DATA",
    "Entry",
    "HardState",
    "NOOP",
    "Snapshot",
    "decode_entry",
    "decode_hard_state",
    "decode_snapshot",
    "encode_entry",
    "encode_hard_state",
    "encode_snapshot",
    "founding",
    "put_entry",
    "read_entry",
]

NOOP: Final = 0  # the first entry of each leader: it commits what earlier leaders have left (dissertation, 3.6.2)
DATA: Final = 1
CHANGE: Final = 2
_NAMES: Final[dict[int, str]] = {NOOP: "noop", DATA: "data", CHANGE: "change"}
_OVERHEAD: Final = 24  # what an entry costs beside its data, for limits


class Entry:
    """One entry of the log; immutable."""

    def __init__(self, index: int, term: int, kind: int, data: bytes) -> None:
        assert index > 0, "indexes begin at 1"
        assert term > 0, "terms begin at 1"
        self.index = index
        self.term = term
        self.kind = kind
        self.data = data

    def cost(self) -> int:
        """Return the bytes for which the entry counts in limits."""
        return _OVERHEAD + len(self.data)

    def same(self, other: Entry) -> bool:
        """Tell whether both are the same entry in every field."""
        fits = self.index == other.index and self.term == other.term
        return fits and self.kind == other.kind and self.data == other.data

    def __repr__(self) -> str:
        if self.kind == NOOP:
            return f"{self.index}/{self.term} noop"
        if self.kind == CHANGE:
            return f"{self.index}/{self.term} {decode_change(self.data).configuration!r}"
        return f"{self.index}/{self.term} {self.data!r}"


class HardState:
    """Term, vote (0: none), a commit index that may be older than the newest one, and the promise; immutable.

    The promise is how long this member votes for nobody else after it has heard a leader; 0: it has promised nothing.
    """

    def __init__(self, term: int, vote: int, commit: int, promise_ns: int = 0) -> None:
        self.term = term
        self.vote = vote
        self.commit = commit
        self.promise_ns = promise_ns

    def __repr__(self) -> str:
        promise = f" promise {self.promise_ns}" if self.promise_ns else ""
        return f"term {self.term} vote {self.vote} commit {self.commit}{promise}"


class Snapshot:
    """The state machine at an index, with the configuration there; index 0 is the snapshot before everything."""

    def __init__(self, index: int, term: int, configuration: Configuration, data: bytes) -> None:
        self.index = index
        self.term = term
        self.configuration = configuration
        self.data = data

    def __repr__(self) -> str:
        return f"{self.index}/{self.term} {self.configuration!r} ({len(self.data)} bytes)"


def founding(voters: list[int]) -> Snapshot:
    """Return the snapshot from which the first voters of a cluster begin; it must be the same at all of them."""
    assert voters, "a cluster begins with a voter"
    return Snapshot(1, 1, Configuration(voters, []), b"")


def put_entry(entry: Entry) -> bytes:
    """Return an entry without its index, for a place that tells it."""
    return BYTE[entry.kind] + varint(entry.term) + put_bytes(entry.data)


def read_entry(reader: Reader, index: int) -> Entry:
    """Read the entry that has `index`; raises Malformed."""
    kind = reader.byte()
    term = reader.integer()
    data = reader.octets()
    if kind not in _NAMES:
        raise reader.fault(f"{kind} is no kind of entry")
    if term == 0 or not 0 < index <= INTEGER_MAX:
        raise reader.fault(f"{index}/{term} is no position of an entry")
    if kind == NOOP and data:
        raise reader.fault("an entry without meaning has data")
    if kind == CHANGE:
        decode_change(data)
    return Entry(index, term, kind, data)


def encode_entry(entry: Entry) -> bytes:
    """Return an entry as sealed bytes for a disk."""
    return seal(BYTE[FORMAT] + varint(entry.index) + put_entry(entry))


def decode_entry(data: bytes) -> Entry:
    """Return the entry in sealed bytes; raises Malformed."""
    reader = Reader(unseal(data, "entry"), "entry")
    reader.version()
    entry = read_entry(reader, reader.integer())
    reader.end()
    return entry


def encode_hard_state(state: HardState) -> bytes:
    """Return a hard state as sealed bytes for a disk."""
    assert state.term > 0, "a member that has nothing to say writes nothing"
    body = varint(state.term) + varint(state.vote) + varint(state.commit) + varint(state.promise_ns)
    return seal(BYTE[FORMAT] + body)


def decode_hard_state(data: bytes) -> HardState:
    """Return the hard state in sealed bytes; raises Malformed."""
    reader = Reader(unseal(data, "hard state"), "hard state")
    reader.version()
    state = HardState(reader.integer(), reader.integer(), reader.integer(), reader.integer())
    reader.end()
    if state.term == 0 and (state.vote or state.commit or state.promise_ns):
        raise reader.fault("a vote, a commit or a promise without a term")
    return state


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return a snapshot as sealed bytes, for a disk and for chunks."""
    assert snapshot.index > 0, "a snapshot is of a cluster"
    assert snapshot.configuration.voters, "a snapshot is of a cluster"
    head = BYTE[FORMAT] + varint(snapshot.index) + varint(snapshot.term)
    return seal(head + encode_configuration(snapshot.configuration) + put_bytes(snapshot.data))


def decode_snapshot(data: bytes) -> Snapshot:
    """Return the snapshot in sealed bytes; raises Malformed."""
    reader = Reader(unseal(data, "snapshot"), "snapshot")
    reader.version()
    index = reader.integer()
    term = reader.integer()
    configuration = decode_configuration(reader)
    snapshot = Snapshot(index, term, configuration, reader.octets())
    reader.end()
    if index == 0 or term == 0 or configuration.same(EMPTY):
        raise reader.fault(f"{index}/{term} {configuration!r} is no snapshot of a cluster")
    return snapshot
