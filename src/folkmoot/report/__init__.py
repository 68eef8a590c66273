"""Answers to questions: pages of tables, records of streams, the state of transactions."""

from __future__ import annotations

__all__: list[str] = []
