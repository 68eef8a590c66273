"""The ideal placement: a pure function of the members. No node stores it, and every node computes the same.

Each pair of a partition and a node has a score, a hash of both (highest random weight: Thaler, Ravishankar: Using
Name-Based Mappings to Increase Hit Rates, IEEE/ACM ToN 1998). Partitions ask for the nodes with their highest scores,
in different zones if there are enough; a node that is asked by more than its share plus 5 % keeps those with the
highest scores (Gale, Shapley: College Admissions and the Stability of Marriage, AMM 1962). So a node that comes or goes
moves its own partitions and few others: a chain of displacements ends at the first node with room. docs/ring.md has
the figures.

A partition is led by its replica with the highest score that does not lead its share plus 5 % yet.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from folkmoot.kernel.hash import hash64
from folkmoot.kernel.pack import u16
from folkmoot.membership.view import View
from folkmoot.peer.member import LEAVING

__all__ = ["Ring"]

_LOAD_PERCENT_MAX: Final = 105
_MASK: Final = (1 << 61) - 1  # scores stay in a machine word
_FACTOR: Final = 0x1E3779B97F4A7C15 & _MASK


def _mix(value: int) -> int:
    """Return a number in which each bit depends on all bits of `value` (61 bits): multiply and fold, twice."""
    value = (value ^ (value >> 29)) * 0x1B873593 & _MASK
    value = (value ^ (value >> 32)) * 0x2545F491 & _MASK
    return value ^ (value >> 30)


class Ring:
    """The placement of all partitions on those members of a view that do not leave."""

    def __init__(self, view: View, partitions: int, replicas: int) -> None:
        members = [member for member in view.members if member.state != LEAVING]
        if not members:
            members = view.members  # all leave: they keep what they have until they are gone
        self.view = view
        self.partitions = partitions
        self.replicas = min(replicas, len(members))
        self._ids: list[str] = [member.node_id for member in members]
        self._seeds: list[int] = [hash64(b"node" + node_id.encode()) & _MASK for node_id in self._ids]
        self._keys: list[int] = [hash64(b"partition" + u16(number)) & _MASK for number in range(partitions)]
        zones: dict[str, int] = {}
        self._zones: list[int] = [zones.setdefault(member.zone, len(zones)) for member in members]
        self._zones_wanted = min(self.replicas, len(zones))
        self._prefer: list[list[int]] = []
        self._next: list[int] = []
        self._chosen: list[list[int]] = [[] for _ in range(partitions)]
        self._load: list[int] = [0] * len(members)
        self._keepers: list[list[tuple[int, int]]] = [[] for _ in members]
        self._place()
        self._lead()
        self._owners: list[list[str]] = [[self._ids[node] for node in chosen] for chosen in self._chosen]

    def replicas_of(self, partition: int) -> list[str]:
        """Return the ids of the nodes that keep a partition; the first leads it."""
        return self._owners[partition]

    def leader_of(self, partition: int) -> str:
        """Return the id of the node that leads a partition."""
        return self._owners[partition][0]

    def _share_max(self, copies: int) -> int:
        nodes = len(self._ids)
        return max(-(-self.partitions * copies // nodes), self.partitions * copies * _LOAD_PERCENT_MAX // (100 * nodes))

    def _score(self, partition: int, node: int) -> int:
        return _mix((self._keys[partition] ^ self._seeds[node]) * _FACTOR & _MASK)

    def _preferences(self, partition: int) -> list[int]:
        """Return all nodes, those with the highest scores first."""
        ranked = [(self._score(partition, node), node) for node in range(len(self._ids))]
        ranked.sort(reverse=True)
        return [node for _score, node in ranked]

    def _place(self) -> None:
        self._prefer = [self._preferences(partition) for partition in range(self.partitions)]
        self._next = [0] * self.partitions
        most = self._share_max(self.replicas)
        waiting = list(range(self.partitions - 1, -1, -1))
        while waiting:
            partition = waiting.pop()
            while len(self._chosen[partition]) < self.replicas:
                loser = self._ask(partition, most)
                if loser == -1:
                    break
                if loser != partition:
                    waiting.append(loser)
        for partition in range(self.partitions):
            if len(self._chosen[partition]) < self.replicas:
                self._fill_up(partition, most)

    def _ask(self, partition: int, most: int) -> int:
        """Let a partition ask its next node; return the partition that lost one, itself if none did, -1 = no node left.

        A node that it may not ask because of its zone is skipped for good.
        """
        chosen = self._chosen[partition]
        prefer = self._prefer[partition]
        position = self._next[partition]
        if position >= len(prefer):
            return -1
        node = prefer[position]
        self._next[partition] = position + 1
        if not self._zone_allows(chosen, node):
            return partition
        keepers = self._keepers[node]
        score = self._score(partition, node)
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

    def _zone_allows(self, chosen: list[int], node: int) -> bool:
        """Tell whether the wanted number of zones can still be reached with this node."""
        used: list[int] = []
        for other in chosen:
            if self._zones[other] not in used:
                used.append(self._zones[other])
        if self._zones[node] not in used:
            return True
        spare = self.replicas - len(chosen)
        return self._zones_wanted - len(used) < spare

    def _fill_up(self, partition: int, most: int) -> None:
        """Give a partition that too few nodes kept more nodes: those with room, then any."""
        chosen = self._chosen[partition]
        # Rule by rule: room and zones, room alone, zones alone, any. A copy in the same zone beats a node beyond its
        # share, because the share is what nodes have disks for.
        for rule in range(4):
            for node in self._prefer[partition]:
                if len(chosen) == self.replicas:
                    return
                full = self._load[node] >= most
                if node in chosen or (rule in (0, 2) and not self._zone_allows(chosen, node)):
                    continue
                if rule < 2 and full:
                    continue
                chosen.append(node)
                self._load[node] += 1

    def _lead(self) -> None:
        """Choose the leaders; put each first, and the others in the order of their scores."""
        most = self._share_max(1)
        leads = [0] * len(self._ids)
        led: list[list[int]] = [[] for _ in self._ids]
        leader: list[int] = [-1] * self.partitions
        for partition in range(self.partitions):
            chosen = self._chosen[partition]
            ranked = [(self._score(partition, node), node) for node in chosen]
            ranked.sort(reverse=True)
            self._chosen[partition] = [node for _score, node in ranked]
            for node in self._chosen[partition]:
                if leads[node] < most:
                    leads[node] += 1
                    led[node].append(partition)
                    leader[partition] = node
                    break
        for partition in range(self.partitions):
            if leader[partition] < 0:
                self._make_room(partition, leader, leads, led, most)
        for partition in range(self.partitions):
            node = leader[partition]
            self._chosen[partition].remove(node)
            self._chosen[partition].insert(0, node)

    def _make_room(self, partition: int, leader: list[int], leads: list[int], led: list[list[int]], most: int) -> None:
        """Find the shortest chain of partitions that can change leaders so that a replica of this one gets room."""
        came_from: dict[int, tuple[int, int]] = {}  # node -> (partition that would be led by it, its leader now)
        queue: list[int] = []
        for node in self._chosen[partition]:
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
                    if candidate not in came_from:
                        came_from[candidate] = (other, node)
                        queue.append(candidate)
        node = self._chosen[partition][0]
        leader[partition] = node
        leads[node] += 1
        led[node].append(partition)
