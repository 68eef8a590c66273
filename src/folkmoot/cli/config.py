"""`folkmoot config`: checks a configuration file and the files that it names, and explains its fields.

The rules are in `folkmoot.config`. The modules that open the files when a node starts read them here too.
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
    """Check whether a node could start with FILE and the variables FOLKMOOT_...; if not, list every error.

    The command also reads certificates, keys, passwords and the token. It starts, creates and changes nothing.
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
    """Describe the cluster to which the node will belong."""
    cluster = settings.cluster
    if cluster.listen is None:
        return "no cluster"
    copies = "1 replica" if cluster.replicas == 1 else f"{cluster.replicas} replicas"
    return f"cluster {cluster.name!r} at {cluster.listen} with {copies}"


def unusable(settings: Settings) -> list[str]:
    """Return one sentence for each file that the settings name and that has invalid content."""
    # Imported here, because `config explain` needs neither the runtime nor the HTTP server.
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
    """Explain FIELD: its meaning, its valid values and its default; without FIELD, explain all fields."""
    print(explain(field), end="")
    return 0
