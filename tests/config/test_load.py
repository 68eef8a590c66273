"""Where settings come from and which source wins; what a wrong one is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from folkmoot.config import ConfigError, load
from folkmoot.config.unit import Address


def write(folder: Path, text: str) -> Path:
    file = folder / "folkmoot.toml"
    file.write_text(text, encoding="utf-8")
    return file


def faults(tables: dict[str, Any], environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load(None, environment, tables)
    assert all(fault in str(raised.value) for fault in raised.value.faults)
    return raised.value.faults


def test_without_any_source_a_node_serves_this_machine_alone() -> None:
    settings = load()
    assert [str(entry.address) for entry in settings.listeners] == ["127.0.0.1:1883"]
    assert settings.admin.address is None
    assert settings.node.durability == "fsync"


def test_flags_win_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    file = write(tmp_path, '[node]\nid = "file"\ndurability = "os"\n[limits]\nqos_max = 1\npage_rows = 7\n')
    environment = {"FOLKMOOT_NODE_ID": "variable", "FOLKMOOT_LIMITS_QOS_MAX": "0", "PATH": "/bin"}
    settings = load(file, environment, {"node": {"id": "flag"}})
    assert settings.node.id == "flag"
    assert settings.limits.qos_max == 0
    assert settings.limits.page_rows == 7
    assert settings.node.durability == "os"


def test_a_flag_adds_streams_and_replaces_listeners(tmp_path: Path) -> None:
    file = write(tmp_path, '[streams.a]\nfilter = "a/#"\nretention = "7d"\n[[listeners]]\naddress = "127.0.0.1:1"\n')
    flags = {"streams": {"b": {"filter": "b/#"}}, "listeners": [{"protocol": "ws", "address": "127.0.0.1:2"}]}
    settings = load(file, {}, flags)
    assert sorted(settings.streams) == ["a", "b"]
    assert settings.streams["a"].retention == 7 * 86_400 * 1_000_000
    assert [(entry.protocol, entry.address) for entry in settings.listeners] == [("ws", Address("127.0.0.1", 2))]


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"limts": {}}, ["limts", 'did you mean "limits"']),
        ({"node": {"durabilty": "os"}}, ["node.durabilty", 'did you mean "durability"']),
        ({"node": {"durability": "disk"}}, ["node.durability", "'disk'", '"fsync", "os"']),
        ({"node": {"xyzzy": 1}}, ["node.xyzzy", "valid here: id, data, durability"]),
        ({"node": {"id": "a b"}}, ["node.id", "'a b'", "letters"]),
        ({"limits": {"receive_max": 0}}, ["limits.receive_max", "too small", "from 1 to 65535"]),
        ({"limits": {"receive_max": "many"}}, ["limits.receive_max", "'many'", "a whole number"]),
        ({"limits": {"connect_timeout": 10}}, ["limits.connect_timeout", "a number with a unit"]),
        ({"limits": {"connect_timeout": "2h"}}, ["limits.connect_timeout", "too large", '"1h"', "2h"]),
        ({"limits": {"keep_alive_max": "1500ms"}}, ["limits.keep_alive_max", "not a whole step", '"1s"']),
        ({"limits": {"packet_bytes_max": "1GB"}}, ["limits.packet_bytes_max", "too large", "1GB"]),
        ({"limits": {"retain_available": "maybe"}}, ["limits.retain_available", "true or false"]),
        ({"listeners": [{"address": "1883"}]}, ["listeners[0].address", "HOST:PORT"]),
        ({"listeners": [{"protocl": "mqtt"}]}, ["listeners[0].protocl", 'did you mean "protocol"']),
        ({"listeners": []}, ["listeners", "too few"]),
        ({"streams": {"s": {"filer": "a"}}}, ["streams.s.filter", "must be set"]),
        ({"streams": {"s": {"filter": "a#"}}}, ["streams.s.filter", "'a#'"]),
        ({"streams": {"a/b": {"filter": "a"}}}, ["streams.a/b", "a stream name"]),
        ({"auth": {"rules": [{"topics": ["%x"]}]}}, ["auth.rules[0].topics[0]", "%x"]),
        ({"auth": {"rules": [{"topics": []}]}}, ["auth.rules[0].topics", "too few"]),
        ({"tls": {"certificate": "c.pem"}}, ["tls", "also set key"]),
    ],
)
def test_a_fault_names_the_field_and_what_is_valid(tables: dict[str, Any], words: list[str]) -> None:
    text = "\n".join(faults(tables))
    assert [word for word in words if word not in text] == []


def test_all_faults_are_told_at_once() -> None:
    assert len(faults({"node": {"id": "", "partitions": 0}, "log": {"level": "loud"}})) == 3


def test_a_wrong_value_in_a_variable_names_the_variable() -> None:
    found = faults({"limits": {"qos_max": 9}}, {"FOLKMOOT_CLUSTER_SPLIT_POLICY": "quorum"})
    assert [fault.partition(":")[0] for fault in found] == [
        "limits.qos_max",
        "cluster.split_policy (FOLKMOOT_CLUSTER_SPLIT_POLICY)",
    ]


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"FOLKMOOT_LIMITS_QOS_MX": "1"}, ["FOLKMOOT_LIMITS_QOS_MAX"]),
        ({"FOLKMOOT_STREAMS_A": "a/#"}, ["configuration file"]),
        ({"FOLKMOOT_AUTH_RULES": "x"}, ["there is no such field"]),
        ({"FOLKMOOT_LIMITS_QOS_MAX": "3"}, ["limits.qos_max", "from 0 to 2"]),
    ],
)
def test_a_wrong_variable_is_told(environment: dict[str, str], words: list[str]) -> None:
    text = "\n".join(faults({}, environment))
    assert [word for word in words if word not in text] == []


def test_variables_of_others_are_left_alone() -> None:
    assert load(None, {"FOLKMOOT_PURE": "1", "FOLKMOOT": "x", "FOLKMOOT_URL": "y", "LOG_LEVEL": "z"}) == load()


@pytest.mark.parametrize(
    ("content", "word"),
    [(b"a = = 1", "not valid TOML"), (b"\xff", "not UTF-8")],
)
def test_a_file_that_is_no_toml_is_told(tmp_path: Path, content: bytes, word: str) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=word):
        load(file)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name a file that exists"):
        load(tmp_path / "nowhere.toml")


def test_a_wrong_number_is_shown_as_one_writes_it() -> None:
    with pytest.raises(ConfigError, match=r"limits\.receive_max: too large \(it is 100000\)"):
        load(None, {}, {"limits": {"receive_max": 100_000}})
    with pytest.raises(ConfigError, match=r'limits\.connect_timeout: too large \(it is "2h"\)'):
        load(None, {}, {"limits": {"connect_timeout": "2h"}})
