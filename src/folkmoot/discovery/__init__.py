"""Discovery of other nodes: each method returns peer addresses as "HOST:PORT"."""

from __future__ import annotations

from folkmoot.discovery.base import Discovery, DiscoveryError
from folkmoot.discovery.static import Static

__all__ = ["Discovery", "DiscoveryError", "Static"]
