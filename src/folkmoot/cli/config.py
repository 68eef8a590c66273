"""`folkmoot config`: check a configuration file and the files it names, explain its fields.

The rules are in `folkmoot.config`; the files are opened by those who use them when a node starts.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from folkmoot.config import ConfigError, PasswordFile, Settings, explain, load
from folkmoot.kernel.errors import FolkmootError

__all__ = ["config", "unusable"]


@click.group(no_args_is_help=True)
def config() -> None:
    """Check a configuration file, or explain its fields."""


@config.command("check")
@click.argument("file", type=click.Path(path_type=Path), help="A configuration file (TOML).")
def check_file(file: Path) -> int:
    """Say whether a node could start with FILE and the variables FOLKMOOT_..., and if not, all that is wrong.

    Certificates, keys, passwords and the token are read too. Nothing is started, made or changed.
    """
    settings = load(file, os.environ)
    found = unusable(settings)
    if found:
        raise ConfigError(str(file), found)
    places = ", ".join(f"{entry.protocol} {entry.address}" for entry in settings.listeners)
    print(
        f"{file}: valid. Node {settings.node.id}, {places}, {len(settings.streams)} streams, {cluster_text(settings)}"
    )
    return 0


def cluster_text(settings: Settings) -> str:
    """What the node will be part of."""
    cluster = settings.cluster
    if cluster.listen is None:
        return "no cluster"
    copies = "1 replica" if cluster.replicas == 1 else f"{cluster.replicas} replicas"
    return f"cluster {cluster.name!r} at {cluster.listen} with {copies}"


def unusable(settings: Settings) -> list[str]:
    """One sentence for each file that can be read and does not hold what it should."""
    # Here and not above: `config explain` needs neither the runtime nor the HTTP server.
    from folkmoot.admin.app import read_token
    from folkmoot.config.convert import cluster_config
    from folkmoot.runtime.tls import Certificates

    found = []
    try:
        if settings.auth.password_file is not None:
            PasswordFile.read(settings.auth.password_file)
    except ConfigError as error:
        found += [f"auth.password_file: {settings.auth.password_file}: {fault}" for fault in error.faults]
    try:
        if settings.admin.token_file is not None:
            read_token(settings.admin.token_file)
    except FolkmootError as error:
        found.append(f"admin.token_file: {error}")
    try:
        cluster_config(settings.cluster)
    except FolkmootError as error:
        found.append(f"cluster.secret_file: {error}")
    try:
        if settings.cluster.tls is not None:
            Certificates(settings.cluster.tls.for_listener())
    except FolkmootError as error:
        found.append(f"cluster.tls: {error}")
    for number, listener in enumerate(settings.listeners):
        tls = settings.tls_of(listener)
        try:
            if tls is not None:
                Certificates(tls)
        except FolkmootError as error:
            found.append(f"listeners[{number}] ({listener.protocol} {listener.address}): {error}")
    return found


@config.command("explain")
@click.argument("field", default="", help='A field or a section, such as "limits.receive_max" or "streams".')
def explain_field(field: str) -> int:
    """Say what FIELD means, what is valid and what its default is; without FIELD, all of them."""
    print(explain(field), end="")
    return 0
