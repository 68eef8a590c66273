"""Who gets a message and how: publishing here and at other nodes, what is stored, shared subscriptions."""

from __future__ import annotations

__all__: list[str] = []
