"""What a configuration has lost: partitions whose copies in sync are all away or damaged, and copies lost for good."""

from __future__ import annotations

from typing import Final

__all__ = ["LOSSES_MAX", "Loss", "Losses"]

LOSSES_MAX: Final = 16  # the newest are reported


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


class Losses:
    """What is not served, or is lost.

    missing: by partition the ids of absent nodes that have the only copies. damaged: by partition the id of the node
    that has the only copy, and cannot read it. past: permanent losses, oldest first.
    """

    def __init__(self) -> None:
        self.missing: dict[int, list[str]] = {}
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
