"""Which nodes belong to the cluster, and which of them keep which partition."""

from __future__ import annotations

__all__: list[str] = []
