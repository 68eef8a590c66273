"""The interface of discovery methods. They own no connection and do not know this node."""

from __future__ import annotations

from abc import ABC, abstractmethod

from folkmoot.kernel.errors import FolkmootError

__all__ = ["Discovery", "DiscoveryError"]


class DiscoveryError(FolkmootError):
    """The lookup failed; the text says what failed and why. A later lookup may succeed."""


class Discovery(ABC):
    """Finds addresses of nodes to contact first; one that answers is enough to learn of all others."""

    @abstractmethod
    async def lookup(self) -> list[str]:
        """Return the "HOST:PORT" of peer listeners, without duplicates, in no particular order.

        The address of this node may be among them, and some nodes may be down. Raises DiscoveryError.
        """
