"""Quorums, and the changes that keep two neighbouring configurations' quorums overlapping."""

from __future__ import annotations

from itertools import combinations

import pytest

from folkmoot.raft.codec import Reader, put_ids
from folkmoot.raft.configuration import (
    ADD_LEARNER,
    CHANGES,
    DEMOTE,
    PROMOTE,
    REMOVE,
    Configuration,
    decode_change,
    decode_configuration,
)
from folkmoot.raft.error import Malformed


@pytest.mark.parametrize(("voters", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_a_quorum_is_more_than_half(voters: int, quorum: int) -> None:
    configuration = Configuration(list(range(1, voters + 1)), [99])
    assert not configuration.is_quorum([*range(1, quorum), 99])
    assert configuration.is_quorum(list(range(1, quorum + 1)))
    assert configuration.agreed(list(range(voters))) == voters - quorum


def test_nobody_is_no_quorum() -> None:
    assert not Configuration([], []).is_quorum([])


@pytest.mark.parametrize(
    ("kind", "peer", "voters", "learners"),
    [
        (ADD_LEARNER, 9, [1, 2, 3], [5, 9]),
        (PROMOTE, 5, [1, 2, 3, 5], []),
        (DEMOTE, 2, [1, 3], [2, 5]),
        (REMOVE, 2, [1, 3], [5]),
        (REMOVE, 5, [1, 2, 3], []),
    ],
)
def test_changes(kind: int, peer: int, voters: list[int], learners: list[int]) -> None:
    after = Configuration([1, 2, 3], [5]).after(kind, peer)
    assert after is not None
    assert (after.voters, after.learners) == (voters, learners)


@pytest.mark.parametrize(("kind", "peer"), [(ADD_LEARNER, 1), (ADD_LEARNER, 5), (PROMOTE, 1), (DEMOTE, 5), (REMOVE, 9)])
def test_changes_that_do_not_fit(kind: int, peer: int) -> None:
    assert Configuration([1, 2, 3], [5]).after(kind, peer) is None


@pytest.mark.parametrize("kind", [DEMOTE, REMOVE])
def test_the_last_voter_stays(kind: int) -> None:
    assert Configuration([1], [2]).after(kind, 1) is None


@pytest.mark.parametrize("size", range(1, 6))
def test_quorums_of_neighbours_share_a_voter(size: int) -> None:
    before = Configuration(list(range(1, size + 1)), [9])
    for kind in CHANGES:
        for peer in (1, 9, 10):
            after = before.after(kind, peer)
            if after is None:
                continue
            for one in combinations(before.voters, before.quorum):
                for other in combinations(after.voters, after.quorum):
                    assert set(one) & set(other)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (put_ids([2]) + b"\x01\x02", "2 is a voter and a learner"),
        (put_ids([]) + put_ids([2]), "no voter"),
        (b"\x02\x03\x03\x00", "ascending"),
        (b"\x02\x03\x02\x00", "ascending"),
        (b"\x01\x00\x00", "positive"),
        (b"\xff\x01\x02", "too few"),
    ],
)
def test_encodings_of_no_configuration(data: bytes, text: str) -> None:
    with pytest.raises(Malformed, match=text):
        decode_configuration(Reader(data, "test"))


@pytest.mark.parametrize("data", [b"", b"\x01\x05\x01\x02\x01\x01\x00\x00", b"\x01\x01\x01\x02\x00\x00\x00"])
def test_encodings_of_no_change(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_change(data)
