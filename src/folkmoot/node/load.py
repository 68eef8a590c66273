"""What a node tells all others of itself with its heartbeats."""

from __future__ import annotations

from typing import Final

from folkmoot.broker.state import State

__all__ = ["own_load"]

_OVERLOAD_MAX: Final = 10


def own_load(state: State) -> dict[str, int]:
    """Return what a node tells others of itself; overload is how much of the allowed backlog waits for the disk."""
    counters = state.counters
    waiting = counters.commit_waiting_bytes * _OVERLOAD_MAX // state.limits.write_backlog_bytes_max
    return {
        "clients": counters.clients_connected,
        "sessions": len(state.sessions),
        "overload": min(waiting, _OVERLOAD_MAX),
        "storage_full": counters.storage_full,
    }
