"""The access list at the broker: what a client may publish and subscribe to, told with 0x87 where MQTT can."""

from __future__ import annotations

import pytest

from folkmoot.auth.acl import BOTH as ANYTHING
from folkmoot.auth.acl import PUBLISH, SUBSCRIBE, Rule
from folkmoot.auth.policy import Policy
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBACK, PUBREC, V5, V311, Ack, Connect, Publish, Will
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.version import BOTH

RULES = [
    Rule(True, ANYTHING, "*", "bystander", [b"bystander"]),
    Rule(True, ANYTHING, "*", "boss", [b"#"]),
    Rule(False, ANYTHING, "*", "*", [b"secret/#"]),
    Rule(True, PUBLISH, "*", "*", [b"in/#", b"own/%c"]),
    Rule(True, SUBSCRIBE, "*", "*", [b"out/#"]),
]


@pytest.fixture
def guarded(make: MakeBox) -> Box:
    return make(policy=Policy(RULES, False))


@pytest.mark.parametrize("qos", [1, 2])
def test_a_denied_publish_is_told(guarded: Box, qos: int) -> None:
    boss, peer = guarded.client("boss"), guarded.client("a")
    boss.connect()
    boss.subscribe("#", qos=2)
    peer.connect()
    for topic in ("out/x", "secret/x", "own/b"):
        assert peer.publish(topic, b"no", qos=qos) == 0x87
    for topic in ("in/x", "own/a"):
        assert peer.publish(topic, b"yes", qos=qos) == 0
    assert boss.messages() == [("in/x", b"yes"), ("own/a", b"yes")]


@pytest.mark.spec("MQTT-3.3.5-2", version="3.1.1")
@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_a_denied_publish_of_311_is_acknowledged_and_dropped(guarded: Box, qos: int, kind: int) -> None:
    boss, peer = guarded.client("boss"), guarded.client("a", V311, acks=False)
    boss.connect()
    boss.subscribe("#", qos=2)
    peer.connect()
    peer.send(Publish(b"out/x", b"no", qos, retain=True, packet_id=7))
    ack = peer.expect(Ack)
    assert (ack.kind, ack.packet_id) == (kind, 7)
    assert not peer.closed
    boss.subscribe("out/x")
    assert boss.messages() == []


@BOTH
def test_a_denied_qos_0_publish_is_dropped(guarded: Box, version: int) -> None:
    boss, peer = guarded.client("boss"), guarded.client("a", version)
    boss.connect()
    boss.subscribe("#")
    peer.connect()
    peer.publish("out/x", b"no")
    peer.publish("in/x", b"yes")
    peer.publish("out/x", b"no")
    assert boss.payloads() == [b"yes"]
    peer.ping()


@BOTH
def test_a_denied_subscription_is_told(guarded: Box, version: int) -> None:
    boss, peer = guarded.client("boss"), guarded.client("a", version)
    boss.connect()
    peer.connect()
    denied = 0x87 if version == V5 else 0x80
    assert peer.subscribe("#", "out/x", "in/x", "secret/#", "$share/g/secret/x") == [denied, 0, denied, denied, denied]
    for topic in ("in/x", "secret/x", "out/x"):
        boss.publish(topic, topic.encode(), qos=1)
    assert peer.payloads() == [b"out/x"]


@BOTH
def test_retained_messages_hide_behind_a_denied_subscription(guarded: Box, version: int) -> None:
    boss, peer = guarded.client("boss"), guarded.client("a", version)
    boss.connect()
    boss.publish("secret/x", b"hidden", qos=1, retain=True)
    peer.connect()
    peer.subscribe("secret/x", "#")
    assert peer.messages() == []


def test_a_will_must_be_allowed(guarded: Box) -> None:
    peer = guarded.client("a")
    peer.connect(will=Will(b"out/x", b"gone"), code=0x87)
    assert peer.closed
    peer.connect(will=Will(b"in/x", b"gone"))


def test_wrong_passwords_are_told(make: MakeBox) -> None:
    box = make(check=lambda username, password, client_id: (username, password) == ("user", b"right"))
    peer, old = box.client("a"), box.client("b", V311)
    peer.connect(username="user", password=b"wrong", code=0x86)
    old.connect(username="user", password=b"wrong", code=4)
    peer.connect(username="user", password=b"right")
    old.connect(username="user", password=b"right")


def test_anonymous_clients_can_be_kept_out(make: MakeBox) -> None:
    box = make(bystander=False, allow_anonymous=False, check=lambda username, password, client_id: True)
    peer, old = box.client("a"), box.client("b", V311)
    peer.connect(code=0x87)
    old.connect(code=5)
    peer.connect(username="user")


def test_the_name_in_a_certificate_can_stand_for_the_password(make: MakeBox) -> None:
    rules = [Rule(True, ANYTHING, "device-7", "*", [b"device/7"])]
    box = make(bystander=False, allow_anonymous=False, user_from_certificate=True, policy=Policy(rules, False))
    peer = box.client("a").open("tls", "device-7")
    peer.connect()
    assert peer.subscribe("device/7", "device/8") == [0, 0x87]
    stranger = box.client("b").open("tls")
    stranger.connect(code=0x87)


def test_a_will_is_judged_by_the_client_id_that_the_server_gives(make: MakeBox) -> None:
    rules = [Rule(False, PUBLISH, "*", "auto-*", [b"w"])]
    box = make(policy=Policy(rules, True))
    box.client("").connect(will=Will(b"w", b"will", 0, False), code=0x87)
    box.client("").connect(will=Will(b"other", b"will", 0, False))


def certified(make: MakeBox) -> Box:
    check = lambda username, password, client_id: True  # noqa: E731
    return make(policy=Policy(RULES, True), check=check, client_id_owner=False)


@BOTH
@pytest.mark.parametrize("online", [False, True])
def test_what_waits_for_one_user_is_not_for_another_with_the_same_client_id(
    make: MakeBox, version: int, online: bool
) -> None:
    box = certified(make)
    source, peer = box.client("s"), box.client("device", version)
    source.connect(username="s", password=b"")
    peer.resume(username="ann", password=b"")
    peer.subscribe("t", qos=1)
    if not online:
        peer.lose()
        source.publish("t", b"for ann", qos=1)
    other = box.client("device", version)
    assert not other.resume(username="bob", password=b"").session_present
    source.publish("t", b"for ann too", qos=1)
    assert other.payloads() == []
    assert "session_of_another" in box.kinds()
    other.lose()
    assert other.resume(username="bob", password=b"").session_present, "it is the session of bob now"


def test_a_session_from_before_there_were_users_goes_on(make: MakeBox) -> None:
    box = make(check=lambda username, password, client_id: True)
    source, peer = box.client("s"), box.client("a")
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    source.publish("t", b"m", qos=1)
    assert peer.resume(username="ann", password=b"").session_present
    assert peer.payloads() == [b"m"]


def test_names_that_nobody_has_proved_make_no_difference(box: Box) -> None:
    peer = box.client("a")
    peer.resume(username="ann", password=b"")
    peer.lose()
    assert peer.resume(username="bob", password=b"").session_present


@pytest.mark.parametrize("name", ["out/x", "$share/g/out/y"])
def test_a_right_that_was_taken_away_ends_stored_subscriptions(guarded: Box, name: str) -> None:
    boss, peer = guarded.client("boss"), guarded.client("a")
    boss.connect()
    peer.resume()
    assert peer.subscribe(name, "out/kept", qos=1) == [1, 1]
    rules = [*RULES[:3], Rule(True, ANYTHING, "*", "*", [b"out/kept"])]
    guarded.config.policy = Policy(rules, False)
    for _ in range(2):
        guarded.crash()
        boss.connect()
        assert peer.resume().session_present
        for topic in ("out/x", "out/y", "out/kept"):
            boss.publish(topic, b"m", qos=1)
        assert peer.messages() == [("out/kept", b"m")]
        guarded.settle()
        guarded.config.policy = Policy(RULES, False)  # given back, it must be asked for again
    assert guarded.node.counters.acl_denied_subscribe == 0


@pytest.mark.parametrize(("version", "code"), [(5, 0x89), (4, 3)])
def test_a_client_for_whose_check_there_is_no_room_is_told_to_come_again(
    make: MakeBox, version: int, code: int
) -> None:
    box = make(check=lambda username, password, client_id: "no room" if password == b"much" else True)
    box.client("a", version).connect(username="ann", password=b"much", code=code)
    box.client("a", version).connect(username="ann", password=b"little")


def test_a_client_whose_password_is_checked_is_not_read_when_it_sends_more(make: MakeBox) -> None:
    """It may have no right to anything; a small packet behind CONNECT is common, and waits."""
    box = make(check=lambda username, password, client_id: None)
    for size, paused in ((500, False), (2_000, True)):
        peer = box.client(f"of{size}").open()
        peer.send(Connect(5, "a", True, 0, "ann", b"secret", None, None))
        peer.raw(encode(Publish(b"t", bytes(size), 0, False, False, 0), 5))
        assert peer.paused == paused
