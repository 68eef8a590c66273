"""Kinds of messages between nodes: which part of a node a message is for. The numbers are part of the wire format."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ASK_OFFER",
    "BROKER_FIRST",
    "CLOCK",
    "CONFIGURATION_LOG",
    "CONTROL",
    "CONTROL_KINDS",
    "COPY",
    "DELAYED",
    "DIGEST",
    "DURABLE",
    "FETCH",
    "FILLED",
    "HEALS",
    "KIND_END",
    "LOGINS",
    "OFFER",
    "OPENED",
    "PAGE",
    "PULL",
    "READY",
    "REPLICATION_FIRST",
    "SETTLED",
    "SHIP",
    "TAIL",
]

# Of the node itself: heals, marks of passwords that were right, and what its clock shows; 1 to 7 were used earlier
HEALS: Final = 8
LOGINS: Final = 9
CLOCK: Final = 10

# The control of the cluster: greetings, heartbeats and requests (`membership/control_message`), and messages of Raft.
# They overtake all others in a link (`peer/link`). All that take them judge them by themselves, by term and index,
# lineage and start number. Nothing counts on them to come after what their node has sent earlier.
CONTROL: Final = 11
CONFIGURATION_LOG: Final = 12

# Replication
REPLICATION_FIRST: Final = 16
READY: Final = 16
SHIP: Final = 17
DURABLE: Final = 18
FETCH: Final = 19
OPENED: Final = 20
PULL: Final = 21
PAGE: Final = 22
DIGEST: Final = 23
SETTLED: Final = 24
COPY: Final = 25
FILLED: Final = 26
TAIL: Final = 27
ASK_OFFER: Final = 28
OFFER: Final = 29

# The broker: folkmoot.turn.message
BROKER_FIRST: Final = 32

CONTROL_KINDS: Final = (CONTROL, CONFIGURATION_LOG)

KIND_END: Final = 64
"""Messages of this kind and above come from a later version: they are counted and dropped."""

# Never on the wire: a link hands it on before messages that have waited at the other side, with the milliseconds (a
# variable-length integer), and after them, with 0
DELAYED: Final = 255
