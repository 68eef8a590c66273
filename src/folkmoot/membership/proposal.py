"""The agreement on a view: the proposer asks all its members (PREPARE), each promises (PROMISE), all get it (COMMIT).

Owns the three messages, the refusal, and the promises received so far; never decides when to propose.

PacificA (Lin et al., MSR-TR-2008-25) leaves views to a separate service. Here the future members agree in a two-phase
commit. Any of them may start over with a higher epoch, so no node waits for a dead proposer. It is safe because all
members of the new view have promised not to take part in an older one.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import varint
from folkmoot.membership.holding import Holding, decode_holdings, encode_holdings
from folkmoot.membership.view import MEMBERS_MAX, View
from folkmoot.membership.view_format import decode_view, encode_view
from folkmoot.peer.cursor import Cursor, put_bytes, put_text
from folkmoot.peer.member import Member

__all__ = [
    "Prepare",
    "Promise",
    "Proposal",
    "decode_commit",
    "decode_prepare",
    "decode_promise",
    "decode_refuse",
    "encode_commit",
    "encode_prepare",
    "encode_promise",
    "encode_refuse",
    "promised_epoch",
]

_CHAIN_MAX: Final = 8
_PARTITIONS_MAX: Final = 65_536


class Prepare:
    """The proposer's request: `base` is the epoch that it has installed; members are (id, incarnation)."""

    def __init__(self, epoch: int, base: int, members: list[tuple[str, int]]) -> None:
        self.epoch = epoch
        self.base = base
        self.members = members


class Promise:
    """A member's answer: it will take part in no view before `epoch`.

    serving: it serves in its view, and is neither new nor excluded. base: the view that it has installed, None = none.
    holdings: one per partition. filled: (partition, learner) that it reports as their leader. copies: the number of
    replicas in its settings.
    """

    def __init__(
        self,
        epoch: int,
        serving: bool,
        base: View | None,
        holdings: list[Holding],
        filled: list[tuple[int, str]],
        copies: int = 0,
    ) -> None:
        self.epoch = epoch
        self.serving = serving
        self.base = base
        self.base_epoch = 0 if base is None else base.epoch
        self.holdings = holdings
        self.filled = filled
        self.copies = copies


class Proposal:
    """A proposal and the promises received so far.

    crowded: ids of members without room on their disks. few: most of the seeds are not members.
    """

    def __init__(self, epoch: int, members: list[Member], now: int) -> None:
        self.epoch = epoch
        self.members = members
        self.started_us = now
        self.promises: dict[str, Promise] = {}
        self.crowded: list[str] = []
        self.few: bool = False

    def missing(self) -> list[str]:
        """Return the ids of the nodes that have not promised yet."""
        return [member.node_id for member in self.members if member.node_id not in self.promises]

    def has(self, node_id: str) -> bool:
        """Tell whether a node is to be a member."""
        for member in self.members:
            if member.node_id == node_id:
                return True
        return False


def encode_prepare(prepare: Prepare) -> bytes:
    """Return a PREPARE as bytes."""
    parts = [put_text(node_id) + varint(incarnation) for node_id, incarnation in prepare.members]
    return varint(prepare.epoch) + varint(prepare.base) + varint(len(parts)) + b"".join(parts)


def decode_prepare(data: bytes) -> Prepare:
    """Read a PREPARE; raises ValueError."""
    cursor = Cursor(data, "a proposal")
    epoch = cursor.integer()
    base = cursor.integer()
    members: list[tuple[str, int]] = []
    for _ in range(cursor.count(MEMBERS_MAX)):
        node_id = cursor.text()
        members.append((node_id, cursor.integer()))
    return Prepare(epoch, base, members)


def encode_promise(promise: Promise, known_epoch: int) -> bytes:
    """Return a PROMISE as bytes, with the view unless the proposer has it (`known_epoch`)."""
    base = promise.base
    view = b"" if base is None or base.epoch == known_epoch else encode_view(base)
    filled = [varint(partition) + put_text(node_id) for partition, node_id in promise.filled]
    return b"".join(
        [
            varint(promise.epoch),
            bytes([1 if promise.serving else 0]),
            varint(promise.base_epoch),
            put_bytes(view),
            put_bytes(encode_holdings(promise.holdings)),
            varint(len(filled)),
            *filled,
            varint(promise.copies),
        ]
    )


def promised_epoch(data: bytes) -> int:
    """Return the epoch of the proposal that a PROMISE answers; raises ValueError."""
    return Cursor(data, "a promise").integer()


def decode_promise(data: bytes, own: View | None) -> Promise:
    """Read a PROMISE; `own` is the view that the proposer has installed. Raises ValueError."""
    cursor = Cursor(data, "a promise")
    epoch = cursor.integer()
    serving = cursor.byte() & 1 == 1
    base_epoch = cursor.integer()
    view = cursor.bytes_()
    base: View | None = None
    if view:
        base = decode_view(view)
    elif base_epoch:
        if own is None or own.epoch != base_epoch:
            raise ValueError("a promise names a view that the proposer has not")
        base = own
    holdings = decode_holdings(cursor.bytes_())
    filled: list[tuple[int, str]] = []
    for _ in range(cursor.count(_PARTITIONS_MAX * 8)):
        partition = cursor.integer()
        filled.append((partition, cursor.text()))
    return Promise(epoch, serving, base, holdings, filled, 0 if cursor.done() else cursor.integer())


def encode_refuse(epoch: int, counter: int, why: str) -> bytes:
    """Return a REFUSE as bytes: the epoch, the highest counter that the member knows, and the reason."""
    return varint(epoch) + varint(counter) + put_text(why)


def decode_refuse(data: bytes) -> tuple[int, int, str]:
    """Read a REFUSE: epoch, counter, why; raises ValueError."""
    cursor = Cursor(data, "a refusal")
    epoch = cursor.integer()
    counter = cursor.integer()
    return epoch, counter, cursor.text()


def encode_commit(chain: list[View]) -> bytes:
    """Return a COMMIT as bytes: the promised view, after those that one of its members may have missed."""
    return varint(len(chain)) + b"".join([put_bytes(encode_view(view)) for view in chain])


def decode_commit(data: bytes) -> list[View]:
    """Read a COMMIT; raises ValueError."""
    cursor = Cursor(data, "a view's commit")
    chain = [decode_view(cursor.bytes_()) for _ in range(cursor.count(_CHAIN_MAX))]
    if not chain:
        raise ValueError("a view's commit has no view")
    return chain
