"""Messages of a view that is not installed here yet: kept until it is, because nobody sends them again."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["BYTES_MAX", "Early"]

BYTES_MAX: Final = 16 << 20
"""Per node: before a node reports, it receives only reports and DURABLE messages, a few per turn."""

_NODES_MAX: Final = 1024
_MESSAGE_BYTES: Final = 64  # approximate overhead of a message


class _Waiting:
    """What one node has sent in one view."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.messages: deque[tuple[int, bytes]] = deque()
        self.bytes = 0
        self.is_cut = False


class Early:
    """Per node, the messages of the newest view that it has sent: of too many the newest ones.

    dropped: how many were not kept. is_cut: of those that were taken last, some had been dropped before.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self.is_cut = False
        self._nodes: dict[str, _Waiting] = {}

    def keep(self, node_id: str, kind: int, epoch: int, body: bytes) -> None:
        """Keep a message; those of older views from the same node are forgotten."""
        waiting = self._nodes.get(node_id)
        if waiting is None or epoch > waiting.epoch:
            self._nodes.pop(node_id, None)
            waiting = self._nodes[node_id] = _Waiting(epoch)
            if len(self._nodes) > _NODES_MAX:
                self.dropped += len(self._nodes.pop(next(iter(self._nodes))).messages)
        elif epoch < waiting.epoch:
            return
        waiting.messages.append((kind, body))
        waiting.bytes += len(body) + _MESSAGE_BYTES
        while waiting.bytes > BYTES_MAX:
            waiting.bytes -= len(waiting.messages.popleft()[1]) + _MESSAGE_BYTES
            waiting.is_cut = True
            self.dropped += 1

    def take(self, epoch: int) -> list[tuple[str, int, bytes]]:
        """Return the messages of the view that is installed now; forget older ones."""
        self.is_cut = False
        found: list[tuple[str, int, bytes]] = []
        for node_id in list(self._nodes):
            waiting = self._nodes[node_id]
            if waiting.epoch > epoch:
                continue
            if waiting.epoch == epoch:
                found.extend([(node_id, kind, body) for kind, body in waiting.messages])
                self.is_cut = self.is_cut or waiting.is_cut
            del self._nodes[node_id]
        return found
