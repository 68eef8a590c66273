"""Routing: which sessions, partitions and nodes have subscribers for a topic."""

from __future__ import annotations

__all__: list[str] = []
