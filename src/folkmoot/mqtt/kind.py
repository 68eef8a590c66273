"""Protocol versions and packet types: their numbers and names (MQTT 5.0 table 2-1).

The content of packets is in `packet`.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AUTH",
    "CONNACK",
    "CONNECT",
    "DISCONNECT",
    "PINGREQ",
    "PINGRESP",
    "PUBACK",
    "PUBCOMP",
    "PUBLISH",
    "PUBREC",
    "PUBREL",
    "SUBACK",
    "SUBSCRIBE",
    "UNSUBACK",
    "UNSUBSCRIBE",
    "V5",
    "V31",
    "V311",
    "WILL",
    "kind_name",
]

# Protocol levels, as in CONNECT.
V31: Final = 3
V311: Final = 4
V5: Final = 5

# Packet types (MQTT 5.0 table 2-1). WILL is not a packet: it denotes the will properties inside CONNECT.
WILL: Final = 0
CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

_KIND_NAMES: Final[list[str]] = [
    "WILL",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
]


def kind_name(kind: int) -> str:
    """Return the name of a packet type (0, which is WILL, to 15) in the specification."""
    return _KIND_NAMES[kind]
