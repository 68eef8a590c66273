"""Compaction and vacuum of Delta tables: when they are due, and never below the safe retention."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pyspark_folkmoot.pipeline.fingerprint import write_json
from pyspark_folkmoot.pipeline.part import VACUUM_LEAST_MS

__all__ = ["COMPACT_MS", "VACUUM_EVERY_MS", "keep_up"]

COMPACT_MS: Final = 3_600_000
"""How often the quarantine is compacted."""

VACUUM_EVERY_MS: Final = 86_400_000
"""How often files that have become old enough are looked for."""

AGAIN_MS: Final = 60_000
"""When to compact again a table that another writer has changed meanwhile."""

NOTE: Final = ".folkmoot-upkeep.json"
"""When a table was looked after last; beside its files, so that it stays with the table."""


def keep_up(name: str, table: str, compact_ms: int | None, vacuum_ms: int | None, now_s: float | None = None) -> str:
    """Do what is due on a table and return what was done, in words; empty when there was nothing to do.

    A table that another writer changes at the same moment is left for the next time. None: never. Raises OSError when
    not even the note of it can be written: the disk is full, or may not be written.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError

    folder = Path(table)
    if not (folder / "_delta_log").is_dir():
        return ""
    now_ms = round((time.time() if now_s is None else now_s) * 1000)
    before = _note(folder)
    # A table that was never looked after counts from now.
    note = {"compacted": now_ms, "vacuumed": now_ms} if before is None else dict(before)
    done = []
    try:
        if compact_ms is not None and now_ms - note["compacted"] >= compact_ms:
            found = DeltaTable(table)
            result = found.optimize.compact()
            found.create_checkpoint()
            note["compacted"] = now_ms
            if result["numFilesRemoved"]:
                done.append(f"{result['numFilesRemoved']} files made {result['numFilesAdded']}")
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
        note = {"compacted": now_ms, "vacuumed": now_ms}
        done = [f"upkeep failed and is tried again when it is due next: {error}"]
    if note != before:
        write_json(folder / NOTE, note)
    return f"{name}: {', '.join(done)}" if done else ""


def _note(folder: Path) -> dict[str, Any] | None:
    """Return when a table was looked after last, None if that is not known."""
    try:
        found = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        return {"compacted": int(found["compacted"]), "vacuumed": int(found["vacuumed"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None
