"""Records of a stream go through several merges: each comes once, and keeps the offset at which it was read."""

from __future__ import annotations

import pytest

from folkmoot.kernel.errors import CorruptStore
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.merge.merge import Merge
from folkmoot.merge.merged import TakenBranch, as_taken, ends_of, known_ends
from folkmoot.merge.side import Side
from folkmoot.store.absorbed import read_spans
from folkmoot.store.batch import PUT
from folkmoot.store.chunk import decode_chunk
from folkmoot.store.epoch import make_epoch, tag_of
from folkmoot.store.key import chunk_key, leftover_key, log_of_chunk
from folkmoot.store.memory import MemoryStore
from folkmoot.store.record import encode_record
from folkmoot.store.writer import Writer
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.leftover import absorb
from folkmoot.streams.page import Page
from folkmoot.streams.table import Streams

TRUNK = "trunk"
START, END = b"\0\0", b"\0\1"


class Copy:
    """A copy of a partition with one stream, and its leader. held: in a fork, which gives out no offsets."""

    clock = 1000

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
        absorb(self.streams, 0, self.store, self.writer, self.next_us())
        self.end()

    def next_us(self) -> int:
        Copy.clock += 1
        return Copy.clock

    def part(self, lineage: str, counter: int) -> Copy:
        """Return a copy that goes on from here in a leadership of a lineage."""
        epoch, seq = self.writer.position(0)
        history = [*self.history, (make_epoch(counter, lineage), seq)]
        copy = Copy(self.store.copy(), (epoch, seq), history, lineage != TRUNK)
        copy.taken = list(self.taken)
        return copy

    def append(self, *texts: str) -> None:
        for text in texts:
            self.streams.streams[0].logs[0].append(
                encode_record(b"t", text.encode(), 1, False, b"p", b""), self.next_us()
            )
        self.end()

    def end(self) -> None:
        self.streams.flush(self.writer)
        batch = self.writer.take()
        if batch is not None:
            self.store.apply(batch)
            self.streams.written(batch.token)

    def holding(self) -> Holding:
        epoch, seq = self.writer.position(0)
        return Holding(COMPLETE, epoch, seq, [entry for entry in self.history if entry[1] < seq])

    def rows(self) -> dict[bytes, bytes]:
        return dict(self.store.scan(START, END, 10_000))

    def take(self, other: Copy) -> None:
        """Merge another copy into this one, as its leader does before it opens."""
        branch, rows = other.holding(), other.rows()
        mine = Side(self.rows(), [self.holding(), *[one.holding for one in self.taken]])
        theirs = Side(rows, [branch, *[one.holding for one in other.taken]])
        mine.meet(branch)
        theirs.meet(self.holding())
        merge = Merge(0, mine, theirs, branch)
        merge.trunk = tag_of(make_epoch(1, TRUNK))
        merge.taken = [*self.taken, as_taken(self.holding(), merge.lines, rows, self.store)]
        for _ in merge.steps():
            pass
        for unit in merge.units:
            for kind, key, body in unit.ops:
                assert kind == PUT, "nothing else becomes of records"
                self.writer.put(0, key, body)
        taken = TakenBranch(branch, b"")
        taken.ends = ends_of(rows, known_ends(self.taken, branch))
        self.taken = [*self.taken, *other.taken, taken]
        self.end()

    def texts(self) -> list[str]:
        """Return the records by their offsets, also those that cannot be read yet."""
        self.streams.hold(0, False)
        page = self.streams.streams[0].logs[0].read(0, 1 << 40, 1 << 20)
        self.streams.hold(0, self.held)
        assert isinstance(page, Page)
        return [entry.record.payload.decode() for chunk in page.chunks for entry in decode_chunk(chunk)]

    def spans(self) -> list[tuple[int, int, int]]:
        """Return which records were written elsewhere: (first, end, first offset there)."""
        log = log_of_chunk(chunk_key(0, b"s", 0, 0))
        return [(span.first, span.end, span.origin.first) for span in read_spans(self.store, 0, log)]


def begin(*texts: str) -> Copy:
    copy = Copy(MemoryStore(), (0, 0), [(make_epoch(1, TRUNK), 0)], False)
    copy.append(*texts)
    return copy


@pytest.mark.parametrize("opened", [False, True])
def test_records_of_the_trunk_keep_their_offsets_through_two_forks(opened: bool) -> None:
    """A fork puts them back to their offsets, in chunks of its own, and is merged into one with an older copy.

    opened: they are not left over there any more.
    """
    trunk = begin("old")
    first = trunk.part("first", 9)
    first.append("first's")
    second = trunk.part("second", 8)
    second.append("second's")
    trunk.append("given 1", "given 2")
    first.take(trunk)
    if opened:
        first.open()
        assert first.texts() == ["old", "given 1", "given 2", "first's"]
        for text in ("later", "latest"):
            first.open()  # its next records are in another chunk
            first.append(text)
    second.take(first)
    second.open()
    assert second.texts() == ["old", "given 1", "given 2", "second's", *first.texts()[3 if opened else 1 :]]


@pytest.mark.parametrize("opened", [False, True])
def test_records_that_the_trunk_has_from_a_branch_keep_the_offsets_that_they_got_there(opened: bool) -> None:
    trunk = begin("old")
    branch, first, second = trunk.part("branch", 7), trunk.part("first", 9), trunk.part("second", 8)
    for fork, text in ((branch, "branch's"), (first, "first's"), (second, "second's")):
        fork.append(text)
    trunk = trunk.part(TRUNK, 10)
    trunk.append("given")
    trunk.take(branch)
    trunk.open()
    assert trunk.texts() == ["old", "given", "branch's"]
    first.take(trunk)
    if opened:
        first.open()
        assert first.texts() == ["old", "given", "branch's", "first's"]
    second.take(first)
    second.open()
    assert second.texts() == ["old", "given", "branch's", "second's", "first's"]
    second.take(branch)
    second.open()
    assert second.texts() == ["old", "given", "branch's", "second's", "first's"]


def test_records_from_a_branch_that_are_rewritten_keep_the_offsets_that_the_trunk_gave_them() -> None:
    """They are in two chunks, and behind them is a record that was not committed."""
    trunk = begin("old")
    branch, second = trunk.part("branch", 7), trunk.part("second", 8)
    large = "." * 262_060
    branch.append(large, "small")
    second.append("second's")
    trunk = trunk.part(TRUNK, 10)
    trunk.take(branch)
    trunk.open()
    assert trunk.spans() == [(1, 3, 1)]
    successor = trunk.part(TRUNK, 11)
    trunk.append("not committed")
    first = trunk.part("first", 12)
    successor.append("given")
    first.take(successor)
    first.open()
    assert first.texts() == ["old", large, "small", "given", "not committed"]
    assert first.spans() == [(1, 2, 1), (2, 3, 2), (3, 4, 3), (4, 5, 3)]
    second.take(first)
    second.open()
    assert second.texts() == ["old", large, "small", "given", "second's", "not committed"]
    second.take(branch)
    second.open()
    assert second.texts() == ["old", large, "small", "given", "second's", "not committed"]


def test_a_copy_of_the_trunk_in_a_fork_shows_which_records_from_a_branch_have_offsets() -> None:
    """The fork has gone on from there: it has not rewritten them."""
    trunk = begin("old")
    branch, second = trunk.part("branch", 7), trunk.part("second", 8)
    branch.append("branch's")
    second.append("second's")
    trunk = trunk.part(TRUNK, 10)
    trunk.append("given")
    trunk.take(branch)
    trunk.open()
    first = trunk.part("first", 11)
    first.append("first's")
    second.take(first)
    second.open()
    assert second.texts() == ["old", "given", "branch's", "second's", "first's"]


@pytest.mark.parametrize("direct", [False, True])
def test_what_is_rewritten_with_records_of_the_trunk_is_still_known(direct: bool) -> None:
    """A fork has the end of a copy that was not committed, in one chunk with records that were.

    direct: the other fork has taken in a copy of the trunk before.
    """
    trunk = begin("old")
    second = trunk.part("second", 8)
    second.append("second's")
    trunk.append("given 1")
    successor = trunk.part(TRUNK, 3)
    trunk.append("not committed")
    first = trunk.part("first", 9)
    first.append("first's")
    successor.append("given 2")
    first.take(successor)
    first.open()
    assert first.texts() == ["old", "given 1", "given 2", "not committed", "first's"]
    if direct:
        second.take(successor)
    second.take(first)
    second.open()
    assert second.texts() == ["old", "given 1", "given 2", "second's", "not committed", "first's"]
    for copy in (successor, trunk, first):
        second.take(copy)
        second.open()
    assert second.texts() == ["old", "given 1", "given 2", "second's", "not committed", "first's"]


@pytest.mark.parametrize("opened", [False, True])
def test_records_of_a_fork_that_were_moved_come_once(opened: bool) -> None:
    """Another fork has taken in a copy in which they were at other offsets, and not all of them yet."""
    trunk = begin("old")
    first, second = trunk.part("first", 9), trunk.part("second", 8)
    first.append("first's 1")
    second.append("second's")
    second.take(first)
    if opened:
        second.open()
    first.append("first's 2")
    trunk.append("given 1", "given 2")
    first.take(trunk)
    first.open()
    assert first.texts() == ["old", "given 1", "given 2", "first's 1", "first's 2"]
    second.take(first)
    second.open()
    assert second.texts() == ["old", "given 1", "given 2", "second's", "first's 1", "first's 2"]


@pytest.mark.parametrize("first_opened", [False, True])
def test_of_two_copies_that_parted_the_records_that_both_have_come_once(first_opened: bool) -> None:
    """The leader that goes on rewrites them in a chunk with later ones; the other copy got other records."""
    trunk = begin("old")
    branch = trunk.part("branch", 5)
    branch.append("both")
    other = branch.part("other", 6)
    other.append("other's")
    branch.append("branch's")
    trunk.take(other)
    if first_opened:
        trunk.open()
    trunk.take(branch)
    trunk.open()
    assert trunk.texts() == ["old", "both", "other's", "branch's"]


@pytest.mark.parametrize("opened", [False, True])
def test_of_a_longer_copy_in_another_branch_the_rest_comes(opened: bool) -> None:
    trunk = begin("old")
    branch = trunk.part("branch", 5)
    first = trunk.part("first", 6)
    branch.append("both")
    trunk.take(branch)
    branch.append("branch's")
    first.take(branch)
    if opened:
        first.open()
    trunk.take(first)
    trunk.open()
    assert trunk.texts() == ["old", "both", "branch's"]
    assert trunk.spans() == [(1, 2, 1), (2, 3, 2)]


def test_records_that_this_side_had_before_it_parted_from_a_branch_do_not_come_in_another_one() -> None:
    trunk = begin("old")
    branch = trunk.part("branch", 5)
    branch.append("both")
    mine = branch.part("mine", 6)
    mine.append("mine")
    branch.append("branch's")
    other = trunk.part("other", 7)
    other.append("other's")
    other.take(branch)
    other.open()
    assert other.texts() == ["old", "other's", "both", "branch's"]
    mine.take(other)
    mine.open()
    assert mine.texts() == ["old", "both", "mine", "other's", "branch's"]


def test_a_row_that_is_cut_short_is_no_origin() -> None:
    trunk = begin("old")
    first = trunk.part("first", 6)
    first.writer.put(0, leftover_key(chunk_key(0, b"s", 0, 3), 5, False), b"?")
    first.end()
    with pytest.raises(CorruptStore):
        trunk.take(first)
    with pytest.raises(CorruptStore):
        first.open()
