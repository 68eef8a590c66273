"""Ready-made pipelines on the events of a cluster (docs/events.md): `availability` and `fleet`.

Each has functions from DataFrames to DataFrames, of which `report` takes the rows of the stream that keeps `$events/#`
as the source `folkmoot` gives them. Nothing is imported until it is asked for.
"""

from __future__ import annotations

__all__: list[str] = []
