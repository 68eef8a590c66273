"""Figures of replication at one node, for status and metrics. Read-only."""

from __future__ import annotations

from folkmoot.membership.holding import DAMAGED
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.copy import Copies
from folkmoot.replica.digest import Digests
from folkmoot.replica.drop import Drops
from folkmoot.replica.phase import MERGING, OPEN
from folkmoot.replica.replica import LEADER, Replica
from folkmoot.replica.source import Source

__all__ = ["progress_of"]


def progress_of(
    replicas: list[Replica], context: ReplicaContext, copies: Copies, source: Source, drops: Drops, digests: Digests
) -> dict[str, int]:
    """Return counts of partitions, bytes since the start, pages compared."""
    led = [replica for replica in replicas if replica.role == LEADER]
    is_open = [replica for replica in replicas if replica.phase == OPEN]
    return {
        "leading": len(is_open),
        "taking_over": len(led) - len(is_open),
        "merging": len([replica for replica in replicas if replica.phase == MERGING]),
        "waiting_for_replicas": len([replica for replica in is_open if replica.missing()]),
        "filling": len(copies.active),
        "dropping": len(drops.active),
        "damaged": len([replica for replica in replicas if replica.state == DAMAGED]),
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
        "recent_bytes": context.recent_budget.bytes,
        "commit_latency_us": context.pending.latency_us,
    }
