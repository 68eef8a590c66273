"""Which marks of apps with transactions a partition keeps: of those that have published last."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.pack import u64
from folkmoot.partition.mark import APPS_MAX
from folkmoot.store.key import MARK, kind_prefix, plain_key, plain_name_of
from folkmoot.store.mark_row import encode_mark
from folkmoot.store.origin import is_transaction, transaction_name
from folkmoot.store.writer import VERSION_BYTES
from tests.harness.box import Box

DAY = 86_400 * SECOND
IN_USE = transaction_name(b"a query that has run for a year")


def job(number: int) -> bytes:
    return transaction_name(b"job %d" % number)


def test_an_app_in_use_keeps_its_mark() -> None:
    """Its numbers began before those of all others."""
    box = Box(partitions=1)
    marks = box.node._broker.partition.marks
    for number in range(APPS_MAX + 5):
        box.advance(1)
        assert marks.advance(0, IN_USE, DAY + number)
        assert marks.advance(0, job(number), (2 + number) * DAY)
        assert not marks.advance(0, IN_USE, DAY + number), "a repetition"
    gone = [number for number in range(APPS_MAX + 5) if not marks.newest(0, job(number))]
    assert gone == list(range(6)), "those that have not published for longest"
    box.advance(SECOND)
    rows = box.store.scan(kind_prefix(0, MARK), kind_prefix(0, MARK + 1), 2 * APPS_MAX)
    assert sum([is_transaction(plain_name_of(key)) for key, _ in rows]) == APPS_MAX


@pytest.mark.parametrize("timed", [False, True])
def test_the_next_leader_knows_which_apps_have_published_last(timed: bool) -> None:
    """A row of an earlier version has no time: then its number, which begins with a time, stands for it."""
    box = Box(partitions=1)
    marks = box.node._broker.partition.marks
    for number in range(APPS_MAX):
        box.advance(1)
        marks.advance(0, job(number), (2 + number) * DAY)
    box.advance(1)
    marks.advance(0, job(1), 3 * DAY + 1)
    box.advance(SECOND)
    if not timed:
        writer = box.node._state.writer
        for number in range(APPS_MAX):
            writer.put(0, plain_key(0, MARK, job(number)), u64((2 + number) * DAY))
        box.advance(SECOND)
    box.crash()
    box.restart()
    marks = box.node._broker.partition.marks
    for number in (APPS_MAX, APPS_MAX + 1):
        marks.advance(0, job(number), (2 + number) * DAY)
    gone = [number for number in range(APPS_MAX + 2) if not marks.newest(0, job(number))]
    assert gone == ([0, 2] if timed else [0, 1])


def test_only_marks_of_apps_have_a_time() -> None:
    box = Box(partitions=1)
    marks = box.node._broker.partition.marks
    marks.advance(0, b"n2", 7)
    marks.advance(0, IN_USE, 8)
    used_us = box.node._state.clock.time
    box.advance(SECOND)
    node, app = box.store.get(plain_key(0, MARK, b"n2")), box.store.get(plain_key(0, MARK, IN_USE))
    assert node is not None
    assert node[VERSION_BYTES:] == u64(7)
    assert app is not None
    assert app[VERSION_BYTES:] == encode_mark(8, used_us) == u64(8) + u64(used_us)
