"""Majorities: whether those who are here are more than half of all that count."""

from __future__ import annotations

__all__ = ["is_majority"]


def is_majority(count: int, total: int) -> bool:
    """Tell whether so many are more than half."""
    return 2 * count > total
