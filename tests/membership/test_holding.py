"""Holdings: their order."""

from __future__ import annotations

from folkmoot.membership.holding import COMPLETE, Holding, later

COPY = Holding(COMPLETE, 9, 30, [(3, 0), (5, 10), (9, 20)])


def test_later_goes_by_epoch_then_sequence() -> None:
    assert later(Holding(COMPLETE, 5, 1, []), Holding(COMPLETE, 4, 9, []))
    assert later(Holding(COMPLETE, 5, 2, []), Holding(COMPLETE, 5, 1, []))
    assert not later(COPY, COPY)
