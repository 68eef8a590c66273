"""The phases of a process on its way to a lease and back, and what changes them, as one table.

    event / phase  OUTSIDE    OPENING    INSIDE     FAILED     RENEWING
    FOUND          OPENING    -          -          -          -
    ENTER          INSIDE     INSIDE     -          -          -
    GO_OVER        -          -          OPENING    -          -
    RETREAT        -          -          OUTSIDE    -          -
    FAIL           -          FAILED     FAILED     FAILED     RENEWING
    SET_BACK       RENEWING   RENEWING   RENEWING   RENEWING   RENEWING

- OUTSIDE: it has no configuration. It founds a cluster if it is the one to do so (`founding`), or asks to join.
- OPENING: what it will go on from (a founding, a fork, another lineage) is on its way to the disk.
- INSIDE: it takes part in a configuration log. It sends heartbeats to the leader of the log, and gets its lease from
  the answers; if it leads the log, it is the controller.
- FAILED: it can not go on, and has no lease: it waits for its end. It still keeps its log, and answers other voters.
- RENEWING: what its disk has confirmed is not what it has. It has no lease and takes no part in the log: it is about to
  be started again with another disk identity.

A process has a lease in INSIDE alone. FAILED is left for RENEWING only, and RENEWING not at all: a process that is
unfit ends before its disk has a lease again. And it comes from one lineage to another through OPENING, so what it goes
on from is on its disk before it takes part; or, if it has nothing to go on from, as a member that joins.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ENTER",
    "EVENTS",
    "FAIL",
    "FAILED",
    "FOUND",
    "GO_OVER",
    "IMPOSSIBLE",
    "INSIDE",
    "OPENING",
    "OUTSIDE",
    "PHASES",
    "RENEWING",
    "RETREAT",
    "SET_BACK",
    "TRANSITIONS",
    "next_phase",
]

OUTSIDE: Final = 0
OPENING: Final = 1
INSIDE: Final = 2
FAILED: Final = 3
RENEWING: Final = 4
PHASES: Final[list[str]] = ["outside", "opening", "inside", "failed", "renewing"]
"""The names of the phases, for people."""

FOUND: Final = 0  # it founds a cluster
ENTER: Final = 1  # what it goes on from is here: on its disk, or as the first message of a log that it joins
GO_OVER: Final = 2  # it goes over to another lineage, or forks
RETREAT: Final = 3  # the lineage that it was to join has not sent its configuration, and there is none to go back to
FAIL: Final = 4
SET_BACK: Final = 5
EVENTS: Final[list[str]] = ["found", "enter", "go over", "retreat", "fail", "set back"]

IMPOSSIBLE: Final = -1

TRANSITIONS: Final[list[list[int]]] = [
    # OUTSIDE, OPENING, INSIDE, FAILED, RENEWING
    [OPENING, IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE],
    [INSIDE, INSIDE, IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE],
    [IMPOSSIBLE, IMPOSSIBLE, OPENING, IMPOSSIBLE, IMPOSSIBLE],
    [IMPOSSIBLE, IMPOSSIBLE, OUTSIDE, IMPOSSIBLE, IMPOSSIBLE],
    [IMPOSSIBLE, FAILED, FAILED, FAILED, RENEWING],
    [RENEWING, RENEWING, RENEWING, RENEWING, RENEWING],
]
"""The next phase, by event and phase."""


def next_phase(event: int, phase: int) -> int:
    """Return the phase after an event, which must be possible in this phase."""
    after = TRANSITIONS[event][phase]
    assert after != IMPOSSIBLE, f"{EVENTS[event]} does not happen {PHASES[phase]}"
    return after
