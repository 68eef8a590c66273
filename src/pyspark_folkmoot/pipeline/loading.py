"""From a file to a checked pipeline: reads it, and reports all errors of its keys, then of their combinations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pyspark_folkmoot.pipeline.document import Document, Path_, read_document
from pyspark_folkmoot.pipeline.fault import Faults, valid
from pyspark_folkmoot.pipeline.graph import Graph, build_graph
from pyspark_folkmoot.pipeline.lock import owner_file, owner_of
from pyspark_folkmoot.pipeline.model import Pipeline, kinds
from pyspark_folkmoot.pipeline.place import QUARANTINE, state_folder

__all__ = ["Loaded", "load_pipeline"]

_MISSING_KINDS: Final = {
    ("sources", "stream"): "stream, streams, table or sink",
    ("steps", "sql"): "sql or python",
    ("sinks", "delta"): "delta, parquet, mqtt or format",
}

SHOWN_CHARACTERS: Final = 80
_KEYS: Final = "write keys with values"
_WANTED: Final = {
    "dict_type": _KEYS,
    "model_type": _KEYS,
    "model_attributes_type": _KEYS,
    "list_type": "write a list, such as [a], or lines that begin with a hyphen",
    "string_type": "write a text; a number needs quotes",
}


class Loaded:
    """A pipeline file without errors: its document, model and graph."""

    def __init__(self, document: Document, model: Pipeline, graph: Graph) -> None:
        self.document = document
        self.model = model
        self.graph = graph
        self.folder = document.file.resolve().parent

    def path(self, text: str) -> str:
        """Return a path relative to the file's folder; an address with :// is unchanged."""
        return text if "://" in text else str((self.folder / text).absolute())

    @property
    def state(self) -> Path:
        """The folder of checkpoints, pinned schemas and status."""
        return Path(self.path(state_folder(self.model)))

    @property
    def quarantine(self) -> str:
        """The folder of the quarantine table."""
        return self.path(self.model.quarantine) if self.model.quarantine else str(self.state / QUARANTINE)

    @property
    def token(self) -> str | None:
        """The admin token."""
        cluster = self.model.cluster
        return cluster.token.get_secret_value() if cluster is not None and cluster.token is not None else None

    def masked(self, text: str) -> str:
        """Return `text` without secrets."""
        text = self.document.masked(text)
        return text.replace(self.token, "(token)") if self.token else text


def load_pipeline(file: Path, environment: Mapping[str, str] | None = None) -> Loaded:
    """Return the pipeline in `file`; raises `Faults` with all errors that can be found without Spark."""
    document = read_document(file, os.environ if environment is None else environment)
    try:
        model = _validated(document)
    except ValidationError as error:
        for detail in error.errors():
            _explain(document, detail)
        _look_further(document, error)
        raise Faults(str(file), document.faults) from None
    graph = build_graph(document, model)
    if document.faults:
        raise Faults(str(file), document.faults)
    loaded = Loaded(document, model, graph)
    _check_owner(loaded)
    return loaded


def _validated(document: Document) -> Pipeline:
    """Return the model; a variable with a number becomes text where text is required: a token may be digits."""
    try:
        return Pipeline.model_validate(document.data)
    except ValidationError as error:
        places = [_place(document, detail["loc"])[0] for detail in error.errors() if detail["type"] == "string_type"]
        taken = [document.take_as_text(path) for path in places]
        if not any(taken):
            raise
    return Pipeline.model_validate(document.data)


def _check_owner(loaded: Loaded) -> None:
    """Refuse the state folder of another pipeline, because its schemas and checkpoints would be used."""
    owner = owner_of(loaded.state)
    if owner is None or owner == loaded.model.name:
        return
    text = (
        f"the state folder {state_folder(loaded.model)} belongs to the pipeline '{owner}': give this one a folder of "
        f"its own. If it is the same pipeline with a new name, remove {owner_file(loaded.state)}"
    )
    loaded.document.fault(("state",), loaded.document.masked(text))
    raise Faults(str(loaded.document.file), loaded.document.faults)


def _look_further(document: Document, error: ValidationError) -> None:
    """Report further errors: remove the invalid keys, and check whether the rest is a pipeline."""
    data = deepcopy(document.data)
    for detail in error.errors():
        path, _ = _place(document, detail["loc"])
        if not path or detail["type"] == "missing":
            return
        found = data
        for part in path[:-1]:
            found = found[part] if not isinstance(found, dict) or part in found else {}
        if not isinstance(found, dict):
            return
        found.pop(path[-1], None)
    try:
        model = Pipeline.model_validate(data)
    except ValidationError:
        return
    build_graph(document, model)


def _explain(document: Document, detail: ErrorDetails) -> None:
    """Report one pydantic error in terms of the file."""
    path, model = _place(document, detail["loc"])
    where = _where(path)
    kind = detail["type"]
    context = detail.get("ctx", {})
    last = str(detail["loc"][-1]) if detail["loc"] else ""
    if kind == "extra_forbidden":
        text = f"{_where(path[:-1])}has no key '{last}'{valid(last, _keys(model), 'valid keys')}"
    elif kind == "missing":
        part = str(path[0]) if path else ""
        text = f"{_where(path)}needs the key '{_MISSING_KINDS.get((part, last), last)}'"
    elif kind == "union_tag_invalid":
        listed = [word.strip().strip("'") for word in str(context.get("expected_tags", "")).split(",")]
        word = str(context.get("tag", ""))
        text = f"{where}has no format '{word}'{valid(word, listed, 'formats')}"
    elif kind == "union_tag_not_found":
        text = f"{where}needs the key 'format': json, csv, number, text, raw, protobuf or sparkplug"
    elif kind == "literal_error":
        listed = [word.strip().strip("'") for word in str(context["expected"]).replace(" or ", ", ").split(",")]
        text = f"{where}is {_shown(document, path)}{valid(str(_value(document, path)), listed, 'valid')}"
    elif kind == "value_error":
        text = f"{where}{_reason(document, path, detail)}"
    elif kind in _WANTED:
        text = f"{where}is {_shown(document, path)}: {_WANTED[kind]}{_listed(path)}"
    else:
        text = f"{where}is {_shown(document, path)}: {_lowered(detail['msg'])}"
    document.fault(path, document.masked(text))


def _reason(document: Document, path: Path_, detail: ErrorDetails) -> str:
    text = detail["msg"].removeprefix("Value error, ")
    if text.startswith(("is no ", "is neither ")):
        return f"is {_shown(document, path)}, which {text}"
    return text if text.startswith("is ") else f"is wrong: {text}"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _listed(path: Path_) -> str:
    """Return the valid keys at `path`, if they are known."""
    if path[:1] == ("sinks",):
        return ": {qos: 1}, or {} for that" if path[-1] == "mqtt" else ""
    part = str(path[-1]) if len(path) == 1 else ""
    keys = _keys(f"{part.capitalize()}Key")
    return f": {', '.join(keys)}" if keys else ""


def _shown(document: Document, path: Path_) -> str:
    found = _value(document, path)
    if found is None:
        return "empty"
    shown = repr(found)
    if len(shown) > SHOWN_CHARACTERS:
        shown = shown[:SHOWN_CHARACTERS] + "..."
    return {"dict": "a mapping", "list": "a list", "bool": str(found).lower()}.get(type(found).__name__, shown)


def _value(document: Document, path: Path_) -> Any:
    """Return the original text at `path`, before variables were replaced: messages contain no secrets."""
    found: Any = document.raw
    for part in path:
        found = found[part]
    return found


def _place(document: Document, loc: tuple[int | str, ...]) -> tuple[Path_, str]:
    """Return the part of `loc` that is in the file, and the tag of the last model on the way."""
    path: list[str | int] = []
    tag = ""
    found: Any = document.data
    for part in loc:
        in_mapping = isinstance(found, dict) and part in found and not str(part).startswith("<")
        in_list = isinstance(found, list) and isinstance(part, int) and part < len(found)
        if in_mapping or in_list:
            found = found[part]
            path.append(part)
        elif isinstance(part, str):
            tag = part
    return tuple(path), _model_of(tuple(path), tag)


def _model_of(path: Path_, tag: str) -> str:
    """Return the name of the model whose keys are valid around `path`."""
    names = [str(part) for part in path]
    if "expect" in names[:-1]:
        return "Expectation"
    if tag == "<mqtt>" and names[-1:] != ["mqtt"] and "mqtt" in names:
        return "MqttKey"
    if tag and not tag.startswith("<") and "decode" in names:
        return f"{tag.capitalize()}Decode"
    part = names[0] if names else ""
    tags = {
        "<stream>": "StreamSource",
        "<table>": "TableSource",
        "<sink>": "SinkSource",
        "<sql>": "SqlStep",
        "<python>": "PythonStep",
        "<delta>": "DeltaSink",
        "<parquet>": "ParquetSink",
        "<mqtt>": "MqttSink",
        "<format>": "FormatSink",
    }
    if tag in tags:
        return tags[tag]
    if len(names) > 1 and part in ("cluster", "spark"):
        return f"{part.capitalize()}Key"
    return "Pipeline"


def _keys(model: str) -> list[str]:
    models: dict[str, type[BaseModel]] = {found.__name__: found for part in kinds().values() for found in part}
    return [field.alias or name for name, field in models[model].model_fields.items()] if model in models else []


def _where(path: Path_) -> str:
    """Return the beginning of a message: its subject."""
    names = [str(part) for part in path]
    return f"{'.'.join(names)} " if names else "the pipeline "
