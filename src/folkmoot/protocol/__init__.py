"""MQTT: the meaning of each packet of a client, from its bytes to the answer (MQTT 5 sections 3 and 4)."""

from __future__ import annotations

__all__: list[str] = []
