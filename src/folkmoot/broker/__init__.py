"""The broker: who gets which message, what is kept, when it may be acknowledged."""

from __future__ import annotations

__all__: list[str] = []
