"""The memory of one partition that this node leads: filled by the loader, and dropped when another node leads it.

Data only. The parts of this package, and those that work on partitions above it, change it together with the rows.
What counts for the node as a whole (totals, the quotas of users, what waits to be sent) is added when the partition
opens, and taken off before it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator

from folkmoot.partition.app import App
from folkmoot.session.account import Account
from folkmoot.turn.message import OutboxEntry

__all__ = ["Led", "Partition", "Share"]


class Share:
    """The retained messages of one user in one partition; account: where they count, None: not yet anywhere."""

    def __init__(self, account: Account | None) -> None:
        self.account = account
        self.count = 0
        self.size = 0

    def __repr__(self) -> str:
        return f"Share({self.count} messages, {self.size} bytes)"


class Partition:
    """leadership: a number that this process gives to no other one.

    bodies: how many queue rows name each. marks: by origin the newest message that was applied; app_uses: when,
    for apps with transactions. producers: how many
    rows there are, and producers_of: how many each owner has. retained: how many messages; retained_of: the part of
    each user; retained_expires_us: no row expires before, 0: none does (the row that set it may have been replaced
    since). outbox: entries under way, by number and lineage, in the order of their numbers. apps: those with
    transactions.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.leadership = 0
        self.bodies: dict[int, int] = {}
        self.body_next = 1
        self.marks: dict[bytes, int] = {}
        self.app_uses: dict[bytes, int] = {}
        self.producers = 0
        self.producers_of: dict[bytes, int] = {}
        self.retained = 0
        self.retained_bytes = 0
        self.retained_expires_us = 0
        self.retained_of: dict[str, Share] = {}
        self.outbox: dict[tuple[int, int], OutboxEntry] = {}
        self.outbox_next = 0
        self.apps: dict[bytes, App] = {}

    def __repr__(self) -> str:
        return f"Partition({self.number} bodies={len(self.bodies)} retained={self.retained})"


class Led:
    """The partitions that this node leads, by number."""

    def __init__(self) -> None:
        self._by_number: dict[int, Partition] = {}
        self._leaderships = 0

    def __getitem__(self, number: int) -> Partition:
        partition = self._by_number.get(number)
        assert partition is not None, f"partition {number} is not led by this node"
        return partition

    def __iter__(self) -> Iterator[Partition]:
        """Go through the partitions in the order of their numbers."""
        for number in sorted(self._by_number):
            yield self._by_number[number]

    def get(self, number: int) -> Partition | None:
        """Return a partition, None if this node does not lead it."""
        return self._by_number.get(number)

    def put(self, partition: Partition) -> None:
        """Begin to lead a partition."""
        assert partition.number not in self._by_number, f"partition {partition.number} is led already"
        self._leaderships += 1
        partition.leadership = self._leaderships
        self._by_number[partition.number] = partition

    def drop(self, number: int) -> None:
        """End the leadership of a partition."""
        del self._by_number[number]
