"""Other nodes from a list that somebody wrote down (`--seed`, `cluster.seeds`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from folkmoot.discovery.base import Discovery, DiscoveryError
from folkmoot.kernel.errors import FolkmootError

__all__ = ["Static"]


class Static(Discovery):
    """The addresses that it was given; `reread` returns those of now, for a list in a file, and may raise."""

    def __init__(self, addresses: Iterable[str], reread: Callable[[], Iterable[str]] | None = None) -> None:
        self.addresses = list(dict.fromkeys(addresses))
        self._reread = reread

    async def lookup(self) -> list[str]:
        """Return the addresses, each once."""
        if self._reread is not None:
            try:
                self.addresses = list(dict.fromkeys(self._reread()))
            except FolkmootError as error:
                raise DiscoveryError(f"the seeds are those of before: {error}") from None
        return list(self.addresses)
