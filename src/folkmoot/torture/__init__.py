"""The torture of the pipeline: everything that takes part is killed again and again, and then messages are counted."""

from __future__ import annotations

__all__: list[str] = []
