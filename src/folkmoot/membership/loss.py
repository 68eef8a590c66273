"""What a configuration has lost: partitions whose copies in sync are all away, and copies that are lost for good."""

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
    """missing: by partition the ids of absent nodes that have the only copies. past: permanent losses, oldest first."""

    def __init__(self) -> None:
        self.missing: dict[int, list[str]] = {}
        self.past: list[Loss] = []

    def groups(self) -> list[tuple[list[str], list[int]]]:
        """Return the missing partitions, grouped by the nodes that have them."""
        found: dict[str, tuple[list[str], list[int]]] = {}
        for partition in sorted(self.missing):
            nodes = self.missing[partition]
            name = " ".join(nodes)
            if name not in found:
                found[name] = (nodes, [])
            found[name][1].append(partition)
        return [found[name] for name in sorted(found)]

    def __repr__(self) -> str:
        return f"Losses(missing={self.missing!r} past={self.past!r})"
