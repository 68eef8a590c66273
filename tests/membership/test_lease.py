"""Leases: single rules, drawn runs in which none is valid that is certainly over, and bugs that these runs find."""

from __future__ import annotations

import pytest

from folkmoot.membership.lease import DRIFT_PERCENT, GrantedLeases, Lease, certain_ns
from tests.membership.leased import PLANTED, Leased
from tests.raft.world import Violation

UNTIL = 60_000  # sixty lengths of a lease

FIRST_SEEDS = {
    "from_receipt": 0,
    "keeps_returned": 0,
    "no_drift": 7,
    "no_wait": 0,
    "old_leader_answers": 0,
    "repeat_extends": 0,
    "return_ends": 20,
    "revoked_answered": 0,
    "unapplied_answers": 0,
}
"""The first seed, counted from 0, that finds each bug."""


# The member


def test_a_lease_counts_from_the_sending_of_the_heartbeat() -> None:
    lease = Lease(100)
    assert lease.until_ns <= 0
    number = lease.beat(1000)
    lease.beat(1050)
    assert lease.answered(1, number)
    assert lease.until_ns == 1100
    assert lease.until_ns > 1099
    assert lease.until_ns <= 1100


def test_an_answer_counts_once() -> None:
    lease = Lease(100)
    number = lease.beat(0)
    assert lease.answered(1, number)
    assert not lease.answered(1, number)
    assert lease.until_ns == 100


def test_a_late_answer_does_not_shorten_the_lease() -> None:
    lease = Lease(100)
    first = lease.beat(0)
    second = lease.beat(50)
    assert lease.answered(1, second)
    assert lease.answered(1, first)
    assert lease.until_ns == 150


def test_answers_of_earlier_terms_are_ignored() -> None:
    lease = Lease(100)
    first = lease.beat(0)
    second = lease.beat(50)
    third = lease.beat(60)
    assert lease.answered(7, first)
    assert not lease.answered(6, second)
    assert lease.answered(7, second)
    assert lease.answered(8, third)


def test_nothing_counts_that_was_not_asked_for() -> None:
    lease = Lease(100)
    lease.beat(0)
    assert not lease.answered(1, 2)
    assert not lease.answered(1, 0)


def test_answers_to_what_was_sent_before_a_return_do_not_count() -> None:
    lease = Lease(100)
    first = lease.beat(0)
    assert lease.answered(1, first)
    late = lease.beat(10)
    assert lease.give_back() == late
    assert lease.until_ns <= 11
    assert not lease.answered(1, late)
    assert lease.answered(1, lease.beat(20))
    assert lease.until_ns > 119


def test_heartbeats_without_an_answer_are_forgotten() -> None:
    lease = Lease(100)
    first = lease.beat(0)
    for now in range(64):
        lease.beat(now)
    assert not lease.answered(1, first)
    assert lease.answered(1, 2)


# The leader


def test_one_waits_a_length_and_the_drift() -> None:
    assert DRIFT_PERCENT == 1
    assert certain_ns(1000) == 1010
    assert certain_ns(1) == 2, "rounded up"
    assert certain_ns(2_000_000_000) == 2_020_000_000


def test_a_new_leader_waits_for_everybody() -> None:
    leases = GrantedLeases(1000, 5000)
    assert not leases.certainly_over(1, 1, 6009)
    assert leases.certainly_over(1, 1, 6010)


def test_the_wait_begins_with_the_last_heartbeat_that_may_be_answered() -> None:
    leases = GrantedLeases(1000, 0)
    assert leases.heard(1, 1, 1, 5000)
    assert not leases.certainly_over(1, 1, 6009)
    assert leases.certainly_over(1, 1, 6010)
    assert leases.heard(1, 1, 3, 7000)
    assert leases.over_ns(1, 1) == 8010
    assert leases.heard(1, 1, 2, 7100), "an older heartbeat that comes late gets an answer, too"
    assert leases.over_ns(1, 1) == 8110


def test_an_ended_process_is_not_waited_for() -> None:
    leases = GrantedLeases(1000, 0)
    assert leases.heard(1, 1, 1, 100)
    leases.ended(1, 1, 200)
    assert leases.certainly_over(1, 1, 200)
    assert not leases.certainly_over(1, 2, 200), "the next process may have a lease of an earlier leader"


def test_a_lease_that_is_given_back_is_over() -> None:
    leases = GrantedLeases(1000, 0)
    assert leases.heard(1, 1, 1, 100)
    assert leases.given_back(1, 1, 2, 150)
    assert leases.over_ns(1, 1) == 1010, "an earlier leader may have answered newer heartbeats"
    assert leases.heard(1, 1, 3, 2000)
    assert leases.given_back(1, 1, 4, 2100)
    assert leases.certainly_over(1, 1, 2100)
    assert not leases.heard(1, 1, 4, 2200), "it is given back before it is heard"
    assert leases.certainly_over(1, 1, 2200)
    assert leases.heard(1, 1, 5, 2300)
    assert not leases.certainly_over(1, 1, 2300)
    assert not leases.given_back(1, 1, 4, 2400), "a repetition of a return"
    assert not leases.certainly_over(1, 1, 2400)


def test_a_process_whose_leaderships_are_being_taken_is_not_answered() -> None:
    leases = GrantedLeases(1000, 0)
    leases.revoke(1, 1, 1010)
    assert not leases.heard(1, 1, 1, 1020)
    leases.restore(1, 1)
    assert leases.heard(1, 1, 2, 1030)
    with pytest.raises(AssertionError, match="when the lease is over"):
        leases.revoke(1, 1, 1040)


def test_what_is_over_anyway_is_forgotten() -> None:
    leases = GrantedLeases(1000, 0)
    for incarnation in range(1, 100):
        leases.heard(1, incarnation, 1, incarnation * 2000)
    leases.revoke(1, 99, 200_000)
    leases.heard(2, 1, 1, 200_001)
    assert len(leases._grants) == 2
    assert not leases.heard(1, 99, 2, 200_002)


# Drawn runs


def test_no_lease_is_valid_that_is_certainly_over() -> None:
    granted = taken = 0
    for seed in range(100):
        run = Leased(seed, "")
        run.run(UNTIL)
        granted += run.granted
        taken += run.taken
    # Were nothing granted or taken, nothing would be checked.
    assert granted > 30 * 100
    assert taken > 30 * 100


def test_every_bug_is_sought() -> None:
    assert sorted(FIRST_SEEDS) == PLANTED


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    seed = FIRST_SEEDS[name]
    with pytest.raises(Violation):
        Leased(seed, name).run(UNTIL)
    Leased(seed, "").run(UNTIL)
    if seed > 0:
        Leased(seed - 1, name).run(UNTIL)
