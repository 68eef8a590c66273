"""The devices: real MQTT connections (paho-mqtt), QoS 1 or 2, that move to another node when theirs is killed.

Each connection publishes for a fixed part of the aircraft and stations, and numbers its messages as an idempotent
producer: messages that it repeats after a kill are stored once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from zlib import crc32

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from folkmoot.demo.flight import Event
from folkmoot.demo.pause import Pauses
from folkmoot.demo.roam import Roamer
from folkmoot.kernel.errors import FolkmootError

__all__ = ["Fleet"]

_OUTSTANDING_MAX = 200
_STUCK_S = 60.0
_GATE_S = 1.0


class Device:
    """One connection, to one of `nodes` at a time.

    It publishes nothing before its first connection is accepted, and after a reconnect nothing new until everything
    sent before is acknowledged. The reason: paho sends a new message as soon as it has a socket, but queued messages
    only after CONNACK. A producer's numbers must increase: the broker would treat the older messages as repetitions,
    acknowledge them, and not keep them.
    """

    def __init__(self, number: int, nodes: Sequence[tuple[str, int]]) -> None:
        self.producer = f"nyc-{number}"
        self.published = 0
        self.acknowledged = 0
        self.refused: list[str] = []
        self.connects = 0
        self.pauses = Pauses()
        self._room = threading.Condition()
        self._gate = threading.Lock()  # publishing and reconnecting exclude each other
        self._in_order = False  # not connected yet
        # Half of a dead node's devices go to the next node and half to the one after.
        step = 1 + number // len(nodes) % max(1, len(nodes) - 1)
        self._roamer = Roamer(f"fleet-{number}", nodes, number, step)
        self._client = self._roamer.client
        self._client.on_connect = self._connected
        self._client.on_disconnect = self._lost
        self._client.on_publish = self._acked
        self._client.max_inflight_messages_set(100)
        self._roamer.begin()

    def _connected(self, _client: object, _data: object, _flags: object, code: ReasonCode, _properties: object) -> None:
        if not self._roamer.accepted(code):
            return
        with self._room:
            self.connects += 1
            self._in_order = self.published == self.acknowledged
            self._room.notify_all()

    def _lost(self, *_: object) -> None:
        if self._roamer.leaving:
            return
        # With a timeout: paho may hold a lock here that a publish waits for; that publish has not sent anything yet.
        held = self._gate.acquire(timeout=_GATE_S)
        self._in_order = False
        self._roamer.elsewhere()
        if held:
            self._gate.release()

    def _acked(self, _client: object, _data: object, _mid: int, code: ReasonCode, _properties: object) -> None:
        with self._room:
            if code.is_failure:
                self.refused.append(str(code))
            self.acknowledged += 1
            self.pauses.acknowledged(time.monotonic(), self.published - self.acknowledged)
            self._in_order = self._in_order or self.published == self.acknowledged
            self._room.notify_all()

    def publish(self, event: Event, qos: int = 1) -> None:
        """Publish the next message; wait while too many are not acknowledged."""
        while True:
            self.await_room(_OUTSTANDING_MAX)
            with self._gate:
                if self._in_order:
                    self._publish(event, qos)
                    return

    def _publish(self, event: Event, qos: int) -> None:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = [("folkmoot-producer", self.producer), ("folkmoot-seq", str(self.published))]
        properties.ContentType = "application/json"
        with self._room:
            self.published += 1
            self.pauses.published(time.monotonic())
        self._client.publish(event.topic, event.payload, qos=qos, properties=properties)

    def await_room(self, outstanding: int) -> None:
        """Wait until fewer than `outstanding` messages are not acknowledged, and new ones would be sent in order."""

        def room() -> bool:
            return self._in_order and self.published - self.acknowledged < outstanding

        with self._room:
            if not self._room.wait_for(room, _STUCK_S):
                raise FolkmootError(f"{self.producer}: no acknowledgement for {_STUCK_S:.0f} s; see run/n*.log")

    def close(self) -> None:
        """Disconnect."""
        self._roamer.close()


class Fleet:
    """Several connections that share the devices, spread over the nodes."""

    def __init__(self, nodes: Sequence[tuple[str, int]], connections: int) -> None:
        self.devices = [Device(number, nodes) for number in range(connections)]

    def publish(self, event: Event, qos: int = 1) -> None:
        """Publish a message on the connection of its device."""
        self.devices[crc32(event.topic.encode()) % len(self.devices)].publish(event, qos)

    def settle(self) -> None:
        """Wait until everything is acknowledged."""
        for device in self.devices:
            device.await_room(1)

    def close(self) -> None:
        """End all connections."""
        for device in self.devices:
            device.close()

    def longest_pause_s(self, begin_s: float, end_s: float) -> float:
        """The longest time a device waited for an acknowledgement between the two times."""
        return max(device.pauses.longest_s(begin_s, end_s) for device in self.devices)

    @property
    def published(self) -> int:
        """How many messages were published."""
        return sum(device.published for device in self.devices)

    @property
    def acknowledged(self) -> int:
        """How many messages were acknowledged."""
        return sum(device.acknowledged for device in self.devices)

    @property
    def reconnects(self) -> int:
        """How many times a device has reconnected."""
        return sum(device.connects - 1 for device in self.devices)

    @property
    def refused(self) -> list[str]:
        """The reasons of messages that the broker refused."""
        return [why for device in self.devices for why in device.refused]
