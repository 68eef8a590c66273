"""Folkmoot in Spark: the format `folkmoot` (source and sink), the format `folkmoot_delta`, and a session with both.

    from pyspark_folkmoot import spark_session

    spark = spark_session("delays")
    rows = spark.readStream.format("folkmoot").option("url", "http://127.0.0.1:8080").option("stream", "nyc").load()

Spark imports every installed package whose name begins with `pyspark_`, in each process that looks up a source.
Therefore this module imports its members lazily.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_folkmoot.delta import DeltaTables
    from pyspark_folkmoot.session import register, spark_session
    from pyspark_folkmoot.source import FolkmootStreams as DefaultSource

__all__ = ["DefaultSource", "DeltaTables", "register", "spark_session"]

_HOMES = {
    "DefaultSource": ("pyspark_folkmoot.source", "FolkmootStreams"),
    "DeltaTables": ("pyspark_folkmoot.delta", "DeltaTables"),
    "register": ("pyspark_folkmoot.session", "register"),
    "spark_session": ("pyspark_folkmoot.session", "spark_session"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
