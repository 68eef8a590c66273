"""Arithmetic of offsets: ranges by stream partition, dividing a limit among them, splitting them into tasks.

Spark compares offsets as JSON text, so their keys are always in numerical order.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["START", "TASK_ROWS", "Offsets", "Span", "end_within", "from_json", "gather", "split", "start_of", "to_json"]

START: Final = "start"

TASK_ROWS: Final = 5_000
"""Stream partitions with fewer records share a task: reading this many takes about as long as starting a task."""

Offsets = dict[int, int]
"""The next offset to read, by stream partition."""


class Span:
    """Offsets [start, end) of one stream partition."""

    def __init__(self, partition: int, start: int, end: int) -> None:
        self.partition = partition
        self.start = start
        self.end = end

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    def __repr__(self) -> str:
        return f"Span({self.partition}, [{self.start}, {self.end}))"


def to_json(offsets: Offsets) -> dict[str, Any]:
    """Return offsets as Spark writes them into its log."""
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def from_json(found: dict[str, Any]) -> Offsets:
    """Return the offsets of a result of `to_json`, without the note where the first batch began."""
    return {int(partition): offset for partition, offset in found.items() if partition.isdigit()}


def start_of(found: dict[str, Any]) -> Offsets | None:
    """Return where the first batch began, if `found` is the end of the first batch."""
    return from_json(found[START]) if START in found else None


def end_within(start: Offsets, end: Offsets, rows_max: int) -> Offsets:
    """Return an end with at most `rows_max` records after `start`, in proportion to the backlog of each partition."""
    waiting = {partition: max(0, end[partition] - start.get(partition, 0)) for partition in sorted(end)}
    total = sum(waiting.values())
    if total <= rows_max:
        return end
    shares = {partition: size * rows_max // total for partition, size in waiting.items()}
    # The remainder goes to the partitions that rounding reduced most: none starves, and the limit is met exactly.
    rest = rows_max - sum(shares.values())
    for partition in sorted(waiting, key=lambda p: (-(waiting[p] * rows_max % total), p))[:rest]:
        shares[partition] += 1
    return {partition: start.get(partition, 0) + shares[partition] for partition in sorted(end)}


def split(spans: list[Span], tasks_min: int) -> list[Span]:
    """Return the spans, the long ones split evenly, so that there are about `tasks_min` or more."""
    spans = [span for span in spans if len(span) > 0]
    total = sum(len(span) for span in spans)
    if len(spans) >= tasks_min or total == 0:
        return spans
    pieces: list[Span] = []
    for span in spans:
        count = max(1, min(len(span), -(-len(span) * tasks_min // total)))
        for number in range(count):
            low = span.start + len(span) * number // count
            high = span.start + len(span) * (number + 1) // count
            pieces.append(Span(span.partition, low, high))
    return pieces


def gather(spans: list[Span], tasks_min: int) -> list[list[Span]]:
    """Return what each task reads: small spans together, as long as there are at least `tasks_min` tasks.

    A task costs Spark some tens of milliseconds, and a file in the table, however few records it has.
    """
    found: list[list[Span]] = []
    rows_max = min(TASK_ROWS, -(-sum(map(len, spans)) // tasks_min))
    rows = 0
    left = len(spans)
    for span in spans:
        if found and rows + len(span) <= rows_max and len(found) + left > tasks_min:
            found[-1].append(span)
        else:
            found.append([span])
            rows = 0
        rows += len(span)
        left -= 1
    return found
