"""After a split: records of the other side are appended anew, and a held log gives out no offsets."""

from __future__ import annotations

import pytest

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u64, u16, u64
from folkmoot.store.absorbed import Origin, encode_origin, read_spans
from folkmoot.store.batch import Batch
from folkmoot.store.chunk import decode_chunk
from folkmoot.store.key import (
    CHUNK,
    LEFTOVER,
    chunk_key,
    kind_prefix,
    leftover_key,
    log_of_chunk,
    name_prefix,
    sequence_of,
)
from folkmoot.store.memory import MemoryStore
from folkmoot.store.record import encode_record
from folkmoot.store.writer import Writer
from folkmoot.streams.block import MERGE_BYTES_MAX
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.leftover import Leftovers
from folkmoot.streams.log import MARK_FLUSHES
from folkmoot.streams.page import Page
from folkmoot.streams.table import Streams
from tests.harness.stream_copy import StreamCopy

CHUNKS = kind_prefix(0, CHUNK)


class Side(StreamCopy):
    """One copy of a stream of one partition."""

    def __init__(self, store: MemoryStore, epoch: int = 1) -> None:
        self.store = store
        self.writer = Writer(1, epoch)
        self.streams = Streams([StreamConfig("s", b"#", 1, 0, 0)], 1, store)
        self.now = 1000

    def open(self) -> None:
        self.streams.open_in(0)

    def append(self, *texts: str) -> None:
        for text in texts:
            self.now += 1
            self.log.append(encode_record(b"t", text.encode(), 1, False, b"p", b""), self.now)
        self.end()

    def absorb(self) -> int:
        """Take in all that is left over, as a leader does; return the number of turns."""
        leftovers = Leftovers(self.streams, self.store)
        leftovers.open(0, self.writer, self.now)
        self.end()
        turns = 1
        while leftovers.runnable(self.writer.token):
            leftovers.step(self.writer, self.now, self.writer.token)
            self.end()
            turns += 1
        assert not leftovers.fault
        return turns

    def texts(self) -> list[str]:
        page = self.log.read(0, 1 << 40, 1 << 20)
        assert isinstance(page, Page)
        return [entry.record.payload.decode() for chunk in page.chunks for entry in decode_chunk(chunk)]


def damaged(side: Side) -> Batch:
    """Return what spoils all chunks of a side."""
    for key, value in side.store.scan(CHUNKS, CHUNKS + b"\xff", 1000):
        side.writer.put(0, key, value[16:-1] + b"?")
    batch = side.writer.take()
    assert batch is not None
    return batch


def fork(*texts: str) -> tuple[Side, Side]:
    """Two sides that go on from the same records."""
    mine = Side(MemoryStore())
    mine.open()
    mine.append(*texts)
    theirs = Side(mine.store.copy())
    theirs.now = mine.now
    theirs.open()
    return mine, theirs


def left_over(key: bytes, value: bytes, epoch: int) -> bytes:
    """Return the row LEFTOVER of a chunk of a branch."""
    origin = Origin(u64(epoch) + u64(98), u64(epoch) + u64(99), sequence_of(key), value[:16])
    return encode_origin(origin) + value[16:]


def leave_over(mine: Side, theirs: Side, *, of_trunk: bool = False, epoch: int = 7) -> None:
    """Do with the chunks of the other side what a merge does."""
    for key, value in theirs.store.scan(CHUNKS, CHUNKS + b"\xff", 1000):
        if mine.store.get(key) != value:
            mine.writer.put(0, leftover_key(key, epoch, of_trunk), left_over(key, value, epoch))
    batch = mine.writer.take()
    assert batch is not None
    mine.store.apply(batch)


def test_records_of_the_other_side_come_behind_once_and_those_of_before_the_fork_do_not() -> None:
    mine, theirs = fork("old 1", "old 2")
    mine.append("mine 1")
    mine.append("mine 2")
    for text in ("theirs 1", "theirs 2", "theirs 3"):
        theirs.append(text)
    leave_over(mine, theirs)
    mine.absorb()
    assert mine.texts() == ["old 1", "old 2", "mine 1", "mine 2", "theirs 1", "theirs 2", "theirs 3"]
    prefix = kind_prefix(0, LEFTOVER)
    assert mine.store.scan(prefix, prefix + b"\xff", 10) == []


def test_what_is_published_when_a_partition_opens_comes_behind_what_was_published_before() -> None:
    mine, theirs = fork("old")
    theirs.append("before 1")
    theirs.append("before 2")
    leave_over(mine, theirs)
    Leftovers(mine.streams, mine.store).open(0, mine.writer, mine.now)
    mine.append("after")
    assert mine.texts() == ["old", "before 1", "before 2", "after"]


def test_a_side_that_has_nothing_new_takes_all() -> None:
    mine, theirs = fork("old")
    theirs.append(*[f"theirs {number}" for number in range(40)])
    leave_over(mine, theirs)
    mine.absorb()
    assert len(mine.texts()) == 41


def times(side: Side) -> dict[str, int]:
    """Return the times of all records, by their texts."""
    page = side.log.read(0, 1 << 40, 1 << 20)
    assert isinstance(page, Page)
    return {entry.record.payload.decode(): entry.time_us for chunk in page.chunks for entry in decode_chunk(chunk)}


def reopen(side: Side) -> None:
    """Let the log of a side be opened by a new leader, which gives out what it has."""
    side.streams.hold(0, False)
    side.streams.close_in(0)
    side.streams.open_in(0)


@pytest.mark.parametrize("count", [0, 1, 2, 40])
@pytest.mark.parametrize("turns", [1, 3])
def test_records_of_the_trunk_keep_their_offsets_and_those_of_the_fork_go_behind(count: int, turns: int) -> None:
    mine, theirs = fork("old 1", "old 2", "old 3")
    mine.streams.hold(0, True)
    own = [f"mine {number}" for number in range(count)]
    if own:
        mine.append(*own)
    given: list[str] = []
    for turn in range(turns):
        new = [f"theirs {turn}.{number}" for number in range(20)]
        theirs.append(*new)
        given += new
    leave_over(mine, theirs, of_trunk=True)
    mine.streams.hold(0, False)
    mine.streams.abandon_in(0)
    mine.log.known = None  # another node opens it
    mine.open()
    mine.absorb()
    expected = ["old 1", "old 2", "old 3", *given, *own]
    assert mine.texts() == expected
    known = times(theirs)
    assert {text: at for text, at in times(mine).items() if text in known} == known
    again = Side(mine.store.copy())
    again.open()
    assert again.texts() == expected
    mine.append("next")
    assert mine.texts() == [*expected, "next"]


def test_a_second_copy_of_the_trunk_adds_what_it_alone_has() -> None:
    mine, theirs = fork("old")
    mine.streams.hold(0, True)
    mine.append("mine")
    theirs.append("theirs 1", "theirs 2")
    leave_over(mine, theirs, of_trunk=True)
    other = Side(theirs.store.copy())
    other.now = theirs.now
    other.open()
    other.append("theirs 3")
    leave_over(mine, other, of_trunk=True, epoch=8)
    open_elsewhere(mine)
    assert mine.texts() == ["old", "theirs 1", "theirs 2", "theirs 3", "mine"]


def open_elsewhere(side: Side) -> None:
    """Let another node open a log in which no record was given out since the fork, and take in what was left over."""
    side.streams.hold(0, False)
    side.streams.abandon_in(0)
    side.log.known = None
    side.open()
    side.absorb()


@pytest.mark.parametrize(("lost", "gone_on"), [(7, 8), (8, 7)])
def test_where_copies_of_the_trunk_differ_the_newer_change_counts(lost: int, gone_on: int) -> None:
    """The end of one copy was not committed, and the trunk has gone on without it; whichever is merged first."""
    mine, theirs = fork("old")
    mine.streams.hold(0, True)
    mine.append("mine")
    other = Side(theirs.store.copy(), epoch=2)
    other.now = theirs.now
    other.open()
    theirs.append("lost 1", "lost 2", "lost 3")
    leave_over(mine, theirs, of_trunk=True, epoch=lost)
    other.append("given 1", "given 2")
    leave_over(mine, other, of_trunk=True, epoch=gone_on)
    open_elsewhere(mine)
    assert mine.texts() == ["old", "given 1", "given 2", "mine", "lost 1", "lost 2", "lost 3"]


@pytest.mark.parametrize("epoch", [6, 8])
def test_pieces_of_the_trunk_from_several_branches_keep_their_offsets(epoch: int) -> None:
    mine, theirs = fork("old")
    mine.streams.hold(0, True)
    mine.append("mine")
    theirs.append("theirs 1", "theirs 2")
    leave_over(mine, theirs, of_trunk=True)
    large = "theirs 3" + "." * MERGE_BYTES_MAX  # in a chunk of its own: nothing is joined with those before
    known = {key for key, _value in theirs.store.scan(CHUNKS, CHUNKS + b"\xff", 1000)}
    theirs.append(large)
    for key, value in theirs.store.scan(CHUNKS, CHUNKS + b"\xff", 1000):
        if key not in known:
            mine.writer.put(0, leftover_key(key, epoch, of_trunk=True), left_over(key, value, epoch))
    mine.end()
    open_elsewhere(mine)
    assert mine.texts() == ["old", "theirs 1", "theirs 2", large, "mine"]


def test_where_records_came_from_is_known_although_they_move() -> None:
    """Those of two branches go behind, and behind those of the trunk when that comes."""
    mine, theirs = fork("old")
    trunk = Side(theirs.store.copy())
    trunk.now = theirs.now
    trunk.open()
    mine.streams.hold(0, True)
    mine.append("mine")
    theirs.append("theirs 1", "theirs 2")
    leave_over(mine, theirs)
    mine.absorb()
    assert spans(mine) == [(2, 4, 7, 1)]
    trunk.append("trunk 1", "trunk 2")
    leave_over(mine, trunk, of_trunk=True, epoch=8)
    open_elsewhere(mine)
    assert mine.texts() == ["old", "trunk 1", "trunk 2", "mine", "theirs 1", "theirs 2"]
    assert spans(mine) == [(0, 1, 1, 0), (1, 3, 8, 1), (3, 4, 1, 1), (4, 6, 7, 1)]


def spans(side: Side) -> list[tuple[int, int, int, int]]:
    """Return where the records of the log came from: (first, end, epoch of the branch, first offset there)."""
    found = read_spans(side.store, 0, log_of_chunk(chunk_key(0, b"s", 0, 0)))
    return [(span.first, span.end, get_u64(span.origin.branch, 0), span.origin.first) for span in found]


def test_a_row_that_cannot_be_read_leaves_everything_as_it_was() -> None:
    mine, theirs = fork("old")
    mine.streams.hold(0, True)
    mine.append("mine")
    theirs.append("theirs")
    leave_over(mine, theirs, of_trunk=True)
    mine.writer.put(0, leftover_key(chunk_key(0, b"s", 0, 9), 9, True), b"damaged")
    mine.end()
    mine.streams.hold(0, False)
    mine.streams.abandon_in(0)
    mine.log.known = None
    mine.open()
    with pytest.raises(CorruptStore):
        Leftovers(mine.streams, mine.store).open(0, mine.writer, mine.now)
    assert mine.writer.take() is None, "nothing is removed"


def test_a_row_without_an_offset_that_cannot_be_read_waits_until_it_is_repaired() -> None:
    mine, theirs = fork("old")
    theirs.append("theirs")
    leave_over(mine, theirs)
    prefix = kind_prefix(0, LEFTOVER)
    key, sound = mine.store.scan(prefix, prefix + b"\xff", 1)[0]
    mine.writer.put(0, key, b"damaged")
    mine.end()
    leftovers = Leftovers(mine.streams, mine.store)
    leftovers.open(0, mine.writer, mine.now)
    leftovers.step(mine.writer, mine.now, 99)
    assert leftovers.fault
    assert not leftovers.runnable(99)
    assert mine.writer.take() is None, "nothing is removed"
    mine.writer.put(0, key, sound[16:])
    mine.end()
    leftovers.retry()
    leftovers.step(mine.writer, mine.now, 99)
    mine.end()
    assert mine.texts() == ["old", "theirs"]


def test_offsets_that_were_given_out_here_stay() -> None:
    mine, theirs = fork("old")
    mine.append("mine")
    theirs.append("theirs")
    leave_over(mine, theirs, of_trunk=True)
    reopen(mine)
    mine.absorb()
    assert mine.texts() == ["old", "mine", "theirs"]


def test_leftovers_of_a_stream_that_is_not_configured_stay() -> None:
    mine, _theirs = fork("old")
    key = name_prefix(0, LEFTOVER, b"other") + u16(0) + u64(7) + u64(0)
    mine.writer.put(0, key, b"whatever")
    mine.end()
    mine.absorb()
    assert mine.store.get(key) is not None


def test_a_held_log_takes_records_and_gives_them_out_when_it_is_let_go() -> None:
    side, _other = fork("old")
    side.streams.hold(0, True)
    side.append("held")
    assert side.texts() == ["old"]
    growth = side.streams.growth
    side.streams.hold(0, False)
    assert side.texts() == ["old", "held"]
    assert side.streams.growth > growth, "who waits looks again"


def test_a_held_log_that_is_opened_again_shows_what_was_readable_here_and_no_more() -> None:
    side, _other = fork("old")
    for round_ in range(2):
        side.streams.hold(0, True)
        side.streams.close_in(0)
        side.streams.open_in(0)
        assert side.texts() == ["old"]
        side.append(f"held{round_}")
        assert side.texts() == ["old"], "the other side may give out the same offset"


def test_a_copy_that_was_filled_in_a_fork_shows_nothing_that_was_readable_in_another_one() -> None:
    """This node has read a record, and its copy is now one that has another record there."""
    mine, theirs = fork("old")
    theirs.streams.hold(0, True)
    theirs.append("theirs")
    mine.append("mine")
    assert mine.texts() == ["old", "mine"]
    leave_over(theirs, mine, of_trunk=True)
    mine.streams.hold(0, True)
    mine.streams.close_in(0)
    prefix = b"\0\0"
    for key, _value in mine.store.scan(prefix, prefix + b"\xff", 1000):
        mine.writer.delete(0, key)
    for key, value in theirs.store.scan(prefix, prefix + b"\xff", 1000):
        mine.writer.put(0, key, value[16:])
    mine.end()
    mine.streams.open_in(0)
    mine.absorb()
    mine.streams.hold(0, False)
    assert mine.texts() == ["old", "mine", "theirs"]


def test_a_held_log_that_is_closed_twice_shows_what_was_readable_here() -> None:
    side, _other = fork("old")
    side.append("new")
    side.streams.hold(0, True)
    side.streams.close_in(0)
    side.streams.close_in(0)
    side.streams.open_in(0)
    assert side.texts() == ["old", "new"]


def test_a_log_whose_newest_record_cannot_be_read_is_closed_all_the_same() -> None:
    side, _other = fork("old")
    side.store.apply(damaged(side))
    side.streams.close_in(0)
    assert side.log.known is None


def test_a_held_log_that_is_opened_shows_what_was_certainly_readable() -> None:
    side, _other = fork("old")
    for number in range(2 * MARK_FLUSHES):
        side.append(f"{number}")
    again = Side(side.store.copy())
    again.streams.hold(0, True)
    again.open()
    shown = again.texts()
    assert MARK_FLUSHES <= len(shown) < len(side.texts())
    assert shown == side.texts()[: len(shown)]
    again.streams.hold(0, False)
    assert again.texts() == side.texts()
