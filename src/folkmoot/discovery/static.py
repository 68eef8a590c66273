"""Other nodes from a list that somebody wrote down (`--seed`, `cluster.seeds`)."""

from __future__ import annotations

from collections.abc import Iterable

from folkmoot.discovery.base import Discovery

__all__ = ["Static"]


class Static(Discovery):
    """The addresses that it was given."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self.addresses = list(dict.fromkeys(addresses))

    async def lookup(self) -> list[str]:
        """Return the addresses, each once."""
        return list(self.addresses)
