"""Where a pipeline writes: no table inside another one, and none that contains what the pipeline needs.

A table's folder belongs to the table: vacuum removes every old file that is not the table's. Another table, the
checkpoints or the pipeline file in it would be gone after some days.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark_folkmoot.pipeline.document import Document, Path_
from pyspark_folkmoot.pipeline.model import (
    DeltaSink,
    FormatSink,
    ParquetSink,
    Pipeline,
    ProtobufDecode,
    StreamSource,
    TableSource,
)

__all__ = ["QUARANTINE", "Place", "check_places", "state_folder"]

QUARANTINE: Final = "quarantine"
"""The default folder of the quarantine, in the state folder."""


class Place:
    """A folder or file: what it is in words, as it was written, where it really is, and where the file says so."""

    def __init__(self, what: str, written: str, real: Path, path: Path_) -> None:
        self.what = what
        self.written = written
        self.real = real
        self.path = path


def state_folder(model: Pipeline) -> str:
    """Return the state folder of the file, or the default with the pipeline's name."""
    return model.state if model.state is not None else f"state/{model.name}"


def check_places(document: Document, model: Pipeline) -> None:
    """Report tables at forbidden places, and paths that are not folders."""
    folder = document.file.resolve().parent
    state = Place("the state folder", state_folder(model), (folder / state_folder(model)).resolve(), ("state",))
    local = True
    for what, written, key in (("state", model.state, "state"), ("the quarantine", model.quarantine, "quarantine")):
        if written is not None and "://" in written:
            local = False
            text = f"{what} is {written}: it must be a folder on a local or mounted disk"
            document.fault((key,), document.masked(text))
    if not local:
        return
    tables = _tables(model, folder)
    for place in [state, *tables]:
        file = next(found for found in (place.real, *place.real.parents) if found.exists())
        if not file.is_dir():
            text = f"{place.what} is {place.written}, and {file} is a file: name a folder"
            document.fault(place.path, document.masked(text))
    needed = _needed(document, model, folder)
    for number, table in enumerate(tables):
        for other in tables[:number]:
            _apart(document, table, other)
        if table.path != (QUARANTINE,) or table.real != state.real / QUARANTINE:
            _apart(document, table, state)
        for other in needed:
            if other.real.is_relative_to(table.real):
                _fault(document, table, f"contains {other.what} ({other.written})")


def _tables(model: Pipeline, folder: Path) -> list[Place]:
    """Return the folders of tables; the quarantine first, so that errors are reported for the sinks."""
    tables = []
    if model.quarantine is not None:
        real = (folder / model.quarantine).resolve()
        tables.append(Place("the quarantine", model.quarantine, real, (QUARANTINE,)))
    for index, sink in enumerate(model.sinks):
        if isinstance(sink, DeltaSink):
            key, place = "delta", sink.delta
        elif isinstance(sink, ParquetSink):
            key, place = "parquet", sink.parquet
        elif isinstance(sink, FormatSink):
            key, place = "options", str(sink.options.get("path", ""))
            if not Path(place).is_absolute():
                continue  # relative to the folder in which Spark is started, or not a folder
        else:
            continue
        if "://" not in place:
            tables.append(Place(f"sink '{sink.name}'", place, (folder / place).resolve(), ("sinks", index, key)))
    return tables


def _needed(document: Document, model: Pipeline, folder: Path) -> list[Place]:
    """Return the paths that no table may contain."""
    written = [(folder / sink.delta).resolve() for sink in model.sinks if isinstance(sink, DeltaSink)]
    found = [Place("the pipeline's file", document.file.name, document.file.resolve(), ())]
    for name, source in model.sources.items():
        path: Path_ = ("sources", name)
        if isinstance(source, TableSource) and "://" not in source.table:
            real = (folder / source.table).resolve()
            if source.format != "delta" or real not in written:
                found.append(Place(f"what sources.{name} reads", source.table, real, path))
        for entry in source.decode if isinstance(source, StreamSource) else []:
            if isinstance(entry, ProtobufDecode):
                real = (folder / entry.descriptor).resolve()
                found.append(Place(f"the descriptor of view '{entry.view}'", entry.descriptor, real, path))
    return found


def _apart(document: Document, table: Place, other: Place) -> None:
    if table.real == other.real:
        _fault(document, table, f"and {other.what} write the same folder {table.written}", "")
    elif table.real.is_relative_to(other.real):
        _fault(document, table, f"lies within {other.what} ({other.written})")
    elif other.real.is_relative_to(table.real):
        _fault(document, table, f"contains {other.what} ({other.written})")


def _fault(document: Document, table: Place, text: str, where: str | None = None) -> None:
    where = f" ({table.written})" if where is None else where
    text = f"{table.what}{where} {text}: a table's folder must have nothing but the table"
    document.fault(table.path, document.masked(text))
