"""What a node tells all others of itself with its heartbeats."""

from __future__ import annotations

from folkmoot.broker.state import State

__all__ = ["own_load"]


def own_load(state: State) -> dict[str, int]:
    """Return what a node tells others of itself."""
    counters = state.counters
    return {
        "clients": counters.clients_connected,
        "sessions": len(state.sessions),
        "overload": state.overload_own,
        "storage_full": counters.storage_full,
    }
