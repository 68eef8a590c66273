"""What this node tells of its copies when it promises a view."""

from __future__ import annotations

from folkmoot.membership.holding import Holding
from folkmoot.membership.member_state import HoldingsSource
from folkmoot.replica.replication import Replication

__all__ = ["ReplicaHoldings"]


class ReplicaHoldings(HoldingsSource):
    """The copies of one node."""

    def __init__(self, replication: Replication) -> None:
        self.replication = replication

    def holdings(self) -> list[Holding]:
        """Return what it has of each partition."""
        return self.replication.holdings()
