"""paho clients that keep books, driven by their own threads: what was acknowledged, what arrived."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MessageState
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.integration.cluster_client import AGAIN_S, FILTER, FOR_EVER, KEEP_ALIVE_S, Publisher, Subscriber
from tests.integration.cluster_rig import Door

__all__ = ["PahoPublisher", "PahoSubscriber"]

PACKET_ID_NOT_FOUND = 0x92
MQTT_MS_PUBLISH = MessageState.MQTT_MS_PUBLISH
MQTT_MS_RESEND_PUBREL = MessageState.MQTT_MS_RESEND_PUBREL
MQTT_MS_WAIT_FOR_PUBCOMP = MessageState.MQTT_MS_WAIT_FOR_PUBCOMP


class PahoClient(paho.Client):
    """paho, but for one fault that no broker can make good.

    paho 2.2 resets the state of its messages at each attempt to connect: from "PUBREL sent" to "send PUBREL again", and
    when that attempt fails, at the next one from there to "publish". So a message of QoS 2 that was released comes once
    more, as a new one [MQTT-4.3.3-5]. Here what was released stays so. `spared`: ids of those that would have come.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.spared: set[int] = set()

    def _messages_reconnect_reset_out(self) -> None:
        with self._out_message_mutex:
            messages = list(self._out_messages.values())
            released = [one for one in messages if one.state in (MQTT_MS_WAIT_FOR_PUBCOMP, MQTT_MS_RESEND_PUBREL)]
            super()._messages_reconnect_reset_out()
            for message in released:
                if message.state == MQTT_MS_PUBLISH:
                    self.spared.add(message.mid)
                message.state = MQTT_MS_RESEND_PUBREL


class Paho:
    """A paho client driven by its own thread: one connection after the other, the session stays."""

    def __init__(self, name: str, door: Door, version: int) -> None:
        self.door = door
        self.version = version
        five = version == paho.MQTTv5
        self.client = PahoClient(
            CallbackAPIVersion.VERSION2,
            client_id=name,
            clean_session=None if five else False,
            protocol=version,  # type: ignore[arg-type]
            transport="unix" if door.path else "tcp",
            reconnect_on_failure=False,
        )
        self.first = True

    def connect(self) -> bool:
        """Take a connection; False when nobody is there."""
        try:
            if not self.first:
                self.client.reconnect()
                return True
            properties = None
            if self.version == paho.MQTTv5:
                properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
                properties.SessionExpiryInterval = FOR_EVER
            start: Any = False if self.version == paho.MQTTv5 else paho.MQTT_CLEAN_START_FIRST_ONLY
            host = self.door.path or self.door.host
            self.client.connect(host, self.door.port, KEEP_ALIVE_S, clean_start=start, properties=properties)
            self.first = False
        except OSError:
            return False
        return True

    def turn(self, wait_s: float) -> bool:
        """Receive and send for a while; False when the connection is gone."""
        return self.client.loop(wait_s) == paho.MQTT_ERR_SUCCESS

    def close(self) -> None:
        """Say goodbye, and close also the sockets that paho has for itself."""
        self.client.disconnect()
        self.client._reset_sockets()

    def drop(self) -> None:
        """Close the socket without a word."""
        sock: Any = self.client.socket()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(2)


class PahoPublisher(Publisher):
    """paho with a window of messages in flight; repeats what was not acknowledged, with its packet id."""

    WINDOW = 8

    def __init__(self, name: str, qos: int, door: Door, pace_s: float, version: int, may_refuse: bool = False) -> None:
        super().__init__(name, qos, door, pace_s)
        self.may_refuse = may_refuse
        self.paho = Paho(name, door, version)
        self.paho.client.on_connect = self._connected
        self.paho.client.on_publish = self._published
        self.numbers: dict[int, int] = {}
        self.done: set[int] = set()
        self.refused: list[int] = []
        self.ready = False

    @property
    def acknowledged(self) -> set[int]:
        return set(self.done)

    def owed(self) -> str:
        """What waits for an answer: packet ids with their states in paho, and the connection's own address."""
        sock: Any = self.paho.client.socket()
        waiting = [f"{mid} {one.state.name}" for mid, one in list(self.paho.client._out_messages.items())]
        return f" ({'; '.join(waiting)}; {'no connection' if sock is None else sock.getsockname()})"

    def _connected(self, _client: object, _data: object, _flags: object, code: Any, _properties: object) -> None:
        self.ready = not code.is_failure
        self.connects += 1

    def _published(self, _client: object, _data: object, mid: int, code: Any, _properties: object) -> None:
        number = self.numbers[mid]
        # paho does not look at a PUBREC that refuses, and goes on with PUBREL. Otherwise "packet identifier not found"
        # answers a PUBREL that was repeated: the message was taken.
        if code.is_failure and (self.may_refuse or code.value != PACKET_ID_NOT_FOUND):
            self.refused.append(number)
        else:
            self.done.add(number)

    def live(self) -> None:
        while not self.ended.is_set():
            self.ready = False
            if self.paho.connect():
                self._flow()
            self.ended.wait(AGAIN_S)
        self.paho.close()

    def _flow(self) -> None:
        due = time.monotonic()
        while not self.ended.is_set() and self.paho.turn(self.pace_s):
            outstanding = self.sent - len(self.done) - len(self.refused)
            if self.ready and not self.quiet.is_set() and outstanding < self.WINDOW and time.monotonic() >= due:
                due = time.monotonic() + self.pace_s
                topic, payload = self.next_message()
                # The callback cannot come between these two lines: it is called by this thread.
                info = self.paho.client.publish(topic, payload, self.qos)
                self.numbers[info.mid] = self.sent


class PahoSubscriber(Subscriber):
    """paho that keeps its state of QoS 2 across connections."""

    def __init__(self, name: str, qos: int, door: Door, version: int) -> None:
        super().__init__(name, qos, door)
        self.paho = Paho(name, door, version)
        self.paho.client.on_connect = self._connected
        self.paho.client.on_subscribe = lambda *_: self.subscribed.set()
        self.paho.client.on_message = self._message

    def _connected(self, client: paho.Client, _data: object, flags: Any, code: Any, _properties: object) -> None:
        self.connects += 1
        if code.is_failure:
            return
        if self.subscribed.is_set() and not flags.session_present:
            self.broken.append(f"{self.name} was told that it has no session")
        if not self.subscribed.is_set():
            client.subscribe(FILTER, self.qos)

    def _message(self, _client: object, _data: object, message: Any) -> None:
        self.arrived.append((message.topic, message.payload.decode()))

    def live(self) -> None:
        while not self.ended.is_set():
            if self.paho.connect():
                while not self.ended.is_set() and self.paho.turn(0.02):
                    if self.hops.is_set():
                        self.hops.clear()
                        self.paho.drop()
            self.ended.wait(AGAIN_S)
        self.paho.close()
