"""Events for the log: what happened, to which client or node, and why. Cores emit them, drivers write them."""

from __future__ import annotations

from typing import Final

__all__ = ["ERROR", "INFO", "WARNING", "Event"]

INFO: Final = "info"
WARNING: Final = "warning"
ERROR: Final = "error"


class Event:
    """One event: a level, a kind (a searchable word) and fields; never a password or a payload."""

    def __init__(self, level: str, kind: str, fields: dict[str, object]) -> None:
        self.level = level
        self.kind = kind
        self.fields = fields

    def __repr__(self) -> str:
        fields = " ".join([f"{name}={value!r}" for name, value in self.fields.items()])
        return f"Event({self.level} {self.kind} {fields})"
