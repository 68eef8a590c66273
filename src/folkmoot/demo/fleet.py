"""The devices: real MQTT connections (paho-mqtt) that publish with QoS 1 and go on after the broker was killed.

Each connection speaks for a part of the aircraft and stations, always the same ones, and numbers what it publishes as
an idempotent producer: what it repeats after a kill is stored once.
"""

from __future__ import annotations

import threading
from zlib import crc32

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from folkmoot.demo.flight import Event
from folkmoot.kernel.errors import FolkmootError

__all__ = ["Fleet"]

_OUTSTANDING_MAX = 200
_SESSION_EXPIRY_S = 3600
_STUCK_S = 60.0


class Device:
    """One connection.

    After a lost connection nothing new is published until all that was sent before is acknowledged. paho sends a new
    message as soon as it has a socket, before it repeats the old ones, and a producer's numbers must only grow: the
    broker would take the old ones for repetitions of what it has.
    """

    def __init__(self, number: int, host: str, port: int) -> None:
        self.producer = f"nyc-{number}"
        self.published = 0
        self.acknowledged = 0
        self.refused: list[str] = []
        self.connects = 0
        self._room = threading.Condition()
        self._in_order = True
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=f"fleet-{number}", protocol=MQTTProtocolVersion.MQTTv5
        )
        self._client.on_connect = self._connected
        self._client.on_disconnect = self._lost
        self._client.on_publish = self._acked
        self._client.reconnect_delay_set(1, 2)
        self._client.max_inflight_messages_set(100)
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = _SESSION_EXPIRY_S
        self._client.connect(host, port, properties=properties)
        self._client.loop_start()

    def _connected(self, *_: object) -> None:
        with self._room:
            self.connects += 1
            self._in_order = self.published == self.acknowledged
            self._room.notify_all()

    def _lost(self, *_: object) -> None:
        with self._room:
            self._in_order = False

    def _acked(self, _client: object, _data: object, _mid: int, code: ReasonCode, _properties: object) -> None:
        with self._room:
            if code.is_failure:
                self.refused.append(str(code))
            self.acknowledged += 1
            self._in_order = self._in_order or self.published == self.acknowledged
            self._room.notify_all()

    def publish(self, event: Event) -> None:
        """Publish the next message; waits while too many are not acknowledged."""
        self.await_room(_OUTSTANDING_MAX)
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = [("folkmoot-producer", self.producer), ("folkmoot-seq", str(self.published))]
        properties.ContentType = "application/json"
        self.published += 1
        self._client.publish(event.topic, event.payload, qos=1, properties=properties)

    def await_room(self, outstanding: int) -> None:
        """Wait until fewer than `outstanding` messages are not acknowledged, and new ones would come after the old."""

        def room() -> bool:
            return self._in_order and self.published - self.acknowledged < outstanding

        with self._room:
            if not self._room.wait_for(room, _STUCK_S):
                raise FolkmootError(f"{self.producer}: no acknowledgement for {_STUCK_S:.0f} s; see run/node.log")

    def close(self) -> None:
        """Say goodbye."""
        self._client.disconnect()
        self._client.loop_stop()


class Fleet:
    """Several connections that share the devices."""

    def __init__(self, host: str, port: int, connections: int) -> None:
        self.devices = [Device(number, host, port) for number in range(connections)]

    def publish(self, event: Event) -> None:
        """Publish a message on the connection of its device."""
        self.devices[crc32(event.topic.encode()) % len(self.devices)].publish(event)

    def settle(self) -> None:
        """Wait until everything is acknowledged."""
        for device in self.devices:
            device.await_room(1)

    def close(self) -> None:
        """End all connections."""
        for device in self.devices:
            device.close()

    @property
    def published(self) -> int:
        """Messages that were published."""
        return sum(device.published for device in self.devices)

    @property
    def acknowledged(self) -> int:
        """Messages that were acknowledged."""
        return sum(device.acknowledged for device in self.devices)

    @property
    def reconnects(self) -> int:
        """Connections that were made again."""
        return sum(device.connects - 1 for device in self.devices)

    @property
    def refused(self) -> list[str]:
        """The reasons of messages that the broker refused."""
        return [why for device in self.devices for why in device.refused]
