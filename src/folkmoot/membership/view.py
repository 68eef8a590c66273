"""Views: what a node needs to know of a configuration to take its roles. A single node is a view of one.

Owns the values and their epochs; `projection` makes a view of each configuration.
"""

from __future__ import annotations

from folkmoot.membership.loss import Losses
from folkmoot.peer.member import Member
from folkmoot.store.epoch import counter_of, tag_of

__all__ = ["View"]


class View:
    """An epoch, its members sorted by id, and for each partition its replicas and learners.

    replicas: per partition the ids of the nodes in sync, which must have a change before it counts, the leader first;
    empty when none can lead it. leader_epochs: per partition the number of the leadership. learners: per partition the
    ids of those that are being filled. known: ids, sorted, of all nodes with data that have ever been up. absent: those
    of `known` that are not up. branches: per partition the learners whose copies have changes of another lineage: it
    opens only when these are merged. recovering: partitions whose replicas are what was left when the last one in sync
    was lost, and were not compared yet: their leader says when they are the same. So is one of which a single copy was
    left, and which has branches: if that copy was never filled, it withdraws. bases: by member the epoch in which
    it came up last: who has come up again has dropped what was under way between them. lineage: the epochs that are
    shared with ancestors, newest first. lasts: by id of absent nodes the epochs of the last views in which they were.
    losses: which copies are absent or lost.
    crowded: ids of members whose disks are full or slow: they lead nothing that another replica can lead. is_trunk: no
    other lineage can have a quorum of the voters. trunk: what is shared with the one that can; 0: it is this one.
    """

    def __init__(
        self,
        epoch: int,
        members: list[Member],
        replicas: list[list[str]] | None = None,
        learners: list[list[str]] | None = None,
        known: list[str] | None = None,
        absent: list[Member] | None = None,
        branches: dict[int, list[str]] | None = None,
        bases: dict[str, int] | None = None,
    ) -> None:
        self.epoch = epoch
        self.members = sorted(members, key=_id_of)
        self.replicas: list[list[str]] = [] if replicas is None else replicas
        self.learners: list[list[str]] = [[] for _ in self.replicas] if learners is None else learners
        self.known: list[str] = sorted(known) if known is not None else [member.node_id for member in self.members]
        self.absent: list[Member] = [] if absent is None else sorted(absent, key=_id_of)
        self.branches: dict[int, list[str]] = {} if branches is None else branches
        self.bases: dict[str, int] = {} if bases is None else bases
        self.leader_epochs: list[int] = [0] * len(self.replicas)
        self.recovering: list[int] = []
        self.lineage: list[int] = []
        self.floor: int = 0
        self.lasts: dict[str, list[int]] = {}
        self.losses: Losses = Losses()
        self.crowded: list[str] = []
        self.is_trunk: bool = True
        self.trunk: int = 0
        self._by_id: dict[str, Member] = {member.node_id: member for member in self.members}
        assert len(self.replicas) == len(self.learners), "one list of replicas and one of learners per partition"

    def member(self, node_id: str) -> Member | None:
        """Return the member with this id, or None."""
        return self._by_id.get(node_id)

    def leader_of(self, partition: int) -> str:
        """Return the id of the node that leads a partition, or "" if no copy can."""
        replicas = self.replicas[partition]
        return replicas[0] if replicas else ""

    def scarce(self, least: int) -> list[int]:
        """Return the partitions that have a leader, and fewer copies in sync than these."""
        return [partition for partition, isr in enumerate(self.replicas) if 0 < len(isr) < least]

    def ancestry(self) -> list[int]:
        """Return the epochs of this view and of those that all its members descend from, newest first."""
        return [self.epoch, *self.lineage]

    def shares(self, epoch: int) -> bool:
        """Tell whether a change of an epoch is one of this lineage, or of an ancestor before the two parted.

        One that is not is a branch, as `projection.branches_of` has it, or would be one if it could be read.
        """
        tag = tag_of(epoch)
        for newest in self.ancestry():
            if tag_of(newest) == tag:
                return newest == self.epoch or counter_of(epoch) <= counter_of(newest)
        return counter_of(epoch) <= self.floor

    def anchors(self) -> list[int]:
        """Return the epochs of the last views of absent nodes; 0 where unknown."""
        found: dict[int, bool] = {}
        for node_id in self.known:
            if node_id not in self._by_id:
                for epoch in self.lasts.get(node_id, [0]):
                    found[epoch] = True
        return sorted(found)

    def is_whole(self) -> bool:
        """Tell whether everybody who is known is here: nobody is away who may come with changes of his own."""
        for node_id in self.known:
            if node_id not in self._by_id:
                return False
        return True

    def __repr__(self) -> str:
        return f"View(epoch={self.epoch} members={self.members!r})"


def _id_of(member: Member) -> str:
    return member.node_id
