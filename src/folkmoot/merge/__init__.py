"""What becomes of two branches of a partition after a split."""

from __future__ import annotations

__all__: list[str] = []
