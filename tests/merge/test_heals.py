"""Summaries of heals that all members know."""

from __future__ import annotations

import pytest

from folkmoot.merge.heals import HEALS_MAX, Heals, decode_heals, encode_heals
from folkmoot.merge.summary import REASON_CHARACTERS_MAX, REASONS_MAX, HealSummary


def summary(time_us: int) -> dict[str, object]:
    made = HealSummary()
    made.sessions = 3
    made.drop("too old", 2)
    return {**made.fields(), "from": ["n2", "n3"], "epoch": 1 << 50, "time_us": time_us}


def test_what_one_node_has_others_learn_once() -> None:
    one, other = Heals("n1"), Heals("n2")
    own = [summary(5), summary(7)]
    one.note(own)
    one.note(own)
    assert one.fresh == one.known == [{**fields, "node": "n1"} for fields in own]
    other.note([summary(6)])
    for _ in range(2):
        other.learn(encode_heals(one.fresh))
    assert [(heal["time_us"], heal["node"]) for heal in other.known] == [(5, "n1"), (6, "n2"), (7, "n1")]
    assert other.changed
    assert len(other.fresh) == 1, "each tells of its own"


def test_two_nodes_may_have_merged_at_the_same_time() -> None:
    heals = Heals("n1")
    heals.note([summary(5)])
    other = Heals("n2")
    other.note([summary(5)])
    heals.learn(encode_heals(other.known))
    assert [heal["node"] for heal in heals.known] == ["n1", "n2"]


def test_the_newest_are_kept() -> None:
    heals = Heals("n1")
    for time_us in range(HEALS_MAX + 10):
        heals.note([summary(time_us)])
    assert [heal["time_us"] for heal in heals.known] == list(range(10, HEALS_MAX + 10))
    heals.changed = False
    heals.note([summary(3)])
    assert not heals.changed
    assert decode_heals(encode_heals(heals.known)) == heals.known


def test_however_many_faults_there_were_the_receipt_can_be_read_again() -> None:
    made = HealSummary()
    for number in range(1000):
        made.drop(f"row {number:4} \N{SNOWMAN}" + "x" * 5000, 2)
    assert len(made.dropped) == REASONS_MAX + 1
    assert max(map(len, made.dropped)) == REASON_CHARACTERS_MAX
    assert sum(made.dropped.values()) == 2000
    heals = Heals("n1")
    heals.note([{**made.fields(), "time_us": 1}])
    other = Heals("n2")
    other.learn(encode_heals(heals.fresh))
    assert other.known == heals.known


@pytest.mark.parametrize("data", [b"\1", b"\1\1\1a\7", b"\1\1\1a\0", encode_heals([summary(1)])[:-1], b"\x7f\1"])
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"a list of heals|the summary of a heal"):
        Heals("n1").learn(data)
