"""Which of several nodes is the nearest: one on this machine, else each its share."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

__all__ = ["is_here", "nearest"]


def nearest(urls: Sequence[str], number: int) -> str:
    """Return one of the addresses: of those on this machine, if there are any, else of all, the `number`-th."""
    here = [url for url in urls if is_here(urlsplit(url).hostname or "")]
    found = here or urls
    return found[number % len(found)]


@lru_cache(maxsize=256)
def is_here(host: str) -> bool:
    """Whether a name or an IP address is one of this machine: only then can a socket be bound to it."""
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
