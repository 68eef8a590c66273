"""The choice of the nearest of several nodes: one on this machine, else distributed by number."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

__all__ = ["is_here", "nearest"]


def nearest(urls: Sequence[str], number: int) -> str:
    """Return one of the addresses: the `number`-th of those on this machine if there are any, else of all."""
    here = [url for url in urls if is_here(urlsplit(url).hostname or "")]
    found = here or urls
    return found[number % len(found)]


@lru_cache(maxsize=256)
def is_here(host: str) -> bool:
    """Return whether a name or an IP address belongs to this machine: only then can a socket be bound to it."""
    try:
        places = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _name, place in places:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(place)
                return True
        except OSError:
            continue
    return False
