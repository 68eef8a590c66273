"""Other nodes from a static list (`--seed`, `cluster.seeds`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from folkmoot.discovery.base import Discovery, DiscoveryError
from folkmoot.kernel.errors import FolkmootError

__all__ = ["Static"]


class Static(Discovery):
    """A list of addresses; `reread` returns the current list if it is in a file, and may raise."""

    def __init__(self, addresses: Iterable[str], reread: Callable[[], Iterable[str]] | None = None) -> None:
        self.addresses = list(dict.fromkeys(addresses))
        self._reread = reread

    async def lookup(self) -> list[str]:
        """Return the addresses without duplicates."""
        if self._reread is not None:
            try:
                self.addresses = list(dict.fromkeys(self._reread()))
            except FolkmootError as error:
                raise DiscoveryError(f"the previous seeds stay in use: {error}") from None
        return list(self.addresses)
