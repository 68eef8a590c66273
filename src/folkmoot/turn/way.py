"""The ways to other nodes: numbers for what is sent, and up to which of them it is known to have come.

A way keeps the order: whoever has answered a message has got all that were sent to it before. Data, and the rule.
"""

from __future__ import annotations

__all__ = ["Ways"]


class Ways:
    """Per node, the newest message that it has answered, and the newest that needs no answer."""

    def __init__(self, newest: int) -> None:
        self.newest = newest  # number, of all nodes together
        self._heard: dict[str, int] = {}
        self._mute: dict[str, int] = {}  # only of nodes that may not have got it
        self._fences: dict[str, int] = {}  # the newest that was sent to be answered, and for nothing else

    def next(self) -> int:
        """Return the number of what is sent next; one turn sends the same number to all."""
        self.newest += 1
        return self.newest

    def muted(self, node_id: str, number: int) -> None:
        """Something was sent that the node will not answer."""
        self._mute[node_id] = number

    def answered(self, node_id: str, number: int) -> None:
        """A node has answered."""
        if number > self._heard.get(node_id, 0):
            self._heard[node_id] = number
            if self._mute.get(node_id, 0) <= number:
                self._mute.pop(node_id, None)

    def deaf_to(self, number: int) -> list[str]:
        """Return the nodes that may not have got what was sent under a number and needs no answer."""
        return [node_id for node_id in self._mute if self._heard.get(node_id, 0) < number]

    def fence(self, node_id: str, number: int) -> bool:
        """Whether a fence is needed behind that number; then it gets the next one."""
        if self._fences.get(node_id, 0) > number:
            return False
        self._fences[node_id] = self.next()
        return True

    def forget(self, node_id: str) -> None:
        """A node is gone, or all begins anew with it: nothing more of it is awaited."""
        self._heard.pop(node_id, None)
        self._mute.pop(node_id, None)
        self._fences.pop(node_id, None)
