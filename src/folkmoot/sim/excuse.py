"""The table of excuses: which case of a promise is not judged, under which condition, and where users can read of it.

Owns the table and nothing else; `folkmoot.sim.causes` decides whether a condition holds for a case. A case without an
entry here is judged. Every entry is documented in docs/limits.md.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ANSWERS",
    "DEMANDS",
    "EXCUSES",
    "FORKS_ONLY",
    "JUDGED",
    "JUDGED_MIN_PERCENT",
    "PROGRESS",
    "WAITING",
    "Excuse",
    "share_of",
    "too_seldom",
]


class Excuse:
    """One entry. `promise` as violations name it; `where`: a section of docs/limits.md."""

    def __init__(self, promise: str, condition: str, where: str) -> None:
        self.promise = promise
        self.condition = condition
        self.where = where


_ANY = "limits.md#at-any-time-without-a-fault"
_AWAY = "limits.md#when-all-copies-of-a-partition-are-away"
_DEATH = "limits.md#when-a-node-dies-hangs-or-stops"
_MOVE = "limits.md#when-a-node-starts-or-a-client-reconnects"
_SPLIT = "limits.md#when-the-network-splits"

EXCUSES: Final = (
    Excuse("A1", "transient: its node failed, or did not reach the node of the subscriber", _ANY),
    Excuse("A1", "transient: it ended while a transaction waited for a partition without a leader", _AWAY),
    Excuse("A1", "subscribed on another side", _SPLIT),
    Excuse("A1", "finite session on two sides", _SPLIT),
    Excuse("A1", "session begun on another side", _SPLIT),
    Excuse("A1", "session begun while all nodes of its side were away", _SPLIT),
    Excuse("A2", "subscription changed on another side", _SPLIT),
    Excuse("A2", "for an earlier session, merged in a heal", _SPLIT),
    Excuse("A2", "QoS 0: sent before it was on disk, and again after a failure", _DEATH),
    Excuse("A2", "retained messages are sent again after a failure", _DEATH),
    Excuse("A3", "messages of two sides", _SPLIT),
    Excuse("A3", "QoS 0: its connection ended in a change of leaders", _MOVE),
    Excuse("A3", "its publisher moved while links of its former node were slow", _MOVE),
    Excuse("A3", "sent again after two crashes", _DEATH),
    Excuse("A3", "refused while too few copies were there, and sent again", _AWAY),
    Excuse("A4", "publisher or client on two sides", _SPLIT),
    Excuse("A4", "sent again on one side, which the other side had accepted", _SPLIT),
    Excuse("A5", "QoS 0: a node failed, or links were cut", _ANY),
    Excuse("A6", "connections on two sides", _SPLIT),
    Excuse("A7", "another side may have taken its client for dead", _SPLIT),
    Excuse("A7", "its client began anew on another side", _SPLIT),
    Excuse("A7", "withdrawn while all nodes of a side were away", _SPLIT),
    Excuse("A7", "its node hung while it was connected", _DEATH),
    Excuse("A7", "its node was away or cut off while it was connected", _DEATH),
    Excuse("A7", "a node failed soon after DISCONNECT", _DEATH),
    Excuse("A7", "a new leader starts the delay again", _DEATH),
    Excuse("A8", "writes on two sides", _SPLIT),
    Excuse("A9", "being forwarded when the network split", _SPLIT),
    Excuse("A9", "being stored at a node that went down, and came back as a side", _SPLIT),
    Excuse("A9", "replayed on two sides", _SPLIT),
    Excuse("A9", "QoS 0 records are repeated after a failure", _DEATH),
    Excuse("A10", "staged where a side took over", _SPLIT),
    Excuse("protocol", "packet ids of two sides", _SPLIT),
    Excuse("protocol", "not served after a failure", _DEATH),
    Excuse("session", "a new leader starts the expiry again", _DEATH),
)

FORKS_ONLY: Final = (_SPLIT,)
"""Entries of these sections apply to the policy "available" only."""

JUDGED_MIN_PERCENT: Final = {True: 95, False: 80}
"""The share of the cases of a promise that must be judged, with the policy "majority" (True) and "available"."""

JUDGED: Final = "judged"

ANSWERS: Final = "a node that is ready answers"
WAITING: Final = "no client waits for a node that is ready"
PROGRESS: Final = "a connected quorum makes progress"
DEMANDS: Final = (ANSWERS, WAITING, PROGRESS)
"""What must hold during faults. Each look at one is counted, judged or not, a few times per second."""

_OF_QOS_0_MIN_PERCENT: Final = 50
"""The same for A5, which is judged by messages with QoS 0: any failure on their way excuses, and it may be anywhere."""

_CASES_MIN: Final = 100
"""Fewer cases say nothing about a share."""


def share_of(promise: str, judged: dict[str, int], excused: dict[tuple[str, str], int]) -> tuple[int, int]:
    """Return (judged, excused) cases of a promise."""
    return judged.get(promise, 0), sum([count for key, count in excused.items() if key[0] == promise])


def too_seldom(majority: bool, judged: dict[str, int], excused: dict[tuple[str, str], int]) -> list[str]:
    """Return the promises that were judged in a smaller share of their cases than demanded, of A1 to A13."""
    found: list[str] = []
    for promise in sorted({*judged, *[key[0] for key in excused]}):
        done, left_out = share_of(promise, judged, excused)
        least = _OF_QOS_0_MIN_PERCENT if promise == "A5" else JUDGED_MIN_PERCENT[majority]
        if promise.startswith("A") and done + left_out >= _CASES_MIN and 100 * done < least * (done + left_out):
            found.append(promise)
    return found
