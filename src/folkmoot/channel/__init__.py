"""Messages to partitions that other nodes lead: sent until they are committed, applied once."""

from __future__ import annotations

__all__: list[str] = []
