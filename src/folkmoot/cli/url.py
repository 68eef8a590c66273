"""The address of a broker as a URL: `mqtt(s)|ws(s)://[USER[:PASSWORD]@]HOST[:PORT][/TOPIC]`."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from folkmoot.cli.error import Refusal

__all__ = ["Address", "parse_url"]

# For each scheme: WebSocket, TLS, and the default port.
SCHEMES: Final = {
    "mqtt": (False, False, 1883),
    "mqtts": (False, True, 8883),
    "ws": (True, False, 80),
    "wss": (True, True, 443),
}
FORM: Final = "write mqtt://[USER@]HOST[:PORT][/TOPIC], or mqtts, ws, wss"


class Address:
    """Host, port and kind of connection of a broker; `topic` is that of the URL, "" if it has none."""

    def __init__(self, host: str, port: int, *, websocket: bool, tls: bool) -> None:
        self.host = host
        self.port = port
        self.websocket = websocket
        self.tls = tls
        self.username: str | None = None
        self.password: str | None = None
        self.topic = ""

    @classmethod
    def of(cls, host: str, port: int | None, *, websocket: bool, tls: bool) -> Address:
        """Return the address, with the default port if none is given."""
        usual = next(entry[2] for entry in SCHEMES.values() if entry[:2] == (websocket, tls))
        return cls(host, usual if port is None else port, websocket=websocket, tls=tls)

    def __str__(self) -> str:
        """Return the address as a URL without user, password and topic, safe for messages."""
        scheme = next(name for name, entry in SCHEMES.items() if entry[:2] == (self.websocket, self.tls))
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"


def parse_url(url: str) -> Address:
    """Return the address in `url`; raises Refusal if it is invalid. The topic is taken literally, `#` included.

    No message repeats a password, not even one about an invalid URL.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise Refusal(f"--url does not begin with mqtt://, mqtts://, ws:// or wss://: {FORM}")
    authority, _slash, topic = rest.partition("/")
    user, _at, place = authority.rpartition("@")
    host, port = split_place(place)
    websocket, tls, _port = SCHEMES[scheme]
    address = Address.of(host, port, websocket=websocket, tls=tls)
    if user:
        name, colon, password = user.partition(":")
        address.username = unquote(name)
        address.password = unquote(password) if colon else None
    address.topic = topic
    return address


def split_place(place: str) -> tuple[str, int | None]:
    """Return host and port of `HOST`, `HOST:PORT` or `[IPV6]:PORT`."""
    host, colon, port = place.partition("]:") if place.startswith("[") else place.partition(":")
    host = host.strip("[]")
    if not host:
        raise Refusal(f"--url has no host: {FORM}")
    if not colon:
        return host, None
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise Refusal(f"--url: the port is not a number from 1 to 65535 (put an IPv6 address in brackets): {FORM}")
    return host, int(port)
