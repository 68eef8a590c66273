"""The ways to other nodes: numbers for what is sent, and up to which of them it is known to have come.

A way keeps the order: whoever has answered a message has got all that were sent to it before. Data, and the rule.
"""

from __future__ import annotations

__all__ = ["AckTracker"]


class AckTracker:
    """Per node, the newest message that it has answered, and the newest that needs no answer."""

    def __init__(self, sent_seq: int) -> None:
        self.sent_seq = sent_seq  # number, of all nodes together
        self._acked_seqs: dict[str, int] = {}
        self._unacked_seqs: dict[str, int] = {}  # only of nodes that may not have got it
        self._flush_seqs: dict[str, int] = {}  # the newest that was sent to be answered, and for nothing else

    def next_seq(self) -> int:
        """Return the number of what is sent next; one turn sends the same number to all."""
        self.sent_seq += 1
        return self.sent_seq

    def sent_without_ack(self, node_id: str, seq: int) -> None:
        """Something was sent that the node will not answer."""
        self._unacked_seqs[node_id] = seq

    def acknowledged(self, node_id: str, seq: int) -> None:
        """A node has answered."""
        if seq > self._acked_seqs.get(node_id, 0):
            self._acked_seqs[node_id] = seq
            if self._unacked_seqs.get(node_id, 0) <= seq:
                self._unacked_seqs.pop(node_id, None)

    def unconfirmed(self, seq: int) -> list[str]:
        """Return the nodes that may not have got what was sent under a number and needs no answer."""
        return [node_id for node_id in self._unacked_seqs if self._acked_seqs.get(node_id, 0) < seq]

    def needs_flush(self, node_id: str, seq: int) -> bool:
        """Whether a fence is needed behind that number; then it gets the next one."""
        if self._flush_seqs.get(node_id, 0) > seq:
            return False
        self._flush_seqs[node_id] = self.next_seq()
        return True

    def forget(self, node_id: str) -> None:
        """A node is gone, or all begins anew with it: nothing more of it is awaited."""
        self._acked_seqs.pop(node_id, None)
        self._unacked_seqs.pop(node_id, None)
        self._flush_seqs.pop(node_id, None)
