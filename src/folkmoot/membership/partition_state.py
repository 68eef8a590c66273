"""Who keeps a partition, and who leads it, as the configuration log has it."""

from __future__ import annotations

__all__ = ["PartitionState", "unplaced"]


class PartitionState:
    """The replicas of one partition; immutable, so that a reader of an earlier configuration keeps what it has read.

    Args:
        replicas: The disks that keep it, in the order in which they are preferred as leaders.
        isr: The replicas in sync, in the order of `replicas`: each has everything that was committed. The others learn.
        leader: The disk that leads it; 0: none does.
        leader_epoch: The number of the leadership, counted up with each new one, also of the same disk.
        version: The number of changes of this partition; a command that knows another one is refused.
    """

    def __init__(self, replicas: list[int], isr: list[int], leader: int, leader_epoch: int, version: int) -> None:
        self.replicas = replicas
        self.isr = isr
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.version = version
        assert leader == 0 or leader in isr, "the leader is in sync"
        assert leader == 0 or leader_epoch > 0, "a leadership has a number"
        at = 0
        for disk in isr:
            assert disk in replicas[at:], "those in sync are replicas, each once, in their order"
            at = replicas.index(disk, at) + 1

    def learners(self) -> list[int]:
        """Return the replicas that are not in sync."""
        return [disk for disk in self.replicas if disk not in self.isr]

    def succeeds(self, before: PartitionState) -> bool:
        """Tell whether this can be the state right after `before`: its numbers have grown as they must."""
        if self.version != before.version + 1:
            return False
        if self.leader == 0:
            return self.leader_epoch == before.leader_epoch
        if self.leader != before.leader:
            return self.leader_epoch == before.leader_epoch + 1
        return before.leader_epoch <= self.leader_epoch <= before.leader_epoch + 1

    def __repr__(self) -> str:
        return f"{self.replicas} isr {self.isr} leader {self.leader}/{self.leader_epoch} version {self.version}"


def unplaced() -> PartitionState:
    """Return the state of a partition that nobody keeps yet."""
    return PartitionState([], [], 0, 0, 0)
