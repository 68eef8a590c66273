"""What nodes tell each other of the passwords that they have found right, so that a failover needs no checks.

Marks only (`folkmoot.auth.remembered`), and only where the cluster has a secret: it authenticates the links, and the
marks are keyed by it. A new mark goes to all nodes at once. A node that has met another one asks it for all of its
marks, one node after another; nodes with equal tables have nothing to tell.
"""

from __future__ import annotations

from typing import Final

from folkmoot.auth.remembered import MARK_BYTES, Remembered
from folkmoot.kernel.feature import LOGINS as FEATURE
from folkmoot.kernel.pack import get_u64, u64
from folkmoot.peer.kind import LOGINS
from folkmoot.peer.peers import Peers

__all__ = ["LoginSharing"]

_MARKS: Final = 1
_ASK: Final = 2
_END: Final = 3

_PAGE_MARKS: Final = 4096  # 64 KiB, once per heartbeat
_BACKLOG_BYTES_MAX: Final = 1 << 20  # a link that is behind by more has more important things to send


class LoginSharing:
    """Sends and receives marks."""

    def __init__(self, peers: Peers, remembered: Remembered, trusted: bool) -> None:
        self.peers = peers
        self.remembered = remembered
        self.trusted = trusted  # there is a secret
        self._to_ask: dict[str, None] = {}
        self._asked = ""
        self._pages: dict[str, list[bytes]] = {}  # by node: marks to send, in reverse

    def up(self, node_id: str) -> None:
        """A node was met: what it has found right before is not known here."""
        if self.trusted:
            self._to_ask[node_id] = None
            if self._asked == node_id:
                self._asked = ""

    def down(self, node_id: str) -> None:
        """A node is gone."""
        self._to_ask.pop(node_id, None)
        self._pages.pop(node_id, None)
        if self._asked == node_id:
            self._asked = ""

    def share(self, mark: bytes) -> None:
        """Remember a mark, and tell all nodes."""
        if self.remembered.add(mark) and self.trusted:
            for node_id, features in self.peers.features().items():  # a link keeps it while its connection is broken
                if FEATURE in features:
                    self.peers.send(node_id, LOGINS, bytes([_MARKS]) + mark)

    def receive(self, node_id: str, body: bytes) -> None:
        """Take a message; what cannot be read is ignored, because a check can take the place of any mark."""
        if not self.trusted or not body:
            return
        if body[0] == _MARKS:
            for pos in range(1, len(body) - MARK_BYTES + 1, MARK_BYTES):
                self.remembered.add(body[pos : pos + MARK_BYTES])
        elif body[0] == _ASK and len(body) >= 9:
            equal = get_u64(body, 1) == self.remembered.digest
            marks: list[bytes] = [] if equal else self.remembered.marks()
            marks.reverse()
            self._pages[node_id] = marks
        elif body[0] == _END and node_id == self._asked:
            self._asked = ""

    def step(self) -> None:
        """Ask the next node, and send a page to each node that has asked."""
        if not self._asked and self._to_ask:
            for node_id in list(self._to_ask):
                if self._knows(node_id):
                    del self._to_ask[node_id]
                    self._asked = node_id
                    self.peers.send(node_id, LOGINS, bytes([_ASK]) + u64(self.remembered.digest))
                    break
        for node_id in list(self._pages):
            if self.peers.backlog_bytes(node_id) > _BACKLOG_BYTES_MAX:
                continue
            marks = self._pages[node_id]
            page = marks[-_PAGE_MARKS:]
            page.reverse()
            del marks[-_PAGE_MARKS:]
            if page:
                self.peers.send(node_id, LOGINS, bytes([_MARKS]) + b"".join(page))
            if not marks:
                del self._pages[node_id]
                self.peers.send(node_id, LOGINS, bytes([_END]))

    def _knows(self, node_id: str) -> bool:
        return FEATURE in self.peers.features().get(node_id, [])
