"""Majorities: whether those who are here are more than half of all that count.

Who counts is the caller's to say: `View.known` for a cluster, the configured seeds before there is one. Nodes that are
here and do not count add nothing. Half is no majority; in a tie the half with the lowest id may count as one, so that
one component of a split at most goes on.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["count_of", "has_majority", "has_majority_or_tie", "is_majority", "votes_of"]


def is_majority(count: int, total: int) -> bool:
    """Tell whether so many are more than half."""
    return 2 * count > total


def count_of(known: list[str], here: Iterable[str]) -> int:
    """Return how many of those who count are here."""
    ids = dict.fromkeys(here)
    return len([node_id for node_id in known if node_id in ids])


def votes_of(known: list[str], here: Iterable[str]) -> int:
    """Return how much of those who count is here: twice the number, and one if the lowest id is among them."""
    ids = dict.fromkeys(here)
    return 2 * count_of(known, ids) + (1 if known and min(known) in ids else 0)


def has_majority(known: list[str], here: Iterable[str]) -> bool:
    """Tell whether more than half of those who count are here."""
    return is_majority(count_of(known, here), len(known))


def has_majority_or_tie(known: list[str], here: Iterable[str]) -> bool:
    """Tell the same, where half with the lowest id counts too: true in one component of a split at most."""
    return votes_of(known, here) > len(known)
