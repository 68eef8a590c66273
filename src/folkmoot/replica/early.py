"""Messages of a view that is not installed here yet: kept until it is, because nobody sends them again."""

from __future__ import annotations

from typing import Final

from folkmoot.peer.waiting import Waiting

__all__ = ["BYTES_MAX", "Early"]

BYTES_MAX: Final = 16 << 20
"""Per node: before a node reports, it receives only reports and DURABLE messages, a few per turn."""

_NODES_MAX: Final = 1024


class Early:
    """Per node, the messages of the newest view that it has sent: of too many the newest ones.

    dropped: how many were not kept. is_cut: of those that were taken last, some had been dropped before.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self.is_cut = False
        self._nodes: dict[str, tuple[int, Waiting]] = {}  # by node, the view and what it has sent in it

    def keep(self, node_id: str, kind: int, epoch: int, body: bytes) -> None:
        """Keep a message; those of older views from the same node are forgotten."""
        found = self._nodes.get(node_id)
        if found is None or epoch > found[0]:
            self._nodes.pop(node_id, None)
            found = self._nodes[node_id] = (epoch, Waiting(BYTES_MAX))
            if len(self._nodes) > _NODES_MAX:
                _epoch, oldest = self._nodes.pop(next(iter(self._nodes)))
                self.dropped += len(oldest.messages)
        if epoch == found[0]:
            self.dropped += found[1].keep(kind, body)

    def take(self, epoch: int) -> list[tuple[str, int, bytes]]:
        """Return the messages of the view that is installed now; forget older ones."""
        self.is_cut = False
        found: list[tuple[str, int, bytes]] = []
        for node_id in list(self._nodes):
            sent, waiting = self._nodes[node_id]
            if sent > epoch:
                continue
            if sent == epoch:
                found.extend([(node_id, kind, body) for kind, body in waiting.messages])
                self.is_cut = self.is_cut or waiting.is_cut
            del self._nodes[node_id]
        return found
