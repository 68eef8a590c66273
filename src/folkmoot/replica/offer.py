"""Offering a branch: the leader reads a copy that diverged in a split before it replaces it.

The rows of such a copy do not change: its node follows the leader, and no change of the leader fits behind them.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.kernel.pack import u64, varint
from folkmoot.membership.configuration import ANCESTORS_MAX
from folkmoot.membership.divergence import YES, has_change, shared
from folkmoot.membership.history import put_history, take_history
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.membership.view import View
from folkmoot.peer.cursor import Cursor, put_bytes, put_text
from folkmoot.peer.kind import OFFER
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.page import read_page
from folkmoot.replica.replica import Replica
from folkmoot.store.key import CHUNK, HISTORY, RETAINED, partition_end, partition_start
from folkmoot.store.writer import VERSION_BYTES, version_of

__all__ = ["AskNotice", "OfferNotice", "Offers", "decode_ask", "decode_offer", "encode_ask", "encode_offer"]

_ROWS_MAX: Final = 65_536
_SEEN_MAX: Final = 64


class AskNotice:
    """ASK_OFFER: send the rows from `start` on; `seen`: the branches whose changes the leader has."""

    def __init__(self, partition: int, start: bytes, seen: list[Holding]) -> None:
        self.partition = partition
        self.start = start
        self.seen = seen


def encode_ask(epoch: int, ask: AskNotice) -> bytes:
    """Return the body of ASK_OFFER."""
    parts = [u64(epoch), varint(ask.partition), put_bytes(ask.start), varint(len(ask.seen))]
    parts.extend([varint(one.epoch) + varint(one.seq) + put_history(one.history) for one in ask.seen])
    return b"".join(parts)


def decode_ask(body: bytes, partitions: int) -> AskNotice:
    """Read the body of ASK_OFFER; raises ValueError."""
    cursor = Cursor(body[8:], "an ASK_OFFER")
    partition = cursor.integer()
    start = cursor.bytes_()
    if partition >= partitions or not partition_start(partition) <= start < partition_end(partition):
        raise ValueError("an ASK_OFFER names keys of another partition")
    seen: list[Holding] = []
    for _ in range(cursor.count(_SEEN_MAX)):
        epoch = cursor.integer()
        seq = cursor.integer()
        seen.append(Holding(COMPLETE, epoch, seq, take_history(cursor)))
    return AskNotice(partition, start, seen)


class OfferNotice:
    """OFFER: rows from `start` up to `end`, where the next page begins; no `end`: they cannot be read.

    side: the members of the view in which the branch was made; lineage: that view and its predecessors, newest first;
    none if it is not known. lives: this process was a member of it, so clients of the branch may be connected.
    """

    def __init__(
        self, partition: int, start: bytes, end: bytes, side: list[str], rows: list[tuple[bytes, bytes]]
    ) -> None:
        self.lineage: list[int] = []
        self.lives: bool = False
        self.partition = partition
        self.start = start
        self.end = end
        self.side = side
        self.rows = rows


def encode_offer(epoch: int, offer: OfferNotice) -> bytes:
    """Return the body of OFFER."""
    parts = [u64(epoch), varint(offer.partition), put_bytes(offer.start), put_bytes(offer.end)]
    parts.append(varint(len(offer.side)))
    parts.extend([put_text(node_id) for node_id in offer.side])
    parts.append(varint(len(offer.rows)))
    for key, value in offer.rows:
        parts.append(put_bytes(key))
        parts.append(put_bytes(value))
    parts.append(varint(len(offer.lineage)))
    parts.extend([varint(epoch) for epoch in offer.lineage])
    parts.append(varint(int(offer.lives)))
    return b"".join(parts)


def decode_offer(body: bytes, partitions: int) -> OfferNotice:
    """Read the body of OFFER; raises ValueError."""
    cursor = Cursor(body[8:], "an OFFER")
    partition = cursor.integer()
    start = cursor.bytes_()
    end = cursor.bytes_()
    if partition >= partitions or (end and not partition_start(partition) <= start < end <= partition_end(partition)):
        raise ValueError("an OFFER names keys of another partition")
    side = [cursor.text() for _ in range(cursor.count(_ROWS_MAX))]
    rows: list[tuple[bytes, bytes]] = []
    for _ in range(cursor.count(_ROWS_MAX)):
        key = cursor.bytes_()
        value = cursor.bytes_()
        if not start <= key < end or len(value) < VERSION_BYTES:
            raise ValueError("an OFFER has a row outside its range")
        rows.append((key, value))
    offer = OfferNotice(partition, start, end, side, rows)
    offer.lineage = [cursor.integer() for _ in range(cursor.count(ANCESTORS_MAX + 1))]
    offer.lives = cursor.integer() != 0
    return offer


class Offers:
    """The branches that this node has, and the questions of leaders that wait for its disk."""

    def __init__(self, context: ReplicaContext) -> None:
        self.context = context
        self.sides: dict[int, View] = {}  # the views in which the branches here were made
        self._lives: dict[int, bool] = {}  # those of them that this process has made
        self._waiting: list[tuple[Replica, AskNotice]] = []

    def installed(self) -> None:
        """A new view: leaders ask again."""
        self._waiting.clear()

    def note_sides(self) -> None:
        """Remember with which members the branches here were made, when a view takes effect after another one."""
        view = self.context.view
        lived = self.context.lived
        if view is None or lived is None or not lived.replicas:
            return
        me = self.context.node_id
        for partition, nodes in view.branches.items():
            if me in nodes and me in lived.replicas[partition]:
                self.sides[partition] = lived
                self._lives[partition] = self.context.lives

    def asked(self, replica: Replica, ask: AskNotice) -> None:
        """Handle the question of a partition's leader."""
        if not self._answer(replica, ask):
            self._waiting.append((replica, ask))

    def written(self) -> None:
        """More is on the disk here: answer the questions that waited."""
        if self._waiting:
            waiting = self._waiting
            self._waiting = [entry for entry in waiting if not self._answer(entry[0], entry[1])]

    def _answer(self, replica: Replica, ask: AskNotice) -> bool:
        """Answer a question; False when the answer has to wait for the disk."""
        context = self.context
        partition = replica.number
        if not replica.is_written():
            return False
        made = self.sides.get(partition)
        side = [context.node_id] if made is None else [member.node_id for member in made.members]
        offer = OfferNotice(partition, ask.start, b"", side, [])
        offer.lineage = [] if made is None else made.ancestry()
        offer.lives = self._lives.get(partition, False)
        try:
            end = partition_end(partition)
            rows, following = read_page(context.reader, ask.start, end, context.config.page_bytes)
            offer.end = following
            offer.rows = _offered(rows, ask.seen, replica.holding())
        except CorruptStore as fault:
            replica.event(ERROR, "branch_unreadable", str(fault))
        context.send(replica.leader, OFFER, encode_offer(context.epoch, offer))
        return True


def _offered(rows: list[tuple[bytes, bytes]], seen: list[Holding], mine: Holding) -> list[tuple[bytes, bytes]]:
    """Return the rows for the leader: of big rows that it has too, only that they exist."""
    common = max([shared(holding, mine)[0] for holding in seen], default=0)
    found: list[tuple[bytes, bytes]] = []
    for key, value in rows:
        kind = key[2]
        if kind == HISTORY:
            continue
        if kind == RETAINED or kind == CHUNK:
            epoch, seq = version_of(value)
            if seq <= common or [holding for holding in seen if has_change(holding, epoch, seq) == YES]:
                if kind == RETAINED:
                    found.append((key, value[:VERSION_BYTES]))
                continue
        found.append((key, value))
    return found
