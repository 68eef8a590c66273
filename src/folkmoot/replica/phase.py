"""The phases of a leader of a partition, from its appointment until it serves, and what leads from one to another."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ADOPTED",
    "ADOPTS",
    "BEGINS",
    "CANNOT_READ",
    "EVENTS",
    "HAS_MERGED",
    "IDLE",
    "LOSES",
    "MERGES",
    "MERGING",
    "OPEN",
    "PHASES",
    "SHARED",
    "SHARES",
    "STARTS",
    "TAKING",
    "TRANSITIONS",
    "next_phase",
]

IDLE: Final = 0  # does not lead, or does not know yet how
TAKING: Final = 1  # collects what other nodes have and this one lacks
ADOPTED: Final = 2  # everything is on the disk; the broker may start
MERGING: Final = 3  # merges other branches; from here on its changes go to its followers
SHARED: Final = 4  # what was taken over or merged has gone to the followers; when it is committed, the broker may start
OPEN: Final = 5  # serves
PHASES: Final[list[str]] = ["idle", "taking over", "adopted", "merging", "shared", "open"]
"""The names of the phases, for people."""

LOSES: Final = 0  # another one leads, or what the takeover goes on from is void
BEGINS: Final = 1  # a view makes this node the leader
ADOPTS: Final = 2  # the longest copy is here, and known to be on the disks of the ISR
SHARES: Final = 3  # it is here, and is to be committed before it is seen
MERGES: Final = 4  # there are branches
HAS_MERGED: Final = 5
STARTS: Final = 6  # the broker has read it
CANNOT_READ: Final = 7
EVENTS: Final[list[str]] = ["loses", "begins", "adopts", "shares", "merges", "has merged", "starts", "cannot read"]

TRANSITIONS: Final[dict[tuple[int, int], int]] = {
    (IDLE, BEGINS): TAKING,
    (TAKING, BEGINS): TAKING,  # anew in a later view, from the reports of that view
    (ADOPTED, BEGINS): TAKING,
    (MERGING, BEGINS): TAKING,
    (SHARED, BEGINS): TAKING,
    (OPEN, BEGINS): TAKING,  # with a new branch
    (TAKING, ADOPTS): ADOPTED,
    (TAKING, SHARES): SHARED,
    (TAKING, MERGES): MERGING,
    (MERGING, HAS_MERGED): SHARED,
    (ADOPTED, STARTS): OPEN,
    (SHARED, STARTS): OPEN,
    (ADOPTED, CANNOT_READ): TAKING,
    (SHARED, CANNOT_READ): TAKING,
    (OPEN, CANNOT_READ): TAKING,
}
"""The phase after what happens in a phase; LOSES leads to IDLE from each. Anything else is an error.

What follows: a partition is OPEN only after TAKING in the same leadership or an earlier one of this process, which has
waited for the whole ISR; and, unless all of the ISR had reported the same position, after SHARED, which ends when
everything is committed. So whatever is served is committed, and nothing that was committed is missing.
"""


def next_phase(event: int, phase: int, partition: int) -> int:
    """Return the phase after an event, which must be possible in this phase."""
    if event == LOSES:
        return IDLE
    following = TRANSITIONS.get((phase, event), -1)
    assert following >= 0, f"partition {partition}: a leader that is {PHASES[phase]} never {EVENTS[event]}"
    return following
