"""The state of one client: its network connection, its session, the flows in both directions, its will."""

from __future__ import annotations

__all__: list[str] = []
