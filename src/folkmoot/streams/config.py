"""The settings of one stream. Owns their meaning; `folkmoot.config` parses configuration files."""

from __future__ import annotations

from typing import Final

__all__ = ["NAME_BYTES_MAX", "PARTITIONS_MAX", "StreamConfig", "check_name"]

PARTITIONS_MAX: Final = 1024
NAME_BYTES_MAX: Final = 64

_NAME_BYTES: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"


class StreamConfig:
    """One stream: it keeps each message on a topic that matches `filter`, in partition `hash64(topic) % partitions`.

    Records older than `retention_us` microseconds may be removed (0: never). A stream partition larger than
    `retention_bytes` loses its oldest records (0: never).
    """

    def __init__(
        self,
        name: str,
        filter: bytes,  # noqa: A002 - the word of the configuration file
        partitions: int = 8,
        retention_us: int = 0,
        retention_bytes: int = 0,
    ) -> None:
        assert check_name(name) is None, check_name(name)
        assert 1 <= partitions <= PARTITIONS_MAX, "a stream has 1 to 1024 partitions"
        assert retention_us >= 0
        assert retention_bytes >= 0
        self.name = name
        self.filter = filter
        self.partitions = partitions
        self.retention_us = retention_us
        self.retention_bytes = retention_bytes

    def __repr__(self) -> str:
        return (
            f"StreamConfig({self.name!r}, {self.filter!r}, partitions={self.partitions}, "
            f"retention_us={self.retention_us}, retention_bytes={self.retention_bytes})"
        )


def check_name(name: str) -> str | None:
    """Return why `name` is not a valid stream name, or None. Names are used in topics, URL paths and file names."""
    raw = name.encode("utf-8", "replace")
    if not raw or len(raw) > NAME_BYTES_MAX:
        return f"a stream name has 1 to {NAME_BYTES_MAX} characters, {name!r} has {len(raw)}"
    if raw[:1] in (b".", b"-"):
        return f"a stream name starts with a letter, a digit or '_', {name!r} does not"
    for byte in raw:
        if byte not in _NAME_BYTES:
            return f"a stream name has letters, digits, '.', '_' and '-' only, {name!r} has another character"
    return None
