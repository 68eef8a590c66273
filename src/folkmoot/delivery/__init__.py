"""Delivery: which subscribers get a message and how, here and at other nodes; what is stored; shared subscriptions."""

from __future__ import annotations

__all__: list[str] = []
