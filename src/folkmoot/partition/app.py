"""One app with transactions, in the memory of the leader of its home: staged, committed, and not yet published.

Data only: `transaction` changes it together with its rows, `publication` publishes.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.store.transaction import PUBLISHER_PREFIX, StagedRow, TransactionRow

__all__ = ["CHUNK_BYTES", "App", "Chunk", "Committed", "Stage"]

CHUNK_BYTES: Final = 600
"""What a chunk takes in memory and in its two rows beside its packets, about: it counts with them."""

_MISSING_MAX: Final = 5  # chunks that a refusal names


class Chunk:
    """A staged chunk; token: of the turn that put it; bytes: what it counts for, however little is in it."""

    def __init__(self, row: StagedRow, token: int) -> None:
        self.row = row
        self.token = token
        self.bytes = row.size + CHUNK_BYTES

    def __repr__(self) -> str:
        return f"Chunk({self.row!r} token={self.token})"


class Stage:
    """The staged chunks of one transaction, by part."""

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
        """Put a chunk, perhaps over an earlier one; return the additional bytes."""
        chunks = self.parts.get(part)
        if chunks is None:
            chunks = {}
            self.parts[part] = chunks
        old = chunks.get(number)
        more = chunk.bytes - (0 if old is None else old.bytes)
        chunks[number] = chunk
        self.bytes += more
        self.touched_us = max(self.touched_us, chunk.row.staged_us)
        return more

    def drop(self, part: bytes, number: int) -> int:
        """Remove an existing chunk; return its bytes."""
        size = self.parts[part].pop(number).bytes
        self.bytes -= size
        return size

    def missing(self, parts: list[tuple[bytes, int]]) -> list[str]:
        """Return the first few missing chunks, as part/chunk."""
        found: list[str] = []
        for part, count in parts:
            for number in range(count):
                if self.chunk(part, number) is None:
                    found.append(f"{part.decode()}/{number}")
                    if len(found) >= _MISSING_MAX:
                        return found
        return found


class Committed:
    """A committed transaction that is not completely published: its parts in order, with their numbers of chunks."""

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
    """row: as stored; waiting: committed transactions, oldest first; bytes: what all its chunks count."""

    def __init__(self, partition: int, name: bytes) -> None:
        self.partition = partition
        self.name = name
        self.publisher = PUBLISHER_PREFIX + name.decode()
        self.row = TransactionRow()
        self.stages: dict[int, Stage] = {}
        self.waiting: deque[Committed] = deque()
        self.bytes = 0
        self.stuck = False  # the next chunk to be published cannot be read
        # It has a message on this topic, for which a partition has no leader (empty: it has none, as far as is known),
        # perhaps to be retained; and when that is looked at again
        self.absent_topic = b""
        self.absent_retain = False
        self.look_us = 0

    def __repr__(self) -> str:
        return f"App({self.name!r} {self.row!r} stages={len(self.stages)} waiting={len(self.waiting)})"

    @property
    def known(self) -> bool:
        """Whether the app has any state."""
        return self.row.last >= 0 or bool(self.stages)

    def next_chunk(self) -> Chunk | None:
        """Return the next chunk to be published; None when it is missing, or nothing waits."""
        if not self.waiting:
            return None
        row = self.row
        committed = self.waiting[0]
        return committed.stage.chunk(committed.parts[row.part][0], row.chunk)

    def figures(self) -> list[int]:
        """Return figures for operators: last number, its time, messages published, transactions and messages that wait.

        Then the time of the oldest waiting transaction, transactions and bytes staged without a commit, and the time of
        their newest chunk; 0 = there is none.
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
