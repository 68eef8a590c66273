"""Typed settings of a node: from TOML, environment and flags to `Settings` and `NodeConfig`. Starts nothing.

`folkmoot.config.convert` makes the `NodeConfig`. It is not imported here, because it imports the whole core.
"""

from __future__ import annotations

from folkmoot.config.explain import explain
from folkmoot.config.fault import ConfigError
from folkmoot.config.load import load
from folkmoot.config.password import PasswordFile
from folkmoot.config.settings import ListenerSettings, Settings, TlsSettings
from folkmoot.config.unit import Address, parse_address

__all__ = [
    "Address",
    "ConfigError",
    "ListenerSettings",
    "PasswordFile",
    "Settings",
    "TlsSettings",
    "explain",
    "load",
    "parse_address",
]
