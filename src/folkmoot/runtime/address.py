"""Addresses of peers as keys of limits: owns what counts as one address.

An IPv4 address is one key. So is a /64 network of IPv6: one machine gets as much, and may use all of its addresses.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

__all__ = ["host_of", "limit_key"]


def host_of(address: str) -> str:
    """Return the host in "HOST:PORT" or "[IPV6]:PORT"; text without a port stays as it is."""
    host, colon, port = address.rpartition(":")
    return host.strip("[]") if colon and port.isdigit() and (":" not in host or host.startswith("[")) else address


@lru_cache(maxsize=4096)
def limit_key(host: str) -> str:
    """Return the key under which limits per address count a host; a name is a key of its own."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))
