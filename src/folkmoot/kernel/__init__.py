"""Shared foundations: errors, events, limits, units of time, hash, seeded randomness, packing, timers.

Imports no other package of the project.
"""

from __future__ import annotations

__all__: list[str] = []
