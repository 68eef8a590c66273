"""The progress of a query, read from Spark's checkpoint without Spark: planned offsets, completed batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pyspark_folkmoot.offset import Offsets, from_json

__all__ = ["begun", "checkpoint_of", "last_commit", "position"]


def checkpoint_of(state: Path, name: str) -> Path:
    """Return the checkpoint of a query."""
    return state / "checkpoints" / name


def begun(checkpoint: Path) -> bool:
    """Return whether a query has planned its first batch: from then on the checkpoint determines where it resumes."""
    return _newest(checkpoint / "offsets") is not None


def last_commit(checkpoint: Path) -> int | None:
    """Return the number of the last completed batch of a query, None if there is none."""
    return _newest(checkpoint / "commits")


def position(checkpoint: Path, streams: Sequence[str]) -> dict[str, Offsets] | None:
    """Return the next offset that a query reads, by stream and partition.

    streams: those that it reads, in the order of its checkpoint. None if the position is uncertain: a planned batch may
    not be complete, a stream that is read twice has two positions, or the file does not have the format of Spark 4.
    """
    planned = _newest(checkpoint / "offsets")
    if planned is None or planned != last_commit(checkpoint):
        return None
    lines = (checkpoint / "offsets" / str(planned)).read_text(encoding="utf-8").splitlines()
    if lines[:1] != ["v1"] or len(lines) != 2 + len(streams):
        return None
    found: dict[str, Offsets] = {}
    for stream, line in zip(streams, lines[2:], strict=True):
        try:
            offsets = from_json(json.loads(line))
        except (ValueError, AttributeError):
            return None
        if found.setdefault(stream, offsets) != offsets:
            return None
    return found


def _newest(folder: Path) -> int | None:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return None
    return max((int(name) for name in names if name.isdigit()), default=None)
