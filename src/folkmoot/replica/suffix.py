"""Suffixes: the changes that follow a copy's position, asked for with its report and sent in frames.

A follower that joins or has a gap lacks them, or a new leader that adopts the longest copy. The sender has them in
memory (`recent`), and knows that the receiver's copy is a prefix of its own.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import u64
from folkmoot.membership.divergence import YES, includes
from folkmoot.membership.holding import Holding
from folkmoot.peer.kind import FETCH
from folkmoot.replica.change import Change, encode_change
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.notice import Report, encode_report
from folkmoot.replica.replica import Replica

__all__ = ["fetch", "frames_of", "suffix_of"]

_FRAME_BYTES: Final = 1 << 20  # a frame ends with the change that makes it longer than this


def fetch(context: ReplicaContext, node_id: str, report: Report) -> None:
    """Ask a node for what follows this copy."""
    body = u64(context.epoch) + encode_report(report)
    context.send(node_id, FETCH, body)


def suffix_of(replica: Replica, holding: Holding) -> list[Change] | None:
    """Return the changes that follow a copy, at least one.

    None when it is not known to be a prefix of the copy here, or when they are not all in memory any more.
    """
    if includes(replica.holding(), holding) != YES:
        return None
    return replica.recent.after(holding.seq)


def frames_of(partition: int, changes: list[Change]) -> list[list[bytes]]:
    """Return changes as the parts of frames that are not too long; none for no changes."""
    frames: list[list[bytes]] = []
    size = _FRAME_BYTES + 1
    for change in changes:
        if size > _FRAME_BYTES:
            frames.append([])
            size = 0
        frames[-1].append(encode_change(partition, change))
        size += len(change.body)
    return frames
