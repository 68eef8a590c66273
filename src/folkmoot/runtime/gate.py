"""How many connections clients may have: in all, and per address before their CONNECT. A function of calls and times.

Owns the counts. A connection is counted from its accept to the close of its socket, and as unfinished until its CONNECT
is complete, a TLS handshake and a WebSocket upgrade included. Where there is no room, one that is being closed and has
still not been closed by its client after `GRACE_S` makes room, else the connection that has been unfinished for
longest, unless it is younger than that; then the new one is refused. So silent connections, and those that stay after
their end, keep nobody out for longer than that, and a crowd that reconnects at once is not closed half-way.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

__all__ = ["GRACE_S", "Arrival", "Gate", "group_of"]

GRACE_S: Final = 1.0
IP_6_GROUP_BITS: Final = 64  # what one customer of a provider usually has


class Arrival:
    """A connection that is not finished; `cut` ends it."""

    __slots__ = ("cut", "group", "since_s")

    def __init__(self, group: str, since_s: float) -> None:
        self.group = group
        self.since_s = since_s
        self.cut: Callable[[], object] = _nothing


class Gate:
    """Counts connections: at most `sockets_max`, of them `unfinished_max` unfinished, and `address_max` per address.

    time: returns seconds. unfinished_max: 0 stands for `sockets_max`.
    """

    def __init__(self, sockets_max: int, address_max: int, time: Callable[[], float], unfinished_max: int = 0) -> None:
        assert address_max > 0, "nobody could connect"
        self.sockets_max = sockets_max
        self.address_max = address_max
        self.unfinished_max = unfinished_max or sockets_max
        self.sockets = 0
        self.short = False  # nobody enters: the store lacks descriptors
        self.relieve: Callable[[float], bool] = _nobody  # cuts a connection that has been closing for so many seconds
        self.refused = 0
        self.evicted = 0
        self._time = time
        self._unfinished: dict[Arrival, None] = {}  # the oldest first
        self._groups: dict[str, dict[Arrival, None]] = {}

    @property
    def unfinished(self) -> int:
        """The number of unfinished connections."""
        return len(self._unfinished)

    def enter(self, host: str) -> Arrival | None:
        """Count a connection from an IP address; None: there is no room, and it is not counted."""
        if self.short:
            self.refused += 1
            return None
        group = group_of(host)
        same = self._groups.get(group)
        if same is not None and len(same) >= self.address_max and not self._evict(same):
            return None
        # One that was evicted is counted until its socket is closed, in the next iteration of the loop.
        full = self.sockets >= self.sockets_max and not self.relieve(GRACE_S)
        if (full or len(self._unfinished) >= self.unfinished_max) and not self._evict(self._unfinished):
            return None
        arrival = Arrival(group, self._time())
        self.sockets += 1
        self._unfinished[arrival] = None
        self._groups.setdefault(group, {})[arrival] = None
        return arrival

    def waited_us(self, arrival: Arrival) -> int:
        """Return how long ago a connection was accepted, in microseconds."""
        return int((self._time() - arrival.since_s) * 1e6)

    def _evict(self, candidates: dict[Arrival, None]) -> bool:
        """End the oldest of the candidates if it is old enough; otherwise count a refusal."""
        oldest = next(iter(candidates), None)
        if oldest is None or self._time() - oldest.since_s < GRACE_S:
            self.refused += 1
            return False
        self.evicted += 1
        self.finish(oldest)
        oldest.cut()
        return True

    def finish(self, arrival: Arrival) -> None:
        """Count a connection as finished: its CONNECT is complete; idempotent."""
        if arrival not in self._unfinished:
            return
        del self._unfinished[arrival]
        same = self._groups[arrival.group]
        del same[arrival]
        if not same:
            del self._groups[arrival.group]

    def leave(self) -> None:
        """Count one socket fewer; an unfinished connection is finished first."""
        assert self.sockets > 0, "a socket leaves once"
        self.sockets -= 1


def group_of(host: str) -> str:
    """Return what stands for all addresses of one peer: an IPv4 address, or the first 64 bits of an IPv6 address."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, IP_6_GROUP_BITS), strict=False).network_address)


def _nobody(_closing_s: float) -> bool:
    """Nothing is being closed."""
    return False


def _nothing() -> None:
    """Before the connection can be ended there is nothing to end."""
