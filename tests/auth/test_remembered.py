"""The table of marks: bounded, the least recent go, and two tables can be compared."""

from __future__ import annotations

from folkmoot.auth.remembered import Remembered


def mark(number: int) -> bytes:
    return number.to_bytes(8, "big") * 2


def test_the_least_recent_goes() -> None:
    table = Remembered(2)
    assert [table.add(mark(number)) for number in (1, 2, 1, 3)] == [True, True, False, True]
    assert [table.has(mark(number)) for number in (1, 2, 3)] == [True, False, True]
    assert table.marks() == [mark(1), mark(3)]
    assert len(table) == 2


def test_equal_tables_have_equal_digests_whatever_their_history() -> None:
    one, other = Remembered(2), Remembered(9)
    for number in (1, 2, 3):
        one.add(mark(number))
    assert one.digest != other.digest
    for number in (3, 2):
        other.add(mark(number))
    assert one.digest == other.digest
