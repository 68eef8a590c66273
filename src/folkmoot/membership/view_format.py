"""Views as bytes, on the disk and between nodes: format 1.

Owns the order of the sections and what is refused as nonsense. Later versions append to sections and add sections; what
an older version does not write is empty.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import varint
from folkmoot.membership.loss import decode_losses, encode_losses
from folkmoot.membership.view import LINEAGE_MAX, MEMBERS_MAX, View
from folkmoot.peer.cursor import Cursor, put_bytes, put_text
from folkmoot.peer.member import LEAVING, Member

__all__ = ["decode_view", "encode_view"]

_FORMAT: Final = 1
_PARTITIONS_MAX: Final = 65_536
_EPOCH_MAX: Final = (1 << 64) - 1
_INCARNATION_MAX: Final = 1 << 62
_FROM_LOG: Final = 1
_TRUNK: Final = 2
_LASTS_MAX: Final = 8  # epochs kept for one absent node, the newest: one per side of a split


def _put_member(member: Member) -> bytes:
    """Return a member's bytes behind their length; later versions may append fields."""
    parts = [put_text(member.node_id), varint(member.incarnation), put_text(member.address), put_text(member.zone)]
    parts += [bytes([member.state]), varint(member.wire_min), varint(member.wire_max), put_text(member.software)]
    return put_bytes(b"".join(parts))


def _take_member(cursor: Cursor) -> Member:
    """Read what `_put_member` wrote; raises ValueError."""
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
    return varint(len(members)) + b"".join([_put_member(member) for member in members])


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
    """Return a view as bytes: sections, each behind its length, so that later versions may append."""
    sections = bytes([_FORMAT]) + b"".join(
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
            put_bytes(bytes([view.minority_bootstrap])),
            put_bytes(_put_uncommitted_tails(view)),
        ]
    )
    if view.from_log:
        sections += put_bytes(bytes([_FROM_LOG | (_TRUNK if view.is_trunk else 0)]))
    return sections


def _put_ids(ids: list[str]) -> bytes:
    return varint(len(ids)) + b"".join([put_text(node_id) for node_id in ids])


def _put_uncommitted_tails(view: View) -> bytes:
    parts: list[bytes] = [varint(len(view.uncommitted_tails))]
    for partition in sorted(view.uncommitted_tails):
        copies = view.uncommitted_tails[partition]
        parts.append(varint(partition) + varint(len(copies)))
        parts.extend([put_text(node_id) + varint(epoch) + varint(seq) for node_id, epoch, seq in copies])
    return b"".join(parts)


def _take_uncommitted_tails(data: bytes) -> dict[int, list[tuple[str, int, int]]]:
    cursor = Cursor(data, "a view's copies with changes that were told to nobody")
    found: dict[int, list[tuple[str, int, int]]] = {}
    for _ in range(cursor.count(_PARTITIONS_MAX)):
        partition = cursor.integer()
        copies: list[tuple[str, int, int]] = []
        for _ in range(cursor.count(MEMBERS_MAX)):
            node_id = cursor.text()
            epoch = cursor.integer()
            copies.append((node_id, epoch, cursor.integer()))
        found[partition] = copies
    return found


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
    members = [_take_member(cursor) for _ in range(cursor.count(MEMBERS_MAX))]
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
    branches = {} if cursor.done() else _take_branches(cursor.bytes_(), learners)  # older versions write none
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
    _take_last(cursor, view)
    return view


def _take_last(cursor: Cursor, view: View) -> None:
    """Read the last sections."""
    if not cursor.done():
        view.minority_bootstrap = Cursor(cursor.bytes_(), "whether a minority of the seeds began a view").integer() > 0
    if not cursor.done():
        view.uncommitted_tails = _take_uncommitted_tails(cursor.bytes_())
    if not cursor.done():
        flags = Cursor(cursor.bytes_(), "where a view comes from").byte()
        view.from_log = flags & _FROM_LOG > 0
        view.is_trunk = flags & _TRUNK > 0
