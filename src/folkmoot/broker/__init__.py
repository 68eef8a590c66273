"""The broker: the MQTT half of a node, put together from its parts."""

from __future__ import annotations

__all__: list[str] = []
