"""The subscriber to alerts about late flights: a client that keeps its MQTT session while nodes are killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from paho.mqtt.client import ConnectFlags, MQTTMessage
from paho.mqtt.reasoncodes import ReasonCode

from folkmoot.demo.roam import Roamer
from folkmoot.kernel.errors import FolkmootError

__all__ = ["Alert", "Desk"]

FILTER: Final = "alerts/#"
_QOS = 2
_START_S = 30.0
_POLL_S = 0.05


class Alert:
    """A message that the subscriber received, and when (seconds since 1970)."""

    def __init__(self, topic: str, payload: bytes, at_s: float) -> None:
        self.topic = topic
        self.payload = payload
        self.at_s = at_s


class Desk:
    """One subscriber to `topics` with QoS 2; `alerts` has every message that it received, duplicates included."""

    def __init__(self, nodes: Sequence[tuple[str, int]], topics: str = FILTER) -> None:
        self._topics = topics
        self.alerts: list[Alert] = []
        self.connects = 0
        self._subscribed = threading.Event()
        self._roamer = Roamer("desk-1", nodes, 0)
        client = self._roamer.client
        client.on_connect = self._connected
        client.on_disconnect = self._lost
        client.on_subscribe = self._accepted
        client.on_message = self._came
        self._roamer.begin()

    def ready(self) -> None:
        """Wait until the subscription is accepted; raises FolkmootError if the cluster refuses it."""
        if not self._subscribed.wait(_START_S):
            raise FolkmootError(
                f"the subscriber to {self._topics} was not accepted in {_START_S:.0f} s; see the nodes' logs"
            )

    def await_count(self, count: int, timeout_s: float) -> bool:
        """Wait for this many messages; return whether they arrived in time."""
        until = time.monotonic() + timeout_s
        while len(self.alerts) < count and time.monotonic() < until:
            time.sleep(_POLL_S)
        return len(self.alerts) >= count

    def close(self) -> None:
        """Disconnect."""
        self._roamer.close()

    def _connected(self, _client: object, _data: object, flags: ConnectFlags, code: ReasonCode, _: object) -> None:
        if not self._roamer.accepted(code):
            return
        self.connects += 1
        # An existing session has its subscription: another SUBSCRIBE would only hide its loss.
        if not self._subscribed.is_set() and not flags.session_present:
            self._roamer.client.subscribe(self._topics, qos=_QOS)

    def _accepted(self, _client: object, _data: object, _mid: int, codes: list[ReasonCode], _: object) -> None:
        if not any(code.is_failure for code in codes):
            self._subscribed.set()

    def _lost(self, *_: object) -> None:
        if not self._roamer.leaving:
            self._roamer.elsewhere()

    def _came(self, _client: object, _data: object, message: MQTTMessage) -> None:
        self.alerts.append(Alert(message.topic, bytes(message.payload), time.time()))
