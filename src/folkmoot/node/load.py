"""The load figures that a node sends with its heartbeats."""

from __future__ import annotations

from folkmoot.turn.overload import LEVEL_MAX
from folkmoot.turn.state import State

__all__ = ["is_full", "level_of", "own_load"]


def own_load(state: State) -> dict[str, int]:
    """Return the load figures of this node. clock: 1, its own one is wrong; 2, no majority of those it knows agrees."""
    counters = state.counters
    load = {
        "clients": counters.clients_connected,
        "sessions": len(state.sessions),
        "overload": state.overload_own,
        "storage_full": counters.storage_full,
        "memory": counters.memory_stage,
    }
    clock = state.clock
    if clock.off or clock.divided:
        load["clock"] = 1 if clock.off else 2
    return load


def is_full(load: dict[str, int]) -> bool:
    """Whether a node has reported that its disk is full."""
    return load.get("storage_full", 0) > 0


def level_of(load: dict[str, int]) -> int:
    """Return the overload level that a node has reported, 0 to 10."""
    return min(load.get("overload", 0), LEVEL_MAX)
