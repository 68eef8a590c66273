"""Which turns of this node are committed, and which wait for the disks of other nodes.

A turn is committed when it is durable here and every partition that it changed has it on all replicas. Partitions get
there one by one; turns are committed in order.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Pending", "Uncommitted"]

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

    def __init__(self) -> None:
        self.committed_token = 0
        self.written_token = 0
        self.latency_us = 0
        self.measured = 0
        self.abandoned: list[tuple[int, int]] = []
        self._turns: deque[_Turn] = deque()

    def add(self, token: int, parts: list[tuple[Uncommitted, int]], now: int) -> None:
        """Make `token` wait for these partitions, each up to a sequence."""
        turn = _Turn(token, len(parts), now)
        for uncommitted, seq in parts:
            uncommitted.add(seq, turn)
        self._turns.append(turn)

    def oldest(self, partitions: list[Uncommitted]) -> tuple[bool, list[tuple[int, int]]]:
        """Return what the oldest turn waits for: this disk, and (partition, sequence) that replicas may lack."""
        if not self._turns:
            return False, []
        turn = self._turns[0]
        parts: list[tuple[int, int]] = []
        for uncommitted in partitions:
            parts.extend([(uncommitted.partition, seq) for seq in uncommitted.sequences_of(turn)])
        return turn.token > self.written_token, parts

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


class Uncommitted:
    """The changes of one partition that are not committed, each with the turn that waits for it."""

    def __init__(self, partition: int, pending: Pending) -> None:
        self.partition = partition
        self.pending = pending
        self._waiting: deque[tuple[int, _Turn]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, seq: int, turn: _Turn) -> None:
        """Make a turn wait for a sequence."""
        self._waiting.append((seq, turn))

    def sequences_of(self, turn: _Turn) -> list[int]:
        """Return the sequences for which a turn waits."""
        return [seq for seq, other in self._waiting if other is turn]

    def first_token(self) -> int:
        """Return the first turn of which a change waits; 0: none does."""
        return self._waiting[0][1].token if self._waiting else 0

    def replicated(self, seq: int) -> None:
        """All replicas have the changes up to this sequence."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= seq:
            waiting.popleft()[1].waiting -= 1

    def abandon(self) -> None:
        """The waiting changes are lost with a change of leaders; their turns wait for them no more."""
        waiting = self._waiting
        while waiting:
            turn = waiting.popleft()[1]
            turn.waiting -= 1
            self.pending.abandoned.append((turn.token, self.partition))
