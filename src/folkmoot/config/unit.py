"""Text forms of durations, sizes and addresses. Knows no field.

In the program, durations are microseconds and sizes are bytes. In the configuration, durations have units ("7d",
"1h30m", "never"), and sizes have units ("10GB", "64MiB") or are a plain number of bytes.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer

from folkmoot.kernel.limits import AUTO_BYTES

__all__ = [
    "NEVER_S",
    "NEVER_US",
    "Address",
    "AddressField",
    "Duration",
    "Size",
    "SizeOrAuto",
    "format_duration",
    "format_size",
    "format_size_or_auto",
    "parse_address",
    "parse_duration",
    "parse_size",
    "parse_size_or_auto",
]

# "never" is 0xFFFFFFFF seconds in MQTT [MQTT-3.1.2.11.2]; this is the same time in microseconds.
NEVER_S: Final = 0xFFFF_FFFF
NEVER_US: Final = NEVER_S * 1_000_000

DURATION_UNITS: Final = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
SIZE_UNITS: Final = {
    "TiB": 1 << 40,
    "GiB": 1 << 30,
    "MiB": 1 << 20,
    "KiB": 1 << 10,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "B": 1,
}
DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)\s*")
SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]i?B|B)?")


def parse_duration(value: object) -> int:
    """Return the microseconds of "250ms", "10s", "1h30m", "7d", "never" or 0; raises ValueError with what is valid."""
    if value == 0 or value == "0":
        return 0
    if isinstance(value, str):
        text = value.strip()
        if text == "never":
            return NEVER_US
        parts = DURATION_PART.findall(text)
        if parts and DURATION_PART.sub("", text) == "":
            return sum(round(float(number) * DURATION_UNITS[unit]) for number, unit in parts)
    raise ValueError(
        'a duration is a number with a unit (us, ms, s, m, h, d), such as "250ms", "10s", "7d", or "never"'
    )


def format_duration(duration_us: int) -> str:
    """Return the shortest text that `parse_duration` reads as `duration_us`."""
    if duration_us == NEVER_US:
        return "never"
    for unit, factor in DURATION_UNITS.items():
        if duration_us and duration_us % factor == 0:
            return f"{duration_us // factor}{unit}"
    return "0"


def parse_size(value: object) -> int:
    """Return the bytes of "10GB", "64MiB", "512kB" or a whole number; raises ValueError with what is valid."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and (match := SIZE.fullmatch(value.strip())):
        number, unit = match.groups()
        return round(float(number) * SIZE_UNITS["kB" if unit == "KB" else unit or "B"])
    raise ValueError(
        'a size is a number of bytes or has a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), such as "10GB"'
    )


def format_size(size_bytes: int) -> str:
    """Return the shortest text that `parse_size` reads as `size_bytes`."""
    for unit, factor in SIZE_UNITS.items():
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return "0"


def parse_size_or_auto(value: object) -> int:
    """Return what `parse_size` does, and AUTO_BYTES for "auto"; raises ValueError with what is valid."""
    if value in ("auto", AUTO_BYTES):
        return AUTO_BYTES
    size_bytes = parse_size(value)
    if size_bytes < 0:
        raise ValueError('a size is not negative; "auto" is as much as suits the machine')
    return size_bytes


def format_size_or_auto(size_bytes: int) -> str:
    """Return the shortest text that `parse_size_or_auto` reads as `size_bytes`."""
    return "auto" if size_bytes == AUTO_BYTES else format_size(size_bytes)


class Address:
    """An address: `host` (a name or an IP address, without brackets) and `port` (0: the system picks one)."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and (self.host, self.port) == (other.host, other.port)

    def __hash__(self) -> int:
        return hash((self.host, self.port))

    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; a name other than localhost counts as reachable from the network."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def is_wildcard(self) -> bool:
        """Whether it means all interfaces: valid for listening, but not for connecting."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False


def parse_address(value: object) -> Address:
    """Return the address in "HOST:PORT", "[IPV6]:PORT" or ":PORT" (all interfaces); raises ValueError."""
    if isinstance(value, Address):
        return value
    if isinstance(value, str):
        host, colon, port = value.strip().rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if colon and port.isascii() and port.isdigit() and int(port) <= 65_535 and (bracketed or ":" not in host):
            return Address(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - the documented meaning of ":1883"
    raise ValueError('an address is "HOST:PORT" with a port from 0 (free choice) to 65535, such as "127.0.0.1:1883"')


# Types of fields: durations (int, microseconds), sizes (int, bytes) and addresses, each written as text.
Duration = Annotated[int, BeforeValidator(parse_duration), PlainSerializer(format_duration), "duration"]
Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(format_size), "size"]
SizeOrAuto = Annotated[int, BeforeValidator(parse_size_or_auto), PlainSerializer(format_size_or_auto), "size or auto"]
AddressField = Annotated[Address, BeforeValidator(parse_address), PlainSerializer(str), "address"]
