"""Majorities."""

from __future__ import annotations

import pytest

from folkmoot.membership.quorum import is_majority


@pytest.mark.parametrize(
    ("count", "total", "expected"),
    [
        (0, 0, False),
        (1, 1, True),
        (1, 2, False),
        (2, 3, True),
        (2, 4, False),
        (3, 4, True),
        (2, 5, False),
        (3, 5, True),
    ],
)
def test_a_majority_is_more_than_half(count: int, total: int, expected: bool) -> None:
    assert is_majority(count, total) is expected
