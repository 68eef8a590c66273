"""The picture of the report: axes by the span, marks that are joined, labels that do not cover each other."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pyspark_folkmoot.ready.picture import axis_of, duration, join_marks, place_labels, plot
from pyspark_folkmoot.ready.timeline import DAY, HOUR, MINUTE, Mark, Span

NOON = 1_763_726_400  # 2025-11-21 12:00 UTC


@pytest.mark.parametrize(
    ("span_s", "unit_s", "word"),
    [(4 * MINUTE, MINUTE, "minutes"), (3 * HOUR, MINUTE, "minutes"), (DAY, HOUR, "hours"), (3 * DAY, 0, "date")],
)
def test_the_axis_counts_in_a_unit_of_the_size_of_the_span(span_s: int, unit_s: int, word: str) -> None:
    axis = axis_of(NOON, NOON + span_s)
    assert axis.unit_s == unit_s
    assert axis.title.startswith(word)
    assert unit_s == 0 or "2025-11-21 12:00:00 UTC" in axis.title


def test_times_are_placed_within_the_run_or_as_dates() -> None:
    assert axis_of(NOON, NOON + 240).place(NOON + 90) == 1.5
    assert axis_of(NOON, NOON + DAY).place(NOON + 5400) == 1.5
    assert axis_of(NOON, NOON + 9 * DAY).place(NOON + DAY) == datetime(2025, 11, 22, 12)  # noqa: DTZ001 - UTC by rule


def joined(*marks: tuple[float, str]) -> list[tuple[float, str]]:
    return [(mark.at_s, mark.label) for mark in join_marks([Mark(*mark) for mark in marks], 1000.0)]


def test_marks_of_one_moment_share_a_line() -> None:
    assert joined((50.0, "n1 lost"), (49.0, "driver killed"), (60.0, "n1 is back")) == [
        (49.0, "driver killed, n1 lost"),
        (60.0, "n1 is back"),
    ]


def test_a_mark_that_comes_twice_is_named_once() -> None:
    assert joined((50.0, "n1 lost"), (51.0, "n1 lost")) == [(50.0, "n1 lost")]


def test_labels_that_would_cover_each_other_take_another_lane() -> None:
    found = place_labels([0.1, 0.15, 0.4], ["abcdefgh", "abcdefgh", "abcdefgh"], 0.01)  # ten characters each: 0.1
    assert [None if label is None else (label.left, label.lane) for label in found] == [(0.1, 0), (0.15, 1), (0.4, 0)]


def test_a_label_at_the_end_begins_before_its_line() -> None:
    (found,) = place_labels([0.99], ["abcdefgh"], 0.01)
    assert found is not None
    assert found.left == pytest.approx(0.9)


def test_without_room_there_is_no_label_and_no_overlap() -> None:
    places = [number / 100 for number in range(100)]
    found = place_labels(places, ["n1 lost"] * 100, 0.01)
    shown = [label for label in found if label is not None]
    assert len(shown) < 100
    for one in shown:
        for other in shown:
            assert one is other or one.lane != other.lane or abs(one.left - other.left) >= 0.09 - 1e-9


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.213, "0.21 s"), (2, "2 s"), (42.4, "42 s"), (90, "90 s"), (120, "2 min"), (21_600, "6 h"), (259_200, "3 d")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def row(at_s: int, kind: str, name: str, **figures: Any) -> dict[str, Any]:
    columns = ("clients", "gaps", "down_s", "longest_s", "messages", "within", "share", "p50_us", "p99_us")
    start = f"2025-11-21T12:00:{at_s:02d}Z"
    return {"start": start, "width_s": 2, "kind": kind, "name": name, **dict.fromkeys(columns), **figures}


def test_it_draws_with_gaps_without_clients_and_without_any_figures(tmp_path: Path) -> None:
    topics = [
        row(at_s, "topics", "(all)", messages=100.0, within=90.0, share=0.9, p50_us=900, p99_us=9000)
        for at_s in (0, 2, 4, 20, 22, 40)
    ]
    gap = {"clients": 3, "gaps": 3, "down_s": 0.5, "longest_s": 0.2}
    clients = [row(20, "clients", "(all)", **gap), row(20, "clients", "pump", **gap)]
    for name, rows in (("all", [*topics, *clients]), ("topics", topics), ("clients", clients)):
        plot(rows, [Mark(NOON + 20.5, "n1 lost")], Span(NOON, NOON + 50, 2.0, 5000), tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    plot([], [], Span(NOON, NOON), tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
