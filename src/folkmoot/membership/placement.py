"""The ideal placement: which members should keep which partition, and in which order they are preferred as leaders.

Each pair of a partition and a node has a score, a hash of both (highest random weight: Thaler, Ravishankar: Using
Name-Based Mappings to Increase Hit Rates, IEEE/ACM ToN 1998). Partitions ask for the nodes with their highest scores; a
node that is asked by more than its share plus 5 % keeps those with the highest scores (Gale, Shapley: College
Admissions and the Stability of Marriage, AMM 1962). So a member that comes or goes moves its own partitions and few
others: a chain of displacements ends at the first node with room (ADR 9; docs/ring.md has the figures). Scores follow
from names, so that the node whose disk is replaced gets back what it had.

Copies of a partition are in as many zones as there are, and in these on as many hosts. A member without room keeps what
it has, is given nothing, and is preferred as a leader last.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from folkmoot.kernel.hash import hash64
from folkmoot.kernel.pack import u32
from folkmoot.membership.cluster_member import ClusterMember

__all__ = ["PlacementMemo", "ideal_placement"]

_LOAD_PERCENT_MAX: Final = 105
_MASK: Final = (1 << 61) - 1  # scores stay in a machine word
_FACTOR: Final = 0x1E3779B97F4A7C15 & _MASK


def ideal_placement(
    members: list[ClusterMember], partitions: int, copies: int, held: dict[int, list[int]]
) -> list[list[int]]:
    """Return for each partition the disks that should keep it, the preferred leader first.

    Args:
        members: Those that can keep something.
        partitions: Their number.
        copies: The wanted number of each; fewer if there are fewer members.
        held: For each member without room the partitions that it keeps, ascending.
    """
    if not members:
        return [[] for _ in range(partitions)]
    return _Placement(members, partitions, copies, held).placed()


class PlacementMemo:
    """Remembers the newest ideal placement, which changes only with members, and takes 819,200 scores for 200 of them.

    computed: how often it was computed.
    """

    def __init__(self) -> None:
        self.computed: int = 0
        self._of: list[str] = []
        self._placed: list[list[int]] = []

    def placement(
        self, members: list[ClusterMember], partitions: int, copies: int, held: dict[int, list[int]]
    ) -> list[list[int]]:
        """Return `ideal_placement`, which the caller must not change."""
        of = [f"{partitions} {copies}"]
        for member in members:
            of.append(f"{member.disk} {member.node_id!r} {member.process.zone!r} {member.process.host!r}")
            if member.disk in held:
                of.append(repr(held[member.disk]))
        if of != self._of:
            self.computed += 1
            self._of = of
            self._placed = ideal_placement(members, partitions, copies, held)
        return self._placed


def _mix(value: int) -> int:
    """Return a number in which each bit depends on all bits of `value` (61 bits): multiply and fold, twice."""
    value = (value ^ (value >> 29)) * 0x1B873593 & _MASK
    value = (value ^ (value >> 32)) * 0x2545F491 & _MASK
    return value ^ (value >> 30)


class _Placement:
    """One computation; nodes are numbers in the order of their names."""

    def __init__(self, members: list[ClusterMember], partitions: int, copies: int, held: dict[int, list[int]]) -> None:
        ordered = sorted(members, key=_name_of)
        self._disks: list[int] = [member.disk for member in ordered]
        self._count = len(ordered)
        self._partitions = partitions
        self._copies = min(copies, self._count)
        self._full: list[bool] = [member.disk in held for member in ordered]
        seeds = [hash64(b"node" + member.node_id.encode()) & _MASK for member in ordered]
        keys = [hash64(b"partition" + u32(number)) & _MASK for number in range(partitions)]
        zones: dict[str, int] = {}
        hosts: dict[tuple[str, str], int] = {}
        self._zones: list[int] = []
        self._hosts: list[int] = []
        for member in ordered:
            zone = member.process.zone
            self._zones.append(zones.setdefault(zone, len(zones)))
            self._hosts.append(hosts.setdefault((zone, member.process.host), len(hosts)))
        self._zones_wanted = min(self._copies, len(zones))
        self._hosts_wanted = min(self._copies, len(hosts))
        holders = [set(held.get(member.disk, [])) for member in ordered]
        self._scores: list[list[int]] = []
        self._prefer: list[list[int]] = []  # for each partition the nodes that can keep it, highest scores first
        for number in range(partitions):
            key = keys[number]
            scores = [_mix((key ^ seed) * _FACTOR & _MASK) for seed in seeds]
            self._scores.append(scores)
            ranked = [
                (scores[node], node) for node in range(self._count) if not self._full[node] or number in holders[node]
            ]
            ranked.sort(reverse=True)
            self._prefer.append([node for _score, node in ranked])
        self._next: list[int] = [0] * partitions
        self._chosen: list[list[int]] = [[] for _ in range(partitions)]
        self._load: list[int] = [0] * self._count
        self._keepers: list[list[tuple[int, int]]] = [[] for _ in range(self._count)]

    def placed(self) -> list[list[int]]:
        """Return the disks of each partition."""
        most = self._share_max(self._copies, self._count)
        waiting = list(range(self._partitions - 1, -1, -1))
        while waiting:
            partition = waiting.pop()
            while len(self._chosen[partition]) < self._copies:
                loser = self._ask(partition, most)
                if loser == -1:
                    break
                if loser != partition:
                    waiting.append(loser)
        for partition in range(self._partitions):
            if len(self._chosen[partition]) < self._copies:
                self._fill_up(partition, most)
        self._order()
        return [[self._disks[node] for node in chosen] for chosen in self._chosen]

    def _share_max(self, copies: int, nodes: int) -> int:
        total = self._partitions * copies
        return max(-(-total // nodes), total * _LOAD_PERCENT_MAX // (100 * nodes))

    def _ask(self, partition: int, most: int) -> int:
        """Let a partition ask its next node; return the one that lost a node, itself if none did, -1: none is left."""
        chosen = self._chosen[partition]
        prefer = self._prefer[partition]
        position = self._next[partition]
        if position >= len(prefer):
            return -1
        node = prefer[position]
        self._next[partition] = position + 1
        if not self._is_spread(chosen, node):
            return partition
        keepers = self._keepers[node]
        score = self._scores[partition][node]
        if self._load[node] < most:
            self._load[node] += 1
            heappush(keepers, (score, partition))
            chosen.append(node)
            return partition
        if keepers[0][0] >= score:
            return partition
        _score, loser = heappop(keepers)
        heappush(keepers, (score, partition))
        chosen.append(node)
        self._chosen[loser].remove(node)
        return loser

    def _is_spread(self, chosen: list[int], node: int) -> bool:
        """Tell whether the wanted numbers of zones and hosts can still be reached with this node."""
        zones: list[int] = []
        hosts: list[int] = []
        for other in [*chosen, node]:
            if self._zones[other] not in zones:
                zones.append(self._zones[other])
            if self._hosts[other] not in hosts:
                hosts.append(self._hosts[other])
        spare = self._copies - len(chosen) - 1
        return self._zones_wanted - len(zones) <= spare and self._hosts_wanted - len(hosts) <= spare

    def _fill_up(self, partition: int, most: int) -> None:
        """Give a partition that too few nodes kept more nodes: those with room, then any."""
        chosen = self._chosen[partition]
        # A copy in the same zone beats a node beyond its share, because the share is what nodes have disks for.
        for rule in range(4):
            for node in self._prefer[partition]:
                if len(chosen) == self._copies:
                    return
                if node in chosen or (rule in (0, 2) and not self._is_spread(chosen, node)):
                    continue
                if rule < 2 and self._load[node] >= most:
                    continue
                chosen.append(node)
                self._load[node] += 1

    def _order(self) -> None:
        """Put the preferred leader of each partition first, the others behind it by their scores."""
        able = self._count - len([node for node in range(self._count) if self._full[node]])
        most = self._share_max(1, able or self._count)
        leads = [0] * self._count
        led: list[list[int]] = [[] for _ in range(self._count)]
        leader = [-1] * self._partitions
        for partition in range(self._partitions):
            ranked = [
                (0 if self._full[node] else 1, self._scores[partition][node], node) for node in self._chosen[partition]
            ]
            ranked.sort(reverse=True)
            self._chosen[partition] = [node for _room, _score, node in ranked]
            for node in self._chosen[partition]:
                if leads[node] < most and not self._full[node]:
                    leads[node] += 1
                    led[node].append(partition)
                    leader[partition] = node
                    break
        for partition in range(self._partitions):
            if leader[partition] < 0 and self._chosen[partition]:
                self._make_room(partition, leader, leads, led, most)
        for partition in range(self._partitions):
            node = leader[partition]
            if node >= 0:
                self._chosen[partition].remove(node)
                self._chosen[partition].insert(0, node)

    def _make_room(self, partition: int, leader: list[int], leads: list[int], led: list[list[int]], most: int) -> None:
        """Find the shortest chain of partitions that can change leaders so that a replica of this one gets room."""
        came_from: dict[int, tuple[int, int]] = {}  # node -> (partition that would be led by it, its leader now)
        queue: list[int] = []
        for node in self._chosen[partition]:
            if not self._full[node]:
                came_from[node] = (partition, -1)
                queue.append(node)
        at = 0
        while at < len(queue):
            node = queue[at]
            at += 1
            if leads[node] < most:
                leads[node] += 1
                while node >= 0:
                    moved, before = came_from[node]
                    leader[moved] = node
                    led[node].append(moved)
                    if before >= 0:
                        led[before].remove(moved)
                    node = before
                return
            for other in led[node]:
                for candidate in self._chosen[other]:
                    if candidate not in came_from and not self._full[candidate]:
                        came_from[candidate] = (other, node)
                        queue.append(candidate)
        node = self._chosen[partition][0]
        leader[partition] = node
        leads[node] += 1
        led[node].append(partition)


def _name_of(member: ClusterMember) -> str:
    return member.node_id
