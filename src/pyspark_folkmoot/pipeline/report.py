"""The status of a pipeline for people and programs: the driver's status file, and the backlog at the nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.lock import held
from pyspark_folkmoot.pipeline.model import DeltaSink
from pyspark_folkmoot.pipeline.secret import unmask
from pyspark_folkmoot.pipeline.status import STARTING, read_status

__all__ = ["report", "report_text", "table_rows"]

PATIENCE_S: Final = 2.0


def report(loaded: Loaded) -> dict[str, Any] | None:
    """Return the status with the lag of each query and the rows of its tables; None if there was no run yet."""
    found = read_status(loaded.state)
    if found is None:
        return None
    for count in found["expectations"].values():
        count["check"] = loaded.masked(count["check"])  # the status of an older version has it in clear
    if found["run"]["state"] in (STARTING, "running", "stopping") and not held(loaded.state):
        found["run"].update(state="killed", during=found["run"]["state"])
    ends, silent = _ends(loaded, found)
    if silent:
        found["nodes"] = silent
    for query in found["queries"].values():
        behind = {}
        for stream, read in query.get("ends", {}).items():
            if stream in ends:
                behind[stream] = sum(max(0, end - read.get(part, 0)) for part, end in ends[stream].items())
        if behind:
            query["behind"] = behind
    for sink in loaded.model.sinks:
        if isinstance(sink, DeltaSink) and sink.name in found["queries"]:
            rows = table_rows(loaded.path(sink.delta))
            if rows is not None:
                found["queries"][sink.name]["table_rows"] = rows
    rows = table_rows(loaded.quarantine)
    if rows is not None:
        found["quarantine"] = {"table": loaded.masked(loaded.quarantine), "rows": rows}
    return found


def _ends(loaded: Loaded, found: dict[str, Any]) -> tuple[dict[str, dict[str, int]], str]:
    """Return where each stream ends now, or why this is unknown if no node answers."""
    from folkmoot.client.problem import StreamProblem
    from folkmoot.client.streams import StreamClient

    streams = sorted({stream for query in found["queries"].values() for stream in query.get("ends", {})})
    if loaded.model.cluster is None or not streams:
        return {}, ""
    client = StreamClient(loaded.model.cluster.url, loaded.token, PATIENCE_S)
    ends: dict[str, dict[str, int]] = {}
    try:
        for stream in streams:
            ranges = client.describe(unmask(loaded, stream)).ranges
            ends[stream] = {str(part.partition): part.next for part in ranges}
    except StreamProblem as problem:
        return ends, loaded.masked(str(problem))
    finally:
        client.close()
    return ends, ""


def table_rows(table: str) -> int | None:
    """Return how many rows a Delta table has, from its log; None when there is none, or deltalake is not installed."""
    if not (Path(table) / "_delta_log").is_dir():
        return None
    try:
        import pyarrow as pa
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
    except ImportError:
        return None
    try:
        actions = pa.table(DeltaTable(table).get_add_actions(flatten=True))
    except TableNotFoundError:
        return None
    return sum(count or 0 for count in actions.column("num_records").to_pylist())


def report_text(found: dict[str, Any]) -> str:
    """Return the report as text for a terminal."""
    run = found["run"]
    until = f" to {run['until']}" if run.get("until") else ""
    process = f"process {run['pid']} on {run['host']}"
    state = "killed while it started" if run.get("during") == STARTING else run["state"]
    lines = [f"pipeline {found['pipeline']}: {state}, since {run['since']}{until}, {process}"]
    if run.get("error"):
        lines += ["  " + line for line in run["error"].splitlines()]
    rows = [("query", "batch", "messages", "per second", "behind", "rows in table", "last batch")]
    for name, query in found["queries"].items():
        behind = query.get("behind")
        rows.append(
            (
                name,
                "-" if query.get("batch") is None else str(query["batch"]),
                f"{query['rows']:,}" if "ends" in query else "-",
                f"{query.get('rows_per_second', 0.0):,.0f}" if "ends" in query else "-",
                "-" if behind is None else f"{sum(behind.values()):,}",
                f"{query['table_rows']:,}" if "table_rows" in query else "-",
                str(query.get("at") or "-")[:19],
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *[cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]]
        lines.append("  ".join(cells).rstrip())
    lines += [f"error of {name}: {query['error']}" for name, query in found["queries"].items() if query.get("error")]
    for name, query in found["queries"].items():
        if query.get("uncounted"):
            missed = (
                f"{name}: {query['uncounted']:,} batches were completed but not counted, because the driver was killed"
            )
            lines.append(f"{missed}: their rows are in the table, but not in these counts")
        if query.get("late"):
            late = f"{query['late']:,} late rows, or groups of them,"
            lines.append(f"{name}: {late} arrived later than the watermark permits and are in no result")
    for name, count in found["views"].items():
        if count["with_new_fields"]:
            new = f"view {name}: {count['with_new_fields']:,} of {count['messages']:,} messages have fields that are"
            lines.append(f"{new} not in its schema, such as '{count.get('new_field')}': they are ignored")
    for name, count in found["expectations"].items():
        lines.append(
            f"expectation {name} ({count['check']}): {count['broken']:,} of {count['rows']:,} rows violate it, "
            f"otherwise {count['otherwise']}"
        )
    if "quarantine" in found:
        lines.append(f"quarantine: {found['quarantine']['rows']:,} rows in {found['quarantine']['table']}")
    if "nodes" in found:
        lines.append(f"the backlog of the queries is unknown: {found['nodes']}")
    return "\n".join(lines)
