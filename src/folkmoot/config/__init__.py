"""Typed settings of a node: TOML, environment and flags in, `Settings` and `NodeConfig` out; starts nothing.

`folkmoot.config.convert` has the way to `NodeConfig`; it stays out of here, because it brings the whole core along.
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
