"""A message for one session: waiting, or sent and not yet acknowledged."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from folkmoot.store.message import Message

__all__ = [
    "AWAIT_PUBACK",
    "AWAIT_PUBCOMP",
    "AWAIT_PUBREC",
    "SENT_QOS1",
    "SENT_QOS2",
    "SENT_RELEASE",
    "WAITING",
    "Entry",
]

WAITING: Final = 0
AWAIT_PUBACK: Final = 1
AWAIT_PUBREC: Final = 2
AWAIT_PUBCOMP: Final = 3


@mypyc_attr(free_list_len=1)
class Entry:
    """One message for one session.

    sequence: its position in the session's stored queue (0 = not stored); qos, retain: as it is sent; identifiers:
    encoded subscription identifier properties; group: the full filter of the shared subscription that matched (empty =
    none); body: sequence of the BODY row with the message (0 = none); size: bytes counted against the queue's limit;
    dup: it may have been sent before; started: it certainly was, so that it does not expire any more.
    """

    def __init__(
        self, sequence: int, message: Message | None, qos: int, retain: bool, identifiers: bytes, group: bytes
    ) -> None:
        self.sequence = sequence
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.group = group
        self.state = WAITING
        self.dup = False
        self.started = False
        self.body = 0
        self.size = 0 if message is None else message.size

    def __repr__(self) -> str:
        return f"Entry({self.sequence} qos={self.qos} state={self.state} {self.message!r})"


def _sent(state: int) -> Entry:
    entry = Entry(0, None, 0, False, b"", b"")
    entry.state = state
    return entry


# A transient session never sends a message twice, so only the state of one in flight matters: these entries are shared.
SENT_QOS1: Final[Entry] = _sent(AWAIT_PUBACK)
SENT_QOS2: Final[Entry] = _sent(AWAIT_PUBREC)
SENT_RELEASE: Final[Entry] = _sent(AWAIT_PUBCOMP)
