"""What the replicas of a node share: the installed configuration, the store, and what goes out at the end of a turn."""

from __future__ import annotations

from folkmoot.kernel.event import Event
from folkmoot.kernel.planted import Planted
from folkmoot.membership.view import View
from folkmoot.peer.config import ClusterConfig
from folkmoot.replica.pending import Pending
from folkmoot.replica.recent import RecentBudget
from folkmoot.store.outline import Outline
from folkmoot.store.reader import Reader
from folkmoot.store.writer import Writer

__all__ = ["ReplicaContext"]


class ReplicaContext:
    """Shared by the replicas of a node and the parts of replication; `now` in microseconds."""

    def __init__(self, node_id: str, partitions: int, config: ClusterConfig, reader: Reader, writer: Writer) -> None:
        self.node_id = node_id
        self.partitions = partitions
        self.config = config
        self.reader = reader
        self.writer = writer
        self.now = 0
        self.shift_us = 0  # the time of this node less `now`
        self.view: View | None = None
        self.lived: View | None = None  # the newest view that took effect here, in this or an earlier process
        self.lives: bool = False  # in this one
        self.epoch = 0
        self.fresh = False  # a view is installed that has not taken effect yet
        self.solo = True  # there is no other member, and none is away
        self.others: list[str] = []  # the other members of the view
        self.recent_budget = RecentBudget(config.recent_bytes_max)
        self.pending = Pending()
        self.followed: list[tuple[int, int, int]] = []  # in this turn: partition, sequence, generation
        self.outline = Outline()  # of this turn
        self.unfit: list[int] = []  # partitions whose copy here must not be in sync
        self.renew = False
        self.out: list[tuple[str, int, bytes]] = []
        self.events: list[Event] = []
        self.planted = Planted(config.planted)

    def is_away(self) -> bool:
        """Whether a known node is absent, and may return with changes of its own."""
        return self.view is not None and not self.view.is_whole()

    def send(self, node_id: str, kind: int, body: bytes) -> None:
        """Send a message to another node at the end of the turn."""
        self.out.append((node_id, kind, body))
