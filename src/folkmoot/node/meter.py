"""The figures of a node's links and copies for metrics: set once a second from the counts of the parts."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND
from folkmoot.membership.membership import Membership
from folkmoot.metrics.counters import Counters
from folkmoot.peer.peers import Peers
from folkmoot.replica.replication import Replication

__all__ = ["Meter"]

_EVERY_US: Final = SECOND


class Meter:
    """Reads the parts and writes the counters."""

    def __init__(self, counters: Counters, peers: Peers, membership: Membership, replication: Replication) -> None:
        self._counters = counters
        self._peers = peers
        self._membership = membership
        self._replication = replication
        self._due_us: int = 0

    def step(self, now: int) -> None:
        """Set the figures, if a second has passed."""
        if now < self._due_us:
            return
        self._due_us = now + _EVERY_US
        counters = self._counters
        peers = self._peers
        connected = 0
        backlog = 0
        slowest = 0
        for link in peers.links():
            backlog += link.backlog_bytes()
            if link.up:
                connected += 1
                slowest = max(slowest, link.round_trip_us)
        counters.peers_connected = connected
        counters.peer_backlog_bytes = backlog
        counters.peer_round_trip_us = slowest
        counters.peer_bytes_received = peers.bytes_received
        counters.peer_messages_dropped = peers.messages_dropped
        counters.cluster_addresses_dropped = self._membership.control.addresses.dropped
        counters.copied_bytes = self._replication.copies.bytes_copied
        counters.given_bytes = self._replication.source.bytes_sent
        counters.digests_passed_over = self._replication.digests.passed_over
