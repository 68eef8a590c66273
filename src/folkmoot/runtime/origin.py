"""Which web pages may use a server through the browser of somebody who can reach it: owns the rules, and no socket.

A browser sends the header Origin with every WebSocket (RFC 6455 section 4.1) and with every request that may change
something (Fetch standard). Other clients send none, and are not restricted: they are where they say they are.

A host name proves nothing by itself. Its owner can let it lead to this machine while a page is open (DNS rebinding),
and the page then has the same host as the server. IP addresses and localhost cannot be made to lead elsewhere.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

__all__ = ["HostRules", "OriginRules", "host_name", "netloc_of"]

ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
HOST: Final = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
SHOWN_CHARACTERS_MAX: Final = 100


def host_name(host: str) -> str:
    """Return the name or address in a header Host, in lower case and without port; "" if it is not valid."""
    match = HOST.fullmatch(host.strip().lower())
    return "" if match is None else match[1].rstrip(".")


def netloc_of(origin: str) -> str:
    """Return "HOST" or "HOST:PORT" of an origin in lower case; "" for null and for what is no origin."""
    match = ORIGIN.fullmatch(origin.strip().lower())
    return "" if match is None else match[1].rstrip(".") + (match[2] or "")


def is_local(name: str) -> bool:
    """Return whether a name always leads to this machine: localhost, names below it, loopback addresses."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = ip_address(name)
    return address is not None and address.is_loopback


def ip_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that a name is; None for other names."""
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None


class HostRules:
    """The names by which a server without authentication may be called.

    address: the host that it listens on; names: further ones, "*" for all.
    """

    def __init__(self, address: str, names: Iterable[str]) -> None:
        self._names = {host_name(f"[{address}]" if ":" in address else address), *[name.lower() for name in names]}

    def allow(self, host: str) -> bool:
        """Return whether a request with this header Host may be answered."""
        name = host_name(host)
        return "*" in self._names or (bool(name) and (name in self._names or is_local(name)))


class OriginRules:
    """The origins of pages that may open a WebSocket.

    patterns: origins with * for any text; protected: a page that has the server's own host name by DNS rebinding gains
    nothing, because clients must authenticate, or because the server has proved its name.
    """

    def __init__(self, patterns: Iterable[str] = (), protected: bool = False) -> None:
        self._patterns = [re.compile(".*".join(map(re.escape, pattern.lower().split("*")))) for pattern in patterns]
        self._protected = protected

    def refusal(self, origins: list[str], hosts: list[str]) -> str:
        """Return why a request with these headers Origin and Host is refused, or ""."""
        if not origins:
            return ""
        origin = origins[0].strip().lower()
        shown = origin[:SHOWN_CHARACTERS_MAX]
        netloc = netloc_of(origin)
        if len(origins) > 1 or len(hosts) != 1 or not (netloc or origin == "null"):
            return "the headers Origin and Host are not valid"
        if any(pattern.fullmatch(origin) for pattern in self._patterns):
            return ""
        name = host_name(hosts[0])
        if not netloc or not name or host_name(netloc) != name:
            return f"web pages of the origin {shown} may not connect: add it to listeners.origins to allow them"
        if self._protected or is_local(name) or ip_address(name) is not None:
            return ""
        return (
            f"web pages of the origin {shown} may not connect without authentication, although they are on the same "
            "host name: add the origin to listeners.origins to allow them"
        )
