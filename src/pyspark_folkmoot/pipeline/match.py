"""Whether tables and checkpoints belong together: a checkpoint says what is in the table, so each needs the other.

Without its table, a query would begin a new table without the earlier rows; this is refused. Without its checkpoint, a
query reads again what the table has; this is reported if it is possible, and refused if rows would be lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pyspark_folkmoot.pipeline.checkpoint import begun, checkpoint_of, last_commit
from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.model import DeltaSink, ParquetSink
from pyspark_folkmoot.pipeline.query import QUARANTINE, query_views
from pyspark_folkmoot.pipeline.report import table_rows

__all__ = ["check_tables", "keep_quarantine", "rows_before"]

DELTA_LOG: Final = "_delta_log"
PARQUET_LOG: Final = "_spark_metadata"
QUARANTINE_FILE: Final = "quarantine.path"
"""The file that names the table of the quarantine's checkpoints. The pipeline file may name another table later, which
begins without rows. The folders of sinks are in the fingerprints of their checkpoints."""


def check_tables(loaded: Loaded) -> None:
    """Refuse missing tables whose checkpoints exist and, for Parquet, missing checkpoints whose tables exist.

    Every completed batch creates the table, even one without rows.

    Raises PipelineProblem with the choices.
    """
    views = query_views(loaded)
    for sink in loaded.model.sinks:
        if sink.name not in views:
            continue  # a view of tables alone: its table is rebuilt if it is missing
        checkpoint = checkpoint_of(loaded.state, sink.name)
        if isinstance(sink, DeltaSink):
            _check(loaded.path(sink.delta), DELTA_LOG, sink.name, checkpoint, True)
        elif isinstance(sink, ParquetSink) and "://" not in sink.parquet:
            table = Path(loaded.path(sink.parquet))
            _check(str(table), PARQUET_LOG, sink.name, checkpoint, False)
            _check_parquet(table, sink.name, checkpoint)
    _check_quarantine(loaded, [name for name in views if name.startswith(QUARANTINE)])


def keep_quarantine(loaded: Loaded) -> None:
    """Record the table of the quarantine's checkpoints."""
    loaded.state.mkdir(parents=True, exist_ok=True)
    (loaded.state / QUARANTINE_FILE).write_text(_quarantine(loaded) + "\n", encoding="utf-8")


def rows_before(loaded: Loaded, sink: Any, checkpoint: Path) -> int:
    """Return the number of rows in the table of a query with a new checkpoint that appends to it, otherwise 0.

    sink: its sink, None for a query of the quarantine, whose table several queries fill. A sink that replaces rows
    cannot have them twice.
    """
    if not isinstance(sink, DeltaSink) or sink.mode != "append" or (checkpoint / "metadata").exists():
        return 0
    return table_rows(loaded.path(sink.delta)) or 0


def _check(table: str, log: str, name: str, checkpoint: Path, is_delta: bool) -> None:
    last = last_commit(checkpoint)
    if last is None or (Path(table) / log).is_dir():
        return
    backfill = f"\n  - `folkmoot pipeline backfill FILE --sink {name}`: rebuilds it from the stream" if is_delta else ""
    raise PipelineProblem(
        f"the table at {table} is missing, but according to the checkpoint of sink '{name}' "
        f"{_batches(last + 1)} in it.\nThe choices:"
        f"\n  - restore the table, or mount the disk that it is on{backfill}"
        f"\n  - remove {checkpoint}: the next run fills a new table, from where the sources begin"
    )


def _check_parquet(table: Path, name: str, checkpoint: Path) -> None:
    """Refuse a new query for a table with batches of another query: Spark skips batches with their numbers."""
    log = table / PARQUET_LOG
    if begun(checkpoint) or not log.is_dir() or not any(file.name[:1].isdigit() for file in log.iterdir()):
        return
    raise PipelineProblem(
        f"sink '{name}' has no checkpoint at {checkpoint}, but the table at {table} has batches of an earlier one: "
        "Spark would mistake the first batches for those and skip them.\nThe choices:"
        "\n  - restore the checkpoint"
        "\n  - move the table away: the next run makes a new one, from where the sources begin"
    )


def _check_quarantine(loaded: Loaded, names: list[str]) -> None:
    checkpoints = {name: checkpoint_of(loaded.state, name) for name in names}
    done = {name: last for name in names if (last := last_commit(checkpoints[name])) is not None}
    if not done or (Path(loaded.quarantine) / DELTA_LOG).is_dir() or _kept(loaded) not in (None, _quarantine(loaded)):
        return
    queries = ", ".join(done)
    folders = "".join(f"\n    {checkpoints[name]}" for name in done)
    raise PipelineProblem(
        f"the quarantine at {loaded.quarantine} is missing, but according to the checkpoints of {queries} "
        f"{_batches(sum(last + 1 for last in done.values()))} in it.\nThe choices:"
        "\n  - restore the table, or mount the disk that it is on"
        f"\n  - remove these folders: the next run fills a new one, from where the sources begin{folders}"
    )


def _batches(count: int) -> str:
    return "1 batch is" if count == 1 else f"{count:,} batches are"


def _quarantine(loaded: Loaded) -> str:
    """Return the path of the quarantine as written in the file, without secrets."""
    return loaded.masked(loaded.model.quarantine or "")


def _kept(loaded: Loaded) -> str | None:
    try:
        return (loaded.state / QUARANTINE_FILE).read_text(encoding="utf-8").removesuffix("\n")
    except FileNotFoundError:
        return None
