"""Progress of queries as Spark reports it, one call per batch.

PySpark's own listener asks Java for each field of a progress, and Java's iterators until they refuse: 0.4 s of CPU time
for each batch of each query. The listener of a pipeline needs only the JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

__all__ = ["Listener", "Progress"]

Progress = Callable[[dict[str, Any]], None]
"""Called with the progress of a batch, as in `StreamingQueryProgress.json`."""


class Listener(StreamingQueryListener):
    """What `spark.streams.addListener` takes: calls `progress` after each batch of any query of the session."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._java: Any = None

    @property
    def _jlistener(self) -> Any:
        if self._java is None:
            from pyspark import SparkContext

            jvm: Any = SparkContext._jvm  # noqa: SLF001 - there is no public way
            self._java = jvm.PythonStreamingQueryListenerWrapper(_Events(self._progress))
        return self._java

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do: Java calls the object behind `_jlistener`."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do, as above."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do, as above."""


class _Events:
    """What Java calls, with its own objects: a class of Python that implements an interface of Spark's."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do: the engine has started it."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self._progress(json.loads(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do: nothing was counted."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do: the engine sees it."""

    class Java:
        """How py4j learns what this is."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
