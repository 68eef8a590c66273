"""What a checkpoint depends on, kept beside it: a pipeline with incompatible changes is refused with reasons.

A checkpoint has the offsets of each stream by its position in the query, and the state of stateful operators. So these
must not change: the streams and their order, how payloads are decoded, steps with state, watermarks, the sink and the
columns that it writes. Everything else may: stateless steps with the same columns, expectations, limits, addresses, the
master.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.graph import DECODED
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.model import AnySink, ProtobufDecode, PythonStep, SqlStep
from pyspark_folkmoot.pipeline.secret import equal, mask, seal, sealed, shown, unmask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

__all__ = ["changes", "check_fingerprint", "fingerprint", "keep_fingerprint", "step_text", "streams_kept", "write_json"]

VERSION: Final = 2
"""Since 2 texts with values from the environment are sealed; those of 1 are compared, and their texts never shown."""

STEP: Final = "step "

Print = dict[str, Any]


def fingerprint(
    loaded: Loaded,
    view: str,
    frame: DataFrame,
    sink: AnySink | None,
    stateful: Mapping[str, list[str]],
    schemas: Mapping[str, str],
) -> Print:
    """Return what the checkpoint of a query depends on, as text that can be shown; secrets are sealed."""
    from pyspark_folkmoot.pipeline.plan import streams_read

    graph = loaded.graph
    found: Print = {"version": VERSION, "streams": streams_read(frame)}
    for name in graph.needed(view):
        made = graph.views[name]
        if made.kind == DECODED:
            keys = made.made_by.model_dump(mode="json", by_alias=True, exclude={"expect", "watermark", "view"})
            if keys.get("schema") == "infer":
                keys["schema"] = schemas.get(name, "infer")
            if isinstance(made.made_by, ProtobufDecode):
                keys["descriptor"] += " " + _digest((loaded.folder / made.made_by.descriptor).read_bytes())
            found[f"decoding of view '{name}'"] = keys
        for column, delay_ms in made.watermark.items():
            found[f"watermark on '{column}' of '{name}'"] = f"{delay_ms} ms"
        own = stateful.get(name, [])
        below = [part for other in made.inputs for part in stateful.get(other, [])]
        if len(own) > len(below):
            found[f"{STEP}'{name}', which keeps state ({own[0]})"] = step_text(loaded, made.made_by)
    if sink is not None:
        keys = sink.model_dump(mode="json", by_alias=True, include={"delta", "parquet", "format", "mode", "keys"})
        keys["partition_by"] = getattr(sink, "partition_by", [])
        found["sink"] = {key: value for key, value in keys.items() if value}
    found["columns"] = [f"{name} {kind}" for name, kind in frame.dtypes if name != "_origin"]
    return {key: sealed(loaded, value) for key, value in found.items()}


def step_text(loaded: Loaded, step: Any) -> str:
    """Return what a step does, as a text that changes when it does; sealed."""
    if isinstance(step, SqlStep):
        return seal(" ".join(step.sql.split()), " ".join(loaded.masked(step.sql).split()))
    assert isinstance(step, PythonStep)
    from pyspark_folkmoot.pipeline.build import import_function

    try:
        source = inspect.getsource(import_function(loaded, step.python))
    except OSError:
        source = ""

    def text(arguments: Any) -> str:
        listed = json.dumps(arguments, sort_keys=True)
        return f"{step.python}({', '.join(step.inputs)}) {listed} code {_digest(source.encode())}"

    # Masked before conversion to JSON, which escapes some characters, and after it, because of numbers.
    return seal(text(step.arguments), loaded.masked(text(mask(loaded, step.arguments))))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def changes(before: Print, after: Print) -> list[str]:
    """Return the differences, a line each; without clear text of a fingerprint that may contain secrets."""
    hidden = before.get("version", VERSION) == 1
    lines = []
    for key in [*before, *[key for key in after if key not in before]]:
        old, new = before.get(key), after.get(key)
        if key == "version" or equal(old, new):
            continue
        if old is None:
            lines.append(f"new: {key} ({_shown(new)})")
        elif new is None:
            lines.append(f"gone: {key}" + ("" if hidden else f" ({_shown(old)})"))
        elif isinstance(old, dict) and isinstance(new, dict):
            inner = [*old, *[name for name in new if name not in old]]
            inner = [name for name in inner if not equal(old.get(name), new.get(name))]
            lines += [f"{key}: {name} {_became(old.get(name), new.get(name), hidden)}" for name in inner]
        else:
            lines.append(f"{key}: {_became(old, new, hidden)}")
    return lines


def _became(old: Any, new: Any, hidden: bool) -> str:
    was, now = _shown(old), _shown(new)
    if hidden:
        was = "another"
    elif was == now:
        return f"has another value from the environment: {now}"
    return f"was {was}, is {now}"


def _shown(value: Any) -> str:
    value = shown(value)
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return "nothing" if value in (None, "", []) else text


def _file(checkpoint: Path) -> Path:
    return checkpoint.with_name(checkpoint.name + ".json")


def check_fingerprint(checkpoint: Path, found: Print, query: str, is_sink: bool) -> None:
    """Refuse an incompatible checkpoint; raises PipelineProblem with the changes and the choices."""
    file = _file(checkpoint)
    if not (checkpoint / "metadata").exists() or not file.exists():
        return
    differ = changes(json.loads(file.read_text(encoding="utf-8")), found)
    if not differ:
        return
    listed = "".join(f"\n  - {line}" for line in differ)
    if is_sink:
        choices = (
            f"\n  - a new sink with another name and another folder; '{query}' remains unchanged"
            f"\n  - `folkmoot pipeline backfill FILE --sink {query}`: rebuilds its table from the stream"
            "\n  - restore the previous pipeline"
        )
    else:
        choices = (
            f"\n  - remove {checkpoint}: the stream is read again from its beginning, and rows that are "
            "in the quarantine already are added a second time"
            "\n  - another 'quarantine' and another 'state'"
            "\n  - restore the previous pipeline"
        )
    raise PipelineProblem(
        f"the checkpoint of '{query}' is incompatible with these changes:{listed}\nThe choices:{choices}"
    )


def streams_kept(loaded: Loaded, checkpoint: Path) -> list[str]:
    """Return the streams of a checkpoint in its order, as its query last used them; empty if it has not run."""
    try:
        found = json.loads(_file(checkpoint).read_text(encoding="utf-8"))["streams"]
    except FileNotFoundError:
        return []
    return [unmask(loaded, stream) for stream in shown(found)]


def keep_fingerprint(checkpoint: Path, found: Print) -> None:
    """Keep a fingerprint beside its checkpoint."""
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    write_json(_file(checkpoint), found)


def write_json(file: Path, found: Any) -> None:
    """Write a file atomically."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with fresh.open("w", encoding="utf-8") as out:
            json.dump(found, out, indent=1)
            out.write("\n")
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    except OSError:
        with suppress(OSError):
            fresh.unlink()  # a partial file would occupy space
        raise
