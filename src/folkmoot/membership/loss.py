"""What a configuration has lost: partitions whose copies in sync are all away or damaged, and copies lost for good.

And what it would lose with one member: `cost_of` is a rule of the log, see `transition`.
"""

from __future__ import annotations

from typing import Final

from folkmoot.membership.configuration import ClusterConfiguration

__all__ = ["LOSSES_MAX", "Cost", "Loss", "Losses", "cost_of", "named"]

LOSSES_MAX: Final = 16  # the newest are reported
_NAMED_MAX: Final = 8  # partitions in a sentence


class Loss:
    """The loss of so many partitions by an entry of the configuration log; nodes: only they had what was lost."""

    def __init__(self, entry: int, partitions: int, nodes: list[str]) -> None:
        self.entry = entry
        self.partitions = partitions
        self.nodes = nodes

    def fields(self) -> dict[str, object]:
        """Return it for the status."""
        return {"entry": self.entry, "partitions": self.partitions, "nodes": list(self.nodes)}

    def __repr__(self) -> str:
        return f"Loss(entry={self.entry} partitions={self.partitions} nodes={self.nodes!r})"


def named(partitions: list[int]) -> str:
    """Return the number of partitions and the first of them."""
    text = ", ".join([str(partition) for partition in partitions[:_NAMED_MAX]])
    more = len(partitions) - _NAMED_MAX
    return f"{len(partitions)} partitions ({text}{f' and {more} more' if more > 0 else ''})"


class Cost:
    """What is given up if a member is removed: its copies that nobody else has, and its branches, as partitions."""

    def __init__(self) -> None:
        self.copies: list[int] = []
        self.branches: list[int] = []

    def text(self) -> str:
        """Return it for people; "" if there is none."""
        parts: list[str] = []
        if self.copies:
            parts.append(f"the only copies of {named(self.copies)}")
        if self.branches:
            parts.append(f"changes of {named(self.branches)} from another side of a split that are not merged")
        return " and ".join(parts)

    def __repr__(self) -> str:
        return f"Cost(copies={self.copies} branches={self.branches})"


def _left_of(configuration: ClusterConfiguration, number: int) -> list[int]:
    """Return the copies of a partition whose last one in sync was given up, if it is not known which is the newest."""
    state = configuration.partitions[number]
    if number in configuration.recovering:
        return state.isr
    return [] if state.isr else state.replicas


def cost_of(configuration: ClusterConfiguration, disk: int) -> Cost:
    """Return what the configuration knows that would be lost with a member.

    Its copy counts where it is the last one in sync, and where none is in sync any more, or those that are left were
    not compared yet: which of them is the newest is not known before they are back. A branch counts as long as its
    member is not in sync: the configuration does not say whether another copy of the same branch was merged.
    """
    cost = Cost()
    for number, state in enumerate(configuration.partitions):
        if configuration.is_branch(number, disk):
            cost.branches.append(number)
        elif state.isr == [disk] or disk in _left_of(configuration, number):
            cost.copies.append(number)
    return cost


class Losses:
    """What is not served, or is lost.

    missing: by partition the ids of absent nodes that have the only copies. damaged: by partition the id of the node
    that has the only copy, and cannot read it. leftover: by partition of which no copy is in sync the ids of absent
    nodes that have one. unmerged: by partition the ids of absent nodes with changes from another side of a split. past:
    permanent losses, oldest first.
    """

    def __init__(self) -> None:
        self.missing: dict[int, list[str]] = {}
        self.leftover: dict[int, list[str]] = {}
        self.unmerged: dict[int, list[str]] = {}
        self.damaged: dict[int, str] = {}
        self.past: list[Loss] = []

    def groups(self) -> list[tuple[list[str], list[int]]]:
        """Return the missing partitions, grouped by the nodes that have them."""
        return _grouped(self.missing)

    def damage(self) -> list[tuple[list[str], list[int]]]:
        """Return the partitions whose only copy is damaged, grouped by the node that has it."""
        return _grouped({partition: [node_id] for partition, node_id in self.damaged.items()})

    def holders(self, partition: int) -> list[str]:
        """Return the nodes that have the only copies of a partition that is not served, readable or not."""
        if partition in self.damaged:
            return [self.damaged[partition]]
        return self.missing.get(partition, [])

    def __repr__(self) -> str:
        return f"Losses(missing={self.missing!r} damaged={self.damaged!r} past={self.past!r})"


def _grouped(nodes_of: dict[int, list[str]]) -> list[tuple[list[str], list[int]]]:
    """Return partitions by the nodes that have them."""
    found: dict[str, tuple[list[str], list[int]]] = {}
    for partition in sorted(nodes_of):
        nodes = nodes_of[partition]
        name = " ".join(nodes)
        if name not in found:
            found[name] = (nodes, [])
        found[name][1].append(partition)
    return [found[name] for name in sorted(found)]
