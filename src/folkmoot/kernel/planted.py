"""Bugs that tests plant: wrong variants of the protocol, by which the checkers of the simulator prove that they see.

Owns their names, nothing else: at each place where one is asked for stands `planted`. All are off, and no setting
reaches them (`ClusterConfig.planted`). `docs/simulation.md` says within how many seeds each is found.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PLANTED", "Planted"]

PLANTED: Final[list[str]] = [
    "any_epoch",
    "chunk_kept",
    "clears_kept",
    "deaf_digests",
    "dirty_anew",
    "dirty_tail",
    "drops_in_fork",
    "endless_turns",
    "early_ack",
    "forgets_recent",
    "gaps",
    "leader_alone",
    "moves_unseen",
    "nameless_packets",
    "no_barrier",
    "no_landing",
    "no_stamps",
    "outbox_forgotten",
    "own_time",
    "own_tail",
    "partial_counts",
    "read_before",
    "same_ids",
    "serves_scarce",
    "stale_routes",
    "tail_kept",
    "unasked",
    "unbounded_time",
    "uncounted",
    "undrained",
    "unfenced",
    "unleased",
    "unmarked",
    "untouched",
    "wall_deadlines",
    "wills_twice",
]
"""The names of all bugs."""


class Planted:
    """Which bugs a node has, from their names; none but in tests."""

    def __init__(self, names: list[str]) -> None:
        for name in names:
            assert name in PLANTED, f"there is no bug {name!r} to plant"
        # Replication
        self.leader_alone: bool = "leader_alone" in names  # a leader acknowledges without its followers
        self.early_ack: bool = "early_ack" in names  # followers confirm what is not on their disks
        self.any_epoch: bool = "any_epoch" in names  # followers take changes of leaders that were deposed
        self.gaps: bool = "gaps" in names  # followers apply changes over a gap
        self.drops_in_fork: bool = "drops_in_fork" in names  # a fork drops copies on which the trunk counts
        self.forgets_recent: bool = "forgets_recent" in names  # a start finds no changes for the copies that lack them
        self.dirty_tail: bool = "dirty_tail" in names  # a new leader shows what is not committed
        self.dirty_anew: bool = "dirty_anew" in names  # a leader that begins anew shows what is not committed
        self.own_tail: bool = "own_tail" in names  # a new leader keeps only its own changes
        self.tail_kept: bool = "tail_kept" in names  # a deposed leader keeps what is not committed
        self.uncounted: bool = "uncounted" in names  # a leader asks for a member without counting on it
        self.untouched: bool = "untouched" in names  # pages of a copy overwrite newer changes
        self.partial_counts: bool = "partial_counts" in names  # a copy that is being filled counts as complete
        self.deaf_digests: bool = "deaf_digests" in names  # copies that differ are left as they are
        self.clears_kept: bool = "clears_kept" in names  # a retained message is cleared at its leader only
        self.serves_scarce: bool = "serves_scarce" in names  # `min_in_sync` is not looked at
        self.no_stamps: bool = "no_stamps" in names  # changes during a split are not dated
        self.endless_turns: bool = "endless_turns" in names  # a turn handles all its input, however much that is
        # Leases
        self.unleased: bool = "unleased" in names  # what leaves a node needs no lease
        self.stale_routes: bool = "stale_routes" in names  # recipients are decided without a lease, too
        # Time
        self.own_time: bool = "own_time" in names  # a node expires by its own clock, whatever others say
        self.unbounded_time: bool = "unbounded_time" in names  # the clock that is furthest ahead pulls all
        self.wall_deadlines: bool = "wall_deadlines" in names  # deadlines follow the wall clock
        # MQTT across nodes
        # retained messages are read while they may wait in the outbox of a partition between two leaders
        self.moves_unseen: bool = "moves_unseen" in names
        self.no_landing: bool = "no_landing" in names  # retained messages are read while others are under way
        self.undrained: bool = "undrained" in names  # what clients send overtakes what was deferred
        self.unmarked: bool = "unmarked" in names  # what is asked again is applied again
        # packets that two leaders have got are not told from others
        self.nameless_packets: bool = "nameless_packets" in names
        self.same_ids: bool = "same_ids" in names  # all forks give the same packet ids
        self.unfenced: bool = "unfenced" in names  # a client comes in before its older connection has ended
        self.outbox_forgotten: bool = "outbox_forgotten" in names  # a new leader does not go on with what was promised
        self.wills_twice: bool = "wills_twice" in names  # a will stays stored when it is published
        # the messages of a transaction are promised, and their chunk goes later
        self.chunk_kept: bool = "chunk_kept" in names
        # what was read of a partition counts, although it was written to since
        self.read_before: bool = "read_before" in names
        self.unasked: bool = "unasked" in names  # a new leader does not ask who is connected
        self.no_barrier: bool = "no_barrier" in names  # SUBACK does not wait for the other nodes
