"""`folkmoot serve`: turns options into settings and runs a node; `folkmoot.runtime` does the running."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from folkmoot.cli.config import unusable
from folkmoot.cli.error import Refusal
from folkmoot.config import ConfigError, Settings, load

__all__ = ["serve", "overrides"]


@click.command()
@click.option("--config", "-c", type=click.Path(path_type=Path), help="Configuration file (TOML).")
@click.option("--node-id", help="Node id [node1; in a cluster, a generated one].")
@click.option("--data", type=click.Path(path_type=Path), help="Data folder [folkmoot-data].")
@click.option(
    "--mqtt",
    multiple=True,
    metavar="HOST:PORT",
    help="Listen for MQTT over TCP [127.0.0.1:1883, if no listener is configured].",
)
@click.option("--mqtts", multiple=True, metavar="HOST:PORT", help="Listen for MQTT over TLS.")
@click.option("--ws", multiple=True, metavar="HOST:PORT", help="Listen for MQTT over WebSocket.")
@click.option("--wss", multiple=True, metavar="HOST:PORT", help="Listen for MQTT over WebSocket with TLS.")
@click.option(
    "--tls-certificate",
    "certificate",
    type=click.Path(path_type=Path),
    help="PEM file with the certificate for --mqtts and --wss.",
)
@click.option(
    "--tls-key", "key", type=click.Path(path_type=Path), help="PEM file with the private key of the certificate."
)
@click.option(
    "--tls-ca", "ca", type=click.Path(path_type=Path), help="PEM file with the CA certificates for client certificates."
)
@click.option("--admin", metavar="HOST:PORT", help="Listen for HTTP: streams, health, metrics [none].")
@click.option("--stream", multiple=True, metavar="NAME=FILTER", help="Store messages that match FILTER as stream NAME.")
@click.option("--peer", metavar="HOST:PORT", help="Listen for other nodes; without it, there is no cluster [none].")
@click.option("--advertise", metavar="HOST:PORT", help="Address that other nodes use, if different from --peer.")
@click.option("--seed", multiple=True, metavar="HOST:PORT", help="Peer address of another node of the cluster.")
@click.option("--expect", type=int, metavar="N", help="Number of nodes that found the cluster together [by the seeds].")
@click.option("--witness", is_flag=True, default=None, help="Vote on who belongs to the cluster, and hold no data.")
@click.option("--replicas", type=int, metavar="N", help="Number of copies of all stored data [3].")
@click.option("--zone", help="Failure domain of this node [the node itself].")
@click.option("--secret-file", type=click.Path(path_type=Path), help="File with the shared secret of all nodes.")
@click.option(
    "--durability",
    metavar="fsync|os",
    help="When a message is durable: on disk, or given to the operating system [fsync].",
)
@click.option(
    "--salvage",
    is_flag=True,
    default=None,
    help="After damage to the store: start with what was written before it; the rest is lost.",
)
@click.option("--password-file", type=click.Path(path_type=Path), help="Password file, written by `folkmoot passwd`.")
@click.option("--allow-anonymous/--no-anonymous", default=None, help="Allow clients to connect without a user name.")
@click.option("--log-level", metavar="LEVEL", help="Lowest level to log: debug, info, warning or error [info].")
@click.option("--log-format", metavar="text|json", help="Format of the log [text].")
def serve(
    config: Path | None,
    node_id: str | None,
    data: Path | None,
    mqtt: tuple[str, ...],
    mqtts: tuple[str, ...],
    ws: tuple[str, ...],
    wss: tuple[str, ...],
    certificate: Path | None,
    key: Path | None,
    ca: Path | None,
    admin: str | None,
    stream: tuple[str, ...],
    peer: str | None,
    advertise: str | None,
    seed: tuple[str, ...],
    expect: int | None,
    witness: bool | None,
    replicas: int | None,
    zone: str | None,
    secret_file: Path | None,
    durability: str | None,
    salvage: bool | None,
    password_file: Path | None,
    allow_anonymous: bool | None,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Run a node until Ctrl-C or SIGTERM.

    Options override FOLKMOOT_ variables, which override the file. Listener options can be repeated; if one is given,
    the listeners of the file are ignored. Port 0 selects a free port. When the node serves, it prints one line `ready`
    with its addresses on stdout. Defaults are in brackets.
    """
    listeners = {"mqtt": mqtt, "mqtts": mqtts, "ws": ws, "wss": wss}
    sections: dict[str, dict[str, Any]] = {
        "node": {"id": node_id, "data": data, "durability": durability, "salvage": salvage},
        "tls": {"certificate": certificate, "key": key, "ca": ca},
        "admin": {"address": admin},
        "auth": {"password_file": password_file, "allow_anonymous": allow_anonymous},
        "cluster": {
            "listen": peer,
            "advertise": advertise,
            "seeds": seed or None,
            "expect": expect,
            "witness": witness,
            "replicas": replicas,
            "zone": zone,
            "secret_file": secret_file,
        },
        "log": {"level": log_level, "format": log_format},
    }
    given = overrides(sections, listeners, stream)
    settings = load(config, os.environ, given)
    if found := unusable(settings):
        raise ConfigError(str(config) if config else "the configuration", found)
    # The seeds of a file may change while the node runs; those of options cannot.
    seeds = None if seed or config is None else partial(seeds_of, config, given)
    return run(settings, seeds, partial(load, config, os.environ, given))


def run(settings: Settings, seeds: Callable[[], list[str]] | None, reread: Callable[[], Settings]) -> int:
    """Run a node with these settings; `seeds` returns the current seeds of the file, `reread` the current settings."""
    # Imported here, so that wrong settings are reported before the event loop and the store are loaded.
    from folkmoot.admin.app import Admin
    from folkmoot.config.identity import with_own_id
    from folkmoot.discovery import Static
    from folkmoot.runtime.directory import stored_node_id
    from folkmoot.runtime.serve import serve as run_node

    others = Static(map(str, settings.cluster.seeds), seeds)
    return run_node(with_own_id(settings, stored_node_id(settings.node.data)), Admin(), others.lookup, reread)


def seeds_of(config: Path, given: dict[str, Any]) -> list[str]:
    """Read the settings again and return the seeds."""
    return [str(one) for one in load(config, os.environ, given).cluster.seeds]


def overrides(
    sections: dict[str, dict[str, Any]], listeners: Mapping[str, Sequence[str]], streams: Sequence[str]
) -> dict[str, Any]:
    """Return the given options as nested tables of settings; raises Refusal for a stream without a filter."""
    tables: dict[str, Any] = {}
    for section, values in sections.items():
        given = {name: value for name, value in values.items() if value is not None}
        if given:
            tables[section] = given
    places = [{"protocol": name, "address": place} for name, given in listeners.items() for place in given]
    if places:
        tables["listeners"] = places
    for text in streams:
        name, equals, topic_filter = text.partition("=")
        if not equals or not name or not topic_filter:
            raise Refusal(f'--stream {text!r} is not NAME=FILTER, such as --stream "readings=sensors/#"')
        tables.setdefault("streams", {})[name] = {"filter": topic_filter}
    return tables
