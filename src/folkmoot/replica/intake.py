"""The merge of the branches of one partition: what is read, what is planned, how far it is. Data of `merging` only."""

from __future__ import annotations

from collections.abc import Iterator

from folkmoot.merge.merge import Merge, Unit
from folkmoot.merge.merged import TakenBranch
from folkmoot.merge.summary import HealSummary
from folkmoot.replica.replica import Replica

__all__ = ["Intake"]


class Intake:
    """The merge at one replica: the remaining nodes, and the progress with the current one."""

    def __init__(self, replica: Replica, nodes: list[str]) -> None:
        self.replica = replica
        self.nodes = nodes
        self.source = ""
        self.cursor = b""
        self.rows: dict[bytes, bytes] = {}
        self.own: dict[bytes, bytes] = {}  # of the side that leads, read up to `reached`
        self.reached = b""
        self.held = 0  # bytes of rows and units that are in memory, approximately
        self.paused = False  # the next page of the branch is not asked for yet: the merges hold too much
        self.offered = False  # all rows of the branch are here
        self.merge: Merge | None = None
        self.steps: Iterator[None] | None = None  # of the plan
        self.side: list[str] = []
        self.lineage: list[int] = []
        self.lives: bool = False  # the process that has the branch has made it
        self.ends: dict[bytes, list[tuple[int, int]]] = {}  # of the branch (`merge.merged`)
        self.taken: dict[bytes, TakenBranch] = {}  # by key of the row: what the branch itself has taken in
        self.units: list[Unit] = []
        self.next = 0
        self.planned = False
        self.summary = HealSummary()
        self.tries: dict[str, int] = {}  # by node: how often its branch could not be read

    def forget_rows(self) -> None:
        """Free the rows: the plan is complete, or given up."""
        self.rows = {}
        self.own = {}
        self.held = 0
        self.merge = None
        self.steps = None
