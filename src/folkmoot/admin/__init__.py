"""The HTTP interface of a node: health, metrics, cluster, streams, tables, transactions. Owns paths and formats."""

from __future__ import annotations

__all__: list[str] = []
