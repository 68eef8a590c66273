"""What fills the queue of a session page by page: retained messages, and replays of streams."""

from __future__ import annotations

__all__: list[str] = []
