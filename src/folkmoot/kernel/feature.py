"""Features: what a node can do beyond the version of the wire, told by name in the handshake.

A feature is on when every member of the view has it: nodes of two versions can form one cluster, and what only the
newer ones understand begins when the last old one is gone. Owns the names and the rule.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CLOCKS",
    "FEATURES",
    "FLUSH_MARKERS",
    "LOGINS",
    "OWNERS",
    "RECEIPTS",
    "RETAINED_OWNERS",
    "TABLES",
    "TRANSACTIONS",
    "WAKING",
    "features_on",
    "lacking",
]

RECEIPTS: Final = "receipts"  # the answer to a request says where its messages are, and on how many nodes
WAKING: Final = "waking"  # a member tells one that stood still that it counts on it
TRANSACTIONS: Final = "transactions"  # messages staged in a home partition, committed at once, published once
TABLES: Final = "tables"  # questions for pages of tables are answered
FLUSH_MARKERS: Final = "fences"  # a message with no requests in it is answered: then all before it have come
RETAINED_OWNERS: Final = "retained_owners"  # a retained message may name the user that it counts for

OWNERS: Final = "owners"  # the rows of wills name the user
LOGINS: Final = "logins"  # nodes tell each other which passwords they have found right
CLOCKS: Final = "clocks"  # a node tells another one what its clock shows

FEATURES: Final[list[str]] = [
    RECEIPTS,
    WAKING,
    TRANSACTIONS,
    TABLES,
    FLUSH_MARKERS,
    RETAINED_OWNERS,
    OWNERS,
    LOGINS,
    CLOCKS,
]
"""What this software can do, in the order in which it learned it."""


def features_on(mine: list[str], others: list[str], told: dict[str, list[str]]) -> list[str]:
    """Return those of my features that all others have.

    others: ids of the other members of the view; told: by node id, what each has said in its handshake. Of a member
    that was not heard of yet nothing is assumed.
    """
    return [feature for feature in mine if not lacking(feature, others, told)]


def lacking(feature: str, others: list[str], told: dict[str, list[str]]) -> list[str]:
    """Return the ids of the others that have not said that they have a feature, in their order."""
    return [node_id for node_id in others if feature not in told.get(node_id, [])]
