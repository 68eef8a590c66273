"""Sequences of the messages to other nodes, and up to which of them each node has certainly received them.

A link keeps the order: a node that has answered a message has received all that were sent to it before. Data, and this
rule.
"""

from __future__ import annotations

__all__ = ["AckTracker"]


class AckTracker:
    """Per node, the newest message that it has answered, and the newest that needs no answer."""

    def __init__(self, sent_seq: int) -> None:
        self.sent_seq = sent_seq  # of all nodes together
        self._acked_seqs: dict[str, int] = {}
        # the newest message without an answer, of nodes that may not have received it
        self._unacked_seqs: dict[str, int] = {}
        self._flush_seqs: dict[str, int] = {}  # the newest flush marker: a message that is sent only to be answered

    def next_seq(self) -> int:
        """Return the sequence of the next message; one turn uses the same for all nodes."""
        self.sent_seq += 1
        return self.sent_seq

    def sent_without_ack(self, node_id: str, seq: int) -> None:
        """A message was sent that the node will not answer."""
        self._unacked_seqs[node_id] = seq

    def acknowledged(self, node_id: str, seq: int) -> None:
        """A node has answered a message."""
        if seq > self._acked_seqs.get(node_id, 0):
            self._acked_seqs[node_id] = seq
            if self._unacked_seqs.get(node_id, 0) <= seq:
                self._unacked_seqs.pop(node_id, None)

    def unconfirmed(self, seq: int) -> list[str]:
        """Return the nodes that may lack messages up to `seq` which need no answer."""
        return [node_id for node_id in self._unacked_seqs if self._acked_seqs.get(node_id, 0) < seq]

    def needs_flush(self, node_id: str, seq: int) -> bool:
        """Whether a flush marker is needed behind `seq`; it then gets the next sequence."""
        if self._flush_seqs.get(node_id, 0) > seq:
            return False
        self._flush_seqs[node_id] = self.next_seq()
        return True

    def forget(self, node_id: str) -> None:
        """Forget a node that is gone or starts anew: no answer of it is expected."""
        self._acked_seqs.pop(node_id, None)
        self._unacked_seqs.pop(node_id, None)
        self._flush_seqs.pop(node_id, None)
