"""A client that is connected here, and whose session is led by another node."""

from __future__ import annotations

__all__: list[str] = []
