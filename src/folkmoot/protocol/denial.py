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

__all__ = ["DENIED_MAX", "note_denied", "report_denied"]

DENIED_MAX: Final = 10  # events of one kind of one connection per minute

_SHOWN_BYTES_MAX: Final = 400


def note_denied(state: State, connection: Connection, kind: str, what: str, name: bytes) -> None:
    """Tell that a topic or filter was denied, or count it; kind: of the event, what: its field for the name."""
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
    fields[what] = name[:_SHOWN_BYTES_MAX].decode("utf-8", "replace")
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
