"""The fields of the events `connected`, `disconnected` and `refused`."""

from __future__ import annotations

from typing import Final

from folkmoot.mqtt import reason
from folkmoot.session.connection import Connection

__all__ = ["connected_fields", "disconnected_fields", "refused_fields"]

_NAME_CHARACTERS_MAX: Final = 1024


def connected_fields(connection: Connection, expiry_s: object) -> dict[str, object]:
    """Return the fields of `connected`; expiry_s: how long the session outlives the connection, None = for ever."""
    return {**_who(connection), "expiry_s": expiry_s}


def disconnected_fields(connection: Connection, time_us: int) -> dict[str, object]:
    """Return the fields of `disconnected`; `clean`: the client sent DISCONNECT with an ordinary reason code.

    time_us: of the event. Less `connected_us` it is that of `connected`, though the clock was set in between: who reads
    events joins the two by it.
    """
    by = "client" if connection.said >= 0 else connection.end_by or "node"
    code = connection.said if by == "client" else connection.end_code
    return {
        **_who(connection),
        "by": by,
        "clean": by == "client" and code < 0x80,
        "code": None if by == "network" else code,
        "reason": None if by == "network" else reason.name(code),
        "why": connection.end_why,
        "connected_us": time_us - connection.came_us,
        "bytes_in": connection.bytes_in,
        "bytes_out": connection.bytes_out + connection.out_bytes,
        "messages_in": connection.messages_in,
    }


def refused_fields(connection: Connection, code: int, why: str) -> dict[str, object]:
    """Return the fields of `refused`."""
    return {**_who(connection), "code": code, "reason": reason.name(code), "why": why}


def shown(name: str) -> str:
    """Return a name as events have it: anybody may send one of 64 KiB, and thousands of events may wait."""
    return name if len(name) <= _NAME_CHARACTERS_MAX else f"{name[:_NAME_CHARACTERS_MAX]}..."


def _who(connection: Connection) -> dict[str, object]:
    return {
        "client": shown(connection.client_id),
        "username": shown(connection.username) or None,
        "address": connection.info.address,
        "transport": connection.info.transport,
        "version": connection.version,
    }
