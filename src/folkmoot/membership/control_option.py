"""The settings of a member's part in the control of the cluster: times in nanoseconds of its monotonic clock."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.lease import LEASE_US
from folkmoot.membership.configuration import ANCESTORS_MAX
from folkmoot.membership.lease import certain_ns
from folkmoot.membership.placement_plan import PlanLimits
from folkmoot.raft.option import Options

__all__ = ["ControlOptions"]

_MILLISECOND: Final = 1_000_000
_SECOND: Final = 1_000_000_000


class ControlOptions:
    """Times and limits; the defaults fit machines of one site.

    Args:
        heartbeat_ns: Between two heartbeats of a member.
        lease_ns: The length of a lease; the same at all members.
        link_patience_ns: A link between two members may be down for so long before one of them is taken for cut off.
        calm_ns: A member that was cut off is up again when its links have held for twice as long; doubled each time.
        found_ns: How long a founder waits for seeds that do not answer.
        refusal_ns: For so long after others have refused a process, or while one with a link to it has not said yet
            what it is, it founds no cluster, and does not fork.
        twin_ns: For so long after others have named another process on its disk, one that is not up does not vote.
        fork_ns: How long a side without a quorum waits before it forks.
        gone_ns: The copies of a member that is away for so long are made anew elsewhere.
        reply_ns: A request without a reply is made again after this.
        setting_ns: A request for a setting is answered after this, also if it is not known what became of it.
        address_ns: How long the addresses that others name are tried.
        greet_ns: Between two greetings of one process because of small changes.
    """

    def __init__(self) -> None:
        self.heartbeat_ns: int = 100 * _MILLISECOND
        self.lease_ns: int = LEASE_US * 1000
        self.link_patience_ns: int = 500 * _MILLISECOND
        self.calm_ns: int = 250 * _MILLISECOND
        self.found_ns: int = 2 * _SECOND
        self.refusal_ns: int = 10 * _SECOND
        self.twin_ns: int = 2 * _SECOND
        self.fork_ns: int = 3 * _SECOND
        self.gone_ns: int = 30 * _SECOND
        self.reply_ns: int = _SECOND
        self.setting_ns: int = 10 * _SECOND
        self.address_ns: int = 30 * _SECOND
        self.greet_ns: int = 200 * _MILLISECOND
        self.expect: int = 0  # so many nodes found the cluster together; 0: the first of the seeds does
        self.forks: bool = True  # by the policy for splits
        self.ancestors_max: int = ANCESTORS_MAX  # a lineage with so many ancestors has no forks
        self.incomplete: bool = False  # the disk may lack what was confirmed last
        self.succeeds: bool = False  # the process that had the disk last has certainly ended
        self.partitions: int = 256
        self.copies: int = 3
        self.min_in_sync: int = 1  # with fewer copies in sync the leader of a partition takes nothing
        self.limits = PlanLimits()
        self.raft = Options()
        self.raft.election_ns = 400 * _MILLISECOND

    def check(self) -> None:
        """Assert that the settings fit each other."""
        self.raft.check()
        assert self.heartbeat_ns > 0, "there are heartbeats"
        assert self.lease_ns >= 4 * self.heartbeat_ns, "one lost heartbeat ends no lease"
        assert self.fork_ns > certain_ns(self.lease_ns), "who forks knows that the leases it had seen are over"
        assert 0 < self.ancestors_max <= ANCESTORS_MAX, "there are forks, and no more than formats can have"
        assert self.partitions > 0, "there are partitions"
        assert self.copies > 0, "there are copies"
