"""Views: the agreed list of members, who keeps which partition, and an epoch as number. A single node is a view of one.

Owns the values, their epochs and their bytes; never decides who belongs to a view (membership) or keeps what (assign).
"""

from __future__ import annotations

from typing import Final

from folkmoot.cluster.cursor import Cursor, put_bytes, put_text
from folkmoot.cluster.loss import Losses, decode_losses, encode_losses
from folkmoot.kernel.hash import hash64
from folkmoot.kernel.pack import varint
from folkmoot.store.origin import NUMBER_BITS

__all__ = [
    "ACTIVE",
    "COUNTER_MAX",
    "FORGOTTEN_MAX",
    "JOINING",
    "LEAVING",
    "LINEAGE_MAX",
    "MEMBERS_MAX",
    "Member",
    "View",
    "counter_of",
    "is_sane",
    "decode_member",
    "decode_view",
    "encode_member",
    "encode_view",
    "make_epoch",
    "tag_of",
]

JOINING: Final = 0  # has not yet what the placement gives it, and is not known from an earlier view
ACTIVE: Final = 1
LEAVING: Final = 2  # gives away what it has; the placement counts on it no more

COUNTER_MAX: Final = (1 << 64 - NUMBER_BITS) - 1  # of a view: numbers of requests begin with it; two a second: a year
FORGOTTEN_MAX: Final = 1024  # nodes; one that returns after so many others is merged like any that was away
LINEAGE_MAX: Final = 16  # epochs; after a split with more views than that nothing is known to be from before it
MEMBERS_MAX: Final = 4096  # of one view: bounds what bytes from elsewhere can make us hold

_FORMAT: Final = 1
_PARTITIONS_MAX: Final = 65_536
_TAG_BITS: Final = 24
_TAG_MASK: Final = (1 << _TAG_BITS) - 1
_EPOCH_MAX: Final = (1 << 64) - 1
_INCARNATION_MAX: Final = 1 << 62
_LASTS_MAX: Final = 8
_LEAP_MAX: Final = 1 << 22  # views that others may be ahead, weeks of nothing but changes: more is nonsense


def make_epoch(counter: int, proposer: str) -> int:
    """Return the epoch of the view number `counter` that `proposer` makes: ordered by counter, unique across a split.

    `proposer` names one start of one node, so that a node that is started again never makes an epoch twice.
    """
    assert 0 <= counter <= COUNTER_MAX, "numbers of requests begin with it, in 64 bits"
    return counter << _TAG_BITS | hash64(proposer.encode()) & _TAG_MASK


def counter_of(epoch: int) -> int:
    """Return the counter in an epoch."""
    return epoch >> _TAG_BITS


def tag_of(epoch: int) -> int:
    """Return what tells the proposers of equal counters apart, 24 bits."""
    return epoch & _TAG_MASK


def is_sane(counter: int, own: int) -> bool:
    """Tell whether a number of a view from elsewhere can be one; own: the highest known here, 0 = none.

    A wild one would be taken over by all, and be the last: nobody could make a view after it.
    """
    return counter <= COUNTER_MAX and (own == 0 or counter <= own + _LEAP_MAX)


class Member:
    """A node in a view: its id (kept on disk), incarnation (another one at each start), address for peers, and zone.

    `wire_min`, `wire_max`: versions of the wire between nodes that it speaks; `software`: its version, for people.
    """

    def __init__(
        self,
        node_id: str,
        incarnation: int,
        address: str,
        zone: str,
        state: int,
        wire_min: int = 1,
        wire_max: int = 1,
        software: str = "",
    ) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        self.address = address
        self.zone = zone
        self.state = state
        self.wire_min = wire_min
        self.wire_max = wire_max
        self.software = software

    def in_state(self, state: int) -> Member:
        """Return the same member in another state."""
        same = Member(self.node_id, self.incarnation, self.address, self.zone, state, self.wire_min, self.wire_max)
        same.software = self.software
        return same

    def __repr__(self) -> str:
        return f"Member({self.node_id!r} incarnation={self.incarnation} zone={self.zone!r} state={self.state})"


class View:
    """An epoch, its members sorted by id, and for each partition its replicas and learners.

    replicas: per partition the ids of the nodes that must have a change before it counts, the leader first; empty when
    nobody can lead it. learners: per partition the ids of those that are being filled. known: ids of the last full
    membership, sorted: everybody who was active and has neither left nor been forgotten. absent: those of `known` that
    are not members, as they were last seen. refused: (id, incarnation) of nodes that an operator evicted. branches: per
    partition the learners whose copies went another way in a split: it opens only when it has taken their changes in.
    bases: by member the epoch of the view in which it served until now, and this one's if it served in none: who served
    in one that others have not seen has forgotten what was between them. lineage: the newest epochs, newest first, that
    all its members come from: each of them has been in these views, or goes on from one who was. lasts: by id of
    those who are absent the epochs of the last views in which they were, one per side of a split. forgotten: (id, epoch
    of the order) of nodes that an operator had forgotten; one that is a member of such a view begins anew with it.
    crowded: ids of members whose disks are full: they lead nothing that another replica with room can lead.
    losses: which copies are away or lost. doubtful: ids of absent ones that may live, as the proposer sees it.
    """

    def __init__(
        self,
        epoch: int,
        members: list[Member],
        replicas: list[list[str]] | None = None,
        learners: list[list[str]] | None = None,
        known: list[str] | None = None,
        absent: list[Member] | None = None,
        refused: list[tuple[str, int]] | None = None,
        branches: dict[int, list[str]] | None = None,
        bases: dict[str, int] | None = None,
    ) -> None:
        self.epoch = epoch
        self.members = sorted(members, key=_id_of)
        self.replicas: list[list[str]] = [] if replicas is None else replicas
        self.learners: list[list[str]] = [[] for _ in self.replicas] if learners is None else learners
        self.known: list[str] = sorted(known) if known is not None else [member.node_id for member in self.members]
        self.absent: list[Member] = [] if absent is None else sorted(absent, key=_id_of)
        self.refused: list[tuple[str, int]] = [] if refused is None else sorted(refused)
        self.branches: dict[int, list[str]] = {} if branches is None else branches
        self.bases: dict[str, int] = {} if bases is None else bases
        self.lineage: list[int] = []
        self.lasts: dict[str, list[int]] = {}
        self.forgotten: list[tuple[str, int]] = []
        self.losses: Losses = Losses()
        self.crowded: list[str] = []
        self.doubtful: list[str] = []
        self.proposer: str = ""  # who proposed it, "" = nobody: a copy that was kept up to date (`Seat.base`)
        self._by_id: dict[str, Member] = {member.node_id: member for member in self.members}
        assert len(self.replicas) == len(self.learners), "one list of replicas and one of learners per partition"

    def member(self, node_id: str) -> Member | None:
        """Return the member with this id, or None."""
        return self._by_id.get(node_id)

    def leader_of(self, partition: int) -> str:
        """Return the id of the node that leads a partition, or "" when nobody can."""
        replicas = self.replicas[partition]
        return replicas[0] if replicas else ""

    def ancestry(self) -> list[int]:
        """Return the epoch of this view and of those before it that all its members come from, newest first."""
        return [self.epoch, *self.lineage]

    def begins_anew(self, node_id: str, before: View | None) -> bool:
        """Tell whether a member has to give up what it holds: it was forgotten, and `before` did not know of it."""
        known = [] if before is None else before.forgotten
        return len([mark for mark in self.forgotten if mark[0] == node_id and mark not in known]) > 0

    def anchors(self) -> list[int]:
        """Return the epochs of the last views of those who are away; 0 where nobody knows."""
        found: dict[int, bool] = {}
        for node_id in self.known:
            if node_id not in self._by_id:
                for epoch in self.lasts.get(node_id, [0]):
                    found[epoch] = True
        return sorted(found)

    def is_whole(self) -> bool:
        """Tell whether everybody who is known is here: nobody is away who may return with changes of his own."""
        return self.standing() >> 1 == len(self.known)

    def standing(self) -> int:
        """Return how much of the last full membership is here: twice the number, and one if its lowest id is."""
        here = 0
        for node_id in self.known:
            if node_id in self._by_id:
                here += 2
        return here + 1 if self.known and self.known[0] in self._by_id else here

    def has_majority(self) -> bool:
        """Tell whether more than half of the last full membership is here."""
        return self.standing() >> 1 > len(self.known) // 2

    def has_majority_or_tie(self) -> bool:
        """Tell the same, where half of it with the lowest id counts too: true in one component of a split at most."""
        return self.standing() > len(self.known)

    def __repr__(self) -> str:
        return f"View(epoch={self.epoch} members={self.members!r})"


def _id_of(member: Member) -> str:
    return member.node_id


def encode_member(member: Member) -> bytes:
    """Return a member's bytes behind their length; later versions may append fields."""
    parts = [put_text(member.node_id), varint(member.incarnation), put_text(member.address), put_text(member.zone)]
    parts += [bytes([member.state]), varint(member.wire_min), varint(member.wire_max), put_text(member.software)]
    return put_bytes(b"".join(parts))


def decode_member(cursor: Cursor) -> Member:
    """Read what `encode_member` wrote; raises ValueError."""
    inner = Cursor(cursor.bytes_(), "a member")
    node_id = inner.text()
    incarnation = inner.integer()
    address = inner.text()
    zone = inner.text()
    state = inner.byte()
    wire_min = inner.integer()
    wire_max = inner.integer()
    software = inner.text()
    if not node_id or incarnation >= _INCARNATION_MAX or state > LEAVING or wire_min > wire_max or wire_max > 0xFFFF:
        raise ValueError(f"a member {node_id!r} has fields that no member has")
    return Member(node_id, incarnation, address, zone, state, wire_min, wire_max, software)


def _put_members(members: list[Member]) -> bytes:
    return varint(len(members)) + b"".join([encode_member(member) for member in members])


def _put_placement(view: View, ids: list[str]) -> bytes:
    index: dict[str, bytes] = {node_id: varint(number) for number, node_id in enumerate(ids)}
    parts: list[bytes] = [varint(len(view.replicas))]
    for partition, replicas in enumerate(view.replicas):
        learners = view.learners[partition]
        parts.append(varint(len(replicas)))
        parts.extend([index[node_id] for node_id in replicas])
        parts.append(varint(len(learners)))
        parts.extend([index[node_id] for node_id in learners])
    return b"".join(parts)


def encode_view(view: View) -> bytes:
    """Return a view as bytes: sections behind their lengths, so that later versions may append to each, and more."""
    return bytes([_FORMAT]) + b"".join(
        [
            put_bytes(varint(view.epoch)),
            put_bytes(_put_members(view.members)),
            put_bytes(_put_placement(view, [member.node_id for member in view.members])),
            put_bytes(_put_ids(view.known)),
            put_bytes(_put_members(view.absent)),
            put_bytes(_put_marks(view.refused)),
            put_bytes(_put_branches(view)),
            put_bytes(b"".join([varint(view.bases.get(member.node_id, 0)) for member in view.members])),
            put_bytes(put_text(view.proposer)),
            put_bytes(varint(len(view.lineage)) + b"".join([varint(epoch) for epoch in view.lineage])),
            put_bytes(_put_lasts(view)),
            put_bytes(_put_marks(view.forgotten)),
            put_bytes(_put_ids(view.crowded)),
            put_bytes(encode_losses(view.losses)),
            put_bytes(_put_ids(view.doubtful)),
        ]
    )


def _put_ids(ids: list[str]) -> bytes:
    return varint(len(ids)) + b"".join([put_text(node_id) for node_id in ids])


def _put_marks(marks: list[tuple[str, int]]) -> bytes:
    return varint(len(marks)) + b"".join([put_text(node_id) + varint(number) for node_id, number in marks])


def _take_marks(data: bytes) -> list[tuple[str, int]]:
    cursor = Cursor(data, "a view's refused or forgotten nodes")
    marks: list[tuple[str, int]] = []
    for _ in range(cursor.count(MEMBERS_MAX)):
        node_id = cursor.text()
        marks.append((node_id, cursor.integer()))
    return marks


def _put_lasts(view: View) -> bytes:
    parts: list[bytes] = [varint(len(view.lasts))]
    for node_id in sorted(view.lasts):
        epochs = view.lasts[node_id][-_LASTS_MAX:]
        parts.append(put_text(node_id) + varint(len(epochs)) + b"".join([varint(epoch) for epoch in epochs]))
    return b"".join(parts)


def _take_lasts(data: bytes) -> dict[str, list[int]]:
    cursor = Cursor(data, "a view's list of who was last seen when")
    lasts: dict[str, list[int]] = {}
    for _ in range(cursor.count(MEMBERS_MAX)):
        node_id = cursor.text()
        lasts[node_id] = [cursor.integer() for _ in range(cursor.count(_LASTS_MAX))]
    return lasts


def _put_branches(view: View) -> bytes:
    parts: list[bytes] = [varint(len(view.branches))]
    for partition in sorted(view.branches):
        ids = view.branches[partition]
        parts.append(varint(partition) + varint(len(ids)) + b"".join([put_text(node_id) for node_id in ids]))
    return b"".join(parts)


def _take_branches(data: bytes, learners: list[list[str]]) -> dict[int, list[str]]:
    cursor = Cursor(data, "a view's branches")
    branches: dict[int, list[str]] = {}
    for _ in range(cursor.count(_PARTITIONS_MAX)):
        partition = cursor.integer()
        ids = [cursor.text() for _ in range(cursor.count(MEMBERS_MAX))]
        if partition >= len(learners) or [node_id for node_id in ids if node_id not in learners[partition]]:
            raise ValueError("a view has a branch of a node that does not learn the partition")
        branches[partition] = ids
    return branches


def _take_members(data: bytes) -> list[Member]:
    cursor = Cursor(data, "a view's list of members")
    members = [decode_member(cursor) for _ in range(cursor.count(MEMBERS_MAX))]
    if len({member.node_id for member in members}) != len(members):
        raise ValueError("a view has a member twice")
    return members


def _take_ids(cursor: Cursor, ids: list[str]) -> list[str]:
    found: list[str] = []
    for _ in range(cursor.count(len(ids))):
        number = cursor.integer()
        if number >= len(ids) or ids[number] in found:
            raise ValueError("a view gives a partition to a node that is no member, or twice to one")
        found.append(ids[number])
    return found


def decode_view(data: bytes) -> View:
    """Read what `encode_view` wrote, in this or a later version; raises ValueError on anything else."""
    cursor = Cursor(data, "a view")
    found = cursor.byte()
    if found != _FORMAT:
        raise ValueError(f"a view has format {found}, this version reads format {_FORMAT}")
    epoch = Cursor(cursor.bytes_(), "a view's epoch").integer()
    if epoch > _EPOCH_MAX:
        raise ValueError("a view has an epoch of more than 64 bits")
    members = _take_members(cursor.bytes_())
    ids = sorted([member.node_id for member in members])
    placement = Cursor(cursor.bytes_(), "a view's placement")
    replicas: list[list[str]] = []
    learners: list[list[str]] = []
    for _ in range(placement.count(_PARTITIONS_MAX)):
        replicas.append(_take_ids(placement, ids))
        learners.append(_take_ids(placement, ids))
    names = Cursor(cursor.bytes_(), "a view's known ids")
    known = [names.text() for _ in range(names.count(MEMBERS_MAX))]
    absent = _take_members(cursor.bytes_())
    refused = _take_marks(cursor.bytes_())
    branches = {} if cursor.done() else _take_branches(cursor.bytes_(), learners)  # older versions know none
    bases: dict[str, int] = {}
    if not cursor.done():
        epochs = Cursor(cursor.bytes_(), "a view's bases")
        for node_id in ids:
            bases[node_id] = epochs.integer()
    view = View(epoch, members, replicas, learners, known, absent, refused, branches, bases)
    if not cursor.done():
        view.proposer = Cursor(cursor.bytes_(), "a view's proposer").text()
    if not cursor.done():
        epochs = Cursor(cursor.bytes_(), "a view's lineage")
        view.lineage = [epochs.integer() for _ in range(epochs.count(LINEAGE_MAX))]
    if not cursor.done():
        view.lasts = _take_lasts(cursor.bytes_())
    if not cursor.done():
        view.forgotten = _take_marks(cursor.bytes_())
    if not cursor.done():
        names = Cursor(cursor.bytes_(), "a view's members without room")
        view.crowded = [names.text() for _ in range(names.count(len(members)))]
    if not cursor.done():
        view.losses = decode_losses(cursor.bytes_())
    if not cursor.done():
        names = Cursor(cursor.bytes_(), "a view's doubtful ids")
        view.doubtful = [names.text() for _ in range(names.count(MEMBERS_MAX))]
    return view
