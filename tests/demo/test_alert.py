"""The subscriber: subscribes once, goes elsewhere when its node is gone, keeps what comes as often as it comes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from folkmoot.demo import alert, roam
from folkmoot.demo.alert import Desk
from folkmoot.kernel.errors import FolkmootError

ACCEPTED = ReasonCode(PacketTypes.CONNACK, "Success")
REFUSED = ReasonCode(PacketTypes.CONNACK, "Server busy")
GRANTED = ReasonCode(PacketTypes.SUBACK, "Granted QoS 2")
NOT_GRANTED = ReasonCode(PacketTypes.SUBACK, "Not authorized")
NODES = [("127.0.0.1", 1), ("127.0.0.1", 2), ("127.0.0.1", 3)]


class Paho:
    """Stands for paho's client: `asked` is what it subscribed to, `ports` where it was told to connect."""

    newest: ClassVar[Paho]

    def __init__(self, *_: object, **__: object) -> None:
        self.asked: list[tuple[str, int]] = []
        self.ports: list[int] = []
        self.goodbyes = 0
        self.on_connect: Any = None
        self.on_connect_fail: Any = None
        self.on_disconnect: Any = None
        self.on_subscribe: Any = None
        self.on_message: Any = None
        Paho.newest = self

    def accept(self, present: bool, code: ReasonCode = ACCEPTED) -> None:
        self.on_connect(self, None, SimpleNamespace(session_present=present), code, None)

    def grant(self, code: ReasonCode = GRANTED) -> None:
        self.on_subscribe(self, None, 1, [code], None)

    def bring(self, payload: bytes) -> None:
        self.on_message(self, None, SimpleNamespace(topic="alerts/JFK/AA", payload=payload))

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self.asked.append((topic_filter, qos))

    def connect_async(self, _host: str, port: int, **_: object) -> None:
        self.ports.append(port)

    def reconnect_delay_set(self, _least: int, _most: int) -> None: ...

    def loop_start(self) -> None: ...

    def loop_stop(self) -> None: ...

    def disconnect(self) -> None:
        self.goodbyes += 1
        self.on_disconnect(self, None)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk that has just been opened, and does not wait at all for what it has to wait for."""
    monkeypatch.setattr("paho.mqtt.client.Client", Paho)
    monkeypatch.setattr(alert, "_START_S", 0.0)
    monkeypatch.setattr(roam, "_REST_S", 0.0)
    return Desk(NODES)


def test_it_is_ready_when_the_subscription_is_granted(desk: Desk) -> None:
    paho = Paho.newest
    with pytest.raises(FolkmootError):
        desk.ready()
    paho.accept(False)
    paho.grant(NOT_GRANTED)
    with pytest.raises(FolkmootError):
        desk.ready()
    paho.grant()
    desk.ready()
    assert paho.asked == [("alerts/#", 2)]


def test_it_goes_to_the_next_node_and_does_not_subscribe_again(desk: Desk) -> None:
    paho = Paho.newest
    paho.accept(False)
    paho.grant()
    paho.on_disconnect(paho, None)
    paho.on_connect_fail(paho, None)
    paho.accept(True)
    assert paho.ports == [1, 2, 3]
    assert paho.asked == [("alerts/#", 2)]
    assert desk.connects == 2


def test_a_session_that_was_lost_is_not_hidden_by_a_new_subscription(desk: Desk) -> None:
    paho = Paho.newest
    paho.accept(False, REFUSED)
    assert paho.asked == []
    paho.accept(False)
    paho.grant()
    paho.accept(False)
    assert len(paho.asked) == 1


def test_what_comes_twice_is_there_twice(desk: Desk) -> None:
    for payload in (b"1", b"2", b"2"):
        Paho.newest.bring(payload)
    assert [(found.topic, found.payload) for found in desk.alerts] == [
        ("alerts/JFK/AA", payload) for payload in (b"1", b"2", b"2")
    ]
    assert desk.await_count(3, 0.0)
    assert not desk.await_count(4, 0.0)


def test_a_goodbye_goes_nowhere_else(desk: Desk) -> None:
    desk.close()
    assert Paho.newest.ports == [1]


def test_a_connection_that_comes_up_after_the_goodbye_hears_it_too(desk: Desk) -> None:
    paho = Paho.newest
    desk.close()
    paho.accept(True)
    paho.on_connect_fail(paho, None)
    assert (paho.goodbyes, desk.connects, len(paho.ports)) == (2, 0, 1)
