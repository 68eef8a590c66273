"""The outbox of a partition: messages that other partitions must get exactly once, because of a change of this one.

A change is atomic in one partition only. Where it must go together with a publication to others - a QoS 2 packet id
becomes known, a will goes, a message leaves the queue of a lost member - it also writes a row OUTBOX with the message
and all whom it concerns. When the change is committed, the leader hands the message to them, in order; when all have
confirmed, it deletes the row, and the turn that wrote it is complete. A new leader goes on with the rows that it finds;
what was taken before is known by its number (`mark`). DESIGN sections 7 and 9.

Numbers grow for ever per partition: a leader begins beyond all that one of an earlier view can have used. A merge of
two branches must give new numbers to the rows of one of them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.channel.forward_sender import Requests, first_number
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_varint, varint
from folkmoot.session.connection import Connection
from folkmoot.session.session import Session
from folkmoot.store.key import OUTBOX, kind_prefix, numbered_key
from folkmoot.store.message import Message
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import (
    ASKED_AGAIN,
    FROM_CLIENT,
    RETAIN,
    Errand,
    Parcel,
    Share,
    decode_parcel,
    encode_application,
    encode_parcel,
    get_names,
    put_names,
)
from folkmoot.turn.state import State

__all__ = ["Outbox", "decode_errand", "encode_errand"]

_FORMAT: Final = b"\x01"


class Outbox:
    """The errands of the partitions that this node leads, from their rows until all have confirmed."""

    def __init__(self, state: State, fabric: Fabric, commits: Commits, requests: Requests) -> None:
        self.state = state
        self.fabric = fabric
        self.commits = commits
        self.requests = requests
        self._next: list[int] = [0] * state.partitions
        self._errands: list[dict[int, Errand]] = [{} for _ in range(state.partitions)]
        self._unsent: deque[tuple[int, Errand]] = deque()  # their turn is not committed: (token, errand)

    def is_needed(self, home: int) -> bool:
        """Whether what `home` has for others needs a row: alone, all that a turn changes is one batch."""
        return not self.fabric.alone and (bool(self.fabric.others) or self.busy(home))

    def busy(self, home: int) -> bool:
        """Whether something is under way, which later messages must not overtake."""
        return bool(self._errands[home])

    def is_open(self, home: int, sequence: int) -> bool:
        """Whether an errand, or one before it, is under way; False as well when that is another leader's business."""
        errands = self._errands[home]
        return bool(errands) and next(iter(errands)) <= sequence

    def count(self, home: int) -> int:
        """Return how many messages are under way."""
        return len(self._errands[home])

    def follow(self, session: Session, connection: Connection) -> None:
        """Let what a client publishes from now on come behind all that its partition has promised (A3)."""
        if self.busy(session.partition):
            session.ordered_token = self.commits.newest_token()
            connection.fast = False

    def put(
        self,
        home: int,
        message: Message,
        producer: bytes,
        number: int,
        flags: int,
        shares: list[Share],
        nodes: dict[str, list[bytes]],
        revocable: bool = False,
        connection: Connection | None = None,
    ) -> None:
        """Promise a message to partitions and to nodes (with groups there), in this turn's change of `home`.

        flags: FROM_CLIENT, TO_GROUPS. revocable: it can be taken back as what a client has sent, though it has not;
        connection: over which it was published.
        """
        sequence = self._next[home]
        self._next[home] = sequence + 1
        errand = Errand(home, sequence, flags, encode_application(message, producer, number))
        errand.shares = shares
        errand.nodes = nodes
        if connection is not None:
            connection.promised = self.requests.order
            connection.errand = sequence
        errand.receipt = self.commits.receipts.current
        key = self._key(errand)
        self.state.writer.put(home, key, encode_errand(errand))
        if revocable or (flags & FROM_CLIENT and not producer):
            self.state.revocable.append((self.state.writer.token, home, key))
        self._add(errand)

    def _key(self, errand: Errand) -> bytes:
        return numbered_key(kind_prefix(errand.home, OUTBOX), errand.sequence)

    def _add(self, errand: Errand) -> None:
        self._errands[errand.home][errand.sequence] = errand
        self.commits.ask(1, len(errand.body))
        errand.token = self.state.writer.token
        if [share for share in errand.shares if share.bits & RETAIN]:
            errand.ticket = self.requests.barrier.begin()
        self._unsent.append((errand.token, errand))

    # -- under way ----------------------------------------------------------------------------------------------------

    def committed(self) -> None:
        """More turns are committed: what they have promised goes on its way."""
        unsent = self._unsent
        while unsent and unsent[0][0] <= self.commits.committed_token:
            errand = unsent.popleft()[1]
            if not errand.over:
                self.requests.hand(errand)

    def finish(self) -> None:
        """Forget the errands that all have confirmed; `complete` is to be asked afterwards."""
        requests = self.requests
        if requests.finished:
            finished = requests.finished
            requests.finished = []
            for errand in finished:
                if not errand.over:
                    del self._errands[errand.home][errand.sequence]
                    self.state.writer.delete(errand.home, self._key(errand))
                    self._end(errand)

    def _end(self, errand: Errand) -> None:
        errand.over = True
        self.requests.barrier.end(errand.ticket)
        self.commits.answered(errand.token, 1, len(errand.body))

    # -- leaders come and go ------------------------------------------------------------------------------------------

    def begin(self, home: int, errands: list[Errand]) -> None:
        """This node begins to lead a partition, in the view that is installed.

        errands: as its rows say, in order; they go on their way when all replicas have them.
        """
        self._next[home] = first_number(self.fabric.epoch) + 1
        for errand in errands:
            self._next[home] = max(self._next[home], errand.sequence + 1)
            errand.flags |= ASKED_AGAIN
            if not self.fabric.planted.outbox_forgotten:
                self._add(errand)

    def renumber(self) -> None:
        """A view was installed: no number is given in two of them, so that it tells on which side of a split it was."""
        first = first_number(self.fabric.epoch) + 1
        for home in range(self.state.partitions):
            self._next[home] = max(self._next[home], first)

    def forget(self, home: int) -> None:
        """This node leads the partition no more: its new leader goes on with what is under way."""
        errands = self._errands[home]
        self._errands[home] = {}
        for errand in errands.values():
            self._end(errand)


def encode_errand(errand: Errand) -> bytes:
    """Return the value of an OUTBOX row: the nodes with their groups, then a parcel with the shares and the message."""
    out: list[bytes] = [_FORMAT, varint(len(errand.nodes))]
    for node_id, groups in errand.nodes.items():
        put_names(out, [node_id.encode()])
        put_names(out, groups)
    parcel = Parcel(errand.sequence, 0, errand.flags, errand.body)
    parcel.shares = errand.shares
    encode_parcel(parcel, out)
    return b"".join(out)


def decode_errand(home: int, sequence: int, data: bytes) -> Errand:
    """Read the value of an OUTBOX row; raises CorruptStore."""
    if data[:1] != _FORMAT:
        raise CorruptStore(f"an outbox row has format {data[:1].hex() or 'nothing'}; this version reads format 1")
    nodes: dict[str, list[bytes]] = {}
    try:
        count, pos = get_varint(data, 1)
        for _ in range(count):
            names: list[bytes] = []
            groups: list[bytes] = []
            pos = get_names(data, pos, names)
            pos = get_names(data, pos, groups)
            nodes[names[0].decode()] = groups
        parcel, pos = decode_parcel(data, pos)
    except (IndexError, UnicodeDecodeError):
        raise CorruptStore("an outbox row is damaged: it ends too early") from None
    if pos != len(data):
        raise CorruptStore("an outbox row is damaged: it is too long")
    # Its number is that of its key: the merge of two sides of a split gives new ones.
    errand = Errand(home, sequence, parcel.flags, parcel.body)
    errand.nodes = nodes
    errand.shares = parcel.shares
    return errand
