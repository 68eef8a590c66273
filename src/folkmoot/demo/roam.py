"""A client (paho-mqtt) with a persistent session that connects to another node when its connection is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

__all__ = ["Roamer"]

_SESSION_EXPIRY_S: Final = 3600
_REST_S: Final = 0.1


def _rest() -> None:
    """Wait a moment before the next attempt."""
    time.sleep(_REST_S)


class Roamer:
    """A client that is connected to one of `nodes` at a time: to number `at` first, then to every `step`-th.

    The owner sets the callbacks of `client`, and calls `elsewhere` when a connection is lost.
    """

    def __init__(self, client_id: str, nodes: Sequence[tuple[str, int]], at: int, step: int = 1) -> None:
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTProtocolVersion.MQTTv5)
        self.leaving = False
        self._nodes = nodes
        self._at = at % len(nodes)
        self._step = step
        self.client.on_connect_fail = self._not_reached
        self.client.reconnect_delay_set(0, 0)  # `_rest` pauses instead, and only after a failed attempt

    def begin(self) -> None:
        """Connect, and stay connected."""
        self._dial()
        self.client.loop_start()

    def elsewhere(self) -> None:
        """Make paho connect to the next node."""
        self._at = (self._at + self._step) % len(self._nodes)
        self._dial()

    def close(self) -> None:
        """Disconnect."""
        self.leaving = True
        self.client.disconnect()
        self.client.loop_stop()

    def _dial(self) -> None:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = _SESSION_EXPIRY_S
        host, port = self._nodes[self._at]
        self.client.connect_async(host, port, properties=properties)

    def accepted(self, code: ReasonCode) -> bool:
        """Whether CONNACK accepts the connection and `close` was not called since; otherwise the connection ends."""
        if code.is_failure:
            _rest()
        elif self.leaving:
            self.client.disconnect()
        return not code.is_failure and not self.leaving

    def _not_reached(self, *_: object) -> None:
        if not self.leaving:
            _rest()
            self.elsewhere()
