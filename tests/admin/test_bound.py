from __future__ import annotations

from folkmoot.admin.bound import HEAD_BYTES_MAX, RATE_MIN, STALL_S, FramingBound, Patience


def test_everything_but_the_body_counts() -> None:
    framing = FramingBound()
    framing.received(HEAD_BYTES_MAX + 5000)
    framing.body(5000)
    assert not framing.exceeded()
    framing.received(1)
    assert framing.exceeded()
    assert not framing.exceeded(unread=1)


def test_each_message_has_a_bound_of_its_own() -> None:
    framing = FramingBound()
    for _ in range(10):
        framing.received(HEAD_BYTES_MAX)
        assert not framing.exceeded()
        framing.next_message(0)


def test_who_makes_no_progress_is_late_after_the_grace() -> None:
    patience = Patience()
    assert not patience.over(1e9)
    patience.begin(100.0, 10.0)
    assert not patience.over(110.0)
    assert patience.over(110.1)


def test_a_byte_a_minute_is_no_progress() -> None:
    patience = Patience()
    patience.begin(0.0, 10.0)
    at = 0.0
    while not patience.over(at):
        patience.progress(1, at)
        at += 5.0
    assert at < 20.0


def test_the_least_rate_is_enough_for_ever() -> None:
    patience = Patience()
    patience.begin(0.0, 10.0)
    for second in range(1, 10_000):
        assert not patience.over(second)
        patience.progress(RATE_MIN, second)


def test_haste_is_no_credit() -> None:
    patience = Patience()
    patience.begin(0.0, 10.0)
    patience.progress(1 << 40, 1.0)
    assert not patience.over(1.0 + STALL_S)
    assert patience.over(1.1 + STALL_S)


def test_who_has_nothing_to_do_is_never_late() -> None:
    patience = Patience()
    patience.begin(0.0, 10.0)
    patience.end()
    assert not patience.waits()
    assert not patience.over(1e9)
