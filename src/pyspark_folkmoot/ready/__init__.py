"""Ready-made pipelines on the events of a cluster (docs/events.md): `availability` and `fleet`.

Each consists of functions from DataFrames to DataFrames; `report` takes the rows of the stream of `$events/#` as read
by the source `folkmoot`. Members are imported lazily.
"""

from __future__ import annotations

__all__: list[str] = []
