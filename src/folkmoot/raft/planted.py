"""Bugs that the model test plants: wrong variants of Raft, by which its checkers prove that they see.

All are off, and nothing but a test switches one on. `tests/raft/test_planted.py` says within how many seeds each is
found.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PLANTED", "Planted"]

PLANTED: Final[list[str]] = [
    "answers_late",
    "append_unsaved",
    "campaigns_unsaved",
    "change_early",
    "changes_overlap",
    "check_quorum_off",
    "commit_old_term",
    "count_unsaved",
    "drops_late_votes",
    "forgets_promise",
    "keeps_stalled",
    "leader_moves",
    "lease_after_transfer",
    "learner_counts",
    "no_fetch",
    "no_pre_vote",
    "own_promise",
    "read_alone",
    "quiet_while_sending",
    "read_before_noop",
    "snapshot_back",
    "stale_match",
    "truncate_committed",
    "trusts_voters",
    "void_term",
    "vote_against_log",
    "vote_twice",
    "vote_unsaved",
]
"""The names of all bugs."""


class Planted:
    """Which bugs a member has; none but in tests."""

    def __init__(self, names: list[str]) -> None:
        for name in names:
            assert name in PLANTED, f"there is no bug {name!r} to plant"
        self.answers_late: bool = "answers_late" in names  # pre-votes are answered after the write of a vote
        self.append_unsaved: bool = "append_unsaved" in names  # a follower confirms entries before they are durable
        self.campaigns_unsaved: bool = "campaigns_unsaved" in names  # an election timeout passes while a vote is saved
        self.change_early: bool = "change_early" in names  # a change before the leader has committed in its term
        self.changes_overlap: bool = "changes_overlap" in names  # a change before the one before it is committed
        self.check_quorum_off: bool = "check_quorum_off" in names  # a leader without a quorum stays leader
        self.commit_old_term: bool = "commit_old_term" in names  # counts copies of entries of earlier terms
        self.count_unsaved: bool = "count_unsaved" in names  # a leader counts itself before its entries are durable
        self.drops_late_votes: bool = "drops_late_votes" in names  # a candidate that asks again forgets its votes
        self.forgets_promise: bool = "forgets_promise" in names  # a restart with other settings ends a promise
        self.keeps_stalled: bool = "keeps_stalled" in names  # a leader stays whose disk lacks the entry of its term
        self.leader_moves: bool = "leader_moves" in names  # voters that hear a leader vote for others
        self.lease_after_transfer: bool = "lease_after_transfer" in names  # a lease although another may campaign
        self.learner_counts: bool = "learner_counts" in names  # learners count for commits
        self.no_fetch: bool = "no_fetch" in names  # a candidate does not fetch what its log lacks
        self.no_pre_vote: bool = "no_pre_vote" in names  # campaigns without asking first
        self.own_promise: bool = "own_promise" in names  # a leader takes its own setting for what voters have promised
        self.quiet_while_sending: bool = "quiet_while_sending" in names  # no heartbeats beside entries
        self.read_alone: bool = "read_alone" in names  # a leader answers reads without asking a quorum
        self.read_before_noop: bool = "read_before_noop" in names  # reads before a commit in the leader's term
        self.snapshot_back: bool = "snapshot_back" in names  # an older snapshot replaces a newer log
        self.stale_match: bool = "stale_match" in names  # an answer to an old append confirms what was sent since
        self.truncate_committed: bool = "truncate_committed" in names  # an old append cuts off what came after it
        self.void_term: bool = "void_term" in names  # a leader stays in a term in which it can have no lease
        self.trusts_voters: bool = "trusts_voters" in names  # nobody votes before its promise is over
        self.vote_against_log: bool = "vote_against_log" in names  # votes for candidates that lack entries
        self.vote_twice: bool = "vote_twice" in names  # a vote for each candidate of a term
        self.vote_unsaved: bool = "vote_unsaved" in names  # votes and terms are spoken before they are durable
