"""Which sessions, partitions and nodes a topic concerns."""

from __future__ import annotations

__all__: list[str] = []
