"""Ways to find the peer addresses of other nodes: each is told what to ask, and answers with "HOST:PORT"s."""

from __future__ import annotations

from folkmoot.discovery.base import Discovery, DiscoveryError
from folkmoot.discovery.static import Static

__all__ = ["Discovery", "DiscoveryError", "Static"]
