"""--url: what it says, and that a wrong one does not show its password."""

from __future__ import annotations

import pytest

from folkmoot.cli.error import Refusal
from folkmoot.cli.url import parse_url


@pytest.mark.parametrize(
    ("url", "shown", "topic"),
    [
        ("mqtt://h", "mqtt://h:1883", ""),
        ("mqtts://h", "mqtts://h:8883", ""),
        ("ws://h/a/b", "ws://h:80", "a/b"),
        ("wss://h/", "wss://h:443", ""),
        ("mqtt://h:18/a/+/#", "mqtt://h:18", "a/+/#"),
        ("mqtt://[::1]:18//a", "mqtt://[::1]:18", "/a"),
        ("mqtt://[::1]/a?b", "mqtt://[::1]:1883", "a?b"),
        ("mqtt://ann:secret@h/t", "mqtt://h:1883", "t"),
    ],
)
def test_place_and_topic(url: str, shown: str, topic: str) -> None:
    address = parse_url(url)
    assert str(address) == shown
    assert address.topic == topic


def test_user_and_password() -> None:
    address = parse_url("mqtt://a%40b:p%3Aw@h")
    assert (address.username, address.password, address.host) == ("a@b", "p:w", "h")
    address = parse_url("mqtt://ann@h")
    assert (address.username, address.password) == ("ann", None)
    assert parse_url("mqtt://h").username is None


@pytest.mark.parametrize(
    "url",
    [
        *["h", "http://h", "//h", "mqtt://", "mqtt:///t", "mqtt://h:0", "mqtt://h:70000", "mqtt://h:x", "mqtt://h:²"],
        *["mqtt://::1", "mqtt://ann:pazz@", "mqtt://ann:pazz/word@h", "ann:pazz@h", "ann:pazz://h"],
    ],
)
def test_what_is_no_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(Refusal, match="HOST") as refused:
        parse_url(url)
    assert "pazz" not in str(refused.value)
