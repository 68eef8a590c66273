"""Pipelines declared in a YAML file, which Spark runs from the streams of a cluster to tables and back.

    from pyspark_folkmoot.pipeline import load_pipeline

Reading and checking a file needs neither Spark nor Java; modules that do are imported lazily. The steps are plain
functions on DataFrames: `decoded`, `with_expectations` and the others can be used in any PySpark program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_folkmoot.pipeline.decode import decoded, messages_of, undecoded
    from pyspark_folkmoot.pipeline.expect import with_expectations
    from pyspark_folkmoot.pipeline.fault import Fault, Faults, PipelineProblem
    from pyspark_folkmoot.pipeline.loading import Loaded, load_pipeline
    from pyspark_folkmoot.pipeline.topic import TopicPattern

__all__ = [
    "Fault",
    "Faults",
    "Loaded",
    "PipelineProblem",
    "TopicPattern",
    "decoded",
    "load_pipeline",
    "messages_of",
    "undecoded",
    "with_expectations",
]

_HOMES = {
    "Fault": "fault",
    "Faults": "fault",
    "Loaded": "loading",
    "PipelineProblem": "fault",
    "TopicPattern": "topic",
    "decoded": "decode",
    "load_pipeline": "loading",
    "messages_of": "decode",
    "undecoded": "decode",
    "with_expectations": "expect",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
