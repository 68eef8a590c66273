"""When a node says that its retained messages have landed: the answering side of `landing` (A8).

A message that was published without knowledge of a subscription, and reaches the leader of its topic after the
subscriber's node has looked there, would be missed both ways. Owns which of this node's retained messages are under
way; never sends anything.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Barrier", "Landing"]


class Landing:
    """A question of a node, to be answered when all retained messages that were under way have arrived.

    number: of the announcement that asked; ticket: the newest one at that time; token: the newest turn in which this
    node retained a message itself.
    """

    def __init__(self, node_id: str, number: int, ticket: int, token: int) -> None:
        self.node_id = node_id
        self.number = number
        self.ticket = ticket
        self.token = token

    def __repr__(self) -> str:
        return f"Landing({self.node_id!r} {self.number} after {self.ticket} and turn {self.token})"


class Barrier:
    """Retained messages under way to the leaders of their topics, and the questions that wait for them."""

    def __init__(self) -> None:
        self._newest = 0
        self._open: dict[int, None] = {}  # in the order of their beginning
        self._token = 0
        self._waiting: deque[Landing] = deque()

    def begin(self) -> int:
        """Note that a retained message is sent to another node; return its ticket."""
        self._newest += 1
        self._open[self._newest] = None
        return self._newest

    def end(self, ticket: int) -> None:
        """Note that the message is kept, or never will be; 0 and tickets that have ended are ignored."""
        self._open.pop(ticket, None)

    def kept_here(self, token: int) -> None:
        """Note that this node retains a message itself, in this turn."""
        self._token = token

    def asked(self, node_id: str, number: int, newest_token: int) -> None:
        """Take a question; newest_token: when it is committed, so is everything changed until now."""
        self._waiting.append(Landing(node_id, number, self._newest, min(self._token, newest_token)))

    def found(self) -> None:
        """What a partition has in its outbox is known now, and begun: who has asked before waits for it, too."""
        for one in self._waiting:
            one.ticket = self._newest

    @property
    def is_asked(self) -> bool:
        """Whether questions wait."""
        return bool(self._waiting)

    def take(self, committed_token: int) -> list[Landing]:
        """Return the questions that can be answered, and forget them."""
        taken: list[Landing] = []
        oldest = next(iter(self._open)) if self._open else self._newest + 1
        while self._waiting:
            first = self._waiting[0]
            if first.ticket >= oldest or first.token > committed_token:
                break
            taken.append(self._waiting.popleft())
        return taken

    def forget(self, node_id: str) -> None:
        """Forget the questions of a node that is no longer a member, or starts over."""
        self._waiting = deque([one for one in self._waiting if one.node_id != node_id])
