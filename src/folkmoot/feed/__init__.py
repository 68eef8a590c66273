"""Feeds: retained messages and replays of streams, which fill the queue of a session page by page."""

from __future__ import annotations

__all__: list[str] = []
