"""Filling a copy at this node: pages from the leader, together with live changes.

From the position at which a copy begins, every change comes too, in order. A key or a removed range that such a change
touches is newer than any later page, so a page never overwrites it. The leader reads a page after it has sent the
changes that the page may show. Rows here that a page does not have are removed. Digests are compared first: equal pages
are not sent.

A copy for which too many keys are touched begins again where it was. Its leader names a new position, and shows pages
of that position or later: so the touched keys can be forgotten. What lies before the cursor is as the leader has it, if
nothing was missed up to the new position.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import INFO, WARNING
from folkmoot.membership.divergence import NO, YES, has_change, includes
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.peer.kind import FILLED, PULL
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.notice import (
    CopyNotice,
    PageNotice,
    PullNotice,
    encode_pull,
    encode_sequences,
)
from folkmoot.replica.page import bytes_of, digest_of, read_page
from folkmoot.replica.replica import REPLICA, Replica
from folkmoot.replica.suffix import fetch
from folkmoot.store.batch import DELETE, DELETE_RANGE, PUT
from folkmoot.store.key import partition_end, partition_start
from folkmoot.store.writer import version_of

__all__ = ["Copies"]

_SMALLEST: Final = 16  # a copy counts as at least this part of a page
_TOUCHED_MAX: Final = 200_000  # keys remembered per copy; beyond it the copy begins again at its cursor


class _Copy:
    """One partition that is being filled; `readable_token`: the rows from before its start are written with it."""

    def __init__(self, replica: Replica, source: str, readable_token: int, branch: Holding) -> None:
        self.replica = replica
        self.source = source
        self.readable_token = readable_token
        self.branch = branch  # the changes of the leader: rows of other changes are from another branch
        self.waiting = False  # for a leader that continues it
        self.asked = False
        self.cursor = partition_start(replica.number)
        self.asked_end = b""
        self.rows: list[tuple[bytes, bytes]] = []
        self.unreadable = False
        self.touched: dict[bytes, bool] = {}
        self.ranges: list[tuple[bytes, bytes]] = []
        self.strange = 0
        self.expected = False  # the leader said that the copy here has changes of its own
        self.taken = False  # rows of another branch are no loss
        self.left = 0  # estimated bytes, as reported by the leader
        self.done_token = 0

    def is_touched(self, key: bytes) -> bool:
        """Whether a live change has touched the key."""
        if key in self.touched:
            return True
        for start, end in self.ranges:
            if start <= key < end:
                return True
        return False

    def forget_before(self) -> None:
        """Forget keys before the cursor: no page comes there any more."""
        cursor = self.cursor
        self.touched = {key: True for key in self.touched if key >= cursor}
        self.ranges = [entry for entry in self.ranges if entry[1] > cursor]


class Copies:
    """All partitions that are being filled here, a few at a time."""

    def __init__(self, context: ReplicaContext) -> None:
        self.context = context
        self.active: dict[Replica, _Copy] = {}
        self.touched_max: int = _TOUCHED_MAX
        self._interrupted: dict[Replica, bytes] = {}  # copies that begin again in this view, with their cursors
        self.bytes_copied = 0
        self.bytes_seen = 0  # copied, or found equal
        self.pages_equal = 0
        self.pages_different = 0

    def bytes_left(self) -> int:
        """Return the estimated bytes that are still to come, as many as they have on the disks of the leaders."""
        return sum([copy.left for copy in self.active.values()])

    def installed(self) -> None:
        """A new view: copies continue when their leader says so."""
        self._interrupted.clear()
        for replica in list(self.active):
            if replica.follows():
                copy = self.active[replica]
                copy.source = replica.leader
                copy.waiting = True
                copy.asked = False
            else:
                self._forget(replica)

    def _forget(self, replica: Replica) -> None:
        del self.active[replica]
        replica.copying = False

    def begin(self, replica: Replica, source: str, notice: CopyNotice) -> None:
        """Begin a copy, or continue it: the leader says from which position on it sends changes."""
        context = self.context
        copy = self.active.get(replica)
        if notice.resume:
            if copy is not None:
                copy.source = source
                copy.waiting = False
                self.step()
            elif not notice.seq and not replica.head_seq:
                context.writer.adopt(replica.number, 0, 0, COMPLETE)
            elif replica.state != COMPLETE:
                self._ask_anew(source, replica)
            else:  # the notice of that may have come before the leader opened the partition
                self._tell(source, replica)
            return
        if replica.is_in_sync():
            # Nothing else may have what was committed. It leaves the ISR first; then the leader sends this again.
            replica.withdraw()
            return
        cursor = self._interrupted.pop(replica, b"")
        follows = (replica.head_epoch, replica.head_seq) == (notice.epoch, notice.seq)
        mine = replica.holding()
        branch = Holding(COMPLETE, notice.epoch, notice.seq, notice.history)
        had = includes(branch, mine)
        if not notice.taken and had != YES:
            # Changes that no leader has taken over are lost with this copy: turns that wait for them must fail.
            replica.uncommitted.abandon()
            self._tell_loss(source, replica, mine, had)
        if replica.role == REPLICA:
            replica.withdraw()  # a copy that is being filled commits nothing
        replica.cut(notice.epoch, notice.seq, notice.history)
        replica.copying = True
        copy = self.active[replica] = _Copy(replica, source, context.writer.token, branch)
        copy.taken = notice.taken
        copy.expected = had == NO
        copy.left = notice.left
        if cursor and follows:
            copy.cursor = cursor

    def _tell_loss(self, source: str, replica: Replica, mine: Holding, had: int) -> None:
        """Say what becomes of changes that are here; had: whether the leader has them, NO or UNKNOWN."""
        where = f"up to {mine.epoch}:{mine.seq}"
        if replica.is_foreign():
            replica.tell_loss()
        elif had == NO:  # normal when a leader dies: nothing of these changes was acknowledged
            why = f"changes {where} here are not at {source}; none of them was acknowledged"
            replica.event(INFO, "branch_overwritten", why)
        else:
            why = f"it is unknown whether {source} has the changes {where}"
            replica.event(WARNING, "branch_overwritten", why)

    def _ask_anew(self, source: str, replica: Replica) -> None:
        replica.copying = False
        fetch(self.context, source, replica.report())

    def touch(self, replica: Replica, ops: list[tuple[int, bytes, bytes]]) -> None:
        """Remember what a live change has touched."""
        copy = self.active.get(replica)
        if copy is None or copy.done_token or self.context.planted.untouched:
            return
        for kind, key, value in ops:
            if kind == DELETE_RANGE:
                if value > copy.cursor:
                    copy.ranges.append((key, value))
            elif key >= copy.cursor:
                copy.touched[key] = True
        if len(copy.touched) + len(copy.ranges) > self.touched_max:
            copy.forget_before()
            if len(copy.touched) + len(copy.ranges) > self.touched_max:
                self._forget(replica)
                self._interrupted[replica] = copy.cursor
                self._ask_anew(copy.source, replica)

    def step(self) -> None:
        """Ask all source nodes for their next pages at the same time: so each has less to do beside its clients."""
        context = self.context
        page_bytes = context.config.page_bytes
        room = context.config.copy_parallel * page_bytes
        unfinished = [copy for copy in self.active.values() if not copy.waiting and not copy.done_token]
        if not unfinished:
            return
        share = max(room // len({copy.source: None for copy in unfinished}), 1)
        running: dict[str, int] = {}
        for copy in unfinished:
            size = running.get(copy.source, 0)
            if size >= share:
                continue
            if room <= 0:
                return
            # What is left may fit into one page with many others: most partitions of a quiet cluster are small.
            part = max(min(copy.left or page_bytes, page_bytes), page_bytes // _SMALLEST)
            room -= part
            running[copy.source] = size + part
            if not copy.asked and context.pending.written_token >= copy.readable_token:
                self._ask(copy)

    def _ask(self, copy: _Copy) -> None:
        context = self.context
        end = partition_end(copy.replica.number)
        digest = b""
        copy.unreadable = False
        try:
            copy.rows, end = read_page(context.reader, copy.cursor, end, context.config.page_bytes)
            digest = digest_of(copy.rows)
        except CorruptStore:
            copy.rows = []
            copy.unreadable = True
        copy.asked = True
        copy.asked_end = end
        pull = PullNotice(copy.replica.number, copy.cursor, end, digest)
        context.send(copy.source, PULL, encode_pull(context.epoch, pull))

    def page(self, replica: Replica, source: str, page: PageNotice) -> None:
        """Handle a page, or the notice that it is equal."""
        copy = self.active.get(replica)
        if copy is None or not copy.asked or copy.source != source or copy.cursor != page.start:
            return
        if not page.start < page.end <= copy.asked_end:
            return
        copy.asked = False
        copy.left = page.left
        self.bytes_seen += bytes_of(copy.rows if page.equal else page.rows)
        if page.equal:
            self.pages_equal += 1
        else:
            self.pages_different += 1
            self._replace(copy, page)
        copy.rows = []
        copy.cursor = page.end
        if copy.cursor >= partition_end(copy.replica.number):
            self._finish(copy)
        elif len(copy.touched) > 1024:
            copy.forget_before()
        self.step()

    def _replace(self, copy: _Copy, page: PageNotice) -> None:
        """Make the rows of the page's range equal to the page, except those that live changes have touched."""
        coming = dict(page.rows)
        ops: list[tuple[int, bytes, bytes]] = []
        if copy.unreadable:
            ops.extend(self._clear(copy, page))
        for key, value in copy.rows:
            if key >= page.end:
                break
            other = coming.get(key)
            if other == value:
                del coming[key]
            elif not copy.is_touched(key):
                epoch, seq = version_of(value)
                if has_change(copy.branch, epoch, seq) == NO:
                    copy.strange += 1
                if other is None:
                    ops.append((DELETE, key, b""))
        for key, value in coming.items():
            if not copy.is_touched(key):
                ops.append((PUT, key, value))
        if ops:
            size = bytes_of([(key, value) for _, key, value in ops])
            self.bytes_copied += size
            self.context.writer.raw(ops, size)

    def _clear(self, copy: _Copy, page: PageNotice) -> list[tuple[int, bytes, bytes]]:
        """Return operations that remove all rows in the page's range, except those that live changes have put."""
        ops: list[tuple[int, bytes, bytes]] = []
        start = page.start
        for key in sorted([key for key in copy.touched if page.start <= key < page.end]):
            if start < key:
                ops.append((DELETE_RANGE, start, key))
            start = key + b"\0"
        if start < page.end:
            ops.append((DELETE_RANGE, start, page.end))
        return ops

    def _finish(self, copy: _Copy) -> None:
        context = self.context
        replica = copy.replica
        copy.done_token = context.writer.token
        copy.touched.clear()
        copy.ranges.clear()
        replica.rate_durably(COMPLETE)
        if copy.strange and not copy.taken:
            why = f"{copy.strange} rows belonged to changes that {copy.source} does not have"
            replica.event(INFO if copy.expected else WARNING, "branch_dropped", why)
        replica.event(INFO, "replica_filled", f"from {copy.source}")

    def written(self) -> None:
        """More is on the disk here: report finished copies, and ask for more pages."""
        context = self.context
        for replica in list(self.active):
            copy = self.active[replica]
            if copy.done_token and copy.done_token <= context.pending.written_token:
                self._forget(replica)
                self._tell(copy.source, replica)
        self.step()

    def _tell(self, source: str, replica: Replica) -> None:
        """Tell the leader that a copy is complete and on the disk."""
        context = self.context
        body = encode_sequences(context.epoch, [(replica.number, replica.durable_seq)])
        context.send(source, FILLED, body)
