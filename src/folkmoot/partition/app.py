"""One app with transactions, in the memory of the node that leads its home: what is staged, committed, not published.

Data only: `transaction` changes it together with its rows, `publication` publishes.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.store.transaction import PUBLISHER_PREFIX, StagedRow, TransactionRow

__all__ = ["App", "Chunk", "Committed", "Stage"]

_MISSING_MAX: Final = 5  # chunks that a refusal names


class Chunk:
    """A chunk that is staged; token: of the turn that put it."""

    def __init__(self, row: StagedRow, token: int) -> None:
        self.row = row
        self.token = token

    def __repr__(self) -> str:
        return f"Chunk({self.row!r} token={self.token})"


class Stage:
    """What is staged of one transaction: chunks by part."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.parts: dict[bytes, dict[int, Chunk]] = {}
        self.bytes = 0
        self.touched_us = 0  # when the newest chunk came

    def __repr__(self) -> str:
        return f"Stage({self.number} {len(self.parts)} parts, {self.bytes} bytes)"

    def chunk(self, part: bytes, number: int) -> Chunk | None:
        """Return a chunk, None when it is not there."""
        chunks = self.parts.get(part)
        return None if chunks is None else chunks.get(number)

    def put(self, part: bytes, number: int, chunk: Chunk) -> int:
        """Put a chunk, instead of an earlier one; return by how many bytes that is more."""
        chunks = self.parts.get(part)
        if chunks is None:
            chunks = {}
            self.parts[part] = chunks
        old = chunks.get(number)
        more = chunk.row.size - (0 if old is None else old.row.size)
        chunks[number] = chunk
        self.bytes += more
        self.touched_us = max(self.touched_us, chunk.row.staged_us)
        return more

    def drop(self, part: bytes, number: int) -> int:
        """Forget a chunk that is there; return its bytes."""
        size = self.parts[part].pop(number).row.size
        self.bytes -= size
        return size

    def missing(self, parts: list[tuple[bytes, int]]) -> list[str]:
        """Return the first few chunks that are not there, as part/chunk."""
        found: list[str] = []
        for part, count in parts:
            for number in range(count):
                if self.chunk(part, number) is None:
                    found.append(f"{part.decode()}/{number}")
                    if len(found) >= _MISSING_MAX:
                        return found
        return found


class Committed:
    """A transaction that is committed and not published whole: its parts in order, with their numbers of chunks."""

    def __init__(self, stage: Stage, committed_us: int, parts: list[tuple[bytes, int]]) -> None:
        self.stage = stage
        self.committed_us = committed_us
        self.parts = parts

    @property
    def number(self) -> int:
        """The number of the transaction."""
        return self.stage.number

    def __repr__(self) -> str:
        return f"Committed({self.stage!r})"


class App:
    """row: as it is stored; waiting: what is committed, oldest first; bytes: of all that is staged or waits."""

    def __init__(self, partition: int, name: bytes) -> None:
        self.partition = partition
        self.name = name
        self.publisher = PUBLISHER_PREFIX + name.decode()
        self.row = TransactionRow()
        self.stages: dict[int, Stage] = {}
        self.waiting: deque[Committed] = deque()
        self.bytes = 0
        self.stuck = False  # what is to be published next cannot be read

    def __repr__(self) -> str:
        return f"App({self.name!r} {self.row!r} stages={len(self.stages)} waiting={len(self.waiting)})"

    @property
    def known(self) -> bool:
        """Whether there is anything to know of the app."""
        return self.row.last >= 0 or bool(self.stages)

    def next_chunk(self) -> Chunk | None:
        """Return the chunk to be published next; None when it is not there, or nothing waits."""
        if not self.waiting:
            return None
        row = self.row
        committed = self.waiting[0]
        return committed.stage.chunk(committed.parts[row.part][0], row.chunk)

    def figures(self) -> list[int]:
        """Return what operators see: last number, its time, messages published, transactions and messages that wait.

        Then since when the oldest waits, transactions and bytes staged without a commit, and when the newest chunk of
        those came; 0 = there is none.
        """
        messages = 0
        for committed in self.waiting:
            for chunks in committed.stage.parts.values():
                for chunk in chunks.values():
                    messages += chunk.row.count
        since_us = self.waiting[0].committed_us if self.waiting else 0
        staged = sum([stage.bytes for stage in self.stages.values()])
        touched_us = max([stage.touched_us for stage in self.stages.values()], default=0)
        row = self.row
        waiting = len(self.waiting)
        return [
            row.last,
            row.committed_us,
            row.published,
            waiting,
            messages,
            since_us,
            len(self.stages),
            staged,
            touched_us,
        ]
