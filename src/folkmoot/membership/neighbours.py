"""The processes to which this one has links, what they have said, and which processes are proved to have ended.

A link says that bytes go both ways: `peer` closes one that is silent. Who is linked to whom is evidence for the leader
of the configuration log, which weighs it (`controller`).
"""

from __future__ import annotations

from typing import Final

from folkmoot.membership.cluster_member import DATA, WITNESS, Process
from folkmoot.membership.control_message import Greeting
from folkmoot.peer.member import Member

__all__ = ["Neighbour", "Neighbours"]

_ENDED_NS: Final = 500_000_000  # for so long a proof is told to the controller


class Neighbour:
    """A process with a link to this one; `greeting`: the newest one that it has sent, None before the first."""

    def __init__(self, member: Member, features: int) -> None:
        self.node_id = member.node_id
        self.disk = member.disk
        self.incarnation = member.incarnation
        self.kind: int = WITNESS if member.witness else DATA
        self.process = Process(
            member.incarnation,
            member.address,
            member.zone,
            member.host,
            member.wire_min,
            member.wire_max,
            member.software,
            features,
        )
        self.since_ns: int = 0  # when the link was made
        self.asked_ns: int = 0  # when it was last asked for its greeting, as a new link does
        self.greeting: Greeting | None = None
        self.told: bytes = b""  # the greeting that it was sent last

    def may_greet(self, now: int, patience_ns: int) -> bool:
        """Tell whether it has said nothing yet, and may still do so: one that never does keeps nobody waiting."""
        return self.greeting is None and now - self.since_ns < patience_ns

    def __repr__(self) -> str:
        return f"{self.node_id} disk {self.disk} incarnation {self.incarnation} {self.greeting!r}"


class Neighbours:
    """The links of one process."""

    def __init__(self, disk: int) -> None:
        self.disk = disk
        self.links: dict[str, Neighbour] = {}  # by node
        self.ended: dict[tuple[int, int], int] = {}  # (disk, incarnation) -> when that was seen, oldest first
        self._by_disk: dict[int, Neighbour] = {}

    def up(self, member: Member, features: int) -> Neighbour | None:
        """A process is reached; None if it is of no use: it has no disk, or the disk of this one."""
        if member.disk in (0, self.disk):
            return None
        former = self.links.get(member.node_id)
        if former is not None:
            self._by_disk.pop(former.disk, None)
        neighbour = Neighbour(member, features)
        self.links[member.node_id] = neighbour
        self._by_disk[member.disk] = neighbour
        self.ended.pop((member.disk, member.incarnation), None)
        return neighbour

    def down(self, node_id: str, incarnation: int) -> Neighbour | None:
        """A process is not reached any more; return what it was."""
        found = self.links.get(node_id)
        if found is None or found.incarnation != incarnation:
            return None
        del self.links[node_id]
        if self._by_disk.get(found.disk) is found:
            del self._by_disk[found.disk]
        return found

    def proved(self, disk: int, incarnation: int, now: int) -> None:
        """A process is proved to have ended."""
        self.ended.pop((disk, incarnation), None)
        self.ended[(disk, incarnation)] = now

    def prune(self, now: int) -> None:
        """Forget proofs that are old: whoever has to act on them has done it, or needs better ones."""
        for process in list(self.ended):
            if now - self.ended[process] < _ENDED_NS:
                return
            del self.ended[process]

    def of(self, disk: int) -> Neighbour | None:
        """Return the process on a disk, if there is a link to it."""
        return self._by_disk.get(disk)

    def is_linked(self, disk: int) -> bool:
        """Tell whether there is a link to the process on a disk; there is one to this process itself."""
        return disk == self.disk or disk in self._by_disk

    def disks(self) -> list[int]:
        """Return the disks of all processes with a link, ascending."""
        return sorted(self._by_disk)

    def speaking(self, now: int, patience_ns: int) -> list[Neighbour]:
        """Return the processes with a link, by name, but for those that should have said by now what they are."""
        links = [self.links[node_id] for node_id in self.named()]
        return [one for one in links if one.greeting is not None or one.may_greet(now, patience_ns)]

    def named(self) -> list[str]:
        """Return the names of all nodes with a link, ascending."""
        return sorted(self.links)
