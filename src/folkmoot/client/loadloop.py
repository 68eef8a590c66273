"""The event loop of a load run: waits for sockets and calls their connections.

Owns the selector and the time spent in connections. Knows nothing of MQTT. A plain loop, because a load run has no
tasks: it costs as much per chunk as uvloop, and opening a connection needs no future.
"""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
from collections import Counter
from time import perf_counter_ns
from typing import Final

__all__ = ["READ", "WRITE", "Deferred", "Faults", "LoadLoop", "Ready", "raise_file_limit"]

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE
TEXTS_MAX: Final = 20


class Faults:
    """The errors of a run: counts by kind, and the first few texts; `fatal` once the run cannot continue."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.texts: list[str] = []
        self.fatal = False

    def add(self, kind: str, text: str = "", count: int = 1, *, fatal: bool = False) -> None:
        """Count an error; a fatal one ends the run."""
        self.counts[kind] += count
        self.fatal = self.fatal or fatal
        if text and text not in self.texts and len(self.texts) < TEXTS_MAX:
            self.texts.append(text)


class Ready:
    """Base class of objects that wait for a socket."""

    def ready(self, mask: int) -> None:
        """Handle a socket that is readable or writable, according to `mask` (READ, WRITE)."""
        raise NotImplementedError


class Deferred:
    """Base class of objects with work at the end of a turn, done once regardless of how often it was requested."""

    def settle(self) -> None:
        """Do the work."""
        raise NotImplementedError


class LoadLoop:
    """Calls `ready` of each registered connection whose socket is ready; `busy_ns` is the time spent in these calls.

    Objects that connections append to `deferred` are settled after all connections had their turn.

    With `spin` it never sleeps while it runs: on a core of its own, this saves the broker the cost of waking it.
    """

    def __init__(self, *, spin: bool = False) -> None:
        self.selector = selectors.DefaultSelector()
        self.spin = spin
        self.busy_ns = 0
        self.deferred: list[Deferred] = []

    def register(self, sock: socket.socket, mask: int, owner: Ready) -> None:
        """Wait for the events in `mask` on a socket that is not registered."""
        self.selector.register(sock, mask, owner)

    def change(self, sock: socket.socket, mask: int, owner: Ready) -> None:
        """Wait for other events on a registered socket."""
        self.selector.modify(sock, mask, owner)

    def forget(self, sock: socket.socket) -> None:
        """Stop waiting for a socket; one that is not registered is ignored."""
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(sock)

    def turn(self, wait_s: float) -> None:
        """Wait at most `wait_s` seconds for events and handle them."""
        events = self.selector.select(0 if self.spin else wait_s)
        if not events:
            return
        began = perf_counter_ns()
        for key, mask in events:
            key.data.ready(mask)
        if self.deferred:
            deferred, self.deferred = self.deferred, []
            for one in deferred:
                one.settle()
        self.busy_ns += perf_counter_ns() - began

    def close(self) -> None:
        """Close the selector; the sockets belong to their connections."""
        self.selector.close()


def raise_file_limit(wanted: int) -> int:
    """Raise the limit of open files to `wanted` if the system allows it; return the current limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return soft
    for limits in ((wanted, max(wanted, hard)), (min(wanted, hard), hard)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
