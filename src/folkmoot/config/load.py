"""The sources of settings: owns the order of file, environment and command line. Does not check values.

A later source overrides an earlier one: defaults, the TOML file, variables `FOLKMOOT_SECTION_FIELD`, flags.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from folkmoot.config.check import problems
from folkmoot.config.fault import ConfigError, closest, faults
from folkmoot.config.field import element, kind, sections
from folkmoot.config.settings import Settings

__all__ = ["from_environment", "load", "read_file"]


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """Read and check the settings.

    `file` is a TOML file or None, `environment` the process's variables, `overrides` nested tables as in the file
    (a list replaces a list; names are added to the table `streams`). Raises ConfigError with all errors.
    """
    source = str(file) if file else "the configuration"
    tables: dict[str, Any] = read_file(file) if file else {}
    merge(tables, from_environment(environment or {}))
    merge(tables, overrides or {})
    try:
        settings = Settings.model_validate(tables)
    except ValidationError as error:
        raise ConfigError(source, [with_variable(fault, environment or {}) for fault in faults(error)]) from None
    found = problems(settings)
    if found:
        raise ConfigError(source, found)
    return settings


def read_file(file: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raises ConfigError if it cannot be read or is not TOML."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"{error.strerror}: name a file that exists and can be read"
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 text (byte {error.start})"
    except tomllib.TOMLDecodeError as error:
        reason = f"it is not valid TOML: {error}"
    except RecursionError:
        reason = "its arrays or tables are nested too deeply"
    raise ConfigError(str(file), [reason])


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables that variables `FOLKMOOT_SECTION_FIELD` define; other variables are ignored.

    Only fields with plain values can be set; an unknown field of a known section raises ConfigError.
    """
    tables: dict[str, Any] = {}
    for variable in sorted(environment):
        section, _, name = variable.removeprefix("FOLKMOOT_").lower().partition("_")
        if not variable.startswith("FOLKMOOT_") or section not in Settings.model_fields or not name:
            continue
        field = Settings.model_fields[section]
        inner = element(field.annotation)
        if inner is None or sections(field):
            raise ConfigError(variable, [f"{section} cannot be set by the environment: use the configuration file"])
        plain = [
            key for key, value in inner.model_fields.items() if kind(value) != "list" and not element(value.annotation)
        ]
        if name not in plain:
            variables = [f"FOLKMOOT_{section}_{key}".upper() for key in plain]
            raise ConfigError(variable, [f"there is no such field; {closest(variable, variables)}"])
        tables.setdefault(section, {})[name] = environment[variable]
    return tables


def with_variable(fault: str, environment: Mapping[str, str]) -> str:
    """Add the name of the environment variable to an error, if one has set the field."""
    path, colon, rest = fault.partition(":")
    variable = f"FOLKMOOT_{path.replace('.', '_')}".upper()
    return f"{path} ({variable}):{rest}" if colon and variable in environment else fault


def merge(tables: dict[str, Any], later: Mapping[str, Any]) -> None:
    """Merge later values into earlier ones, table by table; values that are not tables are replaced."""
    for key, value in later.items():
        earlier = tables.get(key)
        if isinstance(value, Mapping) and isinstance(earlier, dict):
            merge(earlier, value)
        else:
            tables[key] = dict(value) if isinstance(value, Mapping) else value
