"""The memory of the partitions that this node leads: queues, retained messages, producers, staged transactions."""

from __future__ import annotations

__all__: list[str] = []
