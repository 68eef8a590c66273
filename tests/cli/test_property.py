"""-D: its words, and what MQTT lets them say."""

from __future__ import annotations

import pytest
from paho.mqtt.packettypes import PacketTypes

from folkmoot.cli.error import Refusal
from folkmoot.cli.property import COMMANDS, PROPERTIES, join_words, new_properties, parse_properties, text_bytes
from folkmoot.mqtt.kind import CONNECT, DISCONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE
from folkmoot.mqtt.packet import Properties
from folkmoot.mqtt.property_decode import decode_properties

COUNTS = {"-D": 1, "--property": 1, "-m": 1, "--message": 1, "-t": 1, "-r": 0, "-d": 0, "--retain": 0}
KINDS = {"connect": CONNECT, "publish": PUBLISH, "subscribe": SUBSCRIBE, "unsubscribe": UNSUBSCRIBE}
KINDS["disconnect"] = DISCONNECT


def joined(text: str) -> list[str]:
    return join_words(text.split(), COUNTS)


def parsed(text: str) -> dict[str, Properties]:
    """What the words say, packed by paho and read again by the broker's decoder."""
    found = {}
    for command, properties in parse_properties([word for word in joined(text) if word != "-D"]).items():
        data = properties.pack()  # type: ignore[no-untyped-call]
        decoded = decode_properties(data, 0, KINDS[command])[0]
        assert decoded is not None
        found[command] = decoded
    return found


def test_three_words_become_one_and_four_for_a_user_property() -> None:
    assert joined("-D publish content-type text/plain -r") == ["-D", "publish\0content-type\0text/plain", "-r"]
    assert joined("-D publish user-property a=b c -r") == ["-D", "publish\0user-property\0a=b\0c", "-r"]
    assert joined("--property connect receive-maximum 1") == ["--property", "connect\0receive-maximum\x001"]


@pytest.mark.parametrize(
    "text", ["-m -D -t x", "--message -D -t x", "-rm -D -t x", "-m-D -t x", "--message=-D -t x", "-t x -- -D", "-r -"]
)
def test_the_value_of_another_option_is_left_alone(text: str) -> None:
    assert joined(text) == text.split()


@pytest.mark.parametrize("text", ["-D", "-D publish", "-D publish content-type", "-D publish user-property k"])
def test_too_few_words_are_refused_with_the_form(text: str) -> None:
    with pytest.raises(Refusal, match="-D COMMAND"):
        joined(text)


def test_what_is_said_is_what_a_broker_reads() -> None:
    found = parsed(
        "-D publish payload-format-indicator 1 -D publish message-expiry-interval 60 -D publish content-type text/csv "
        "-D publish response-topic to/me -D publish correlation-data id-7 -D publish topic-alias 3 "
        "-D publish user-property k v -D publish user-property k w "
        "-D connect receive-maximum 9 -D connect maximum-packet-size 1000 -D connect topic-alias-maximum 0 "
        "-D subscribe subscription-identifier 268435455 -D disconnect session-expiry-interval 4294967295"
    )
    publish = found["publish"]
    assert (publish.payload_format, publish.message_expiry, publish.content_type) == (1, 60, "text/csv")
    assert (publish.response_topic, publish.correlation_data, publish.topic_alias) == (b"to/me", b"id-7", 3)
    assert publish.user_properties == [("k", "v"), ("k", "w")]
    connect = found["connect"]
    assert (connect.receive_max, connect.packet_max, connect.topic_alias_max) == (9, 1000, 0)
    assert found["subscribe"].subscription_ids == [268_435_455]
    assert found["disconnect"].session_expiry == 0xFFFFFFFF


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("send\0content-type\0x", "connect, publish, subscribe"),
        ("publish\0contenttype\0x", "did you mean content-type"),
        ("connect\0content-type\0x", "belongs to publish and will"),
        ("publish\0zzz\0x", "publish has payload-format-indicator"),
        ("publish\0topic-alias\x000", "from 1 to 65535"),
        ("publish\0topic-alias\x00-1", "from 1 to 65535"),
        ("publish\0message-expiry-interval\0soon", "from 0 to 4294967295"),
        ("publish\0message-expiry-interval\x004294967296", "from 0 to 4294967295"),
        ("publish\0message-expiry-interval\0²", "whole number"),
        ("publish\0payload-format-indicator\x002", "from 0 to 1"),
        ("publish\0content-type\0\udcff", "UTF-8"),
        ("publish\0correlation-data\0" + "x" * 65_536, "65535"),
    ],
)
def test_what_mqtt_does_not_have_is_refused_with_advice(words: str, advice: str) -> None:
    with pytest.raises(Refusal, match=advice):
        parse_properties([words])


def test_a_property_that_may_be_sent_once_is_refused_twice() -> None:
    with pytest.raises(Refusal, match="twice"):
        parse_properties(["publish\0content-type\0a", "publish\0content-type\0b"])


def test_correlation_data_may_be_any_bytes() -> None:
    found = parse_properties(["publish\0correlation-data\0\udcff\udcfe"])
    assert vars(found["publish"])["CorrelationData"] == b"\xff\xfe"


def test_every_property_that_a_client_may_send_is_there() -> None:
    # The table of paho says nothing of directions: these two only a server sends there.
    of_server = {("publish", "SubscriptionIdentifier"), ("disconnect", "ServerReference")}
    known = new_properties(PacketTypes.PUBLISH)
    expected = {
        (command, name.replace(" ", ""))
        for command, packet in COMMANDS.items()
        for name, number in known.names.items()
        if packet in known.properties[number][1]
    }
    ours = {(command, attribute) for attribute, _kind, commands in PROPERTIES.values() for command in commands}
    assert ours == expected - of_server


def test_text_has_the_length_of_mqtt() -> None:
    assert len(text_bytes("-t", "é" * 32_767)) == 65_534
    with pytest.raises(Refusal, match="65535"):
        text_bytes("-t", "é" * 32_768)
