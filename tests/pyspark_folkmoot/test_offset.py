"""Arithmetic of offsets against what it promises, on random numbers."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pyspark_folkmoot.offset import START, TASK_ROWS, Span, end_within, from_json, gather, split, start_of, to_json

offsets = st.dictionaries(st.integers(0, 30), st.integers(0, 10**6), min_size=1, max_size=12)


@given(offsets)
def test_json_keeps_offsets_and_sorts_them_by_number(given_offsets: dict[int, int]) -> None:
    text = json.dumps(to_json(given_offsets))
    assert from_json(json.loads(text)) == given_offsets
    assert [int(key) for key in json.loads(text)] == sorted(given_offsets)


def test_the_end_of_the_first_batch_has_its_start() -> None:
    end = {**to_json({1: 9, 0: 8}), START: to_json({0: 1, 1: 2})}
    assert (from_json(end), start_of(end), start_of(to_json({0: 1}))) == ({0: 8, 1: 9}, {0: 1, 1: 2}, None)


@given(offsets, offsets, st.integers(1, 10**6))
def test_a_limit_is_met_exactly_and_fairly(start: dict[int, int], waiting: dict[int, int], rows_max: int) -> None:
    end = {partition: start.get(partition, 0) + size for partition, size in waiting.items()}
    limited = end_within(start, end, rows_max)
    taken = {partition: limited[partition] - start.get(partition, 0) for partition in end}
    total = sum(waiting.values())
    assert sum(taken.values()) == min(rows_max, total)
    for partition, size in waiting.items():
        assert 0 <= taken[partition] <= size
        assert total <= rows_max or abs(taken[partition] - size * rows_max / total) < 1


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 50)), min_size=1, max_size=8), st.integers(1, 40))
def test_pieces_cover_the_spans(sizes: list[tuple[int, int]], tasks_min: int) -> None:
    spans = [Span(number, start, start + size) for number, (start, size) in enumerate(sizes)]
    pieces = split(spans, tasks_min)
    wanted = [(span.partition, offset) for span in spans for offset in range(span.start, span.end)]
    assert [(piece.partition, offset) for piece in pieces for offset in range(piece.start, piece.end)] == wanted
    assert all(len(piece) > 0 for piece in pieces)
    assert len(pieces) >= min(tasks_min, len(wanted))
    assert len(pieces) <= tasks_min + len(spans)


def spans_of(*sizes: int) -> list[Span]:
    return [Span(number, 10, 10 + size) for number, size in enumerate(sizes)]


@given(st.lists(st.integers(1, 2 * TASK_ROWS), min_size=1, max_size=30), st.integers(1, 40))
def test_tasks_have_every_span_once_and_in_order(sizes: list[int], tasks_min: int) -> None:
    spans = spans_of(*sizes)
    tasks = gather(spans, tasks_min)
    assert [span for task in tasks for span in task] == spans
    assert len(tasks) >= min(tasks_min, len(spans))
    assert all(sum(map(len, task)) <= TASK_ROWS for task in tasks if len(task) > 1)


def test_small_spans_share_a_task() -> None:
    assert [len(task) for task in gather(spans_of(*[10] * 16), 1)] == [16]
    assert [len(task) for task in gather(spans_of(*[10] * 16), 4)] == [4, 4, 4, 4]
    assert [len(task) for task in gather(spans_of(TASK_ROWS, 1, TASK_ROWS, TASK_ROWS - 1, 1), 1)] == [1, 1, 1, 2]
    assert gather([], 3) == []
