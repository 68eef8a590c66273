"""The section [cluster]: what is refused and why, what the core is told, and how a node gets its id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from folkmoot.config import ConfigError, Settings, load
from folkmoot.config.cluster import ClusterSettings
from folkmoot.config.convert import cluster_config, node_config
from folkmoot.config.identity import with_own_id
from folkmoot.kernel.errors import FolkmootError
from folkmoot.peer.config import ClusterConfig

LOCAL = "127.0.0.1:7883"
WORD = "a-word-of-more-than-sixteen-characters"
# No settings: made of several fields, of what a file has or another section says, or nobody's business but the core's.
MADE = {"peer_address", "secret", "secrets_accepted", "partitions", "streams"}
INTERNAL = {
    "slow_us",
    "slow_wait_us",
    "slow_hold_us",
    "lease_us",
    "refusal_us",
    "handshake_us",
    "dial_us_min",
    "dial_us_max",
    "ack_delay_us",
    "digest_pause_us",
    "features",
    "succeeds",
    "incomplete",
    "clock_us",
    "full_wait_us",
    "full_hold_us",
    "planted",
    "page_bytes",
    "drop_wait_us",
    "seeds_unknown",
    "history_epochs",
}


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text(f"{WORD}\n", encoding="utf-8")
    return str(path)


def cluster(**fields: object) -> ClusterSettings:
    return load(None, {}, {"cluster": fields}).cluster


def told(**fields: object) -> ClusterConfig:
    config = cluster_config(cluster(**fields))
    assert config is not None
    return config


def refused(**fields: object) -> str:
    with pytest.raises(ConfigError) as raised:
        cluster(**fields)
    return "\n".join(raised.value.faults)


def test_without_a_listener_for_peers_a_node_is_alone() -> None:
    assert node_config(load()).cluster is None
    assert cluster().peer_address(7) == ""


def test_a_secret_without_a_cluster_is_a_mistake(secret: str) -> None:
    assert "cluster.secret_file: without cluster.listen" in refused(secret_file=secret)
    assert cluster(listen=LOCAL, secret_file=secret).secret_file is not None
    assert load(None, {}, {"cluster": {}}).cluster.listen is None, "an empty section says nothing"


def test_the_defaults_are_those_of_the_core() -> None:
    config, plain = told(listen=LOCAL), ClusterConfig()
    names = {name for name in dir(plain) if not name.startswith("_")} - MADE
    assert {name: getattr(config, name) for name in names} == {name: getattr(plain, name) for name in names}


def test_what_is_set_arrives_in_the_units_of_the_core(secret: str) -> None:
    config = told(
        listen="10.0.0.1:7883",
        seeds=["10.0.0.2:7883", "node3.example:7883"],
        replicas=2,
        zone="rack-7",
        split_policy="majority",
        secret_file=secret,
        heartbeat="50ms",
        silence="1s",
        join_wait="5s",
        link_buffer_bytes_max="8MiB",
    )
    assert config.peer_address == "10.0.0.1:7883"
    assert config.seeds == ["10.0.0.2:7883", "node3.example:7883"]
    assert (config.replicas, config.zone, config.split_policy) == (2, "rack-7", "majority")
    assert config.secret == WORD.encode()
    assert (config.heartbeat_us, config.silence_us, config.join_wait_us) == (50_000, 1_000_000, 5_000_000)
    assert config.link_buffer_bytes_max == 8 << 20


def test_every_setting_reaches_the_core_or_the_driver() -> None:
    driver = {"listen", "advertise", "secret_file", "tls"}
    core = {name for name in dir(ClusterConfig()) if not name.startswith("_")} - MADE - INTERNAL
    # What the core has gained needs a setting, or a place in INTERNAL.
    assert set(ClusterSettings.model_fields) - driver == {name.removesuffix("_us") for name in core}


def test_the_number_of_partitions_is_told_to_the_peers() -> None:
    config = node_config(load(None, {}, {"node": {"partitions": 16}, "cluster": {"listen": LOCAL}}))
    assert config.cluster is not None
    assert config.cluster.partitions == 16


def test_the_declared_streams_are_told_to_the_peers_in_short() -> None:
    def told_of(**streams: dict[str, Any]) -> str:
        config = node_config(load(None, {}, {"cluster": {"listen": LOCAL}, "streams": streams}))
        assert config.cluster is not None
        return config.cluster.streams

    one: dict[str, Any] = {"filter": "a/#", "partitions": 4}
    other: dict[str, Any] = {"filter": "b/#", "retention": "7d"}
    assert told_of(x=one, y=other) == told_of(y=dict(other), x=dict(one)), "the order in the file does not count"
    texts = [told_of(), told_of(x=one), told_of(x={**one, "partitions": 5}), told_of(y=one), told_of(x=one, y=other)]
    assert len(set(texts)) == len(texts)
    assert texts[0] == "none declared"
    assert [text.split()[0] for text in texts[1:]] == ["1", "1", "1", "2"]


def test_a_node_keeps_its_place_in_a_list_of_seeds_that_all_have() -> None:
    assert told(listen=LOCAL, seeds=["127.0.0.1:7884", LOCAL]).seeds == ["127.0.0.1:7884", LOCAL]


def test_seeds_come_from_a_variable_too() -> None:
    environment = {"FOLKMOOT_CLUSTER_LISTEN": LOCAL, "FOLKMOOT_CLUSTER_SEEDS": "127.0.0.1:1, [::1]:2,"}
    assert [str(seed) for seed in load(None, environment).cluster.seeds] == ["127.0.0.1:1", "[::1]:2"]
    with pytest.raises(ConfigError, match="there is no such field"):
        load(None, {"FOLKMOOT_CLUSTER_TLS": "x"})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"listen": LOCAL}, LOCAL),
        ({"listen": "127.0.0.1:0"}, "127.0.0.1:9"),
        ({"listen": "0.0.0.0:7883", "advertise": "127.0.0.1:7000"}, "127.0.0.1:7000"),
        ({"listen": "127.0.0.1:0", "advertise": "[::1]:0"}, "[::1]:9"),
        ({"listen": "127.0.0.1:7883", "advertise": "[::1]:0"}, "[::1]:7883"),
    ],
)
def test_others_are_told_an_address_that_leads_here(fields: dict[str, Any], expected: str, secret: str) -> None:
    assert cluster(**fields, secret_file=secret).peer_address(9) == expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"listen": LOCAL, "seeds": ["node2"]}, ["cluster.seeds[0]", "HOST:PORT", "'node2'"]),
        ({"listen": LOCAL, "seeds": ["127.0.0.1:1", "node2:0"]}, ["cluster.seeds[1]", "HOST:PORT"]),
        ({"listen": LOCAL, "seeds": [":7883"]}, ["cluster.seeds[0]", "HOST:PORT"]),
        ({"listen": LOCAL, "seeds": ["node2:x"]}, ["cluster.seeds[0]", "HOST:PORT"]),
        ({"seeds": [LOCAL]}, ["cluster.seeds", "without cluster.listen (--peer HOST:PORT)"]),
        ({"advertise": LOCAL}, ["cluster.advertise", "without cluster.listen"]),
        ({"replicas": 3}, ["cluster.replicas: without cluster.listen", "leave replicas out"]),
        ({"split_policy": "available"}, ["cluster.split_policy: without cluster.listen"]),
        ({"zone": "rack7", "name": "prod"}, ["cluster.zone: without", "cluster.name: without"]),
        ({"heartbeat": "50ms"}, ["cluster.heartbeat: without"]),
        ({"listen": "0.0.0.0:7883"}, ["cluster.listen", "Set cluster.advertise"]),
        ({"listen": "0.0.0.0:7883", "advertise": "[::]:1"}, ["cluster.advertise: other nodes cannot"]),
        ({"listen": LOCAL, "seeds": ["10.0.0.2:7883"]}, ["cluster.advertise", "is this machine alone"]),
        ({"listen": LOCAL, "heartbeat": "250ms", "silence": "500ms"}, ["cluster.silence", "3 times cluster.heartbeat"]),
        ({"listen": LOCAL, "replicas": 0}, ["cluster.replicas", "from 1 to 16"]),
        ({"listen": LOCAL, "replicas": 2, "min_in_sync": 3}, ["cluster.min_in_sync", "Set it to 2 at most"]),
        ({"listen": LOCAL, "zone": "rack 7"}, ["cluster.zone", "Failure domain"]),
        ({"listen": LOCAL, "split_policy": "quorum"}, ["cluster.split_policy", '"available", "majority"']),
        ({"listen": LOCAL, "silence": 2}, ["cluster.silence", "a number with a unit"]),
        ({"listen": LOCAL, "tls": {"key": "k"}}, ["cluster.tls.certificate: it must be set", "cluster.tls.ca"]),
        ({"listen": LOCAL, "tls": dict.fromkeys(("certificate", "key", "ca"), "gone")}, ["tls.key: gone cannot"]),
        ({"listen": LOCAL, "secret_file": "gone"}, ["cluster.secret_file: gone cannot be read"]),
        ({"listen": "127.0.0.1:1883"}, ["cluster.listen: 127.0.0.1:1883 is also used by listeners[0]"]),
    ],
)
def test_a_fault_says_what_to_do(fields: dict[str, Any], words: list[str]) -> None:
    text = refused(**fields)
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"listen": "10.0.0.1:7883"}, "cluster.listen: 10.0.0.1:7883"),
        ({"listen": LOCAL, "advertise": "node1.example:7883"}, "cluster.advertise: node1.example:7883"),
        ({"listen": LOCAL, "advertise": "[::1]:1", "seeds": ["127.0.0.2:1", "10.0.0.2:1"]}, "cluster.seeds[1]"),
    ],
)
def test_peers_beyond_this_machine_need_a_secret(fields: dict[str, Any], where: str, secret: str) -> None:
    text = refused(**fields)
    assert f"{where}" in text
    assert "Set cluster.secret_file" in text
    if "seeds" not in fields:
        assert told(**fields, secret_file=secret).secret == WORD.encode()


def test_a_secret_that_is_none_is_named_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_text("hush\n", encoding="utf-8")
    with pytest.raises(FolkmootError, match=r"the secret of the peers in .*short must be one word") as raised:
        told(listen=LOCAL, secret_file=str(path))
    assert "hush" not in str(raised.value)


def test_certificates_of_peers_are_demanded_from_both_sides(tmp_path: Path) -> None:
    files = {}
    for name in ("certificate", "key", "ca"):
        files[name] = str(tmp_path / name)
        (tmp_path / name).write_text("", encoding="utf-8")
    tls = cluster(listen=LOCAL, tls=files).tls
    assert tls is not None
    listener = tls.for_listener()
    assert listener.require_client_certificate
    assert {name: str(getattr(listener, name)) for name in files} == files


# The id of a node


def settings(**node: object) -> Settings:
    return load(None, {}, {"cluster": {"listen": LOCAL}, "node": node})


def test_a_stated_id_holds() -> None:
    assert with_own_id(settings(id="n7"), "other").node.id == "n7"
    assert with_own_id(settings(id="node1"), "other").node.id == "node1"


def test_a_node_of_a_cluster_gets_an_id_once_and_keeps_it() -> None:
    first, second = with_own_id(settings(), ""), with_own_id(settings(partitions=8), "")
    assert first.node.id != second.node.id
    assert second.node.partitions == 8
    assert load(None, {}, {"node": {"id": first.node.id}}).node.id == first.node.id, "it is a valid id"
    assert with_own_id(settings(), first.node.id).node.id == first.node.id


def test_a_node_alone_is_called_as_ever() -> None:
    assert with_own_id(load(), "other").node.id == "node1"
