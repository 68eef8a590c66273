"""The copies of this node, as its membership asks for them."""

from __future__ import annotations

from folkmoot.membership.holding import Holding, HoldingsSource
from folkmoot.replica.replication import Replication

__all__ = ["ReplicaHoldings"]


class ReplicaHoldings(HoldingsSource):
    """The replicas of one node."""

    def __init__(self, replication: Replication) -> None:
        self.replication = replication

    def holdings(self) -> list[Holding]:
        """Return its copy of each partition."""
        return self.replication.holdings()
