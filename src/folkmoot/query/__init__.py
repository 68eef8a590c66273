"""Questions to other nodes about what they lead, and their encoding."""

from __future__ import annotations

__all__: list[str] = []
