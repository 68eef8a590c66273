"""Offering a branch: a copy that went another way in a split is read by the leader before it is replaced.

The rows of such a copy stand still: its node follows the leader, and nothing that the leader sends fits behind them.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.kernel.pack import u64, varint
from folkmoot.membership.divergence import YES, has_change, shared
from folkmoot.membership.history import put_history, take_history
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.membership.view import LINEAGE_MAX, View
from folkmoot.peer.cursor import Cursor, put_bytes, put_text
from folkmoot.peer.kind import OFFER
from folkmoot.replica.page import read_page
from folkmoot.replica.replica_states import ReplicaStates
from folkmoot.store.key import CHUNK, HISTORY, RETAINED, STREAM, partition_end, partition_start
from folkmoot.store.writer import VERSION_BYTES, version_of

__all__ = ["AskNotice", "OfferNotice", "Offers", "decode_ask", "decode_offer", "encode_ask", "encode_offer"]

_ROWS_MAX: Final = 65_536
_SEEN_MAX: Final = 64


class AskNotice:
    """ASK: offer me your rows from `start` on; `seen`: the branches whose changes are here."""

    def __init__(self, partition: int, start: bytes, seen: list[Holding]) -> None:
        self.partition = partition
        self.start = start
        self.seen = seen


def encode_ask(epoch: int, ask: AskNotice) -> bytes:
    """Return the body of ASK."""
    parts = [u64(epoch), varint(ask.partition), put_bytes(ask.start), varint(len(ask.seen))]
    parts.extend([varint(one.epoch) + varint(one.seq) + put_history(one.history) for one in ask.seen])
    return b"".join(parts)


def decode_ask(body: bytes, partitions: int) -> AskNotice:
    """Read the body of ASK; raises ValueError."""
    cursor = Cursor(body[8:], "an ASK")
    partition = cursor.integer()
    start = cursor.bytes_()
    if partition >= partitions or not partition_start(partition) <= start < partition_end(partition):
        raise ValueError("an ASK names keys that are not of its partition")
    seen: list[Holding] = []
    for _ in range(cursor.count(_SEEN_MAX)):
        epoch = cursor.integer()
        seq = cursor.integer()
        seen.append(Holding(COMPLETE, epoch, seq, take_history(cursor)))
    return AskNotice(partition, start, seen)


class OfferNotice:
    """OFFER: rows from `start` up to `end`, where the next page begins; no `end`: they cannot be read.

    side: the members of the view in which the branch was made; lineage: the views that it comes from, that one first.
    """

    def __init__(
        self, partition: int, start: bytes, end: bytes, side: list[str], rows: list[tuple[bytes, bytes]]
    ) -> None:
        self.lineage: list[int] = []
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
    return b"".join(parts)


def decode_offer(body: bytes, partitions: int) -> OfferNotice:
    """Read the body of OFFER; raises ValueError."""
    cursor = Cursor(body[8:], "an OFFER")
    partition = cursor.integer()
    start = cursor.bytes_()
    end = cursor.bytes_()
    if partition >= partitions or (end and not partition_start(partition) <= start < end <= partition_end(partition)):
        raise ValueError("an OFFER names keys that are not of its partition")
    side = [cursor.text() for _ in range(cursor.count(_ROWS_MAX))]
    rows: list[tuple[bytes, bytes]] = []
    for _ in range(cursor.count(_ROWS_MAX)):
        key = cursor.bytes_()
        value = cursor.bytes_()
        if not start <= key < end or len(value) < VERSION_BYTES:
            raise ValueError("an OFFER has a row that does not belong there")
        rows.append((key, value))
    offer = OfferNotice(partition, start, end, side, rows)
    offer.lineage = [cursor.integer() for _ in range(cursor.count(LINEAGE_MAX + 1))]
    return offer


class Offers:
    """The branches that this node has, and the questions of leaders that wait for its disk."""

    def __init__(self, replica_states: ReplicaStates) -> None:
        self.replica_states = replica_states
        self.sides: dict[int, View] = {}  # in which a branch here was made
        self._waiting: list[tuple[str, AskNotice]] = []

    def installed(self) -> None:
        """A new view: who wants to know asks again."""
        self._waiting.clear()

    def note_sides(self) -> None:
        """A view comes to life after another one: remember with whom the branches here were made."""
        view = self.replica_states.view
        lived = self.replica_states.lived
        if view is None or lived is None or not lived.replicas:
            return
        me = self.replica_states.node_id
        for partition, nodes in view.branches.items():
            if me in nodes and me in lived.replicas[partition]:
                self.sides[partition] = lived

    def asked(self, node_id: str, ask: AskNotice) -> None:
        """The leader of a partition wants to know what is here."""
        if self.replica_states.leaders[ask.partition] == node_id and not self._answer(node_id, ask):
            self._waiting.append((node_id, ask))

    def written(self) -> None:
        """Something is on the disk here."""
        if self._waiting:
            waiting = self._waiting
            self._waiting = [entry for entry in waiting if not self._answer(entry[0], entry[1])]

    def _answer(self, node_id: str, ask: AskNotice) -> bool:
        """Answer, unless that has to wait for the disk."""
        replica_states = self.replica_states
        partition = ask.partition
        if replica_states.durable_seqs[partition] < replica_states.writer.sequence(partition):
            return False
        made = self.sides.get(partition)
        side = [replica_states.node_id] if made is None else [member.node_id for member in made.members]
        offer = OfferNotice(partition, ask.start, b"", side, [])
        offer.lineage = [] if made is None else made.ancestry()
        try:
            end = partition_end(partition)
            rows, following = read_page(replica_states.reader, ask.start, end, replica_states.config.page_bytes)
            offer.end = following
            offer.rows = _offered(rows, ask.seen, replica_states.holding(partition))
        except CorruptStore as fault:
            replica_states.event(ERROR, "branch_unreadable", partition, str(fault))
        replica_states.out.append((node_id, OFFER, encode_offer(replica_states.epoch, offer)))
        return True


def _offered(rows: list[tuple[bytes, bytes]], seen: list[Holding], mine: Holding) -> list[tuple[bytes, bytes]]:
    """Return what the leader must see: of big rows that it has only that they are still there."""
    common = max([shared(holding, mine)[0] for holding in seen], default=0)
    found: list[tuple[bytes, bytes]] = []
    for key, value in rows:
        kind = key[2]
        if kind == HISTORY or kind == STREAM:
            continue
        if kind == RETAINED or kind == CHUNK:
            epoch, seq = version_of(value)
            if seq <= common or [holding for holding in seen if has_change(holding, epoch, seq) == YES]:
                if kind == RETAINED:
                    found.append((key, value[:VERSION_BYTES]))
                continue
        found.append((key, value))
    return found
