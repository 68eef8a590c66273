"""The states of a member of the configuration and the commands that change them, as one table.

    command / state   JOINING        ACTIVE         AWAY           LEAVING        AWAY_LEAVING
    START             ACTIVE         ACTIVE         ACTIVE         LEAVING        LEAVING
    AWAY              AWAY           AWAY           -              AWAY_LEAVING   -
    EVICT             AWAY           AWAY           AWAY           AWAY_LEAVING   AWAY_LEAVING
    LEAVE             AWAY_LEAVING   LEAVING        AWAY_LEAVING   -              -
    STAY              -              -              -              ACTIVE         AWAY
    REMOVE            gone           -              gone           gone           gone

A member can lead and be added to an ISR in ACTIVE and LEAVING alone; it is *up* then. The proof that nothing else leads
reads off the table. ACTIVE and LEAVING are entered by START, which a running process asks for, or from each other by
LEAVE and STAY. They are left for the other states by AWAY and EVICT alone, and the transition takes all leaderships of
the member with the same entry. REMOVE is missing for ACTIVE, and refused for a LEAVING member that holds a copy, so a
member that is removed leads nothing. JOINING is entered by JOIN alone and holds nothing: only ACTIVE members are given
copies, and no command leads back to JOINING.

A leave survives the end of the process: AWAY_LEAVING goes on to LEAVING with the next START. A member that is told to
leave before its first START has nothing to hand over and never serves: it waits for its removal in AWAY_LEAVING.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ACTIVE",
    "AWAY",
    "AWAY_LEAVING",
    "EVENTS",
    "GONE",
    "IMPOSSIBLE",
    "JOINING",
    "LEAVING",
    "ON_AWAY",
    "ON_EVICT",
    "ON_LEAVE",
    "ON_REMOVE",
    "ON_START",
    "ON_STAY",
    "STATES",
    "TRANSITIONS",
    "is_leaving",
    "is_up",
    "next_state",
]

JOINING: Final = 0  # known, follows the log, holds nothing
ACTIVE: Final = 1
AWAY: Final = 2  # its process has ended, is cut off, or was stopped: it leads nothing
LEAVING: Final = 3  # hands over what it holds; the leave can be taken back
AWAY_LEAVING: Final = 4  # away, and it was told to leave
STATES: Final[list[str]] = ["joining", "active", "away", "leaving", "away-leaving"]
"""The names of the states, for people."""

ON_START: Final = 0
ON_AWAY: Final = 1
ON_EVICT: Final = 2
ON_LEAVE: Final = 3
ON_STAY: Final = 4
ON_REMOVE: Final = 5
EVENTS: Final[list[str]] = ["start", "away", "evict", "leave", "stay", "remove"]

IMPOSSIBLE: Final = -1
GONE: Final = -2  # there is no such member any more

TRANSITIONS: Final[list[list[int]]] = [
    # JOINING, ACTIVE, AWAY, LEAVING, AWAY_LEAVING
    [ACTIVE, ACTIVE, ACTIVE, LEAVING, LEAVING],
    [AWAY, AWAY, IMPOSSIBLE, AWAY_LEAVING, IMPOSSIBLE],
    [AWAY, AWAY, AWAY, AWAY_LEAVING, AWAY_LEAVING],
    [AWAY_LEAVING, LEAVING, AWAY_LEAVING, IMPOSSIBLE, IMPOSSIBLE],
    [IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE, ACTIVE, AWAY],
    [GONE, IMPOSSIBLE, GONE, GONE, GONE],
]
"""The next state, by command and state."""


def next_state(event: int, state: int) -> int:
    """Return the state after a command, GONE, or IMPOSSIBLE if the command does not fit the state."""
    assert 0 <= event < len(EVENTS), "the command changes states"
    assert 0 <= state < len(STATES), "the state is known"
    return TRANSITIONS[event][state]


def is_up(state: int) -> bool:
    """Tell whether a member in this state serves: it may lead, and count as in sync."""
    return state in (ACTIVE, LEAVING)


def is_leaving(state: int) -> bool:
    """Tell whether a member in this state was told to leave."""
    return state in (LEAVING, AWAY_LEAVING)
