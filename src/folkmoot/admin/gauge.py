"""The gauges of the cluster, computed from the status of the node when metrics are requested.

Owns which figures of the status become metrics. They are not maintained between requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from folkmoot.metrics.counters import Counters

__all__ = ["measure"]


def measure(status: Mapping[str, Any], counters: Counters) -> None:
    """Set the gauges of the cluster from `status`, the result of `NodeStatus.status`."""
    # A node that was removed, or is not admitted yet, has outdated knowledge of the others.
    nodes: list[Mapping[str, Any]] = status["nodes"] if status["state"] in ("member", "witness", "alone") else []
    partitions: Mapping[str, int] = status["partitions"]
    own = next((node for node in nodes if node["id"] == status["node"]), {})
    counters.cluster_member = int(status["state"] in ("member", "witness"))
    counters.cluster_may_serve = int(bool(status["writable"]))
    counters.cluster_view = status["counter"]
    counters.cluster_forks_left = status["forks_left"]
    counters.cluster_settings_differ = len(status["settings_differ"])
    counters.cluster_nodes_active = sum(node["state"] == "active" for node in nodes)
    counters.cluster_nodes_leaving = sum(node["state"] == "leaving" for node in nodes)
    counters.cluster_nodes_witness = sum(node["state"] == "witness" for node in nodes)
    counters.cluster_nodes_away = sum(node["state"] == "away" for node in nodes)
    counters.cluster_disks_full = len(status["disks_full"])
    counters.cluster_disks_slow = len(status["disks_slow"])
    counters.partitions_refusing = partitions["refusing"]
    counters.partitions_role_leads = own.get("leads", 0)
    counters.partitions_role_follows = own.get("follows", 0)
    counters.partitions_role_fills = own.get("fills", 0)
    counters.partitions_closed = partitions["total"] - partitions["open"]
    counters.partitions_under_replicated = partitions["under_replicated"]
    missing = sum(len(one["partitions"]) for one in status["copies_missing"])
    counters.partitions_missing = missing + len(status["copies_too_few"])
    counters.partitions_moving = partitions["moving"]
    counters.partitions_damaged = partitions["damaged"]
    counters.digests_compared = partitions["digest_checked"]
    counters.digests_different = partitions["digest_different"]
    counters.copy_left_bytes = status["copy"]["bytes_left"]
