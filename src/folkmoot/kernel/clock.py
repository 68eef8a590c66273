"""Units of time and the value that stands for 'never'. Only drivers read a clock."""

from __future__ import annotations

from typing import Final

__all__ = ["HOUR", "MILLISECOND", "MINUTE", "NEVER", "SECOND"]

MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000
MINUTE: Final = 60_000_000
HOUR: Final = 60 * MINUTE

NEVER: Final = 1 << 62
"""A deadline in microseconds that is later than any time."""
