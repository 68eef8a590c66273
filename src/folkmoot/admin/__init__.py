"""The HTTP interface of a node: streams, health, metrics. Owns paths and formats, decides nothing."""

from __future__ import annotations

__all__: list[str] = []
