"""Random turns, writes that are on their way, retention, crashes and reads against a list."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from folkmoot.kernel.clock import MINUTE, SECOND
from folkmoot.store.batch import Batch
from folkmoot.store.chunk import decode_chunk
from folkmoot.store.memory import MemoryStore
from folkmoot.store.record import encode_record
from folkmoot.store.writer import Writer
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.page import OffsetAhead, OffsetGone, Page
from folkmoot.streams.table import Streams

RETENTION_US = 10 * MINUTE
RETENTION_BYTES = 150_000


class LogMachine(RuleBasedStateMachine):
    """One stream partition; `durable` and `appended` are what a correct one holds."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.config = StreamConfig("s", b"#", 1, RETENTION_US, RETENTION_BYTES)
        self.now = 1_700_000_000 * SECOND
        self.epoch = 0
        self.appended: list[tuple[int, bytes]] = []
        self.way: list[tuple[Batch, int, int]] = []  # with the end and the oldest offset that it makes durable
        self.count = 0
        self.oldest_durable = 0
        self.open()

    def open(self) -> None:
        self.epoch += 1
        self.writer = Writer(8, self.epoch)
        self.streams = Streams([self.config], 8, self.store)
        self.streams.open()
        self.log = self.streams.streams[0].logs[0]
        self.clock = self.appended[-1][0] if self.appended else 0

    @rule(
        sizes=st.lists(st.sampled_from([0, 5, 5, 40, 3_000, 30_000, 120_000]), min_size=1, max_size=6),
        ends=st.booleans(),
    )
    def turn(self, sizes: list[int], ends: bool) -> None:
        for size in sizes:
            payload = b"%d." % self.count + bytes(size)
            self.count += 1
            self.clock = max(self.clock, self.now)
            assert self.log.append(encode_record(b"t", payload, 0, True, b"", b""), self.now) == len(self.appended)
            self.appended.append((self.clock, payload))
        if ends:
            self.flush()

    @rule()
    def flush(self) -> None:
        if self.streams.dirty:
            self.streams.flush(self.writer)
        batch = self.writer.take()
        if batch is not None:
            self.way.append((batch, len(self.appended), self.log.oldest))

    @rule()
    def trim(self) -> None:
        self.streams.trim(self.now, self.writer)

    @rule(known=st.booleans())
    def written(self, known: bool) -> None:
        if self.way:
            batch, end, self.oldest_durable = self.way.pop(0)
            self.store.apply(batch)
            if known:
                self.streams.written(batch.token)
                assert self.log.readable_end == end

    @rule(seconds=st.sampled_from([-20, 1, 1, 60, 1200, 5000]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule()
    def crash(self) -> None:
        self.way.clear()
        readable = self.log.readable_end
        self.open()
        assert self.log.readable_end >= readable
        assert self.log.oldest == self.oldest_durable
        del self.appended[self.log.next_offset :]
        self.clock = max(self.clock, self.appended[-1][0] if self.appended else 0)

    @rule(data=st.data(), bytes_max=st.sampled_from([1, 50_000, 10_000_000]))
    def read(self, data: st.DataObject, bytes_max: int) -> None:
        start = data.draw(st.integers(0, len(self.appended) + 2))
        end = data.draw(st.integers(start, len(self.appended) + 3))
        log = self.log
        page = log.read(start, end, bytes_max)
        if start < log.oldest:
            assert isinstance(page, OffsetGone)
            assert page.oldest == log.oldest
        elif start > log.readable_end:
            assert isinstance(page, OffsetAhead)
            assert page.next == log.readable_end
        else:
            assert isinstance(page, Page)
            self.check_page(page, start, end)

    def check_page(self, page: Page, start: int, end: int) -> None:
        at = start
        for chunk in page.chunks:
            for entry in decode_chunk(chunk):
                assert entry.offset < self.log.readable_end
                assert (entry.time_us, entry.record.payload) == self.appended[entry.offset]
                assert entry.offset <= at
                at = max(at, entry.offset + 1)
        assert page.next_offset == min(at, max(end, start))
        assert page.next_offset > start or start >= min(end, self.log.readable_end)

    @rule(data=st.data())
    def by_time(self, data: st.DataObject) -> None:
        if self.appended:
            time_us = data.draw(st.sampled_from([time for time, _ in self.appended])) + data.draw(st.integers(-1, 1))
            readable = range(self.log.oldest, self.log.readable_end)
            wanted = [offset for offset in readable if self.appended[offset][0] >= time_us]
            assert self.log.offset_at(time_us) == (wanted[0] if wanted else self.log.readable_end)

    @invariant()
    def nothing_went_too_early(self) -> None:
        log = self.log
        assert log.oldest <= log.readable_end <= log.next_offset == len(self.appended)
        assert log.bytes >= 0
        if log.oldest:
            newest_gone = self.appended[log.oldest - 1][0]
            size = sum(len(payload) for _, payload in self.appended[log.oldest - 1 :])
            assert newest_gone < self.now + 60 * SECOND - RETENTION_US or size + 500_000 > RETENTION_BYTES


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestLog = LogMachine.TestCase
