"""Checks of the section `[cluster]` and of the files that it names. Changes nothing."""

from __future__ import annotations

from typing import Final

from folkmoot.config.cluster import ClusterSettings
from folkmoot.config.unit import Address

__all__ = ["cluster_problems"]

# A lost packet or a pause of the garbage collector must not count as silence.
HEARTBEATS_MIN: Final = 3


def cluster_problems(cluster: ClusterSettings) -> list[str]:
    """Return one sentence per problem, with what to do about it."""
    if cluster.listen is None:
        return alone_problems(cluster)
    found = advertise_problems(cluster, cluster.listen)
    outside = next((place for place in places(cluster) if not place[1].is_loopback()), None)
    if outside is not None and cluster.secret_file is None:
        found.append(
            f"{outside[0]}: {outside[1]} is not on loopback, so anyone who reaches this node could join and read "
            "everything. Set cluster.secret_file (a file with a long random word, the same on all nodes)"
        )
    if cluster.min_in_sync > cluster.replicas:
        found.append(
            f"cluster.min_in_sync: {cluster.min_in_sync} copies can not be in sync where cluster.replicas is "
            f"{cluster.replicas}: no partition would ever be served. Set it to {cluster.replicas} at most"
        )
    if cluster.silence < HEARTBEATS_MIN * cluster.heartbeat:
        found.append(
            f"cluster.silence: it must be at least {HEARTBEATS_MIN} times cluster.heartbeat, or a single packet that "
            "is late ends a connection"
        )
    return found


def alone_problems(cluster: ClusterSettings) -> list[str]:
    """Check for settings that need a cluster, if there is none: without `listen`, an operator may expect copies.

    No setting of the section applies to a node without a cluster, not even the name, which peers compare.
    """
    return [
        f"cluster.{name}: without cluster.listen (--peer HOST:PORT) there is no cluster. Set it, or leave {name} out"
        for name in ClusterSettings.model_fields
        if name in cluster.model_fields_set
    ]


def places(cluster: ClusterSettings) -> list[tuple[str, Address]]:
    """Return all addresses at which peers connect or are contacted."""
    own = [("cluster.listen", cluster.listen), ("cluster.advertise", cluster.advertise)]
    seeds = [(f"cluster.seeds[{number}]", seed) for number, seed in enumerate(cluster.seeds)]
    return [(name, address) for name, address in own if address is not None] + seeds


def advertise_problems(cluster: ClusterSettings, listen: Address) -> list[str]:
    """Check that the address for other nodes leads to this node and to no other."""
    told = cluster.advertise or listen
    if told.is_wildcard():
        name = "cluster.listen" if cluster.advertise is None else "cluster.advertise"
        return [
            f"{name}: other nodes cannot connect to {told}, which means all interfaces. Set cluster.advertise to "
            "the address at which they reach this node"
        ]
    far = [seed for seed in cluster.seeds if not seed.is_loopback()]
    if told.is_loopback() and far:
        return [
            f"cluster.advertise: {told} is this machine alone, and {far[0]} is not on it. Set cluster.listen or "
            "cluster.advertise to an address at which that node reaches this one"
        ]
    return []
