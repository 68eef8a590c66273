"""The ground everything stands on.

Errors, ids, seeded randomness, limits, byte packing, timers. Imports nothing of the project.
"""

from __future__ import annotations

__all__: list[str] = []
