"""The torture test of the pipeline: its processes are killed again and again, then messages are counted."""

from __future__ import annotations

__all__: list[str] = []
