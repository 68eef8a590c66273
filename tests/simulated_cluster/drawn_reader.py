"""What the readers of streams see in a drawn run, and that it never changes (A9).

`Watch` looks at the leaders after each turn: what can be read there has its offset for ever, and is on the disks of all
copies in sync. A `Reader` asks nodes as the HTTP interface does, at leaders and at other copies, and is told nothing
else, and never more.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

from folkmoot.kernel.errors import CorruptStore
from folkmoot.query.question import BOUNDS, FOUND, READ, Answer, page_of
from folkmoot.report.call import Call
from folkmoot.store.chunk import decode_chunk
from folkmoot.store.reader import Reader as Rows
from folkmoot.store.record import Entry, is_same
from folkmoot.streams.log import StreamLog
from folkmoot.streams.page import OffsetAhead, OffsetGone, Page
from tests.harness.simulated_cluster import SimulatedCluster, Site

__all__ = ["ALL", "Asker", "Calls", "Place", "Reader", "Watch", "copy_at", "entries_of"]

Place = tuple[str, int]
"""A stream and one of its partitions."""

ALL = (1 << 62) - 1
_BYTES = 1 << 20


class Asker:
    """Who has asked a node something; `ended` is called when the node has an answer, or none."""

    def ended(self, site: Site, call: Call) -> None:
        """Take the answer of a call."""
        raise NotImplementedError


class Calls(list[Call]):
    """The calls of a node that have ended: each is passed on in the moment in which the node reports it."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site

    def extend(self, calls: Any) -> None:
        """Pass calls on."""
        for call in calls:
            assert isinstance(call.handle, Asker)
            call.handle.ended(self.site, call)


def entries_of(page: Page, start: int) -> list[Entry]:
    """Return the records of a page from an offset on, as a reader trims them."""
    found = [entry for chunk in page.chunks for entry in decode_chunk(chunk)]
    return [entry for entry in found if start <= entry.offset < page.next_offset]


def copy_at(log: StreamLog, rows: Rows) -> StreamLog:
    """Return a stream partition as these rows have it; it is not open."""
    return StreamLog(log.config, log.index, log.store_partition, rows)


class Watch:
    """The records that could be read at leaders: `seen` by offset, those before `ends`.

    oldest: retention has removed those before, or a leader that is none any more was about to.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.seen: dict[Place, dict[int, Entry]] = {}
        self.ends: dict[Place, int] = {}
        self.oldest: dict[Place, int] = {}
        for stream in cluster["n1"].node.streams.streams:
            for log in stream.logs:
                place = (stream.config.name, log.index)
                self.seen[place] = {}
                self.ends[place] = self.oldest[place] = 0

    def look(self, site: Site) -> None:
        """Look at what can be read at a node now."""
        if not site.up:
            return
        node = site.node
        for stream in node.streams.streams:
            for log in stream.logs:
                place = (stream.config.name, log.index)
                if log.readable_end == self.ends[place] and log.oldest <= self.oldest[place]:
                    continue
                if node.leads_stream(log) and not node.silence(site.steady_ns()):
                    self._look_at(site, place, log)

    def _look_at(self, site: Site, place: Place, log: StreamLog) -> None:
        known = self.ends[place]
        assert log.readable_end >= known, f"A9: {site.name} ends {place} at {log.readable_end}, {known} were readable"
        self.oldest[place] = max(self.oldest[place], log.oldest)
        if log.readable_end == known:
            return
        page = log.read(max(known, log.oldest), log.readable_end, _BYTES)
        assert isinstance(page, Page), f"A9: {place} at {site.name} from {known} on: {page}"
        for entry in entries_of(page, known):
            self.seen[place][entry.offset] = entry
            self._is_safe(site, log, entry)
        expected = range(max(known, log.oldest), log.readable_end)
        assert all(offset in self.seen[place] for offset in expected), f"A9: {place} lacks some of {expected}"
        self.ends[place] = log.readable_end

    def find(self, place: Place, offset: int) -> Entry | None:
        """Return a record that was given out; it may have become readable in the turn in which its leader went."""
        if offset == self.ends[place]:
            for site in self.cluster.live():
                logs = [log for one in site.node.streams.streams for log in one.logs if one.config.name == place[0]]
                log = logs[place[1]]
                view = site.cluster_node.view
                if view is not None and view.replicas[log.store_partition]:
                    entry = copy_at(log, self.cluster[view.replicas[log.store_partition][0]].store).stored(offset)
                    self._is_safe(site, log, entry)
                    self.seen[place][offset] = entry
                    self.ends[place] = offset + 1
                    break
        return self.seen[place].get(offset)

    def _is_safe(self, site: Site, log: StreamLog, entry: Entry) -> None:
        """What can be read is on the disks of all copies in sync."""
        view = site.cluster_node.view
        assert view is not None
        isr = view.replicas[log.store_partition]
        assert len(isr) >= self.cluster.min_in_sync, f"{site.name} gives out {entry} with the copies {isr}"
        for name in isr:
            try:
                stored = copy_at(log, self.cluster[name].store).stored(entry.offset)
            except CorruptStore:
                raise AssertionError(
                    f"A9: {site.name} gives out {entry} of {log}, which {name} of {isr} lacks"
                ) from None
            assert is_same(stored, entry), f"A9: {site.name} gives out {entry} of {log}, {name} has {stored}"

    def compare(self, place: Place, entries: list[Entry], where: str) -> None:
        """What was read is what was there when it became readable."""
        for entry in entries:
            known = self.seen[place].get(entry.offset)
            assert known is not None, f"A9: {where} gives out {entry} of {place}, which ends at {self.ends[place]}"
            assert is_same(known, entry), f"A9: {where} gives out {entry} of {place} instead of {known}"


_Question = tuple[int, list[int]]
_Reading = Generator[_Question, Answer, Page | OffsetGone | OffsetAhead]


class _Request(Asker):
    """One request to one node."""

    def __init__(self, reader: Reader, site: Site, start: int, end: int, steps: _Reading) -> None:
        self.reader = reader
        self.site = site
        self.node = site.node
        self.start = start
        self.end = end
        self.steps = steps
        self.answers: list[Answer | None] = []

    def ended(self, site: Site, call: Call) -> None:
        """Keep the answer until the request goes on."""
        if site.node is self.node:
            self.answers.append(call.answer)


class Reader:
    """Reads one stream partition page by page, each at another node."""

    def __init__(self, watch: Watch, place: Place, rng: Random) -> None:
        self.watch = watch
        self.place = place
        self.rng = rng
        self.at = 0
        self.pages = 0
        self._request: _Request | None = None

    def ask(self, site: Site, whole: bool = False) -> None:
        """Ask a node for the next page, or for one that was read before; an earlier request is given up.

        whole: for all that there is behind what was read.
        """
        start = self.at if whole or self.rng.random() < 0.7 else self.rng.randint(0, self.at)
        end = ALL if whole or self.rng.random() < 0.7 else start + self.rng.randint(0, 6)
        size = self.rng.choice((1, 300, _BYTES))
        self._request = request = _Request(self, site, start, end, self._reading(site, start, end, size))
        self._go_on(request, None)

    def look(self) -> None:
        """Go on with the request, if there is an answer."""
        request = self._request
        while request is not None and request is self._request and request.answers:
            answer = request.answers.pop(0)
            if answer is None:
                self._request = None  # 503: there is no leader
            else:
                self._go_on(request, answer)

    def _reading(self, site: Site, start: int, end: int, size: int) -> _Reading:
        """Read as `StreamApi` and `NodeSource` do in `admin`; what is yielded is asked of the leader."""
        node = site.node
        stream = node.streams.get(self.place[0])
        assert stream is not None
        log = stream.logs[self.place[1]]
        if node.leads_stream(log):
            return log.read(start, end, size)
        if node.copies.holds(log) and not node.copies.covers(log, end):
            answer = yield BOUNDS, [log.index]
            if answer.status == FOUND:
                node.copies.learn(log, answer.numbers)
        page = node.copies.read(log, start, end, size)
        if page is not None:
            return page
        answer = yield READ, [log.index, start, end, size]
        return page_of(answer)

    def _go_on(self, request: _Request, answer: Answer | None) -> None:
        node = request.site.node
        if node is not request.node or not request.site.up:
            self._request = None
            return
        try:
            what, numbers = next(request.steps) if answer is None else request.steps.send(answer)
        except StopIteration as done:
            self._request = None
            if not node.silence(request.site.steady_ns()):
                self._take(request, done.value)
            return
        stream = node.streams.get(self.place[0])
        assert stream is not None
        now = self.watch.cluster.now
        found = node.ask_stream(request, stream.logs[self.place[1]], what, numbers, now)
        if not isinstance(found, Call):
            request.answers.append(found)

    def _take(self, request: _Request, page: Page | OffsetGone | OffsetAhead) -> None:
        where = f"{request.site.name}, asked for {request.start} to {request.end},"
        end = self.watch.ends[self.place]
        if isinstance(page, OffsetGone):
            assert request.start < page.oldest <= self.watch.oldest[self.place], f"{where} says {page}"
            self.at = max(self.at, page.oldest)
            return
        assert isinstance(page, Page), f"A9: {where} says {page}, {self.at} were read"
        entries = entries_of(page, request.start)
        self.watch.compare(self.place, entries, where)
        expected = list(range(request.start, page.next_offset))
        assert [entry.offset for entry in entries] == expected, f"A9: {where} gives {entries}"
        assert page.next_offset <= page.end <= end, f"A9: {where} ends at {page.end}, and {end} can be read"
        assert expected or request.start in (page.end, request.end), f"{where} gives nothing up to {page.end}"
        self.at = max(self.at, page.next_offset)
        self.pages += 1
