"""When a device publishes: its numbers must reach the broker in order, and paho keeps an order only on a connection."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from folkmoot.demo import fleet, roam
from folkmoot.demo.fleet import Device
from folkmoot.demo.flight import Event
from folkmoot.kernel.errors import FolkmootError

ACCEPTED = ReasonCode(PacketTypes.CONNACK, "Success")
REFUSED = ReasonCode(PacketTypes.CONNACK, "Server busy")
DONE = ReasonCode(PacketTypes.PUBACK, "Success")


class Paho:
    """Stands for paho's client: the test says when there is a connection; `given` is what it was told to publish."""

    newest: ClassVar[Paho]

    def __init__(self, *_: object, **__: object) -> None:
        self.given: list[bytes] = []
        self.on_connect: Any = None
        self.on_disconnect: Any = None
        self.on_publish: Any = None
        Paho.newest = self

    def publish(self, _topic: str, payload: bytes, **_: object) -> None:
        self.given.append(payload)

    def accept(self, code: ReasonCode = ACCEPTED) -> None:
        self.on_connect(self, None, {}, code, None)

    def acknowledge(self) -> None:
        self.on_publish(self, None, 1, DONE, None)

    def lose(self) -> None:
        self.on_disconnect(self, None)

    def reconnect_delay_set(self, _least: int, _most: int) -> None: ...

    def max_inflight_messages_set(self, _count: int) -> None: ...

    def connect_async(self, _host: str, _port: int, **_: object) -> None: ...

    def loop_start(self) -> None: ...


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device that has just been started, and does not wait at all for what it has to wait for."""
    monkeypatch.setattr("paho.mqtt.client.Client", Paho)
    monkeypatch.setattr(fleet, "_STUCK_S", 0.0)
    monkeypatch.setattr(roam, "_REST_S", 0.0)
    return Device(0, [("127.0.0.1", 1), ("127.0.0.1", 2)])


def publish(device: Device, payload: bytes) -> None:
    device.publish(Event("", "nyc/t", payload))


def waits(device: Device) -> bool:
    """Whether the device would publish nothing now; it gives up at once."""
    before = list(Paho.newest.given)
    with pytest.raises(FolkmootError):
        publish(device, b"early")
    return Paho.newest.given == before and device.published == len(before)


def test_nothing_is_published_before_the_first_connection_is_accepted(device: Device) -> None:
    assert waits(device)
    Paho.newest.accept(REFUSED)
    Paho.newest.lose()
    assert waits(device)
    Paho.newest.accept()
    publish(device, b"0")
    publish(device, b"1")
    assert Paho.newest.given == [b"0", b"1"]


def test_nothing_new_is_published_after_a_loss_until_all_old_is_acknowledged(device: Device) -> None:
    Paho.newest.accept()
    publish(device, b"0")
    publish(device, b"1")
    Paho.newest.lose()
    assert waits(device)
    Paho.newest.accept()
    Paho.newest.acknowledge()
    assert waits(device)
    Paho.newest.acknowledge()
    publish(device, b"2")
    assert Paho.newest.given == [b"0", b"1", b"2"]


def test_what_was_idle_when_its_connection_was_lost_goes_on_with_the_next_one(device: Device) -> None:
    Paho.newest.accept()
    publish(device, b"0")
    Paho.newest.acknowledge()
    Paho.newest.lose()
    assert waits(device)
    Paho.newest.accept()
    publish(device, b"1")
    assert Paho.newest.given == [b"0", b"1"]
