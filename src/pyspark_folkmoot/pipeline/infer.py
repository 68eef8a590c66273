"""The schema of JSON payloads, inferred once from the first records of a stream and then pinned in the state folder.

The pinned schema applies: later records that differ go to the quarantine. To infer it again, remove the pinned file; to
be independent of samples, write the schema into the pipeline file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from folkmoot.client.streams import StreamClient
from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.model import JsonDecode, StreamSource
from pyspark_folkmoot.pipeline.topic import TopicPattern

__all__ = ["PATIENCE_S", "infer_schema", "pin_file", "pinned_schema", "sample", "schema_of_view"]

SAMPLE_RECORDS: Final = 2_000
SCANNED_RECORDS: Final = 100_000
PATIENCE_S: Final = 5.0


def pin_file(state: Path, view: str) -> Path:
    """Return the file of a pinned schema."""
    return state / "schemas" / f"{view}.json"


def pinned_schema(state: Path, view: str) -> str | None:
    """Return the pinned schema, None if there is none."""
    try:
        found = json.loads(pin_file(state, view).read_text(encoding="utf-8"))
        return str(found["schema"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise PipelineProblem(
            f"{pin_file(state, view)} is damaged: remove it, and the schema is inferred anew"
        ) from None


def schema_of_view(
    state: Path, source: StreamSource, entry: JsonDecode, earlier: list[str], client: StreamClient, pin: bool
) -> str:
    """Return the pinned schema of a view, or infer it; `pin` keeps it. `earlier` are the topics of entries before."""
    known = pinned_schema(state, entry.view)
    if known is not None:
        return known
    payloads = sample(client, source.names, entry.topic, earlier)
    schema = infer_schema(payloads)
    if not schema:
        raise PipelineProblem(
            f"view '{entry.view}' has the schema 'infer', and the stream has no JSON objects on {entry.topic} yet: "
            "publish some, or write the schema"
        )
    if pin:
        file = pin_file(state, entry.view)
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({"view": entry.view, "schema": schema, "from": entry.topic}, indent=1) + "\n")
        fresh.replace(file)
    return schema


def sample(client: StreamClient, streams: list[str], topic: str, earlier: list[str]) -> list[bytes]:
    """Return payloads of the oldest records that belong to the entry with `topic`, from all partitions."""
    pattern = TopicPattern(topic)
    before = [TopicPattern(text) for text in earlier]
    found: list[bytes] = []
    for stream in streams:
        ranges = client.describe(stream).ranges
        for part in ranges:
            mine = 0
            last = min(part.next, part.oldest + SCANNED_RECORDS // len(ranges))
            for entry in client.entries(stream, part.partition, part.oldest, last):
                name = entry.record.topic.decode("utf-8", "replace")
                if pattern.fits(name) and not any(other.fits(name) for other in before):
                    found.append(bytes(entry.record.payload))
                    mine += 1
                    if mine >= max(1, SAMPLE_RECORDS // len(ranges)):
                        break
    return found


def infer_schema(payloads: Iterable[bytes]) -> str:
    """Return the schema of JSON objects as DDL, its fields sorted by name; empty when there is none among them."""
    kind: Any = None
    for payload in payloads:
        try:
            value = json.loads(payload, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue  # it goes to the quarantine, with its reason
        if isinstance(value, dict):
            kind = _merged(kind, _kind(value))
    if not isinstance(kind, dict):
        return ""
    return ", ".join(f"`{name}` {_text(kind[name])}" for name in sorted(kind))


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _kind(value: Any) -> Any:
    """Return a type: its name, a mapping for an object, a list of one for an array, None for null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if -(2**63) <= value < 2**63 else "DOUBLE"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, dict):
        return {name: _kind(item) for name, item in value.items()}
    if isinstance(value, list):
        inner: Any = None
        for item in value:
            inner = _merged(inner, _kind(item))
        return [inner]
    return "STRING"


def _merged(one: Any, other: Any) -> Any:
    """Return the narrowest type that covers both; text if they have nothing in common."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _merged(one.get(name), other.get(name)) for name in [*one, *other]}
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0])]
    if one == other:
        return one
    if isinstance(one, dict | list) or isinstance(other, dict | list):
        return "STRING"
    return "DOUBLE" if {one, other} == {"BIGINT", "DOUBLE"} else "STRING"


def _text(kind: Any) -> str:
    if kind is None:
        return "STRING"
    if isinstance(kind, list):
        return f"ARRAY<{_text(kind[0])}>"
    if isinstance(kind, dict):
        inner = ", ".join(f"`{name}`: {_text(kind[name])}" for name in sorted(kind))
        return f"STRUCT<{inner}>" if inner else "MAP<STRING, STRING>"
    return str(kind)
