"""A follower of a partition, as its leader knows it."""

from __future__ import annotations

__all__ = ["Follower"]


class Follower:
    """Another node that is to have a partition; acked_seq: sequence up to which it is on its disk, -1 = unknown.

    streaming: it gets every change; complete: it has no gaps; copy_seq: position at which its copy began; filled_seq:
    position at which a learner counts as filled; counts: nothing is committed without it. That holds for the ISR, and
    for learners before they are reported as filled: from then on any configuration may have them in sync.
    """

    def __init__(self, node_id: str, in_sync: bool) -> None:
        self.node_id = node_id
        self.in_sync = in_sync
        self.counts = in_sync
        self.streaming = False
        self.complete = False
        self.acked_seq = -1
        self.copy_seq = 0
        self.filled_seq = 0
        self.reported_filled = False
