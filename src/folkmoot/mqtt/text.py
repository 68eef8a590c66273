"""UTF-8 encoded strings of MQTT (MQTT 5.0 section 1.5.4, MQTT 3.1.1 section 1.5.3).

Owns the rules for characters. Never normalises or strips anything [MQTT-1.5.4-3] [MQTT-4.7.3-4].
"""

from __future__ import annotations

from folkmoot.mqtt.error import malformed

__all__ = ["check_utf8", "decode_text", "has_discouraged", "has_wildcard", "well_formed"]


def check_utf8(data: bytes) -> bool:
    """Return whether `data` is a legal UTF-8 encoded string: well-formed, no surrogates, no U+0000."""
    # [MQTT-1.5.4-2]: in UTF-8 a zero byte is U+0000 and nothing else.
    if 0 in data:
        return False
    # ASCII is well-formed, and nearly everything is ASCII.
    return data.isascii() or well_formed(data)


def well_formed(data: bytes) -> bool:
    """Return whether `data` is well-formed UTF-8; U+0000 is allowed, as in a payload with payload format 1."""
    try:
        # [MQTT-1.5.4-1]: the strict codec refuses surrogates, overlong forms and code points above U+10FFFF.
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def decode_text(data: bytes) -> str:
    """Return a legal UTF-8 encoded string as str; raises MalformedPacket (0x81) otherwise."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        # [MQTT-1.5.4-1]
        raise malformed("a string is not well-formed UTF-8") from None
    if 0 in data:
        # [MQTT-1.5.4-2]
        raise malformed("a string contains U+0000")
    return text


def has_wildcard(topic: bytes) -> bool:
    """Return whether `topic` contains + or #, which a topic name must not contain [MQTT-4.7.0-1]."""
    return 0x2B in topic or 0x23 in topic


def has_discouraged(text: str) -> bool:
    """Return whether a string has control characters or non-characters, which senders should avoid (section 1.5.4)."""
    for character in text:
        point = ord(character)
        if point < 0x20 or 0x7F <= point <= 0x9F:
            return True
        if 0xFDD0 <= point <= 0xFDEF or point & 0xFFFE == 0xFFFE:
            return True
    return False
