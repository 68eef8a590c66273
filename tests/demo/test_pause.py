"""How long a device waits: only while something is unacknowledged, and told for the time in which the wait ended."""

from __future__ import annotations

from folkmoot.demo.pause import Pauses


def test_a_wait_goes_from_one_acknowledgement_to_the_next() -> None:
    pauses = Pauses()
    pauses.published(0.0)
    pauses.published(1.0)
    pauses.acknowledged(3.0, outstanding=1)
    pauses.acknowledged(8.0, outstanding=0)
    assert pauses.longest_s(0.0, 3.0) == 3.0
    assert pauses.longest_s(0.0, 9.0) == 5.0


def test_nobody_waits_while_nothing_is_open() -> None:
    pauses = Pauses()
    pauses.published(0.0)
    pauses.acknowledged(0.01, outstanding=0)
    pauses.published(60.0)
    pauses.acknowledged(60.5, outstanding=0)
    assert pauses.longest_s(0.0, 100.0) == 0.5


def test_a_wait_counts_where_it_ended() -> None:
    pauses = Pauses()
    pauses.published(0.0)
    pauses.acknowledged(2.0, outstanding=0)
    assert pauses.longest_s(0.0, 1.9) == 0.0
    assert pauses.longest_s(1.9, 5.0) == 2.0
    assert pauses.longest_s(2.0, 5.0) == 0.0
