"""The ground everything stands on: errors, events, limits, units of time, hash, seeded randomness, packing, timers.

Imports nothing of the project.
"""

from __future__ import annotations

__all__: list[str] = []
