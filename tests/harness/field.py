"""The fields of events: each name has one type, whatever event it is in, because logs are put into tables by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from folkmoot.kernel.event import Event

__all__ = ["TYPES", "check_fields"]

_TEXT: Final = (
    *("address", "branch", "client", "code", "drops", "here", "message", "node", "of", "reason", "setting", "there"),
    *("app", "filter", "method", "most", "part", "path", "query", "topic", "trace", "transport", "user", "what", "why"),
    "waits_for",
)
_NUMBERS: Final = (
    *(
        "addresses",
        "bytes",
        "bytes_max",
        "chunk",
        "clients",
        "connection",
        "copies",
        "ended",
        "epoch",
        "expiry_s",
        "incarnation",
        "judged",
        "kind",
        "lines",
        "lost",
        "messages",
        "number",
        "skipped",
        "status",
    ),
    *("messages_acknowledged", "messages_kept", "outbox_kept", "overload", "partition", "partitions", "queued"),
    *("retained", "retained_cleared", "retained_kept", "seconds", "sessions", "sessions_ended", "sessions_taken"),
    *("sockets_max", "start", "stream_chunks", "subscribed", "time_us", "took_us", "total", "unsubscribed", "version"),
    *("ahead_us", "by_us", "clocks", "left"),
    *("before", "cluster", "index", "lineage", "term"),
    *("connections_max", "limit", "reserved", "unmerged", "untold", "view", "waited_us", "waiting"),
)
_LISTS: Final = ("for", "forgotten", "from", "keys", "members", "nodes", "reasons", "seeds", "silent", "trace")
TYPES: Final[dict[str, type]] = {
    **dict.fromkeys(_TEXT, str),
    **dict.fromkeys(_NUMBERS, int),
    **dict.fromkeys(_LISTS, list),
    "dropped": dict,
    "token": bool,
    "urgent": bool,
}
NONE_TOO: Final = ("expiry_s",)  # a session that never ends


def check_fields(events: Iterable[Event]) -> None:
    """Every field has the type that its name has everywhere."""
    for event in events:
        for name, value in event.fields.items():
            assert name in TYPES, f"{event}: what is {name}? Say so in tests/harness/field.py"
            fits = type(value) is TYPES[name] or (value is None and name in NONE_TOO)
            assert fits, f"{event}: {name} is {TYPES[name].__name__} elsewhere"
