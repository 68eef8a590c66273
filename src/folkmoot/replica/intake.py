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
        # Of the branch (`merge.merged`): where its logs end, and how far they were known here before
        self.newest: dict[bytes, dict[int, tuple[int, int]]] = {}
        self.ends: dict[bytes, list[tuple[int, int]]] = {}
        self.kept: dict[bytes, bytes] = {}  # by log: the key of a row LEFTOVER of the branch
        self.records = False  # all but the records of streams is merged; these come page by page
        self.page: list[tuple[bytes, bytes]] = []  # of records
        self.last = False  # the page that is planned is the last one
        self.taken: dict[bytes, TakenBranch] = {}  # by key of the row: what the branch itself has taken in
        self.units: list[Unit] = []
        self.next = 0
        self.planned = False
        self.summary = HealSummary()
        self.tries: dict[str, int] = {}  # by node: how often its branch could not be read

    def begin(self, source: str, start: bytes) -> None:
        """Begin with the branch of a node; start: of the partition."""
        self.source = source
        self.taken = {}
        self.newest = {}
        self.ends = {}
        self.kept = {}
        self.summary = HealSummary()
        self.cursor = start
        self.reached = start
        self.offered = False
        self.paused = False
        self.records = False
        self.last = False
        self.side = []
        self.end_plan()
        self.forget_rows()

    def end_plan(self) -> None:
        """Free what is written, or given up."""
        self.planned = False
        self.units = []
        self.next = 0

    def forget_rows(self) -> None:
        """Free the rows: the plan is complete, or given up."""
        self.rows = {}
        self.own = {}
        self.page = []
        self.held = 0
        self.merge = None
        self.steps = None
