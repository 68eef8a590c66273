"""The simulator's view into nodes and disks: views, roles, rows. Nothing here changes anything.

Owns the one place that knows how a node stores these; what a node does not have reads as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from folkmoot.kernel.pack import u16
from folkmoot.membership.view import View
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from folkmoot.store.key import META, kind_of

if TYPE_CHECKING:
    from folkmoot.node import Node
    from folkmoot.sim.machine import Machine

__all__ = [
    "Seen",
    "difference",
    "in_sync",
    "installed_view",
    "is_in_view",
    "known_at",
    "leading",
    "member_at",
    "not_whole",
    "picture_at",
    "ready_at",
    "rows_of",
    "view_of",
    "voters_at",
]

_ROWS_MAX: Final = 1 << 30


class Seen:
    """A view as a node has it installed: members, and for each partition its replicas, leader first.

    `starts`: (id, incarnation) of each member.
    """

    def __init__(
        self, epoch: int, starts: list[tuple[str, int]], replicas: list[list[str]], learners: list[list[str]]
    ) -> None:
        self.epoch = epoch
        self.starts = starts
        self.ids = [node_id for node_id, _ in starts]
        self.replicas = replicas
        self.learners = learners

    @property
    def signature(self) -> tuple[object, ...]:
        """The part that must be equal at all nodes with this epoch."""
        return self.starts, self.replicas, self.learners

    def __repr__(self) -> str:
        return f"view {self.epoch:#x} of {self.ids}"


def installed_view(host: Machine) -> View | None:
    """Return the view that the node of a host has installed as the node keeps it: the same object as long as it is."""
    cluster_node: Any = getattr(host.node, "cluster_node", None)
    view: View | None = getattr(host.node, "view", None) if cluster_node is None else cluster_node.view
    return view


def view_of(host: Machine) -> Seen | None:
    """Return the view that the node of a host has installed, or None."""
    view = installed_view(host)
    if view is None:
        return None
    starts = [(member.node_id, member.incarnation) for member in view.members]
    return Seen(view.epoch, starts, view.replicas, view.learners)


def is_in_view(host: Machine) -> bool:
    """Whether the node of a host takes itself for a member."""
    view = view_of(host)
    return view is not None and host.node_id in view.ids


def voters_at(host: Machine) -> list[str]:
    """Return the voters of the configuration log that the node of a host knows; none, if it knows of no log."""
    node = member_at(host)
    cluster_node: Any = None if node is None else node.cluster_node
    control = None if cluster_node is None else cluster_node.membership.control
    if control is None or control.log is None or control.configuration is None:
        return []
    members = control.configuration.members
    return [members[disk].node_id for disk in control.log.voters if disk in members]


def known_at(host: Machine) -> list[str]:
    """Return the ids that the node of a host expects, members or away."""
    view = installed_view(host)
    known: list[str] = [] if view is None else list(view.known)
    return known


def picture_at(host: Machine) -> Any:
    """Return the source of a host's status, or None."""
    node = member_at(host)
    return None if node is None else picture_of(node)


def ready_at(host: Machine) -> bool:
    """Whether the node of a host says that it has its data and accepts clients, as at /health/ready."""
    node = member_at(host)
    return node is not None and not (node.silence(host.steady_ns()) or NodeStatus(picture_of(node)).unready())


def member_at(host: Machine) -> Node | None:
    """Return the node of a host, or None where there is none of a cluster."""
    return None if getattr(host.node, "cluster_node", None) is None else cast("Node", host.node)


def leading(host: Machine, partitions: int) -> list[int]:
    """Return the partitions that the node of a host leads at this moment, having started them."""
    cluster_node: Any = getattr(host.node, "cluster_node", None)
    if cluster_node is None:
        return []
    return [partition for partition in range(partitions) if cluster_node.replication.leads(partition)]


def not_whole(hosts: Sequence[Machine], copies: int) -> str:
    """Return why a cluster of these machines is not whole (one view of all, every copy complete); empty if it is.

    Witnesses know the view, and are not in it.
    """
    ids = sorted([host.node_id for host in hosts if not host.witness])
    first: Seen | None = None
    for host in hosts:
        if host.node is None or host.hung:
            return f"{host.name} does not run"
        view = view_of(host)
        if view is None:
            return f"{host.name} has no view"
        if view.ids != ids:
            return f"{host.name} has {view}, there are {ids}"
        if first is not None and view.epoch != first.epoch:
            return f"{host.name} has {view}, {hosts[0].name} has {first}"
        birth: Any = getattr(host.node, "birth", None)
        if birth is not None and not host.witness and (host.node_id, birth.incarnation) not in view.starts:
            return f"{host.name} has {view}, which knows {view.starts} and not its start {birth.incarnation}"
        first = first or view
    if first is None:
        return "all machines are told to leave"
    wanted = min(copies, len(ids))
    for partition, replicas in enumerate(first.replicas):
        if len(replicas) < wanted:
            return f"partition {partition} has replicas {replicas} and learners {first.learners[partition]}"
    return ""


def rows_of(host: Machine, partition: int) -> list[tuple[bytes, bytes]]:
    """Return the rows of a partition that all its replicas share."""
    start = u16(partition)
    end = u16(partition + 1) if partition < 0xFFFF else b"\xff\xff\xff"
    return [row for row in host.disk.store.scan(start, end, _ROWS_MAX) if kind_of(row[0]) != META]


def in_sync(hosts: Sequence[Machine], view: Seen, partition: int) -> bool:
    """Whether all replicas of a partition run and have the same rows on their disks."""
    by_id = {host.node_id: host for host in hosts}
    replicas = [by_id.get(node_id) for node_id in view.replicas[partition]]
    first: list[tuple[bytes, bytes]] | None = None
    for host in replicas:
        if host is None or not host.up:
            return False
        rows = rows_of(host, partition)
        if first is not None and rows != first:
            return False
        first = rows
    return True


def difference(hosts: Sequence[Machine]) -> str:
    """Say how the copies of some partition differ, by the view of the first host; empty if none does."""
    view = view_of(hosts[0])
    assert view is not None, "asked of a whole cluster"
    by_id = {host.node_id: host for host in hosts}
    for partition, replicas in enumerate(view.replicas):
        wanted = rows_of(by_id[replicas[0]], partition)
        for node_id in replicas[1:]:
            rows = rows_of(by_id[node_id], partition)
            if rows != wanted:
                leader, follower = dict(wanted), dict(rows)
                lacks = [key for key in leader if key not in follower]
                more = [key for key in follower if key not in leader]
                other = [key for key in leader if key in follower and leader[key] != follower[key]]
                return (
                    f"partition {partition}: {node_id} lacks {lacks[:3]} ({len(lacks)}), has {more[:3]} ({len(more)}) "
                    f"more, {other[:3]} ({len(other)}) other than its leader {replicas[0]}"
                )
    return ""
