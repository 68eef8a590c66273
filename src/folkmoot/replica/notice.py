"""Messages between replicas other than changes: their bodies and decoding. Owns no state.

Every body starts with the epoch of its sender's view, so that a message of another view is recognised before it is
read.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import get_u16, get_u64, u16, u64, varint
from folkmoot.membership.history import put_history, take_history
from folkmoot.membership.holding import DOUBTFUL, Holding
from folkmoot.peer.cursor import Cursor, put_bytes
from folkmoot.store.key import partition_end, partition_start

__all__ = [
    "CompareNotice",
    "CopyNotice",
    "PageNotice",
    "PullNotice",
    "Report",
    "decode_compare",
    "decode_copy",
    "decode_page",
    "decode_pull",
    "decode_report",
    "decode_sequences",
    "encode_compare",
    "encode_copy",
    "encode_page",
    "encode_pull",
    "encode_report",
    "encode_sequences",
    "epoch_of",
]

_ENTRY_BYTES: Final = 10
_ROWS_MAX: Final = 65_536
_MAY_DIVERGE: Final = 16


def epoch_of(body: bytes) -> int:
    """Return the epoch at the start of a body; raises ValueError."""
    if len(body) < 8:
        raise ValueError("a message between replicas ends before its epoch does")
    return get_u64(body, 0)


class Report:
    """What a node has of one partition; `durable_seq`: up to which sequence it is on its disk, -1 = unknown.

    may_diverge: it may have committed changes that its leader lacks, in a view without that leader.
    """

    def __init__(self, partition: int, holding: Holding, durable_seq: int) -> None:
        self.partition = partition
        self.holding = holding
        self.durable_seq = durable_seq
        self.may_diverge = False


def encode_report(report: Report) -> bytes:
    """Return one entry of READY or FETCH."""
    holding = report.holding
    return b"".join(
        [
            varint(report.partition),
            bytes([holding.state | (_MAY_DIVERGE if report.may_diverge else 0)]),
            varint(holding.epoch),
            varint(holding.seq),
            varint(report.durable_seq + 1),
            put_history(holding.history),
        ]
    )


def decode_report(body: bytes, partitions: int) -> list[Report]:
    """Read the entries of READY or FETCH; raises ValueError."""
    cursor = Cursor(body[8:], "a report of copies")
    reports: list[Report] = []
    while not cursor.done():
        partition = _partition(cursor, partitions)
        flags = cursor.byte()
        state = flags & ~_MAY_DIVERGE
        if state > DOUBTFUL:
            raise ValueError("a report of copies has an unknown state")
        epoch = cursor.integer()
        seq = cursor.integer()
        durable_seq = cursor.integer() - 1
        report = Report(partition, Holding(state, epoch, seq, take_history(cursor)), durable_seq)
        report.may_diverge = flags & _MAY_DIVERGE != 0
        reports.append(report)
    return reports


def _partition(cursor: Cursor, partitions: int) -> int:
    partition = cursor.integer()
    if partition >= partitions:
        raise ValueError(f"a message between replicas names partition {partition}, which does not exist")
    return partition


def _check_range(partition: int, start: bytes, end: bytes) -> None:
    """Refuse keys of other partitions, and keys that a node keeps for itself."""
    if not partition_start(partition) <= start < end <= partition_end(partition):
        raise ValueError(f"a message between replicas names keys outside partition {partition}")


def encode_sequences(epoch: int, entries: list[tuple[int, int]]) -> bytes:
    """Return the body of DURABLE, OPENED, SETTLED or FILLED: partitions, each with a number."""
    parts: list[bytes] = [u64(epoch)]
    for partition, number in entries:
        parts.append(u16(partition))
        parts.append(u64(number))
    return b"".join(parts)


def decode_sequences(body: bytes, partitions: int) -> list[tuple[int, int]]:
    """Read what `encode_sequences` wrote; raises ValueError."""
    if (len(body) - 8) % _ENTRY_BYTES:
        raise ValueError("a list of partitions ends too early")
    entries: list[tuple[int, int]] = []
    for pos in range(8, len(body), _ENTRY_BYTES):
        partition = get_u16(body, pos)
        if partition >= partitions:
            raise ValueError(f"a message between replicas names partition {partition}, which does not exist")
        entries.append((partition, get_u64(body, pos + 2)))
    return entries


class CopyNotice:
    """COPY: the receiver gets all changes after (epoch, seq); it continues to pull pages (`resume`) or starts again.

    taken: the receiver's changes are at the leader too, in order or merged. left: estimated bytes to copy.
    """

    def __init__(self, partition: int, resume: bool, epoch: int, seq: int, history: list[tuple[int, int]]) -> None:
        self.partition = partition
        self.resume = resume
        self.epoch = epoch
        self.seq = seq
        self.history = history
        self.taken = False
        self.left = 0


def encode_copy(epoch: int, notice: CopyNotice) -> bytes:
    """Return the body of COPY."""
    flags = bytes([(1 if notice.resume else 0) | (2 if notice.taken else 0)])
    head = u64(epoch) + varint(notice.partition) + flags + varint(notice.epoch) + varint(notice.seq)
    return head + put_history(notice.history) + varint(notice.left)


def decode_copy(body: bytes, partitions: int) -> CopyNotice:
    """Read the body of COPY; raises ValueError."""
    cursor = Cursor(body[8:], "a COPY")
    partition = _partition(cursor, partitions)
    flags = cursor.byte()
    epoch = cursor.integer()
    seq = cursor.integer()
    notice = CopyNotice(partition, flags & 1 == 1, epoch, seq, take_history(cursor))
    notice.taken = flags & 2 == 2
    notice.left = 0 if cursor.done() else cursor.integer()
    return notice


class PullNotice:
    """PULL: send the differences from the sender's rows with start <= key < end and this digest."""

    def __init__(self, partition: int, start: bytes, end: bytes, digest: bytes) -> None:
        self.partition = partition
        self.start = start
        self.end = end
        self.digest = digest


def encode_pull(epoch: int, pull: PullNotice) -> bytes:
    """Return the body of PULL."""
    fields = [put_bytes(pull.start), put_bytes(pull.end), put_bytes(pull.digest)]
    return u64(epoch) + varint(pull.partition) + b"".join(fields)


def decode_pull(body: bytes, partitions: int) -> PullNotice:
    """Read the body of PULL; raises ValueError."""
    cursor = Cursor(body[8:], "a PULL")
    partition = _partition(cursor, partitions)
    start = cursor.bytes_()
    end = cursor.bytes_()
    _check_range(partition, start, end)
    return PullNotice(partition, start, end, cursor.bytes_())


class PageNotice:
    """PAGE: the rows with start <= key < end, or that the receiver's are equal."""

    def __init__(self, partition: int, start: bytes, end: bytes, equal: bool, rows: list[tuple[bytes, bytes]]) -> None:
        self.partition = partition
        self.start = start
        self.end = end
        self.equal = equal
        self.rows = rows
        self.left = 0


def encode_page(epoch: int, page: PageNotice) -> bytes:
    """Return the body of PAGE."""
    parts: list[bytes] = [
        u64(epoch),
        varint(page.partition),
        put_bytes(page.start),
        put_bytes(page.end),
        b"\1" if page.equal else b"\0",
        varint(len(page.rows)),
    ]
    for key, value in page.rows:
        parts.append(put_bytes(key))
        parts.append(put_bytes(value))
    parts.append(varint(page.left))
    return b"".join(parts)


def decode_page(body: bytes, partitions: int) -> PageNotice:
    """Read the body of PAGE; raises ValueError."""
    cursor = Cursor(body[8:], "a PAGE")
    partition = _partition(cursor, partitions)
    start = cursor.bytes_()
    end = cursor.bytes_()
    _check_range(partition, start, end)
    equal = cursor.byte() == 1
    rows: list[tuple[bytes, bytes]] = []
    for _ in range(cursor.count(_ROWS_MAX)):
        key = cursor.bytes_()
        value = cursor.bytes_()
        if not start <= key < end or len(value) < 16:
            raise ValueError("a PAGE has a row outside its range")
        rows.append((key, value))
    page = PageNotice(partition, start, end, equal, rows)
    page.left = 0 if cursor.done() else cursor.integer()
    return page


class CompareNotice:
    """DIGEST: `what` is question, answer, no answer or verdict; seq: the position that it is about.

    upto_seq: rows that were changed after `seq` and up to here are not in the digest.
    """

    def __init__(self, what: int, partition: int, start: bytes, end: bytes, seq: int, digest: bytes) -> None:
        self.what = what
        self.partition = partition
        self.start = start
        self.end = end
        self.seq = seq
        self.digest = digest
        self.upto_seq = seq


def encode_compare(epoch: int, notice: CompareNotice) -> bytes:
    """Return the body of DIGEST."""
    fields = [put_bytes(notice.start), put_bytes(notice.end), varint(notice.seq), put_bytes(notice.digest)]
    return u64(epoch) + bytes([notice.what]) + varint(notice.partition) + b"".join(fields) + varint(notice.upto_seq)


def decode_compare(body: bytes, partitions: int) -> CompareNotice:
    """Read the body of DIGEST; raises ValueError."""
    cursor = Cursor(body[8:], "a DIGEST")
    what = cursor.byte()
    partition = _partition(cursor, partitions)
    start = cursor.bytes_()
    end = cursor.bytes_()
    _check_range(partition, start, end)
    seq = cursor.integer()
    notice = CompareNotice(what, partition, start, end, seq, cursor.bytes_())
    if not cursor.done():
        notice.upto_seq = cursor.integer()
    return notice
