"""The roles of a member and the events that change them, as one table.

    event / role     FOLLOWER        PRE_CANDIDATE   CANDIDATE       LEADER
    TIMEOUT          PRE_CANDIDATE   PRE_CANDIDATE   PRE_CANDIDATE   -
    PRE_ELECTED      -               CANDIDATE       -               -
    TOLD             CANDIDATE       CANDIDATE       CANDIDATE       -
    ELECTED          -               LEADER          LEADER          -
    LEADER_FOUND     FOLLOWER        FOLLOWER        FOLLOWER        -
    NEWER_TERM       FOLLOWER        FOLLOWER        FOLLOWER        FOLLOWER
    QUORUM_LOST      -               -               -               FOLLOWER
    REMOVED          FOLLOWER        FOLLOWER        FOLLOWER        FOLLOWER
    HANDOVER_FAILED  -               -               -               FOLLOWER
    DISK_STALLED     -               -               -               FOLLOWER

The proof of election safety reads off it. LEADER is entered by ELECTED alone: a quorum has voted in the member's term,
in which it has been CANDIDATE. CANDIDATE is entered with a new term and a vote for itself, both durable before the
first request leaves. So a member leads at most once in a term, with a quorum of votes, and as each voter votes once in
a term and two quorums share a voter, there is one leader in a term. LEADER_FOUND has no entry for LEADER: a message
from another leader of the same term cannot come from a correct member. A candidate that fails asks again before it
takes another term: only members that reach a quorum raise terms. Until it has another term it is PRE_CANDIDATE in the
one in which it has stood, and votes that come late elect it still.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CANDIDATE",
    "DISK_STALLED",
    "ELECTED",
    "FOLLOWER",
    "HANDOVER_FAILED",
    "LEADER",
    "LEADER_FOUND",
    "NEWER_TERM",
    "PRE_CANDIDATE",
    "PRE_ELECTED",
    "QUORUM_LOST",
    "REMOVED",
    "ROLES",
    "TIMEOUT",
    "TOLD",
    "TRANSITIONS",
]

FOLLOWER: Final = 0
PRE_CANDIDATE: Final = 1
CANDIDATE: Final = 2
LEADER: Final = 3
ROLES: Final[list[str]] = ["follower", "pre-candidate", "candidate", "leader"]

TIMEOUT: Final = 0  # no leader was heard, or no election won, for an election timeout
PRE_ELECTED: Final = 1  # a quorum would vote
TOLD: Final = 2  # the leader hands leadership over
ELECTED: Final = 3  # a quorum has voted
LEADER_FOUND: Final = 4  # the leader of the current term has spoken
NEWER_TERM: Final = 5  # a message has a newer term
QUORUM_LOST: Final = 6  # no quorum has answered a leader for an election timeout
REMOVED: Final = 7  # the configuration without this voter is committed
HANDOVER_FAILED: Final = 8  # the successor that was told to campaign leads not: the leader campaigns itself
DISK_STALLED: Final = 9  # a quorum has had the first entry of the term for long, and the disk of its leader has not

_NONE: Final = -1

TRANSITIONS: Final[list[list[int]]] = [
    # FOLLOWER, PRE_CANDIDATE, CANDIDATE, LEADER
    [PRE_CANDIDATE, PRE_CANDIDATE, PRE_CANDIDATE, _NONE],
    [_NONE, CANDIDATE, _NONE, _NONE],
    [CANDIDATE, CANDIDATE, CANDIDATE, _NONE],
    [_NONE, LEADER, LEADER, _NONE],
    [FOLLOWER, FOLLOWER, FOLLOWER, _NONE],
    [FOLLOWER, FOLLOWER, FOLLOWER, FOLLOWER],
    [_NONE, _NONE, _NONE, FOLLOWER],
    [FOLLOWER, FOLLOWER, FOLLOWER, FOLLOWER],
    [_NONE, _NONE, _NONE, FOLLOWER],
    [_NONE, _NONE, _NONE, FOLLOWER],
]
"""The next role, by event and role; -1 where the event cannot happen."""
