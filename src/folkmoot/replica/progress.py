"""Figures of replication at one node, for status and metrics. Read-only."""

from __future__ import annotations

from folkmoot.membership.holding import DAMAGED
from folkmoot.replica.copy import Copies
from folkmoot.replica.digest import Digests
from folkmoot.replica.drop import Drops
from folkmoot.replica.lead import Lead
from folkmoot.replica.replica_states import LEADER, MERGING, OPEN, ReplicaStates
from folkmoot.replica.source import Source

__all__ = ["progress_of"]


def progress_of(
    replica_states: ReplicaStates, lead: Lead, copies: Copies, source: Source, drops: Drops, digests: Digests
) -> dict[str, int]:
    """Return counts of partitions, bytes since the start, pages compared."""
    under_replicated = 0
    for partition in range(replica_states.partitions):
        if replica_states.phases[partition] == OPEN and lead.missing(partition):
            under_replicated += 1
    return {
        "leading": replica_states.phases.count(OPEN),
        "taking_over": replica_states.roles.count(LEADER) - replica_states.phases.count(OPEN),
        "merging": replica_states.phases.count(MERGING),
        "waiting_for_replicas": under_replicated,
        "filling": len(copies.active),
        "dropping": len(drops.active),
        "damaged": replica_states.states.count(DAMAGED),
        "copied_bytes": copies.bytes_copied,
        "copy_bytes_left": copies.bytes_left(),
        "copy_bytes_seen": copies.bytes_seen,
        "given_bytes": source.bytes_sent,
        "copy_pages_equal": copies.pages_equal,
        "copy_pages_different": copies.pages_different,
        "copy_slowed": source.slow,
        "digests_compared": digests.compared,
        "digests_different": digests.different,
        "digests_passed_over": digests.passed_over,
        "digest_round_us": digests.round_us,
        "recent_bytes": replica_states.recent.bytes,
        "commit_latency_us": replica_states.pending.latency_us,
    }
