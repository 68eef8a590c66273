"""Features: what a node can do beyond the version of the wire, told by name in the handshake.

A feature is on when every member of the view has it: nodes of two versions can form one cluster, and what only the
newer ones understand begins when the last old one is gone. Owns the names and the rule.

A *lasting* feature decides what an entry of the configuration log means. It is on from the entry that says so
(`membership/command.Features`), which is proposed when all members have it, also those that are away, and it stays on:
the log may hold entries that a node without it reads otherwise, or not at all. So such a node is refused from then on.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AGES",
    "CLASSES",
    "DEFERS",
    "FEATURES",
    "LASTING",
    "LOGINS",
    "RECEIPTS",
    "TOGETHER",
    "TOGETHER_BIT",
    "features_on",
    "lacking",
    "lasting_bits",
]

RECEIPTS: Final = "receipts"  # the answer to a request says where its messages are, and on how many nodes
LOGINS: Final = "logins"  # nodes tell each other which passwords they have found right
AGES: Final = "ages"  # a packet that has waited for the leader of its client's session says how long
CLASSES: Final = "classes"  # in a link, messages of the control have frames of their own; long frames come in pieces
DEFERS: Final = "defers"  # what is for a partition without a leader waits in the outbox of another one

TOGETHER: Final = "together"  # members that go together are one entry, and what is left of a partition leads together

FEATURES: Final[list[str]] = [RECEIPTS, LOGINS, AGES, TOGETHER, CLASSES, DEFERS]
"""What this software can do, in the order in which it learned it.

None of them decides what a row means: a feature is off again as soon as an older node has come, and a row outlives
that. What changes rows needs another version of the wire.
"""

TOGETHER_BIT: Final = 1

LASTING: Final[dict[str, int]] = {TOGETHER: TOGETHER_BIT}
"""Those that decide what an entry of the configuration log means, and the bit of each; a bit is never used again."""


def lasting_bits(features: list[str]) -> int:
    """Return the bits of those of some features that last; a name that is unknown here has none."""
    bits = 0
    for feature in features:
        bits |= LASTING.get(feature, 0)
    return bits


def features_on(mine: list[str], others: list[str], told: dict[str, list[str]]) -> list[str]:
    """Return those of my features that all others have.

    others: ids of the other members of the view; told: by node id, what each has said in its handshake. Of a member
    that was not heard of yet nothing is assumed.
    """
    return [feature for feature in mine if not lacking(feature, others, told)]


def lacking(feature: str, others: list[str], told: dict[str, list[str]]) -> list[str]:
    """Return the ids of the others that have not said that they have a feature, in their order."""
    return [node_id for node_id in others if feature not in told.get(node_id, [])]
