"""Suffixes: changes that a copy lacks, in frames that are not too long."""

from __future__ import annotations

import pytest

from folkmoot.replica.change import Change, decode_changes
from folkmoot.replica.suffix import frames_of

MEBIBYTE = 1 << 20


def changes_of(sizes: list[int]) -> list[Change]:
    return [Change(7, seq, 7, seq + 1, bytes(size)) for seq, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ([], []),
        ([0], [1]),
        ([10] * 1000, [1000]),
        ([MEBIBYTE], [1]),
        ([MEBIBYTE, 1], [2]),  # not longer than a frame, so the next one joins it
        ([MEBIBYTE + 1, 1], [1, 1]),
        ([MEBIBYTE // 2] * 5, [3, 2]),  # the third makes the frame longer than a mebibyte
        ([3 * MEBIBYTE] * 3, [1, 1, 1]),  # a change is never cut
    ],
)
def test_a_frame_ends_with_the_change_that_makes_it_too_long(sizes: list[int], counts: list[int]) -> None:
    assert [len(parts) for parts in frames_of(3, changes_of(sizes))] == counts


def test_frames_hold_all_changes_in_order() -> None:
    changes = changes_of([MEBIBYTE // 3] * 10)
    found = [one for parts in frames_of(3, changes) for one in decode_changes(b"".join(parts), 0, 4)]
    assert [(partition, change.seq, change.body) for partition, change in found] == [
        (3, change.seq, change.body) for change in changes
    ]
