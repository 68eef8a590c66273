"""What a view has lost: partitions whose only copies are absent, and copies that are lost for good.

Owns the values and their bytes; `folkmoot.membership.absence` decides what is missing.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import varint
from folkmoot.peer.cursor import Cursor, put_text

__all__ = ["LOSSES_MAX", "Loss", "Losses", "decode_losses", "encode_losses"]

LOSSES_MAX: Final = 16  # the newest are reported
_NODES_MAX: Final = 4096
_PARTITIONS_MAX: Final = 65_536


class Loss:
    """The loss of so many partitions at a time (microseconds since 1970): only these nodes had copies."""

    def __init__(self, time_us: int, partitions: int, nodes: list[str]) -> None:
        self.time_us = time_us
        self.partitions = partitions
        self.nodes = nodes

    def fields(self) -> dict[str, object]:
        """Return it for the status."""
        return {"time_us": self.time_us, "partitions": self.partitions, "nodes": list(self.nodes)}

    def __repr__(self) -> str:
        return f"Loss(time_us={self.time_us} partitions={self.partitions} nodes={self.nodes!r})"


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


def encode_losses(losses: Losses) -> bytes:
    """Return them as bytes; later versions may append fields."""
    groups = losses.groups()
    parts: list[bytes] = [varint(len(groups))]
    for nodes, partitions in groups:
        parts.append(_put_nodes(nodes))
        parts.append(varint(len(partitions)))
        parts.extend([varint(partition) for partition in partitions])
    parts.append(varint(len(losses.past)))
    parts.extend([varint(loss.time_us) + varint(loss.partitions) + _put_nodes(loss.nodes) for loss in losses.past])
    return b"".join(parts)


def decode_losses(data: bytes) -> Losses:
    """Read what `encode_losses` wrote; raises ValueError."""
    cursor = Cursor(data, "a view's losses")
    losses = Losses()
    for _ in range(cursor.count(_PARTITIONS_MAX)):
        nodes = _take_nodes(cursor)
        for _ in range(cursor.count(_PARTITIONS_MAX)):
            losses.missing[cursor.integer()] = nodes
    for _ in range(cursor.count(LOSSES_MAX)):
        time_us = cursor.integer()
        losses.past.append(Loss(time_us, cursor.integer(), _take_nodes(cursor)))
    return losses


def _put_nodes(nodes: list[str]) -> bytes:
    return varint(len(nodes)) + b"".join([put_text(node_id) for node_id in nodes])


def _take_nodes(cursor: Cursor) -> list[str]:
    return [cursor.text() for _ in range(cursor.count(_NODES_MAX))]
