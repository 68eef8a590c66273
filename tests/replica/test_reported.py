"""A leader knows where other copies end, as long as their nodes have not come up again."""

from __future__ import annotations

from folkmoot.replica.reported import Reported


def test_a_report_counts_until_its_node_comes_up_again_or_is_forgotten() -> None:
    reported = Reported()
    assert reported.epoch_of("b") == -1, "it has not reported"
    reported.note("b", 7)
    reported.note("c", 5)
    reported.note("d", 0)
    assert [reported.epoch_of(node_id) for node_id in "bcde"] == [7, 5, 0, -1]
    reported.installed(["b", "d"], ["b", "d"], ["a", "b", "c", "d"])
    assert (reported.epoch_of("b"), reported.epoch_of("c")) == (7, 5), "c is away, with what it had"
    reported.installed(["b", "d"], ["b", "c", "d"], ["a", "b", "c", "d"])
    assert [reported.epoch_of(node_id) for node_id in "bcd"] == [7, -1, 0]
    reported.installed(["b"], ["b"], ["a", "b"])
    assert [reported.epoch_of(node_id) for node_id in "bd"] == [7, -1], "d is not known any more"
    reported.forget()
    assert reported.epoch_of("b") == -1, "others are told by now"
