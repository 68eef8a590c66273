"""Runs a ready-made pipeline once over its whole stream: writes Delta tables and a picture, returns rows.

Each run overwrites the tables; they cover what retention has not removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark_folkmoot.ready.availability import Wishes
from pyspark_folkmoot.session import JAVA_OPTIONS, SHORT_LIVED, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pyspark_folkmoot.ready.timeline import Mark, Span

__all__ = ["Source", "run_availability", "run_fleet"]

Rows = list[dict[str, Any]]

ROWS_MAX: Final = 10_000
"""The largest number of rows of a table that is returned; all are written."""


class Source:
    """Where the events are: addresses of nodes, the stream of `$events/#`, the admin token; and Spark's master."""

    def __init__(self, url: str, stream: str = "events", token: str | None = None, master: str = "local[*]") -> None:
        self.url = url
        self.stream = stream
        self.token = token
        self.master = master

    def events(self) -> DataFrame:
        """Return the current events, decoded, and cached because they are read several times."""
        from pyspark_folkmoot.ready.event import decode

        spark = spark_session("folkmoot-report", self.master, {JAVA_OPTIONS: SHORT_LIVED})
        options = {"url": self.url, "stream": self.stream, "columns": "payload"}
        if self.token is not None:
            options["token"] = self.token
        return decode(spark.read.format("folkmoot").options(**options).load()).persist()


def run_availability(source: Source, out: Path | None, wishes: Wishes, given: Sequence[Mark] = ()) -> dict[str, Rows]:
    """Return the rows of the report and its costs; with `out`, write tables and a plot there.

    These are the tables `availability`, `costs` and `timeline` and, if matplotlib is installed, `availability.png`,
    with the marks of the events and those `given`.
    """
    from pyspark_folkmoot.ready.availability import availability, costs
    from pyspark_folkmoot.ready.timeline import bucket_s, marks, span_of, timeline

    events = source.events()
    found = _written({"availability": availability(events, wishes), "costs": costs(events, wishes)}, out)
    span = span_of(events, wishes) if out is not None else None
    if out is not None and span is not None:
        width_s = bucket_s(span.end_s - span.begin_s, span.interval_s)
        drawn = _written({"timeline": timeline(events, wishes, width_s)}, out)["timeline"]
        _draw(drawn, marks(events, given), span, out / "availability.png")
    events.unpersist()
    return found


def run_fleet(source: Source, out: Path | None, silent_s: int, storm: int) -> dict[str, Rows]:
    """Return the rows of `devices`, `silent`, `lengths`, `talkers`, `storms`; with `out`, write these tables there."""
    from pyspark_folkmoot.ready import fleet

    events = source.events()
    frames = {
        "devices": fleet.devices(events),
        "silent": fleet.silent(events, silent_s),
        "lengths": fleet.lengths(events),
        "talkers": fleet.talkers(events),
        "storms": fleet.storms(events, storm),
    }
    found = _written(frames, out)
    events.unpersist()
    return found


def _written(frames: Mapping[str, DataFrame], out: Path | None) -> dict[str, Rows]:
    """Write each table, and return its first rows."""
    found: dict[str, Rows] = {}
    for name, frame in frames.items():
        kept = frame.persist()
        if out is not None:
            kept.write.format("folkmoot_delta").mode("overwrite").save(str((out / name).absolute()))
        found[name] = [row.asDict(recursive=True) for row in _readable(kept).limit(ROWS_MAX).collect()]
        kept.unpersist()
    return found


def _readable(frame: DataFrame) -> DataFrame:
    """Return times as text in UTC: Python would get them in the zone of this process."""
    return frame.selectExpr(
        *[
            f"date_format({name}, \"yyyy-MM-dd'T'HH:mm:ss'Z'\") AS {name}" if kind == "timestamp" else f"`{name}`"
            for name, kind in frame.dtypes
        ]
    )


def _draw(rows: Rows, marks: Sequence[Mark], span: Span, path: Path) -> None:
    from pyspark_folkmoot.ready.picture import plot

    try:
        import matplotlib as mpl
    except ImportError:
        return
    del mpl
    plot(rows, marks, span, path)
