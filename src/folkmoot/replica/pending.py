"""Which turns of this node are committed, and which wait for the disks of other nodes.

A turn is committed when it is durable here and every partition that it changed has it on all replicas. Partitions get
there one by one; turns are committed in order.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Pending"]

_SMOOTHING: Final = 8


class _Turn:
    def __init__(self, token: int, waiting: int, sealed_us: int) -> None:
        self.token = token
        self.waiting = waiting
        self.sealed_us = sealed_us


class Pending:
    """Turns that are not committed; `committed_token`: the newest token such that it and all before it are committed.

    latency_us: from the end of a turn to its commit, smoothed; measured: the number of measured turns. abandoned:
    (token, partition) of changes that no leader has taken over; reported before `committed_token` passes the token.
    """

    def __init__(self, partitions: int) -> None:
        self.committed_token = 0
        self.written_token = 0
        self.latency_us = 0
        self.measured = 0
        self.abandoned: list[tuple[int, int]] = []
        self._turns: deque[_Turn] = deque()
        self._waiting: list[deque[tuple[int, _Turn]]] = [deque() for _ in range(partitions)]

    def add(self, token: int, parts: list[tuple[int, int]], now: int) -> None:
        """Make `token` wait for these (partition, sequence)."""
        turn = _Turn(token, len(parts), now)
        for partition, seq in parts:
            self._waiting[partition].append((seq, turn))
        self._turns.append(turn)

    def waits(self, partition: int) -> bool:
        """Whether a change of a partition waits."""
        return bool(self._waiting[partition])

    def oldest(self) -> tuple[bool, list[tuple[int, int]]]:
        """Return what the oldest turn waits for: this disk, and (partition, sequence) that replicas may lack."""
        if not self._turns:
            return False, []
        turn = self._turns[0]
        parts = [(p, seq) for p, waiting in enumerate(self._waiting) for seq, other in waiting if other is turn]
        return turn.token > self.written_token, parts

    def first_token(self, partition: int) -> int:
        """Return the first turn of which a change of a partition waits; 0: none does."""
        waiting = self._waiting[partition]
        return waiting[0][1].token if waiting else 0

    def replicated(self, partition: int, seq: int) -> None:
        """All replicas have the changes of a partition up to this sequence."""
        waiting = self._waiting[partition]
        while waiting and waiting[0][0] <= seq:
            waiting.popleft()[1].waiting -= 1

    def abandon(self, partition: int) -> None:
        """The waiting changes of a partition are lost with a change of leaders; their turns wait for them no more."""
        waiting = self._waiting[partition]
        while waiting:
            turn = waiting.popleft()[1]
            turn.waiting -= 1
            self.abandoned.append((turn.token, partition))

    def advance(self, now: int) -> None:
        """Advance `committed_token` as far as possible."""
        turns = self._turns
        written_token = self.written_token
        while turns and turns[0].waiting == 0 and turns[0].token <= written_token:
            turn = turns.popleft()
            self.measured += 1
            self.latency_us += (now - turn.sealed_us - self.latency_us) // _SMOOTHING
        newest = min(turns[0].token - 1, written_token) if turns else written_token
        if newest > self.committed_token:
            self.committed_token = newest
