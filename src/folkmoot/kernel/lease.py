"""The length of a lease, and two times that follow from it.

They are here because three parts that know nothing of each other have to agree: the membership, which grants leases;
the node, which keeps clients waiting without one; and MQTT, where intervals begin when a connection ends.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND, SECOND

__all__ = ["LEASE_US", "PAUSE_US", "UNTOLD_US"]

LEASE_US: Final = SECOND
"""For so long a node may speak after it has sent the heartbeat that was answered."""

PAUSE_US: Final = LEASE_US + 200 * MILLISECOND
"""For so long clients wait for the next lease of their node: as long as a lease, after which others have taken over."""

UNTOLD_US: Final = PAUSE_US + 300 * MILLISECOND
"""A node that others have left keeps its clients for so long at the most.

For its clients, session expiry and will delay begin when their connections end, which nobody else sees.
"""
