"""Deadlines against a dictionary: what comes out, when, in which order, and that memory follows what is in force."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.timers import Timers

KEYS = st.tuples(st.integers(1, 3), st.sampled_from([1, 2, "a", "b"]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 60)),
        st.tuples(st.just("never"), KEYS, st.just(0)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("pass"), st.just((0, 0)), st.integers(0, 20)),
    ),
    max_size=60,
)


def drained(timers: Timers, now: int) -> list[tuple[int, int | str]]:
    out = []
    while timers.next_due() <= now:
        due = timers.pop(now)
        if due is not None:
            out.append(due)
    return out


def entries(timers: Timers) -> int:
    return len(timers._heap) + len(timers._unswept)


@given(STEPS)
def test_each_subject_comes_out_once_at_the_newest_time_that_was_set(
    steps: list[tuple[str, tuple[int, int | str], int]],
) -> None:
    timers, model, now = Timers(), dict[tuple[int, int | str], int](), 0
    for what, (kind, subject), number in steps:
        if what == "set":
            timers.set(now + number, kind, subject)
            model[kind, subject] = now + number
        elif what == "never":
            timers.set(NEVER, kind, subject)
            model.pop((kind, subject), None)
        elif what == "cancel":
            timers.cancel(kind, subject)
            model.pop((kind, subject), None)
        else:
            now += number
            expected = {key for key, due in model.items() if due <= now}
            came = drained(timers, now)
            assert len(came) == len(expected)
            assert set(came) == expected
            model = {key: due for key, due in model.items() if due > now}
        assert len(timers) == len(model)
        # Waking too early costs a turn; waking too late breaks a promise.
        assert timers.next_due() <= min(model.values(), default=NEVER)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=30, unique_by=lambda pair: pair[1]))
def test_times_come_in_order_and_equal_ones_as_they_were_set(pairs: list[tuple[int, int]]) -> None:
    timers = Timers()
    for due, subject in pairs:
        timers.set(due, 1, subject)
    assert drained(timers, 10) == [(1, subject) for _, subject in sorted(pairs, key=lambda pair: pair[0])]


def test_nothing_is_due_when_nothing_is_set() -> None:
    timers = Timers()
    assert timers.next_due() == NEVER
    assert timers.pop(NEVER) is None
    timers.set(NEVER, 1, 1)
    assert timers.next_due() == NEVER


def test_an_early_wake_leads_to_the_right_one() -> None:
    """A postponed deadline may make the node wake at its old time; after that the new time is told."""
    timers = Timers()
    timers.set(10, 1, "a")
    timers.set(50, 1, "a")
    assert timers.pop(10) is None
    assert timers.next_due() == 50
    assert drained(timers, 50) == [(1, "a")]
    assert timers.next_due() == NEVER


def test_memory_follows_the_deadlines_in_force() -> None:
    """Reconnects postpone and closed connections cancel; neither may leave anything behind."""
    timers = Timers()
    for number in range(100_000):
        timers.set(1_000_000 + number, 1, "always the same")
        timers.set(2_000_000, 2, number)
        timers.cancel(2, number)
    assert len(timers) == 1
    assert entries(timers) <= 2 * 1024 + 2
    assert len(timers._slots) <= 2 * 1024 + 2


def test_memory_follows_deadlines_that_are_brought_forward() -> None:
    timers = Timers()
    for number in range(20_000):
        timers.set(10_000_000 - number, 1, "earlier and earlier")
        timers.set(1, 2, "between")
        timers.pop(1)
    assert len(timers) == 1
    assert entries(timers) <= 2 * 1024 + 2


def test_sweeping_passes_over_what_has_come_out_already() -> None:
    timers = Timers()
    timers.set(100, 1, "brought forward")
    timers.set(50, 1, "brought forward")
    assert drained(timers, 50) == [(1, "brought forward")]
    for number in range(5000):
        timers.set(200, 2, number)
        timers.cancel(2, number)
    timers.set(70, 3, "left")
    assert drained(timers, 1000) == [(3, "left")]


class Counting:
    """Deadlines, and the most steps that one call has taken."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.most = 0

    def count(self, before: int) -> None:
        self.most = max(self.most, self.timers.steps - before)

    def set(self, due_us: int, kind: int, subject: int) -> None:
        before = self.timers.steps
        self.timers.set(due_us, kind, subject)
        self.count(before)

    def cancel(self, kind: int, subject: int) -> None:
        before = self.timers.steps
        self.timers.cancel(kind, subject)
        self.count(before)

    def pop(self, now: int) -> tuple[int, int | str] | None:
        before = self.timers.steps
        due = self.timers.pop(now)
        self.count(before)
        return due


def test_no_call_walks_over_everything_when_many_are_cancelled() -> None:
    counting = Counting()
    for number in range(100_000):
        counting.set(1_000 + number, 1, number)
    for number in range(100_000):
        counting.cancel(1, number)
    assert counting.most <= 64
    assert counting.timers.steps <= 3 * 100_000  # and all calls together do not do more than one that walks would
    assert len(counting.timers) == 0
    for number in range(20_000):  # the sweep goes on in whatever call comes
        counting.set(500_000 + number, 2, number)
    assert entries(counting.timers) <= 2 * 20_000 + 1024 + 20_000
    assert counting.most <= 64


def test_no_call_walks_over_everything_when_many_are_brought_forward() -> None:
    counting = Counting()
    for time in range(5, 0, -1):
        for number in range(20_000):
            counting.set(time * 1_000_000 + number, 1, number)
    assert counting.most <= 64
    assert entries(counting.timers) <= 2 * 20_000 + 1024 + 20_000
    assert drained(counting.timers, 2_000_000) == [(1, number) for number in range(20_000)]
    assert len(counting.timers) == 0


def test_many_cancelled_deadlines_of_the_same_time_take_many_calls() -> None:
    counting = Counting()
    for number in range(10_001):
        counting.set(1_000, 1, number)
    for number in range(0, 10_000, 2):  # fewer than half: no sweep
        counting.cancel(1, number)
    for number in range(1, 10_000, 2):
        counting.set(5_000, 1, number)  # postponed
    came = []
    calls = 0
    while counting.timers.next_due() <= 1_000:
        due = counting.pop(1_000)
        came += [due] if due else []
        calls += 1
    assert came == [(1, 10_000)]
    assert calls >= 10_000 // 64
    assert counting.most <= 2 * 64  # one that was postponed leaves the heap and enters it again
    assert len(counting.timers) == 5_000


@given(
    st.lists(st.tuples(st.sampled_from(["set", "cancel", "pop"]), st.integers(0, 40), st.integers(0, 90)), max_size=400)
)
def test_a_sweep_in_pieces_changes_nothing_that_comes_out(steps: list[tuple[str, int, int]]) -> None:
    timers, model, now = Timers(), dict[int, int](), 0
    for number in range(200):
        timers.set(number, 1, number)
        model[number] = number
    timers._begin_sweep()
    for what, subject, number in steps:
        if what == "set":
            timers.set(now + number, 1, subject)
            model[subject] = now + number
        elif what == "cancel":
            timers.cancel(1, subject)
            model.pop(subject, None)
        else:
            now += number // 30
            expected = sorted(subject for subject, due in model.items() if due <= now)
            assert sorted(int(subject) for _, subject in drained(timers, now)) == expected
            model = {subject: due for subject, due in model.items() if due > now}
        assert len(timers) == len(model)
        assert timers.next_due() <= min(model.values(), default=NEVER)
    for time in range(now, now + 300):
        assert {subject for _, subject in drained(timers, time)} == {key for key, due in model.items() if due <= time}
        model = {key: due for key, due in model.items() if due > time}
    assert len(timers) == 0
