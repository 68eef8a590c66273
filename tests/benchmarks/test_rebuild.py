"""The tables of a rebuilt node and of view changes; the counting of a flow."""

from __future__ import annotations

import pytest

from benchmarks import rebuild, suite, views
from benchmarks.flow import Flow
from benchmarks.rounds import Figures, spread

PHASES: Figures = {"count": 2000, "p50_ms": 1.5, "p99_ms": 9.0, "max_ms": 20.0}


def figures() -> Figures:
    return {
        "megabytes": 1000,
        "messages": 1_000_000,
        "fill_s": 40.0,
        "back_s": 3.0,
        "whole_s": 31.0,
        "mb_per_s": 33.3,
        "disk_mb": 1200.0,
        "rebuilt_disk_mb": 1100.0,
        "memory_mb": {"before": 150.0, "rebuilt": 180.0, "others": 170.0},
        "cpu_s": {"n1": 4.0, "n2": 6.0, "n3": 9.0},
        "victim": "n3",
        "phases": dict.fromkeys(rebuild.PHASES, PHASES),
    }


def test_a_rebuild_is_told_with_its_price() -> None:
    text = rebuild.table(figures())
    assert "| 1,000 MB in 1,000,000 queued messages, filled in 40.0 s |" in text
    assert "| seconds from the kill until all copies are whole | 31.0 |" in text
    assert "| CPU seconds of the rebuilt node, and of the busier of the others | 9.00 and 6.00 |" in text
    assert "| PUBACK, while it is filled | 2,000 | 1.50 | 9.00 | 20.0 |" in text
    assert "failed" not in text
    assert rebuild.table(figures() | {"faults": {"flow": "lost"}}).endswith("- failed: {'flow': 'lost'}")


def test_quantiles_of_nothing_are_nothing() -> None:
    assert rebuild.quantiles([])["count"] == 0
    found = rebuild.quantiles([number / 1000 for number in range(1, 201)])
    assert found == {"count": 200, "p50_ms": 101, "p99_ms": 199, "max_ms": 200}


def test_a_flow_tells_what_was_due_in_a_span() -> None:
    flow = Flow([1], 10.0, clients=0)
    flow.acknowledged = [(1.0, 0.5), (2.0, 0.1), (2.5, 0.3), (3.0, 0.2)]
    assert flow.between(2.0, 3.0) == [0.1, 0.3]


def test_five_nodes_know_that_one_is_dead_and_that_it_is_back() -> None:
    found = views.changes(views.World(5, 8))
    assert 4 <= found["kill"]["messages"] <= 3 * 5, "at most three for each member"
    assert found["kill"]["ms"] < 50
    assert 0 < found["join"]["ms"] < 2000
    # To the controller and back ten times a second, and the same for the log, over all members.
    assert 10 <= found["heartbeats_a_second"] <= 60
    text = views.table({"views": {"5": found}, "rings": {"3 x 256": spread([1.5])}})
    assert f"| 5 | {found['kill']['messages']} | {found['kill']['ms']:.0f} |" in text
    assert "| 3 x 256 | 1.50 |" in text


def test_the_size_of_a_rebuild_is_bounded() -> None:
    assert suite.parse(["--only", "rebuild"]).megabytes == 1000
    assert suite.parse(["--megabytes", "50", "--quick"]).megabytes == 50
    for text in ("0", "100000"):
        with pytest.raises(SystemExit):
            suite.parse(["--megabytes", text])
