"""Compaction and vacuum of Delta tables: when they are due, and never below the safe retention."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pyspark_folkmoot.pipeline.fingerprint import write_json
from pyspark_folkmoot.pipeline.part import VACUUM_LEAST_MS

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["COMPACT_MS", "VACUUM_EVERY_MS", "keep_up"]

COMPACT_MS: Final = 3_600_000
"""How often the quarantine is compacted."""

VACUUM_EVERY_MS: Final = 86_400_000
"""How often to look for files that are old enough to be removed."""

AGAIN_MS: Final = 60_000
"""When to compact a table again that another writer changed during the attempt."""

FOLDER_BYTES_MAX: Final = 255
"""The length that file systems permit for a name, in bytes."""

NOTE: Final = ".folkmoot-upkeep.json"
"""The file with the time of the last maintenance; beside the table's files, so that it moves with the table."""


def keep_up(name: str, table: str, compact_ms: int | None, vacuum_ms: int | None, now_s: float | None = None) -> str:
    """Do the maintenance that is due on a table; return what was done, in words, or an empty text.

    A table that another writer changes at the same time is left for the next time. None: never. Raises OSError if not
    even the note can be written: the disk is full or read-only.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError

    folder = Path(table)
    if not (folder / "_delta_log").is_dir():
        return ""
    now_ms = round((time.time() if now_s is None else now_s) * 1000)
    before = _note(folder)
    # For a table without a note, time counts from now.
    note = {"compacted": now_ms, "vacuumed": now_ms} if before is None else dict(before)
    done = []
    try:
        if compact_ms is not None and now_ms - note["compacted"] >= compact_ms:
            found = DeltaTable(table)
            removed, added, left_out = _compact(found)
            found.create_checkpoint()
            note["compacted"] = now_ms
            if removed:
                done.append(f"{removed} files made {added}")
            if left_out > note.get("left_out", 0):
                done.append(_left_out(left_out))
            if left_out or "left_out" in note:
                note["left_out"] = left_out
        if vacuum_ms is not None and now_ms - note["vacuumed"] >= VACUUM_EVERY_MS:
            keep = timedelta(milliseconds=max(vacuum_ms, VACUUM_LEAST_MS))
            found = DeltaTable(table)
            hours = -(-int(keep.total_seconds()) // 3600)
            gone = found.vacuum(retention_hours=hours, dry_run=False, full=True)
            found.cleanup_metadata()
            note["vacuumed"] = now_ms
            if gone:
                done.append(f"{len(gone)} old files removed")
    except CommitFailedError:
        note["compacted"] = now_ms - (compact_ms or 0) + AGAIN_MS
    except (DeltaError, OSError) as error:
        note.update(compacted=now_ms, vacuumed=now_ms)
        done = [f"upkeep failed, and runs again when it is next due: {error}"]
    if note != before:
        write_json(folder / NOTE, note)
    return f"{name}: {', '.join(done)}" if done else ""


def _compact(table: DeltaTable) -> tuple[int, int, int]:
    """Compact a table; return the numbers of removed and added files, and of values whose files are not compacted.

    deltalake names folders by the escaped values. One name that the file system refuses would make the compaction of
    the whole table fail.
    """
    columns = table.metadata().partition_columns
    parts = table.partitions() if columns else []
    refused: dict[str, list[str]] = {}
    for column in columns:
        values = sorted({part[column] for part in parts if part[column] is not None and _refused(column, part[column])})
        if values:
            refused[column] = values
    ways = []
    for column, values in refused.items():
        # "not in" never selects NULL; an empty text does.
        none = [(column, "=", "")] if any(part[column] is None for part in parts) else []
        ways.append([(column, "not in", values), *none])
    removed = added = 0
    for filters in product(*ways):
        result = table.optimize.compact(partition_filters=list(filters) or None)
        removed += result["numFilesRemoved"]
        added += result["numFilesAdded"]
    return removed, added, sum(len(values) for values in refused.values())


def _refused(column: str, value: str) -> bool:
    """Return whether deltalake could not create or find the folder that it would name by a partition value."""
    if "~" in value:
        return True  # it escapes this character inconsistently, and then looks for files that do not exist
    return len(f"{quote(column, safe='')}={quote(value, safe='')}") > FOLDER_BYTES_MAX


def _left_out(count: int) -> str:
    values = "1 value" if count == 1 else f"{count:,} values"
    return (
        f"{values} of its partition columns cannot name a folder (too long, or with ~): their files are not compacted"
    )


def _note(folder: Path) -> dict[str, Any] | None:
    """Return the time of a table's last maintenance, None if it is unknown."""
    try:
        found = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        note = {"compacted": int(found["compacted"]), "vacuumed": int(found["vacuumed"])}
        return {**note, "left_out": int(found["left_out"])} if "left_out" in found else note
    except (OSError, ValueError, KeyError, TypeError):
        return None
