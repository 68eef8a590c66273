"""Packet ids of the sides of a split: nobody gives those of another side."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.session.fork_ids import distance_in_fork
from folkmoot.session.session import PACKET_IDS

EPOCHS = st.integers(1, 2**64 - 1)
TRUNK = 0


def apart(one: int, other: int) -> int:
    """How many ids lie between two distances, whichever comes first: after the last id comes the first one."""
    return min((one - other) % PACKET_IDS, (other - one) % PACKET_IDS)


@given(st.integers(1, 10), st.data())
def test_forks_of_different_nodes_and_the_trunk_are_far_from_each_other(places: int, data: st.DataObject) -> None:
    found = [TRUNK, *[distance_in_fork(place, places, data.draw(EPOCHS)) for place in range(places)]]
    least = 6_553 if places < 5 else 4_681 if places < 7 else 2_978
    for count, one in enumerate(found):
        for other in found[count + 1 :]:
            assert apart(one, other) >= least


@given(st.integers(11, 1000), st.data())
def test_forks_of_many_nodes_are_far_from_the_trunk(places: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, places - 1))
    assert apart(TRUNK, distance_in_fork(place, places, data.draw(EPOCHS))) >= 2_978


def test_what_two_leaders_of_a_fork_add_up_to_is_what_another_fork_has_only_by_chance() -> None:
    """The first two of three nodes have led it one after the other, and the third one has founded a fork, too."""
    close = 0
    for epoch in range(1000):
        both = distance_in_fork(0, 3, epoch) + distance_in_fork(1, 3, epoch + 1)
        close += apart(both, distance_in_fork(2, 3, epoch)) < 100
    assert close < 50


def test_a_node_that_leads_again_and_again_is_not_back_at_the_ids_of_the_trunk() -> None:
    for place in range(3):
        found = TRUNK
        for epoch in range(1, 5):
            found += distance_in_fork(place, 3, epoch << 24 | 7)
            assert apart(TRUNK, found) > 1000
