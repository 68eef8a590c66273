"""Questions to other nodes about what they lead, and how they are packed."""

from __future__ import annotations

__all__: list[str] = []
