"""Numbers, booleans and settings of a pipeline file: what is valid, and the errors for what is not.

A text is accepted as a number or a boolean: within braces a variable needs quotes.
"""

from __future__ import annotations

import re

__all__ = ["qos", "setting", "switch", "whole"]


def whole(value: object, least: int, most: int) -> int:
    """Return a whole number within bounds; raises ValueError."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"is no whole number from {least:,} to {most:,}")
    return value


def qos(value: object) -> int:
    """Return a QoS; raises ValueError, also for true, which Python takes for 1."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2:
        return value
    known = value if value in ("0", "1", "2") else "0, 1 or 2"
    raise ValueError(f"is no QoS: write the number {known}, without quotes")


def switch(value: object) -> bool:
    """Return true or false; raises ValueError, also for yes and 1."""
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError("is neither true nor false: write true or false")


def setting(value: object) -> bool | int | float | str:
    """Return the value of a Spark option; raises ValueError."""
    if isinstance(value, bool | int | float | str):
        return value
    raise ValueError("is no setting: write a text, a number, true or false")
