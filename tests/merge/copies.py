"""Copies of a partition with one stream, their leaders and their merges: no network, no disk."""

from __future__ import annotations

from folkmoot.kernel.errors import CorruptStore
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.merge.merge import Merge
from folkmoot.merge.merged import TakenBranch, as_taken, ends_of, known_ends, note_ends
from folkmoot.merge.side import Side
from folkmoot.store.absorbed import read_spans
from folkmoot.store.batch import PUT
from folkmoot.store.chunk import decode_chunk
from folkmoot.store.epoch import make_epoch, tag_of
from folkmoot.store.key import CHUNK, LEFTOVER, STREAM, chunk_key, log_of_chunk
from folkmoot.store.memory import MemoryStore
from folkmoot.store.record import encode_record
from folkmoot.store.stream_row import decode_stream, encode_stream
from folkmoot.store.writer import VERSION_BYTES, Writer
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.leftover import Leftovers
from folkmoot.streams.page import Page
from folkmoot.streams.table import Streams
from tests.harness.stream_copy import StreamCopy

TRUNK = "trunk"
START, END = b"\0\0", b"\0\1"


class Copy(StreamCopy):
    """A copy of a partition with one stream, and its leader. held: in a fork, which gives out no offsets."""

    clock = 1000
    planted = ""  # a bug of `forked.BUGS`

    def __init__(
        self, store: MemoryStore, position: tuple[int, int], history: list[tuple[int, int]], held: bool
    ) -> None:
        self.store = store
        self.history = history
        self.held = held
        self.taken: list[TakenBranch] = []
        self.writer = Writer(1, history[-1][0])
        self.writer.adopt(0, position[0], position[1], 0)
        self.open()

    def open(self) -> None:
        """Let a node that has not had it open before open the log, and append what is left over."""
        self.streams = Streams([StreamConfig("s", b"#", 1, 0, 0)], 1, self.store)
        self.streams.hold(0, self.held)
        self.streams.open_in(0)
        leftovers = Leftovers(self.streams, self.store)
        leftovers.open(0, self.writer, self.next_us())
        self.end()
        while leftovers.runnable(self.writer.token):
            leftovers.step(self.writer, self.next_us(), self.writer.token)
            self.end()
        if leftovers.fault:
            raise CorruptStore(leftovers.fault)

    def next_us(self) -> int:
        Copy.clock += 1
        return Copy.clock

    def part(self, lineage: str, counter: int) -> Copy:
        """Return a copy that goes on from here in a leadership of a lineage."""
        epoch, seq = self.writer.position(0)
        history = [*self.history, (make_epoch(counter, lineage), seq)]
        copy = Copy(self.store.copy(), (epoch, seq), history, lineage != TRUNK)
        copy.taken = list(self.taken)
        copy.planted = self.planted
        return copy

    def append(self, *texts: str) -> None:
        for text in texts:
            self.log.append(encode_record(b"t", text.encode(), 1, False, b"p", b""), self.next_us())
        self.end()

    def holding(self) -> Holding:
        epoch, seq = self.writer.position(0)
        return Holding(COMPLETE, epoch, seq, [entry for entry in self.history if entry[1] < seq])

    def rows(self) -> dict[bytes, bytes]:
        return dict(self.store.scan(START, END, 10_000))

    def take(self, other: Copy) -> None:
        """Merge another copy into this one, as its leader does before it opens."""
        branch, rows = other.holding(), other.rows()
        rows = spoiled(rows, self.planted)
        mine = Side(without_records(self.rows()), [self.holding(), *[one.holding for one in self.taken]])
        theirs = Side(without_records(rows), [branch, *[one.holding for one in other.taken]])
        mine.meet(branch)
        theirs.meet(self.holding())
        merge = Merge(0, mine, theirs, branch)
        merge.reader = self.store
        merge.trunk = tag_of(make_epoch(1, TRUNK))
        merge.taken = [*self.taken, as_taken(self.holding(), merge.lines, rows, self.store)]
        for _ in merge.steps():
            pass
        units = list(merge.units)
        merge.forget()
        records = [row for row in sorted(rows.items()) if row[0][2] in (CHUNK, LEFTOVER)]
        for row in records:
            units.extend(merge.records([row]))
        for unit in units:
            for kind, key, body in unit.ops:
                assert kind == PUT, "nothing else becomes of records"
                self.writer.put(0, key, body)
        taken = TakenBranch(branch, b"")
        newest: dict[bytes, dict[int, tuple[int, int]]] = {}
        note_ends(newest, list(rows.items()))
        taken.ends = ends_of(newest, known_ends(self.taken, branch))
        self.taken = [*self.taken, *other.taken, taken]
        self.end()

    def expire(self, end: int = 1 << 62) -> None:
        """Let retention remove all records before an offset."""
        log = self.log
        config, log.config = log.config, StreamConfig("s", b"#", 1, 1, 0)
        last = log.entry(min(end, log.next_offset) - 1)
        assert last is not None, "there is something to remove"
        while log.trim(last.time_us + 2, self.writer):
            pass
        log.config = config
        self.end()

    def offsets(self) -> dict[int, str]:
        """Return all records by their offsets, also those that cannot be read yet."""
        log = self.log
        found = [log.entry(offset) for offset in range(log.oldest, log.next_offset)]
        return {entry.offset: entry.record.payload.decode() for entry in found if entry is not None}

    def texts(self) -> list[str]:
        """Return the records by their offsets, also those that cannot be read yet."""
        self.streams.hold(0, False)
        page = self.log.read(0, 1 << 40, 1 << 20)
        self.streams.hold(0, self.held)
        assert isinstance(page, Page)
        return [entry.record.payload.decode() for chunk in page.chunks for entry in decode_chunk(chunk)]

    def spans(self) -> list[tuple[int, int, int]]:
        """Return which records were written elsewhere: (first, end, first offset there)."""
        log = log_of_chunk(chunk_key(0, b"s", 0, 0))
        return [(span.first, span.end, span.origin.first) for span in read_spans(self.store, 0, log)]


def without_records(rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {key: value for key, value in rows.items() if key[2] not in (CHUNK, LEFTOVER)}


def spoiled(rows: dict[bytes, bytes], planted: str) -> dict[bytes, bytes]:
    """Return the rows of a branch as they come with a bug."""
    found: dict[bytes, bytes] = {}
    for key, value in rows.items():
        if key[2] == STREAM and planted == "bounds_lost":
            continue
        if key[2] == STREAM and planted:
            row = decode_stream(value)
            if planted == "epochs_lost":
                row.epochs = []
            else:
                row.oldest = 0
            value = value[:VERSION_BYTES] + encode_stream(row)
        found[key] = value
    return found


def begin(*texts: str) -> Copy:
    copy = Copy(MemoryStore(), (0, 0), [(make_epoch(1, TRUNK), 0)], False)
    copy.append(*texts)
    return copy
