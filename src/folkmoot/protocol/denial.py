"""What the access rules deny, as events for the log and the audit log: a few of each client, and a count of the others.

Every denial is answered and counted in the metrics by the code that denies. An event costs more than a denial, and a
client sends as many as it likes, so each client has a number of events per minute and kind of its own. The next event,
or one at the end of the connection, has the number of those that had none.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MINUTE
from folkmoot.kernel.event import INFO
from folkmoot.session.connection import Connection, Denied
from folkmoot.turn.state import State

__all__ = ["DENIED_MAX", "PUBLISH_DENIED", "SUBSCRIBE_DENIED", "note_denied", "report_denied"]

PUBLISH_DENIED: Final = "publish_denied"  # kinds of events
SUBSCRIBE_DENIED: Final = "subscribe_denied"
DENIED_MAX: Final = 10  # events of one kind of one connection per minute

_SHOWN_BYTES_MAX: Final = 400


def note_denied(state: State, connection: Connection, kind: str, name: bytes) -> None:
    """Tell that a topic (PUBLISH_DENIED) or filter (SUBSCRIBE_DENIED) was denied, or count it."""
    denied = connection.denied
    if denied is None:
        denied = {}
        connection.denied = denied
    one = denied.get(kind)
    if one is None:
        one = Denied(state.now)
        denied[kind] = one
    if state.now - one.since_us >= MINUTE:
        one.since_us = state.now
        one.told = 0
    if one.told >= DENIED_MAX:
        one.untold += 1
        return
    one.told += 1
    fields = _who(connection)
    text = name[:_SHOWN_BYTES_MAX].decode("utf-8", "replace")
    if kind == PUBLISH_DENIED:
        fields["topic"] = text
    else:
        fields["filter"] = text
    if one.untold:
        fields["untold"] = one.untold
        one.untold = 0
    state.event(INFO, kind, fields)


def report_denied(state: State, connection: Connection) -> None:
    """Tell how many denials of a connection that has ended had no event."""
    denied = connection.denied
    if denied is None:
        return
    connection.denied = None
    for kind, one in denied.items():
        if one.untold:
            fields = _who(connection)
            fields["untold"] = one.untold
            state.event(INFO, kind, fields)


def _who(connection: Connection) -> dict[str, object]:
    return {"client": connection.client_id, "user": connection.username, "address": connection.info.address}
