"""The one exception of the wire codec: a packet that the specification does not allow.

The session decides what happens to the connection (MQTT 5.0 section 4.13, MQTT 3.1.1 section 4.8).
"""

from __future__ import annotations

from typing import Final

__all__ = ["MalformedPacket", "malformed", "protocol_error"]

_MALFORMED: Final = 0x81
_PROTOCOL_ERROR: Final = 0x82


class MalformedPacket(Exception):
    """A packet that must end the connection.

    `code` is the MQTT 5.0 reason code for CONNACK or DISCONNECT (for example 0x81 malformed, 0x82 protocol error, 0x84
    unsupported version, 0x90 topic name invalid, 0x95 too large); `text` describes the error for the log. Connections
    of MQTT 3.x are closed without the code.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code: int = code
        self.text: str = text

    def __str__(self) -> str:
        return f"0x{self.code:02X} {self.text}"


def malformed(text: str) -> MalformedPacket:
    """Return the error for bytes that cannot be parsed: reason code 0x81."""
    return MalformedPacket(_MALFORMED, text)


def protocol_error(text: str) -> MalformedPacket:
    """Return the error for well-formed bytes that the protocol does not allow here: reason code 0x82."""
    return MalformedPacket(_PROTOCOL_ERROR, text)
