"""The forms in which sub prints a message."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from folkmoot.cli.app import COMMANDS
from folkmoot.cli.error import Refusal
from folkmoot.cli.line import LETTERS, PROPERTIES, Received, Template, json_line, payload_line, topic_line

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
TIME_NS = 1_795_175_223_264_339_123


def received(payload: bytes = b"hi", *, qos: int = 1, retain: bool = True, **properties: Any) -> Received:
    message = MQTTMessage(7, b"a/b")
    message.payload = payload
    message.qos = qos
    message.retain = retain
    message.properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    for name, value in properties.items():
        setattr(message.properties, name, value)
    return Received(message, "a/b", TIME_NS)


def full() -> Received:
    return received(
        PayloadFormatIndicator=1,
        MessageExpiryInterval=60,
        ContentType="text/plain",
        ResponseTopic="to/me",
        CorrelationData=b"\x00\xff",
        SubscriptionIdentifier=[3, 4],
        UserProperty=[("k", "v"), ("k", "w")],
    )


def formatted(template: str, message: Received | None = None) -> bytes:
    return Template(template)(message or full())


def test_plain_forms() -> None:
    assert payload_line(received(b"\xff\x00")) == b"\xff\x00"
    assert topic_line(received()) == b"a/b hi"
    assert topic_line(received(b"")) == b"a/b (null)"


def test_json_has_all_of_a_message() -> None:
    found = json.loads(json_line(full()))
    assert found == {
        "time": "2026-11-20T11:47:03.264339Z",
        "time_us": TIME_NS // 1000,
        "topic": "a/b",
        "qos": 1,
        "retain": True,
        "dup": False,
        "payload": "hi",
        "payload_format_indicator": 1,
        "message_expiry_interval": 60,
        "content_type": "text/plain",
        "response_topic": "to/me",
        "correlation_data_base64": "AP8=",
        "subscription_identifiers": [3, 4],
        "user_properties": [["k", "v"], ["k", "w"]],
    }
    assert b"\n" not in json_line(received(b"a\nb"))


def test_a_payload_that_is_no_text_is_base64() -> None:
    found = json.loads(json_line(received(b"\xff\xfe")))
    assert found["payload_base64"] == "//4="
    assert "payload" not in found
    assert json.loads(json_line(received("é".encode())))["payload"] == "é"


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("%t %p", b"a/b hi"),
        ("%q%r%l%m", b"1127"),
        ("%x %X", b"6869 6869"),
        ("%C|%D|%E|%F", b"text/plain|\x00\xff|60|1"),
        ("%P|%R|%S|%A", b"k:v k:w|to/me|3,4|"),
        ("%U @N", b"1795175223.264339123 264339123"),
        (r"\t\n\\\0\e", b"\t\n\\\0\x1b"),
        ("100%% @@ é", "100% @ é".encode()),
        ("%10t|%-10t|%.2t|%5.2t|%05l|%-05l|", b"       a/b|a/b       |a/|   a/|00002|2    |"),
        ("", b""),
        ("\udcff", b"\xff"),
    ],
)
def test_format(template: str, line: bytes) -> None:
    assert formatted(template) == line


def test_without_properties_they_print_nothing() -> None:
    assert formatted("[%A%C%D%E%F%P%R%S]", received()) == b"[]"


def test_times_are_local_as_mosquitto_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    try:
        assert formatted("%I @H:@M") == b"2026-11-20T13:47:03+0200 13:47"
        assert json.loads(formatted("%j"))["tst"] == "2026-11-20T13:47:03.264339+0200"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_json_of_mosquitto() -> None:
    found = json.loads(formatted("%j"))
    del found["tst"]
    assert found == {
        "topic": "a/b",
        "qos": 1,
        "retain": 1,
        "payloadlen": 2,
        "mid": 7,
        "properties": {
            "payload-format-indicator": 1,
            "message-expiry-interval": 60,
            "content-type": "text/plain",
            "response-topic": "to/me",
            "correlation-data": "\x00\ufffd",
            "subscription-identifier": [3, 4],
            "user-properties": {"k": "w"},
        },
        "payload": "hi",
    }
    plain = json.loads(formatted("%j", received(b'{"x": 1}', qos=0)))
    assert "mid" not in plain
    assert "properties" not in plain
    assert plain["payload"] == '{"x": 1}'
    assert json.loads(formatted("%J", received(b'{"x": 1}')))["payload"] == {"x": 1}
    assert json.loads(formatted("%J", received(b"{x")))["payload"] == "{x"


@pytest.mark.parametrize("template", ["%y", "%10y", "%", "@", "@?", "\\", "\\q", "abc%"])
def test_what_is_no_format_is_refused_before_anything_is_printed(template: str) -> None:
    with pytest.raises(Refusal, match="-F"):
        Template(template)


def test_the_documentation_has_every_letter_and_name() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    names = [ours for ours, _theirs in PROPERTIES.values() if ours != "topic_alias"]
    wanted = [*(f"`%{letter.decode()}`" for letter in LETTERS), *(f"`{name}`" for name in names)]
    assert [item for item in wanted if item not in text] == []


def test_the_documentation_has_every_command() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [entry.name for entry in COMMANDS if f"## folkmoot {entry.name}\n" not in text] == []
