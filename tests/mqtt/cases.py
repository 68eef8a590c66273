"""Packet cases: bytes and what they mean (VALID), or the reason code with which they are refused (INVALID).

Shared by the tests of the codec and of the broker.
"""

from __future__ import annotations

from tests.mqtt.case import Invalid, Valid, field, packet, properties, section
from tests.mqtt.invalid import INVALID
from tests.mqtt.valid import VALID

__all__ = ["INVALID", "VALID", "Invalid", "Valid", "field", "packet", "properties", "section"]
