"""The options of the connection: what follows from them, and which do not go together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from folkmoot.cli.connection import PASSWORD_VARIABLE, Connection, ConnectionOptions, connected
from folkmoot.cli.error import Refusal

CERTIFICATES = Path(__file__).parents[1] / "integration" / "certificates"
FOR_EVER = 0xFFFFFFFF


def made(environment: dict[str, str] | None = None, **given: Any) -> Connection:
    return Connection(ConnectionOptions(**given), "sub", environment or {})


def test_without_options() -> None:
    connection = made()
    assert str(connection.address) == "mqtt://127.0.0.1:1883"
    assert connection.version == MQTTProtocolVersion.MQTTv5
    assert (connection.client_id, connection.clean, connection.session_expiry_s) == ("", True, 0)
    assert (connection.username, connection.password, connection.will, connection.tls) == (None, None, None, None)
    assert connection.properties == {}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"host": "h"}, "mqtt://h:1883"),
        ({"port": 7}, "mqtt://127.0.0.1:7"),
        ({"tls": True}, "mqtts://127.0.0.1:8883"),
        ({"cafile": CERTIFICATES / "ca.pem"}, "mqtts://127.0.0.1:8883"),
        ({"ws": True}, "ws://127.0.0.1:80"),
        ({"ws": True, "tls": True, "port": 9}, "wss://127.0.0.1:9"),
        ({"url": "wss://x:1/t"}, "wss://x:1"),
    ],
)
def test_the_place(given: dict[str, Any], shown: str) -> None:
    assert str(made(**given).address) == shown


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"version": "4"}, "5, 311 and 31"),
        ({"url": "mqtt://h", "host": "h"}, "omit -h"),
        ({"url": "mqtt://h", "port": 1}, "omit -h"),
        ({"url": "mqtt://h", "tls": True}, "mqtts"),
        ({"url": "mqtt://h", "ws": True}, "ws://"),
        ({"insecure": True}, "--cafile"),
        ({"persistent": True}, "-i"),
        ({"client_id": "a", "id_prefix": "b"}, "one of them"),
        ({"version": "311", "session_expiry": "1"}, "version 5"),
        ({"version": "311", "properties": ["connect\0receive-maximum\x001"]}, "version 5"),
        ({"session_expiry": "soon"}, "-1 for no end"),
        ({"session_expiry": str(FOR_EVER + 1)}, "-1 for no end"),
        ({"session_expiry": "1", "properties": ["connect\0session-expiry-interval\x001"]}, "one of them"),
        ({"password": "x"}, "-u USER"),
        ({"username": "u", "url": "mqtt://v@h"}, "one of them"),
        ({"username": "u", "password": "x", "password_file": Path("y")}, "once"),
        ({"username": "u", "password_file": Path("/no/such")}, "can be read"),
        ({"will_payload": "x"}, "--will-topic"),
        ({"properties": ["will\0content-type\0x"]}, "--will-topic"),
        ({"will_topic": "a/#"}, "wildcard"),
        ({"tls": True, "key": Path("k")}, "--cert"),
        ({"cafile": Path("/no/such")}, "no such file"),
        ({"cafile": Path(__file__)}, "PEM"),
        ({"cert": CERTIFICATES / "client.pem", "key": CERTIFICATES / "server.key"}, "do not match"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], advice: str) -> None:
    with pytest.raises(Refusal, match=advice) as refused:
        made(**given)
    assert refused.value.status == 2


def test_the_session() -> None:
    persistent = made(persistent=True, client_id="c")
    assert (persistent.clean, persistent.session_expiry_s) == (False, FOR_EVER)
    assert vars(persistent.properties["connect"])["SessionExpiryInterval"] == FOR_EVER
    assert made(session_expiry="-1").session_expiry_s == FOR_EVER
    short = made(persistent=True, client_id="c", session_expiry="60")
    assert vars(short.properties["connect"])["SessionExpiryInterval"] == 60
    by_property = made(persistent=True, client_id="c", properties=["connect\0session-expiry-interval\x007"])
    assert by_property.session_expiry_s == 7
    old = made(version="311", persistent=True, client_id="c")
    assert (old.clean, old.properties) == (False, {})


def test_one_message_at_a_time_only_where_a_session_stays() -> None:
    short = made()
    short.receive_singly()
    assert short.properties == {}
    stays = made(persistent=True, client_id="c")
    stays.receive_singly()
    assert vars(stays.properties["connect"])["ReceiveMaximum"] == 1
    chosen = made(persistent=True, client_id="c", properties=["connect\0receive-maximum\x005"])
    chosen.receive_singly()
    assert vars(chosen.properties["connect"])["ReceiveMaximum"] == 5


def test_client_ids() -> None:
    assert made(client_id="me").client_id == "me"
    assert made(id_prefix="me-").client_id == f"me-{os.getpid()}"
    old = made(version="31").client_id
    assert old.startswith("folkmoot-sub-")
    assert len(old) <= 23
    assert old != made(version="31").client_id


def test_the_password_comes_from_one_place(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from file\r\nsecond line\n", encoding="utf-8")
    environment = {PASSWORD_VARIABLE: "from environment"}
    assert made(environment, username="u").password == "from environment"
    assert made(environment, username="u", password="given").password == "given"
    assert made(environment, username="u", password_file=file).password == "from file"
    assert made(environment, url="mqtt://u:url@h").password == "url"
    assert made({}, username="u").password is None
    # Set for other purposes, it must not make every call an error.
    assert made(environment).password is None
    file.write_text("\nx\n", encoding="utf-8")
    with pytest.raises(Refusal, match="first line"):
        made(username="u", password_file=file)


def test_the_will() -> None:
    will = made(
        will_topic="w",
        will_payload="\udcff",
        will_qos=2,
        will_retain=True,
        properties=["will\0will-delay-interval\x005"],
    ).will
    assert will is not None
    assert (will.topic, will.payload, will.qos, will.retain) == ("w", b"\xff", 2, True)
    assert will.properties is not None
    assert vars(will.properties)["WillDelayInterval"] == 5


def test_insecure_is_about_the_name_and_nothing_else() -> None:
    strict, lax = made(tls=True).tls, made(tls=True, insecure=True).tls
    assert strict is not None
    assert lax is not None
    assert strict.check_hostname
    assert not lax.check_hostname
    assert lax.verify_mode == strict.verify_mode


def test_a_command_gets_its_own_options_and_the_shared_ones() -> None:
    given: list[tuple[ConnectionOptions, str]] = []

    @click.command()
    @connected
    @click.option("-t", "--topic", default="t")
    def command(options: ConnectionOptions, topic: str) -> int:
        given.append((options, topic))
        return len(topic)

    names = [parameter.name for parameter in command.params]
    assert names[-1] == "topic"
    assert "options" not in names
    assert {"host", "version", "will_topic"} < set(names)
    assert command.main(["-h", "h", "--topic", "abc"], standalone_mode=False) == 3
    assert command.main([], standalone_mode=False) == 1
    (first, topic), (second, _) = given
    assert (first.host, topic) == ("h", "abc")
    assert vars(second) == vars(ConnectionOptions()), "the defaults are told once"
