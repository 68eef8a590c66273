"""Views: the agreed list of members, numbered by an epoch. A single node is a view of one."""

from __future__ import annotations

from typing import Final

__all__ = ["ACTIVE", "JOINING", "LEAVING", "Member", "View"]

JOINING: Final = 0
ACTIVE: Final = 1
LEAVING: Final = 2


class Member:
    """A node in a view: its id (kept on disk), incarnation (counts its starts), address for peers, and zone."""

    def __init__(self, node_id: str, incarnation: int, address: str, zone: str, state: int) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        self.address = address
        self.zone = zone
        self.state = state

    def __repr__(self) -> str:
        return f"Member({self.node_id!r} incarnation={self.incarnation} zone={self.zone!r} state={self.state})"


class View:
    """An epoch and its members, sorted by id."""

    def __init__(self, epoch: int, members: list[Member]) -> None:
        self.epoch = epoch
        self.members = sorted(members, key=_id_of)

    def member(self, node_id: str) -> Member | None:
        """Return the member with this id, or None."""
        for member in self.members:
            if member.node_id == node_id:
                return member
        return None

    def __repr__(self) -> str:
        return f"View(epoch={self.epoch} members={self.members!r})"


def _id_of(member: Member) -> str:
    return member.node_id
