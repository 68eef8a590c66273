"""Answers to heartbeats, which wait for another message to their member: of idle members, both cause one wake-up.

The leader of the log sends its voters something as often as they send heartbeats. A lease counts from the sending of
its heartbeat, so an answer that is late makes it no longer; it ends so much sooner if the next heartbeats are lost.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER
from folkmoot.membership.control_message import GRANTED, Beat, BeatAnswer

__all__ = ["HeldAnswers"]


class HeldAnswers:
    """The newest answer to each member, by node; `due_ns`: when the first of them leaves at the latest."""

    def __init__(self, heartbeat_ns: int) -> None:
        self.due_ns: int = NEVER
        self._heartbeat_ns = heartbeat_ns
        self._waiting: dict[str, BeatAnswer] = {}
        self._sent_ns: dict[str, int] = {}  # when each member was answered last

    def holds(self, node_id: str, beat: Beat, answer: BeatAnswer, now: int) -> bool:
        """Keep an answer that can wait; return whether it does.

        Others say something new, or are for a member that was not answered for a while.
        """
        is_new = answer.verdict != GRANTED or len(answer.loads) > 0 or beat.fresh or not beat.up or beat.lapsed
        if is_new or now - self._sent_ns.get(node_id, 0) > 2 * self._heartbeat_ns:
            self._sent_ns[node_id] = now
            self._take(node_id)
            return False
        self._waiting[node_id] = answer
        self.due_ns = min(self.due_ns, now + self._heartbeat_ns)
        return True

    def release(self, others: list[str], now: int) -> list[tuple[str, bytes]]:
        """Return the answers for nodes that are sent something else now; all of them when they are due."""
        found: list[tuple[str, bytes]] = []
        if not self._waiting:
            return found
        names = list(self._waiting) if now >= self.due_ns else [name for name in others if name in self._waiting]
        for node_id in names:
            answer = self._take(node_id)
            if answer is not None:
                found.append((node_id, answer.encoded()))
                self._sent_ns[node_id] = now
        return found

    def forget(self, node_id: str) -> None:
        """A node is not reached any more."""
        self._take(node_id)
        self._sent_ns.pop(node_id, None)

    def _take(self, node_id: str) -> BeatAnswer | None:
        answer = self._waiting.pop(node_id, None)
        if not self._waiting:
            self.due_ns = NEVER
        return answer
