"""Which disks of a cluster are full, and the consequences, computed from the picture of any node.

A leader whose disk is full refuses messages that must be stored; a follower writes the leader's changes into the room
reserved for them. Owns these two sentences; the broker and membership own what a node does about its own disk.
"""

from __future__ import annotations

from folkmoot.node.load import is_full
from folkmoot.status.picture import Picture

__all__ = ["caution", "full_disks", "has_full_disk", "slow_disks", "refusing", "stranded"]


def has_full_disk(picture: Picture, node_id: str) -> bool:
    """Whether a node has reported a full disk, when it was last heard."""
    return is_full(picture.load_of(node_id))


def full_disks(picture: Picture) -> list[str]:
    """Return the ids of all nodes with full disks, members and absent ones, sorted."""
    view = picture.view()
    members = [] if view is None else [member.node_id for member in view.members]
    ids = dict.fromkeys([picture.node_id(), *members, *picture.known()])
    return sorted([node_id for node_id in ids if has_full_disk(picture, node_id)])


def slow_disks(picture: Picture) -> list[str]:
    """Return the ids of members that give their leaderships away because their disk or loop is slow, sorted."""
    view = picture.view()
    members = [] if view is None else [member.node_id for member in view.members]
    ids = dict.fromkeys([picture.node_id(), *members])
    return sorted([node_id for node_id in ids if picture.load_of(node_id).get("slow", 0)])


def refusing(picture: Picture, full: list[str]) -> list[int]:
    """Return the partitions that refuse messages to be stored: those that a node of `full` leads."""
    found: list[int] = []
    for partition in range(picture.partitions() if full and picture.view() is not None else 0):
        replicas = picture.replicas_of(partition)
        if replicas and replicas[0] in full:
            found.append(partition)
    return found


def stranded(picture: Picture, node_id: str, full: list[str]) -> list[int]:
    """Return the partitions that would refuse if a node stopped: all their other copies are on full disks."""
    if node_id in full or not full:
        return []
    found: list[int] = []
    for partition in range(picture.partitions()):
        replicas = picture.replicas_of(partition)
        others = [other for other in replicas if other != node_id]
        if node_id in replicas and others and not [other for other in others if other not in full]:
            found.append(partition)
    return found


def caution(picture: Picture) -> str:
    """Return the warning about full disks of a node that serves; "" when all have room."""
    full = full_disks(picture)
    if not full:
        return ""
    disks = f"the disk of {full[0]} is full" if len(full) == 1 else f"the disks of {', '.join(full)} are full"
    refused = len(refusing(picture, full))
    if not refused:
        return f"{disks}; other nodes lead its partitions" if len(full) == 1 else f"{disks}; other nodes lead"
    return f"{disks}: {refused} of {picture.partitions()} partitions refuse what must be stored"
