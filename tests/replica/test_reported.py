"""A leader knows where other copies end, as long as their nodes have not come up again."""

from __future__ import annotations

from folkmoot.replica.reported import Reported


def test_a_report_counts_until_its_node_comes_up_again_or_is_forgotten() -> None:
    reported = Reported()
    assert reported.epoch_of("b", 0) == -1, "it has not reported"
    reported.note("b", 0, 7)
    reported.note("b", 1, 0)
    reported.note("c", 0, 5)
    assert [reported.epoch_of("b", partition) for partition in (0, 1, 2)] == [7, 0, -1]
    reported.installed(["b"], ["b"], ["a", "b", "c"])
    assert (reported.epoch_of("b", 0), reported.epoch_of("c", 0)) == (7, 5), "c is away, with what it had"
    reported.installed(["b"], ["b", "c"], ["a", "b", "c"])
    assert (reported.epoch_of("b", 0), reported.epoch_of("c", 0)) == (7, -1)
    reported.forget(0)
    assert (reported.epoch_of("b", 0), reported.epoch_of("b", 1)) == (-1, 0), "others are told by now"
    reported.installed(["a"], [], ["a"])
    assert reported.epoch_of("b", 1) == -1
