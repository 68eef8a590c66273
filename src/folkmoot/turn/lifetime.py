"""How long a message lives: the Message Expiry Interval of its publisher, bounded by the limit of the server.

MQTT 5 sections 3.1.3.2.4 (wills), 3.3.2.3.3. Owns only the rule: an expired message is dropped where it would be sent.
"""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.limits import Limits
from folkmoot.mqtt.packet import Properties

__all__ = ["lifetime"]


def lifetime(properties: Properties | None, limits: Limits) -> int:
    """Return how many microseconds after its publication a message expires; 0 = never, so an interval of 0 gives 1."""
    life_us = 0
    if properties is not None and properties.message_expiry is not None:
        life_us = max(properties.message_expiry * SECOND, 1)
    life_us_max = limits.message_expiry_max_s * SECOND
    if life_us_max and (life_us == 0 or life_us > life_us_max):
        return life_us_max
    return life_us
