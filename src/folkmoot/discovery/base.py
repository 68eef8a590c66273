"""What every way of finding other nodes offers. Owns no connection and does not know this node."""

from __future__ import annotations

from abc import ABC, abstractmethod

from folkmoot.kernel.errors import FolkmootError

__all__ = ["Discovery", "DiscoveryError"]


class DiscoveryError(FolkmootError):
    """Nobody could be asked where other nodes are; the text says who and why. Asking again later may help."""


class Discovery(ABC):
    """Finds addresses of nodes to ask first; one that answers is enough, since nodes tell each other of all others."""

    @abstractmethod
    async def lookup(self) -> list[str]:
        """Return "HOST:PORT"s of peer listeners, without doubles, in an order that means nothing.

        This node's own may be among them, and some may be dead. Raises DiscoveryError.
        """
