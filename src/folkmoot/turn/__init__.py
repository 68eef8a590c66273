"""One turn of a node: what its parts share, and what waits until the turn is durable or committed."""

from __future__ import annotations

__all__: list[str] = []
