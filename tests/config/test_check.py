"""Secure by default, and settings that do not go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from folkmoot.config import ConfigError, PasswordFile, Settings, load
from folkmoot.config.check import allows_anonymous

OPEN = {"protocol": "mqtt", "address": "0.0.0.0:1883"}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Files that exist, as `load` only looks whether they can be read."""
    names = {}
    for name in ("certificate", "key", "ca", "token", "password"):
        path = tmp_path / name
        path.write_text("", encoding="utf-8")
        names[name] = str(path)
    return names


def refused(tables: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as raised:
        load(None, {}, tables)
    return "\n".join(raised.value.faults)


def tls(files: dict[str, str], **more: object) -> dict[str, object]:
    return {"certificate": files["certificate"], "key": files["key"], "ca": files["ca"], **more}


@pytest.mark.parametrize("protocol", ["mqtt", "ws", "mqtts", "wss"])
def test_nobody_opens_a_broker_to_the_network_by_leaving_something_out(protocol: str, files: dict[str, str]) -> None:
    tables = {"listeners": [{**OPEN, "protocol": protocol}], "tls": tls(files)}
    text = refused(tables)
    assert "listeners[0]" in text
    assert "auth.password_file" in text
    assert "auth.allow_anonymous = true" in text


def test_anonymous_access_from_the_network_is_given_when_it_is_stated() -> None:
    assert allows_anonymous(load(None, {}, {"listeners": [OPEN], "auth": {"allow_anonymous": True}}))


def test_with_a_password_file_the_network_may_come_and_anonymous_clients_may_not(files: dict[str, str]) -> None:
    settings = load(None, {}, {"listeners": [OPEN], "auth": {"password_file": files["password"]}})
    assert not allows_anonymous(settings)


def test_required_client_certificates_are_authentication(files: dict[str, str]) -> None:
    listener = {"protocol": "mqtts", "address": "0.0.0.0:8883"}
    settings = load(None, {}, {"listeners": [listener], "tls": tls(files, require_client_certificate=True)})
    assert settings.tls_of(settings.listeners[0]) == settings.tls
    assert "anyone on the network could connect" in refused(
        {"listeners": [listener, OPEN], "tls": tls(files, require_client_certificate=True)}
    )


def test_a_tls_listener_needs_a_certificate_that_can_be_read(files: dict[str, str], tmp_path: Path) -> None:
    listeners = [{"protocol": "wss", "address": "127.0.0.1:0"}]
    assert "set certificate and key in [tls]" in refused({"listeners": listeners})
    gone = str(tmp_path / "gone.pem")
    text = refused({"listeners": listeners, "tls": {"certificate": files["certificate"], "key": gone}})
    assert "tls.key" in text
    assert "gone.pem" in text


def test_a_listener_may_have_a_certificate_of_its_own(files: dict[str, str]) -> None:
    settings = load(None, {}, {"listeners": [{"protocol": "mqtts", "address": "127.0.0.1:0", "tls": tls(files)}]})
    own = settings.tls_of(settings.listeners[0])
    assert own is not None
    assert str(own.key) == files["key"]


def test_certificates_on_a_plain_listener_are_a_mistake(files: dict[str, str]) -> None:
    assert "use mqtts" in refused({"listeners": [{"address": "127.0.0.1:0", "tls": tls(files)}]})


def test_an_address_is_used_once_and_port_0_as_often_as_one_likes() -> None:
    same = [{"address": "127.0.0.1:1883"}, {"protocol": "ws", "address": "127.0.0.1:1883"}]
    assert "listeners[1]: 127.0.0.1:1883 is also used by listeners[0]" in refused({"listeners": same})
    free = [{"address": "127.0.0.1:0"}, {"protocol": "ws", "address": "127.0.0.1:0"}]
    assert len(load(None, {}, {"listeners": free, "admin": {"address": "127.0.0.1:0"}}).listeners) == 2


def test_streams_are_not_shown_to_the_network_without_a_token(files: dict[str, str]) -> None:
    assert "admin.token_file" in refused({"admin": {"address": "0.0.0.0:8080"}})
    admin = {"address": "0.0.0.0:8080", "token_file": files["token"]}
    assert load(None, {}, {"admin": admin}).admin.token_file == Path(files["token"])
    lesser = {"metrics_token_file": files["token"]}
    assert "requests need no token at all" in refused({"admin": {"address": "127.0.0.1:0", **lesser}})
    assert load(None, {}, {"admin": {**admin, **lesser}}).admin.metrics_token_file == Path(files["token"])


def test_settings_under_which_nobody_could_connect_are_told(files: dict[str, str]) -> None:
    assert "no client could connect" in refused({"auth": {"allow_anonymous": False}})
    assert "no listener asks for client certificates" in refused({"auth": {"user_from_certificate": True}})
    listeners = [{"protocol": "mqtts", "address": "127.0.0.1:0"}]
    auth = {"user_from_certificate": True}
    without = {"certificate": files["certificate"], "key": files["key"]}
    assert "Set tls.ca" in refused({"listeners": listeners, "tls": without, "auth": auth})


def test_a_certificate_may_be_one_of_two_ways_in(files: dict[str, str]) -> None:
    """A listener that asks for certificates and demands none: who has none needs a password."""
    tables = {
        "listeners": [{"protocol": "mqtts", "address": "127.0.0.1:0"}],
        "tls": tls(files),
        "auth": {"user_from_certificate": True, "password_file": files["password"]},
    }
    assert not allows_anonymous(load(None, {}, tables))


def test_a_password_file_must_be_there(tmp_path: Path) -> None:
    assert "auth.password_file" in refused({"auth": {"password_file": str(tmp_path / "gone")}})


def test_settings_do_not_change_once_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().node.id = "other"  # type: ignore[misc]


def test_password_files_are_read_by_the_node_as_written(tmp_path: Path) -> None:
    path = tmp_path / "users"
    users = PasswordFile()
    users.set("ann", b"correct")
    users.write(path)
    read = PasswordFile.read(path)
    assert read.verify("ann", b"correct")
    assert not read.verify("ann", b"wrong")
    assert not read.verify("bob", b"correct")
    assert path.stat().st_mode & 0o077 == 0
    assert "correct" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "rule", [{"user": "ops", "topics": ["#"]}, {"topics": ["a/%u/#"]}, {"user": "?*", "topics": ["a"]}]
)
def test_rules_about_users_need_somebody_who_checks_their_names(files: dict[str, str], rule: dict[str, object]) -> None:
    assert "may use any name" in refused({"auth": {"rules": [rule]}})
    assert load(None, {}, {"auth": {"rules": [rule], "password_file": files["password"]}}).auth.rules
    for neutral in ({"topics": ["a/%c/#", "b/%%u"]}, {"client": "gateway", "topics": ["#"]}):
        assert load(None, {}, {"auth": {"rules": [neutral]}}).auth.rules
