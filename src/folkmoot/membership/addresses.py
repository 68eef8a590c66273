"""Addresses of processes that others have named: they are tried for a while."""

from __future__ import annotations

from typing import Final

__all__ = ["Addresses"]

_ADDRESSES_MAX: Final = 4096  # as many as a greeting names


class Addresses:
    """Addresses, and until when each is tried; of too many the newest ones. dropped: how many there were too many."""

    def __init__(self, keep_ns: int) -> None:
        self.dropped: int = 0
        self._keep_ns = keep_ns
        self._until: dict[str, int] = {}  # oldest first

    def note(self, addresses: list[str], now: int) -> None:
        """Try these addresses from now on."""
        until = self._until
        for address in addresses:
            until.pop(address, None)
            until[address] = now + self._keep_ns
        while until:
            oldest = next(iter(until))
            if until[oldest] > now:
                if len(until) <= _ADDRESSES_MAX:
                    break
                self.dropped += 1
            del until[oldest]

    def tried(self, now: int) -> list[str]:
        """Return the addresses that are tried now."""
        return [address for address, until_ns in self._until.items() if now < until_ns]
