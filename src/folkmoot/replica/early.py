"""Messages of a view that is not installed here yet: kept until it is, because nobody sends them again."""

from __future__ import annotations

from typing import Final

__all__ = ["Early"]

_MESSAGES_MAX: Final = 10_000
"""Per node: before a node reports, it receives only reports and DURABLE messages, a few per turn."""


class Early:
    """Per node, the messages of the newest view that it has sent."""

    def __init__(self) -> None:
        self.dropped = 0
        self._epochs: dict[str, int] = {}
        self._messages: dict[str, list[tuple[int, bytes]]] = {}

    def keep(self, node_id: str, kind: int, epoch: int, body: bytes) -> None:
        """Keep a message; those of older views from the same node are forgotten."""
        if epoch > self._epochs.get(node_id, 0):
            self._epochs[node_id] = epoch
            self._messages[node_id] = []
        elif epoch < self._epochs[node_id]:
            return
        messages = self._messages[node_id]
        if len(messages) < _MESSAGES_MAX:
            messages.append((kind, body))
        else:
            self.dropped += 1

    def take(self, epoch: int) -> list[tuple[str, int, bytes]]:
        """Return the messages of the view that is installed now; forget older ones."""
        found: list[tuple[str, int, bytes]] = []
        for node_id in list(self._epochs):
            if self._epochs[node_id] > epoch:
                continue
            if self._epochs[node_id] == epoch:
                for kind, body in self._messages[node_id]:
                    found.append((node_id, kind, body))
            del self._epochs[node_id]
            del self._messages[node_id]
        return found
