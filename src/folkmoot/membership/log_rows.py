"""The rows of configuration logs in the store of a node: for each lineage what Raft has to find after a restart.

A node takes part in one lineage at a time; the rows of the others stay as they are, so that it can come back to one of
them with its term, vote and log. Those of a lineage in which it was the only voter go when it has gone over to another
one: nobody else can go on there. Those of others go when they are many, and when nobody is left in another lineage
than its own (`retire_lineages`): the lineage is *retired* at this disk. The rows are private to the node (kind META),
under the id of their lineage:

    "raft" lineage "e" index    an entry
    "raft" lineage "h"          term, vote and commit index; the indexes of the snapshot, the first and the last entry
    "raft" lineage "s" number   a part of the snapshot: a row stays small however large the configuration is
    "raft" lineage "d"          rows may be missing that were confirmed (`membership/doubt`)
    "raft" lineage "l"          the highest counter that the disk knew when it left the lineage
    "raft" lineage "r"          in place of all others: the lineage is retired, the disk has given up its vote there;
                                a counter as in "l"
    "lineage"                   the cluster, and the lineage in which the node takes part
    "cluster"                   the cluster to which the folder belonged before it became another disk
    "removals"                  who was removed in lineages that the node has left, and is to leave the present one

Each value begins with a CRC-32 of its key and of what follows. Every write puts the row "h" anew, and puts it last, so
rows that are missing, at either end of the log too, and rows that do not belong together are found. What cannot be
found is a batch that is missing as a whole.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u32, get_u64, u32, u64, varint
from folkmoot.membership.cluster_member import ID_MAX, take_id
from folkmoot.membership.configuration import Removal
from folkmoot.membership.configuration_format import encode_removals, take_removals
from folkmoot.peer.cursor import Cursor, put_bytes
from folkmoot.raft.configuration import EMPTY
from folkmoot.raft.entry import (
    Entry,
    HardState,
    Snapshot,
    decode_entry,
    decode_hard_state,
    decode_snapshot,
    encode_entry,
    encode_hard_state,
    encode_snapshot,
)
from folkmoot.raft.error import Malformed
from folkmoot.raft.ready import Write
from folkmoot.raft.recovery import Persisted
from folkmoot.store.key import META, end_of, plain_key
from folkmoot.store.reader import Reader
from folkmoot.store.writer import VERSION_BYTES, Writer

__all__ = [
    "CHUNK_BYTES",
    "CurrentLineage",
    "drop_doubt",
    "drop_lineage",
    "drop_lineages",
    "is_in_doubt",
    "is_retired",
    "put_cluster",
    "put_current",
    "put_doubt",
    "put_founding",
    "put_left",
    "put_removals",
    "put_write",
    "read_cluster",
    "read_current",
    "read_lineage",
    "read_removals",
    "retire_lineage",
    "retire_lineages",
]

CHUNK_BYTES: Final = 256 << 10
"""The part of a snapshot in one row."""

_CURRENT_KEY: Final = plain_key(0, META, b"lineage")
_CLUSTER_KEY: Final = plain_key(0, META, b"cluster")
_REMOVALS_KEY: Final = plain_key(0, META, b"removals")
_ALL: Final = plain_key(0, META, b"raft")
_ENTRY: Final = b"e"
_HARD_STATE: Final = b"h"
_SNAPSHOT: Final = b"s"
_DOUBT: Final = b"d"
_LEFT: Final = b"l"
_RETIRED: Final = b"r"
_LEFT_MAX: Final = 16  # lineages that the disk has left and can come back to, while it may have to
_RETIRED_MAX: Final = 1024  # the oldest are forgotten: nobody has been there for as many forks
_PREFIX_BYTES: Final = len(_ALL) + 8
_PAGE_ROWS: Final = 64  # an entry has up to a megabyte
_CRC_BYTES: Final = 4


class CurrentLineage:
    """The cluster to which a node belongs, and the lineage in which it takes part."""

    def __init__(self, cluster: int, lineage: int) -> None:
        assert 0 < cluster <= ID_MAX, "a cluster has an identity"
        assert 0 < lineage <= ID_MAX, "a lineage has an identity"
        self.cluster = cluster
        self.lineage = lineage

    def __repr__(self) -> str:
        return f"cluster {self.cluster} lineage {self.lineage}"


def _prefix(lineage: int) -> bytes:
    assert 0 < lineage <= ID_MAX, "a lineage has an identity"
    return _ALL + u64(lineage)


def _put(writer: Writer, key: bytes, payload: bytes) -> None:
    writer.private(key, u32(crc32(payload, crc32(key))) + payload)


def _payload(key: bytes, value: bytes) -> bytes:
    """Return what `_put` was given; raises CorruptStore."""
    start = VERSION_BYTES + _CRC_BYTES
    payload = value[start:]
    if len(value) < start or get_u32(value, VERSION_BYTES) != crc32(payload, crc32(key)):
        raise CorruptStore(f"the row {key[3:]!r} of the configuration log is damaged: its checksum does not fit")
    return payload


# The lineage of the node


def put_current(writer: Writer, current: CurrentLineage) -> None:
    """Put the row that names the lineage of this node into this turn's batch."""
    _put(writer, _CURRENT_KEY, varint(current.cluster) + varint(current.lineage))


def read_current(reader: Reader) -> CurrentLineage | None:
    """Return the cluster and lineage of this node, None if it has never had one; raises CorruptStore."""
    value = reader.get(_CURRENT_KEY)
    if value is None:
        return None
    cursor = Cursor(_payload(_CURRENT_KEY, value), "the row with the lineage of the node")
    try:
        current = CurrentLineage(take_id(cursor, 1, "identity of a cluster"), take_id(cursor, 1, "lineage"))
        if not cursor.done():
            raise ValueError("the row with the lineage of the node goes on behind its end")
    except ValueError as fault:
        raise CorruptStore(str(fault)) from None
    return current


def put_cluster(writer: Writer, cluster: int) -> None:
    """Put the row that names the cluster into this turn's batch: a disk with a new identity is to join no other one."""
    assert 0 < cluster <= ID_MAX, "a cluster has an identity"
    _put(writer, _CLUSTER_KEY, varint(cluster))


def read_cluster(reader: Reader) -> int:
    """Return the cluster to which the folder belonged before it became another disk, or 0; raises CorruptStore."""
    value = reader.get(_CLUSTER_KEY)
    if value is None:
        return 0
    cursor = Cursor(_payload(_CLUSTER_KEY, value), "the row with the former cluster of the node")
    try:
        return take_id(cursor, 1, "identity of a cluster")
    except ValueError as fault:
        raise CorruptStore(str(fault)) from None


def put_removals(writer: Writer, removals: list[Removal]) -> None:
    """Put the row with the removals of former lineages into this turn's batch; it stays when the disk is renewed."""
    if removals:
        _put(writer, _REMOVALS_KEY, encode_removals(removals))
    else:
        writer.private_delete(_REMOVALS_KEY)


def read_removals(reader: Reader) -> list[Removal]:
    """Return what `put_removals` has put, nothing if there is no such row; raises CorruptStore."""
    value = reader.get(_REMOVALS_KEY)
    if value is None:
        return []
    cursor = Cursor(_payload(_REMOVALS_KEY, value), "the row with the removals of former lineages")
    try:
        return take_removals(cursor)
    except ValueError as fault:
        raise CorruptStore(str(fault)) from None


# Writing


def put_write(writer: Writer, lineage: int, write: Write) -> None:
    """Put a write of Raft into this turn's batch: it is durable when the batch is."""
    prefix = _prefix(lineage)
    if write.snapshot is not None:
        _put_snapshot(writer, prefix, write.snapshot)
    if write.drop_before:
        writer.private_delete_range(prefix + _ENTRY, prefix + _ENTRY + u64(write.drop_before))
    if write.truncate_from:
        writer.private_delete_range(prefix + _ENTRY + u64(write.truncate_from), end_of(prefix + _ENTRY))
    for entry in write.entries:
        _put(writer, prefix + _ENTRY + u64(entry.index), encode_entry(entry))
    assert write.hard_state is not None, "every write has the hard state"
    _put_hard_state(writer, prefix, write.hard_state, write.snapshot_index, write.first, write.last)


def put_founding(writer: Writer, lineage: int, founder: Persisted) -> None:
    """Put the state in which the first voter of a lineage begins into this turn's batch, in place of any other.

    It must be durable before the voter starts (`ConfigurationLog.found`, `ConfigurationLog.fork`).
    """
    assert founder.snapshot.index > 0, "a lineage is founded by a snapshot"
    assert not founder.entries, "a lineage is founded by a snapshot"
    drop_lineage(writer, lineage)
    prefix = _prefix(lineage)
    _put_snapshot(writer, prefix, founder.snapshot)
    index = founder.snapshot.index
    _put_hard_state(writer, prefix, founder.hard_state, index, index + 1, index)


def _put_snapshot(writer: Writer, prefix: bytes, snapshot: Snapshot) -> None:
    data = encode_snapshot(snapshot)
    number = 0
    for start in range(0, len(data), CHUNK_BYTES):
        _put(writer, prefix + _SNAPSHOT + u64(number), data[start : start + CHUNK_BYTES])
        number += 1
    writer.private_delete_range(prefix + _SNAPSHOT + u64(number), end_of(prefix + _SNAPSHOT))


def _put_hard_state(writer: Writer, prefix: bytes, hard_state: HardState, snapshot: int, first: int, last: int) -> None:
    assert first <= snapshot + 1 <= last + 1, "a log has no hole behind its snapshot"
    ends = varint(snapshot) + varint(first) + varint(last)
    _put(writer, prefix + _HARD_STATE, put_bytes(encode_hard_state(hard_state)) + ends)


def put_doubt(writer: Writer, lineage: int) -> None:
    """Put the row that says that rows of a lineage may be missing into this turn's batch."""
    _put(writer, _prefix(lineage) + _DOUBT, b"")


def drop_doubt(writer: Writer, lineage: int) -> None:
    """Remove what `put_doubt` has put."""
    writer.private_delete(_prefix(lineage) + _DOUBT)


def is_in_doubt(reader: Reader, lineage: int) -> bool:
    """Tell whether rows of a lineage may be missing that were confirmed."""
    return reader.get(_prefix(lineage) + _DOUBT) is not None


def drop_lineage(writer: Writer, lineage: int) -> None:
    """Remove the rows of a lineage. With them goes the vote: the disk must not take part in that lineage again."""
    prefix = _prefix(lineage)
    writer.private_delete_range(prefix, end_of(prefix))


def put_left(writer: Writer, lineage: int, counter: int) -> None:
    """Put the row that says when the disk has left a lineage; counter: the highest that it knows."""
    _put(writer, _prefix(lineage) + _LEFT, varint(counter))


def retire_lineage(writer: Writer, lineage: int, counter: int = 0) -> None:
    """Remove the rows of a lineage, and remember that: the disk can take part in it only under another identity."""
    drop_lineage(writer, lineage)
    _put(writer, _prefix(lineage) + _RETIRED, varint(counter))


def retire_lineages(writer: Writer, reader: Reader, kept: list[int], counter: int, is_over: bool) -> int:
    """Retire the lineages that the disk has left, but for those that are kept; return how many.

    The newest stay as well, unless nobody can be in another lineage than this disk (is_over). Those that were retired
    long ago are forgotten. counter: the highest that the disk knows.
    """
    left: list[tuple[int, int]] = []
    retired: list[tuple[int, int]] = []
    start = _ALL
    while True:
        rows = reader.scan(start, end_of(_ALL), 1)
        if not rows:
            break
        lineage = get_u64(rows[0][0], len(_ALL))
        start = end_of(_prefix(lineage))
        if lineage in kept:
            continue
        if is_retired(reader, lineage):
            retired.append((_counter_in(reader, lineage, _RETIRED), lineage))
        else:
            left.append((_counter_in(reader, lineage, _LEFT), lineage))
    left.sort()
    retired.sort()
    ended = left if is_over else left[:-_LEFT_MAX]
    for _counter, lineage in ended:
        retire_lineage(writer, lineage, counter)
    for _counter, lineage in retired[: max(len(retired) + len(ended) - _RETIRED_MAX, 0)]:
        drop_lineage(writer, lineage)
    return len(ended)


def _counter_in(reader: Reader, lineage: int, kind: bytes) -> int:
    """Return the counter in a row of a lineage, which only says which one is older; 0: none can be read."""
    key = _prefix(lineage) + kind
    value = reader.get(key)
    try:
        return 0 if value is None else take_id(Cursor(_payload(key, value), "a row of a lineage"), 0, "counter")
    except (CorruptStore, ValueError):
        return 0


def is_retired(reader: Reader, lineage: int) -> bool:
    """Tell whether this disk has given up its vote in a lineage."""
    return reader.get(_prefix(lineage) + _RETIRED) is not None


def drop_lineages(writer: Writer) -> None:
    """Remove the rows of all lineages, and the name of the current one: a disk with a new identity has none."""
    writer.private_delete_range(_ALL, end_of(_ALL))
    writer.private_delete(_CURRENT_KEY)


# Reading


class _Found:
    """What the rows of a lineage have."""

    def __init__(self) -> None:
        self.hard_state: HardState | None = None
        self.snapshot: int = 0
        self.first: int = 0
        self.last: int = 0
        self.entries: list[Entry] = []
        self.chunks: list[bytes] = []


def read_lineage(reader: Reader, lineage: int) -> Persisted:
    """Return what Raft has in a lineage, nothing if it has no row there; raises CorruptStore.

    The caller reads a lineage only when everything that it wrote there is durable.
    """
    prefix = _prefix(lineage)
    found = _Found()
    start = prefix
    while True:
        rows = reader.scan(start, end_of(prefix), _PAGE_ROWS)
        for key, value in rows:
            why = _take(found, key, _payload(key, value))
            if why:
                raise CorruptStore(f"the row {key[3:]!r} of the configuration log is damaged: {why}")
        if len(rows) < _PAGE_ROWS:
            break
        start = rows[-1][0] + b"\0"
    if found.hard_state is None:
        if found.entries or found.chunks:
            raise CorruptStore(f"lineage {lineage} of the configuration log has entries and neither term nor vote")
        return Persisted.nothing()
    snapshot = Snapshot(0, 0, EMPTY, b"")
    if found.chunks:
        try:
            snapshot = decode_snapshot(b"".join(found.chunks))
        except Malformed as fault:
            raise CorruptStore(f"the snapshot of lineage {lineage} of the configuration log: {fault}") from None
    _check_ends(found, snapshot, lineage)
    return Persisted(found.hard_state, snapshot, found.entries)


def _take(found: _Found, key: bytes, payload: bytes) -> str:
    """Take one row; return what is wrong with it, or ""."""
    kind = key[_PREFIX_BYTES : _PREFIX_BYTES + 1]
    size = len(key) - _PREFIX_BYTES - 1
    try:
        if kind == _HARD_STATE and size == 0:
            return _take_hard_state(found, payload)
        if kind == _ENTRY and size == 8:
            found.entries.append(decode_entry(payload))
            if found.entries[-1].index != get_u64(key, _PREFIX_BYTES + 1):
                return f"it has the entry {found.entries[-1].index}"
        elif kind == _SNAPSHOT and size == 8:
            if get_u64(key, _PREFIX_BYTES + 1) != len(found.chunks):
                return "a part of the snapshot before it is missing"
            found.chunks.append(payload)
        elif kind in (_DOUBT, _LEFT) and size == 0:
            pass
        else:
            return "no version wrote it"
    except Malformed as fault:
        return str(fault)
    return ""


def _take_hard_state(found: _Found, payload: bytes) -> str:
    """Take the row with the hard state and the ends of the log; return what is wrong with it; raises Malformed."""
    cursor = Cursor(payload, "it")
    try:
        found.hard_state = decode_hard_state(cursor.bytes_())
        found.snapshot = take_id(cursor, 0, "index")
        found.first = take_id(cursor, 1, "index")
        found.last = take_id(cursor, 0, "index")
    except ValueError as fault:
        return str(fault)
    return "" if cursor.done() else "it goes on behind its end"


def _check_ends(found: _Found, snapshot: Snapshot, lineage: int) -> None:
    """Refuse a log that lacks its snapshot or entries at an end; `raft/recovery` finds what is missing in between."""
    first = found.entries[0].index if found.entries else snapshot.index + 1
    last = found.entries[-1].index if found.entries else snapshot.index
    if snapshot.index != found.snapshot or first != found.first or last != found.last:
        raise CorruptStore(
            f"the configuration log of lineage {lineage} has a snapshot at {snapshot.index} and goes from {first} to "
            f"{last}; it was written with {found.snapshot}, and from {found.first} to {found.last}: rows are missing, "
            "or do not belong together"
        )
