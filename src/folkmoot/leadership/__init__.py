"""Beginning and ending to lead partitions: reading their rows, recovery, clients connected elsewhere."""

from __future__ import annotations

__all__: list[str] = []
