"""The log of one member in memory: a snapshot, the entries after it, and how far they are durable, committed, applied.

Always: snapshot.index <= applied <= commit <= last_index, first <= snapshot.index + 1; indexes are contiguous, terms
never fall. What is applied is durable, or is in a snapshot whose write is under way. Nothing up to `commit` is ever
removed, except behind a snapshot.
"""

from __future__ import annotations

from folkmoot.raft.configuration import Configuration, decode_change
from folkmoot.raft.entry import CHANGE, Entry, Snapshot

__all__ = ["Log", "Unsaved"]


class Unsaved:
    """What has changed since the last write was taken."""

    def __init__(self) -> None:
        self.truncate: int = 0  # entries from this index on are to be removed first; 0: none
        self.first: int = 0  # the first entry that is new; 0: none
        self.snapshot: bool = False
        self.drop: bool = False  # entries before `Log.first` are to be removed


class _Handed:
    """A write under way: when `token` is durable, entries up to `end` are, as far as they are still in the log."""

    def __init__(self, token: int, end: int) -> None:
        self.token = token
        self.end = end


class Log:
    """The log; it begins with what was found on the disk, which `recovery` has checked."""

    def __init__(self, snapshot: Snapshot, entries: list[Entry], commit: int, applied: int) -> None:
        self.snapshot = snapshot
        self.first: int = entries[0].index if entries else snapshot.index + 1
        self.entries: list[Entry] = entries
        self.commit = commit
        self.applied = applied
        self.durable: int = self.last_index()
        self.unsaved = Unsaved()
        self.configurations: list[tuple[int, Configuration]] = [(snapshot.index, snapshot.configuration)]
        self._handed: list[_Handed] = []
        for entry in entries:
            if entry.index > snapshot.index:
                self._configure(entry)
        self.check()

    def check(self) -> None:
        """Assert the invariants of the module's docstring, in constant time."""
        last = self.last_index()
        assert self.snapshot.index <= self.applied <= self.commit <= last, "snapshot <= applied <= commit <= last"
        assert self.first <= self.snapshot.index + 1, "no gap lies behind the snapshot"
        assert self.durable <= last, "only what is in the log is durable"
        assert not self.entries or self.entries[0].index == self.first, "entries begin at `first`"
        assert self.configurations[0][0] <= self.commit, "the oldest known configuration is committed"

    def last_index(self) -> int:
        """Return the index of the last entry, or of the snapshot."""
        if self.entries:
            return self.entries[-1].index
        return self.snapshot.index

    def last_term(self) -> int:
        """Return the term of the last entry, or of the snapshot."""
        if self.entries:
            return self.entries[-1].term
        return self.snapshot.term

    def term_at(self, index: int) -> int:
        """Return the term of an entry; -1 if it is compacted or not there."""
        at = index - self.first
        if 0 <= at < len(self.entries):
            entry = self.entries[at]
            assert entry.index == index, "indexes are contiguous"
            return entry.term
        if index == self.snapshot.index:
            return self.snapshot.term
        return -1

    def is_behind(self, index: int, term: int) -> bool:
        """Tell whether a log that ends with (index, term) lacks something of this one (dissertation, 3.6.1)."""
        assert term >= 0, "a position has a term"
        last_term = self.last_term()
        return term < last_term or (term == last_term and index < self.last_index())

    def pages(self, first: int, end: int, bytes_max: int) -> list[Entry]:
        """Return entries from `first` to `end` (included), as many as fit, at least one if there is one."""
        assert first >= self.first, "compacted entries cannot be read"
        page: list[Entry] = []
        size = 0
        for at in range(first - self.first, min(end, self.last_index()) - self.first + 1):
            entry = self.entries[at]
            size += entry.cost()
            if page and size > bytes_max:
                break
            page.append(entry)
        return page

    def first_kept(self, index: int, entries_max: int, bytes_max: int) -> int:
        """Return the first of the newest entries up to `index` that are within both limits; `index` + 1 if none is."""
        first = index + 1
        size = 0
        while first > self.first and index + 1 - first < entries_max:
            size += self.entries[first - 1 - self.first].cost()
            if size > bytes_max:
                break
            first -= 1
        return first

    def hint(self, index: int, term: int) -> int:
        """Return the largest index <= `index` whose term is <= `term`, or that is not known: the logs may match there.

        Terms never fall within a log, so a log whose entry at `index` has `term` cannot match behind the result.
        """
        at = min(index, self.last_index())
        while at >= self.first and self.term_at(at) > term:
            at -= 1
        return at

    def configuration(self) -> Configuration:
        """Return the newest configuration, committed or not: a member uses it from when it is in its log (4.1)."""
        assert self.configurations, "there is always a configuration"
        return self.configurations[-1][1]

    def configuration_at(self, index: int) -> Configuration:
        """Return the configuration at an index that is not compacted."""
        assert index >= self.configurations[0][0], "older configurations are forgotten"
        found = self.configurations[0][1]
        for since, configuration in self.configurations:
            if since > index:
                break
            found = configuration
        return found

    def voters_term(self) -> int:
        """Return the term of the entry since which its voters have the votes; if it is compacted, that of a later one.

        If one voter is left, nobody else is elected in a later term, unless by an entry behind all of these.
        """
        voters = self.configuration().voters
        index = 0
        for since, configuration in reversed(self.configurations):
            if configuration.voters != voters:
                break
            index = since
        term = self.term_at(index)
        return self.snapshot.term if term < 0 else term

    def has_pending_change(self) -> bool:
        """Tell whether the newest configuration is not committed."""
        return self.configurations[-1][0] > self.commit

    def append(self, entries: list[Entry]) -> None:
        """Append entries that follow the last one."""
        for entry in entries:
            assert entry.index == self.last_index() + 1, "an entry follows the one before it"
            assert entry.term >= self.last_term(), "terms never fall"
            if not self.entries:
                self.first = entry.index
            self.entries.append(entry)
            self._configure(entry)
            if self.unsaved.first == 0:
                self.unsaved.first = entry.index

    def merge(self, entries: list[Entry]) -> None:
        """Take over entries that follow a matching one: skip what is there, replace from the first that conflicts."""
        assert not entries or entries[0].index > self.commit, "what is committed stays"
        for at, entry in enumerate(entries):
            if self.term_at(entry.index) != entry.term:
                if entry.index <= self.last_index():
                    self.truncate(entry.index)
                self.append(entries[at:])
                return

    def truncate(self, index: int) -> None:
        """Remove the entries from `index` on; they are not committed."""
        assert index > self.commit, "what is committed stays"
        assert index >= self.first, "what is compacted is committed"
        del self.entries[index - self.first :]
        while self.configurations[-1][0] >= index:
            self.configurations.pop()
        self._forget(index)
        unsaved = self.unsaved
        unsaved.truncate = min(unsaved.truncate, index) if unsaved.truncate else index
        if unsaved.first >= index:
            unsaved.first = 0
        self.check()

    def commit_to(self, index: int) -> bool:
        """Move the commit index forward; True if it has moved."""
        if index <= self.commit:
            return False
        assert index <= self.last_index(), "only what is in the log is committed"
        self.commit = index
        return True

    def take_applicable(self, bytes_max: int) -> list[Entry]:
        """Return the entries to apply next: committed, and durable here, so that a restart still has them."""
        end = min(self.commit, self.durable)
        if end <= self.applied:
            return []
        page = self.pages(self.applied + 1, end, bytes_max)
        assert page, "what is not applied is not compacted"
        self.applied = page[-1].index
        return page

    def compact(self, snapshot: Snapshot, first: int) -> None:
        """Take a snapshot of what was applied, and drop the entries before `first`."""
        assert self.snapshot.index < snapshot.index <= self.applied, "snapshots go forward, over what was applied"
        assert self.term_at(snapshot.index) == snapshot.term, "the snapshot is of this log"
        first = max(self.first, min(first, snapshot.index + 1))
        self.snapshot = snapshot
        del self.entries[: first - self.first]
        self.first = first
        while len(self.configurations) > 1 and self.configurations[1][0] <= snapshot.index:
            del self.configurations[0]
        self.unsaved.snapshot = True
        self.unsaved.drop = True
        assert self.unsaved.first == 0 or self.unsaved.first >= first, "what is compacted has been written"
        self.check()

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the whole log by the snapshot of another member."""
        assert snapshot.index > self.commit, "a snapshot never goes back"
        self.snapshot = snapshot
        self.entries = []
        self.first = snapshot.index + 1
        self.commit = snapshot.index
        self.applied = snapshot.index
        self.configurations = [(snapshot.index, snapshot.configuration)]
        self._forget(1)
        self.unsaved.snapshot = True
        self.unsaved.truncate = 1
        self.unsaved.first = 0
        self.check()

    def is_saved(self) -> bool:
        """Tell whether no write is due."""
        unsaved = self.unsaved
        return not unsaved.snapshot and not unsaved.drop and unsaved.truncate == 0 and unsaved.first == 0

    def hand_over(self, token: int) -> Unsaved:
        """Return what the write `token` has to contain, and begin anew."""
        unsaved = self.unsaved
        self.unsaved = Unsaved()
        assert self.is_saved(), "everything is in the write"
        if unsaved.first or unsaved.truncate or unsaved.snapshot:
            self._handed.append(_Handed(token, self.last_index()))
        return unsaved

    def saved(self, token: int) -> None:
        """Note that all writes up to `token` are durable."""
        handed = self._handed
        while handed and handed[0].token <= token:
            self.durable = max(self.durable, handed[0].end)
            del handed[0]
        self.check()

    def _forget(self, index: int) -> None:
        """Nothing that was written from `index` on is in the log any more."""
        assert index > 0, "indexes begin at 1"
        self.durable = min(self.durable, index - 1)
        for handed in self._handed:
            handed.end = min(handed.end, index - 1)

    def _configure(self, entry: Entry) -> None:
        """Use the configuration of an entry that carries one."""
        if entry.kind == CHANGE:
            assert entry.index > self.configurations[-1][0], "configurations follow each other"
            self.configurations.append((entry.index, decode_change(entry.data).configuration))
