"""The status of a node and of its cluster, for operators."""

from __future__ import annotations

__all__: list[str] = []
