"""Bugs that tests plant: wrong variants of the control of a cluster, by which the checkers prove that they see.

All are off, and nothing but a test switches one on. `tests/membership/test_control_faults.py` says within
how many seeds each is found, and which tests find those that need faults of their own.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PLANTED", "PlantedControl"]

PLANTED: Final[list[str]] = [
    "away_early",
    "believes_claims",
    "drops_early",
    "follows_the_old",
    "fork_beside",
    "fork_in_doubt",
    "found_beside",
    "grant_alone",
    "ignores_links",
    "keeps_claims",
    "keeps_data",
    "keeps_few",
    "keeps_lease",
    "keeps_promises",
    "keeps_unleased",
    "leaves_to_silent",
    "orders_witness",
    "stays_set_back",
    "stops_cost_votes",
    "trusts_numbers",
    "trusts_proofs",
    "votes_in_doubt",
]
"""The names of all bugs."""


class PlantedControl:
    """Which bugs a member has; none but in tests."""

    def __init__(self, names: list[str]) -> None:
        for name in names:
            assert name in PLANTED, f"there is no bug {name!r} to plant"
        self.away_early: bool = "away_early" in names  # a member is away although its lease may go on
        self.believes_claims: bool = "believes_claims" in names  # a process has ended because another one says so
        self.drops_early: bool = "drops_early" in names  # a former leader's copy goes before it has stopped
        self.follows_the_old: bool = "follows_the_old" in names  # a lineage that all have left is as good as any
        self.fork_beside: bool = "fork_beside" in names  # a process forks beside one that has a lease
        self.fork_in_doubt: bool = "fork_in_doubt" in names  # an incomplete disk founds a fork as a complete one does
        self.found_beside: bool = "found_beside" in names  # any process founds a cluster, not the first one
        self.grant_alone: bool = "grant_alone" in names  # a leader that may be deposed answers heartbeats
        self.ignores_links: bool = "ignores_links" in names  # members without a link between them stay
        self.keeps_claims: bool = "keeps_claims" in names  # a process has ended that was heard since it was seen end
        self.keeps_data: bool = "keeps_data" in names  # a witness joins as a member that holds partitions
        self.keeps_few: bool = "keeps_few" in names  # a few members stay up in place of most that are linked
        self.keeps_lease: bool = "keeps_lease" in names  # a process speaks on that others may take for ended
        self.keeps_promises: bool = "keeps_promises" in names  # a leader counts on voters that may take it for ended
        self.keeps_unleased: bool = "keeps_unleased" in names  # a member that answers come to too late stays up
        self.leaves_to_silent: bool = "leaves_to_silent" in names  # a partition is left to members that may be dead
        self.orders_witness: bool = "orders_witness" in names  # a witness takes an order that it cannot carry out
        self.stays_set_back: bool = "stays_set_back" in names  # a folder that was set back goes on as it is
        self.stops_cost_votes: bool = "stops_cost_votes" in names  # a member that is stopped in order loses its vote
        self.trusts_numbers: bool = "trusts_numbers" in names  # a start number names one process for ever
        self.trusts_proofs: bool = "trusts_proofs" in names  # a leader that was taken for ended has granted nothing
        self.votes_in_doubt: bool = "votes_in_doubt" in names  # a disk that lost what it confirmed votes as it did
