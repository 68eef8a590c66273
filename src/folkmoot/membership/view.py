"""Views: an agreed list of members, the placement of the partitions, and an epoch. A single node is a view of one.

Owns the values and their epochs; never decides which nodes belong to a view (`planner`) or what they keep (`assign`).
Their bytes are in `view_format`.
"""

from __future__ import annotations

from typing import Final

from folkmoot.membership.loss import Losses
from folkmoot.membership.quorum import count_of, has_majority, has_majority_or_tie, votes_of
from folkmoot.peer.member import Member

__all__ = [
    "FORGOTTEN_MAX",
    "LINEAGE_MAX",
    "MEMBERS_MAX",
    "View",
]

FORGOTTEN_MAX: Final = 1024  # nodes; one that returns after more than these is merged like any absent node
LINEAGE_MAX: Final = 16  # epochs; after a split with more views than that nothing is known to be from before it
MEMBERS_MAX: Final = 4096  # of one view: bounds the memory that bytes of others can take


class View:
    """An epoch, its members sorted by id, and for each partition its replicas and learners.

    replicas: per partition the ids of the nodes that must have a change before it counts, the leader first; empty when
    no copy can lead it. learners: per partition the ids of those that are being filled. known: ids of the last full
    membership, sorted: all nodes that were active and have neither left nor been forgotten. absent: those of `known`
    that are not members, as they were last seen. refused: (id, incarnation) of nodes that an operator evicted.
    branches: per partition the learners whose copies diverged in a split: it opens only when their changes are merged.
    bases: by member the epoch of the view in which it served until now, and this one's if it served in none: one that
    served in a view that others have not seen has dropped what was under way between them. lineage: the newest epochs,
    newest first, that all its members descend from: each was in these views, or continues from a node that was. lasts:
    by id of absent nodes the epochs of the last views in which they were, one per side of a split. forgotten: (id,
    epoch of the order) of nodes that an operator had forgotten; one that is a member of such a view starts over with
    it. crowded: ids of members whose disks are full: they lead nothing that another replica with room can lead. losses:
    which copies are absent or lost. doubtful: ids of absent nodes that may be alive, as the proposer sees it.
    uncommitted_tails: per partition the learners whose newest changes were never acknowledged, with the copy's epoch
    and sequence. minority_bootstrap: begun without most of the seeds, which may be a cluster that this one does not
    know. from_log: made of a configuration of the log (`projection`, which says what the fields mean then). is_trunk:
    made of one whose lineage is no fork, so that it has a quorum of the voters.
    """

    def __init__(
        self,
        epoch: int,
        members: list[Member],
        replicas: list[list[str]] | None = None,
        learners: list[list[str]] | None = None,
        known: list[str] | None = None,
        absent: list[Member] | None = None,
        refused: list[tuple[str, int]] | None = None,
        branches: dict[int, list[str]] | None = None,
        bases: dict[str, int] | None = None,
    ) -> None:
        self.epoch = epoch
        self.members = sorted(members, key=_id_of)
        self.replicas: list[list[str]] = [] if replicas is None else replicas
        self.learners: list[list[str]] = [[] for _ in self.replicas] if learners is None else learners
        self.known: list[str] = sorted(known) if known is not None else [member.node_id for member in self.members]
        self.absent: list[Member] = [] if absent is None else sorted(absent, key=_id_of)
        self.refused: list[tuple[str, int]] = [] if refused is None else sorted(refused)
        self.branches: dict[int, list[str]] = {} if branches is None else branches
        self.bases: dict[str, int] = {} if bases is None else bases
        self.lineage: list[int] = []
        self.lasts: dict[str, list[int]] = {}
        self.forgotten: list[tuple[str, int]] = []
        self.losses: Losses = Losses()
        self.crowded: list[str] = []
        self.doubtful: list[str] = []
        self.minority_bootstrap: bool = False
        self.uncommitted_tails: dict[int, list[tuple[str, int, int]]] = {}
        self.from_log: bool = False
        self.is_trunk: bool = False
        self.proposer: str = ""  # who proposed it, "" = nobody: a copy that was kept up to date (`MemberState.base`)
        self._by_id: dict[str, Member] = {member.node_id: member for member in self.members}
        assert len(self.replicas) == len(self.learners), "one list of replicas and one of learners per partition"

    def member(self, node_id: str) -> Member | None:
        """Return the member with this id, or None."""
        return self._by_id.get(node_id)

    def leader_of(self, partition: int) -> str:
        """Return the id of the node that leads a partition, or "" if no copy can."""
        replicas = self.replicas[partition]
        return replicas[0] if replicas else ""

    def ancestry(self) -> list[int]:
        """Return the epochs of this view and of those that all its members descend from, newest first."""
        return [self.epoch, *self.lineage]

    def begins_anew(self, node_id: str, before: View | None) -> bool:
        """Tell whether a member must drop its copies: it was forgotten, and `before` did not say so."""
        known = [] if before is None else before.forgotten
        return len([mark for mark in self.forgotten if mark[0] == node_id and mark not in known]) > 0

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
        return count_of(self.known, self._by_id) == len(self.known) and not self.minority_bootstrap

    def votes(self) -> int:
        """Return how much of the last full membership is here: twice the number, and one if its lowest id is."""
        return votes_of(self.known, self._by_id)

    def has_majority(self) -> bool:
        """Tell whether more than half of the last full membership is here; voters decide if they are in the log."""
        if self.from_log:
            return self.is_trunk
        return has_majority(self.known, self._by_id)

    def has_majority_or_tie(self) -> bool:
        """Tell the same, where half of it with the lowest id counts too: true in one component of a split at most."""
        if self.from_log:
            return self.is_trunk
        return has_majority_or_tie(self.known, self._by_id)

    def __repr__(self) -> str:
        return f"View(epoch={self.epoch} members={self.members!r})"


def _id_of(member: Member) -> str:
    return member.node_id
