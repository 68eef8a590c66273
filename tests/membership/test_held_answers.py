"""Answers to heartbeats wait for another message to their member, if they say nothing new."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import NEVER
from folkmoot.membership.control_message import GRANTED, NOT_UP, Beat, BeatAnswer, decode_beat
from folkmoot.membership.held_answers import HeldAnswers

HEARTBEAT = 100


def beat(number: int) -> Beat:
    found = Beat(1, number, 1)
    found.up = True
    return found


def answer(number: int, verdict: int = GRANTED) -> BeatAnswer:
    return BeatAnswer(1, 1, number, 1, verdict)


@pytest.fixture
def held() -> HeldAnswers:
    """n1 was just answered, at once."""
    found = HeldAnswers(HEARTBEAT)
    assert not found.holds("n1", beat(1), answer(1), 1000)
    return found


def test_an_answer_leaves_with_something_else(held: HeldAnswers) -> None:
    assert held.holds("n1", beat(2), answer(2), 1100)
    assert held.release(["n2"], 1150) == []
    assert held.release(["n1", "n2"], 1160) == [("n1", answer(2).encoded())]
    assert held.release(["n1"], 1170) == []
    assert held.due_ns == NEVER


def test_it_leaves_alone_when_nothing_else_is_sent(held: HeldAnswers) -> None:
    assert held.holds("n1", beat(2), answer(2), 1100)
    assert held.due_ns == 1100 + HEARTBEAT
    assert held.release([], held.due_ns - 1) == []
    assert held.release([], held.due_ns) == [("n1", answer(2).encoded())]


def test_the_newest_answer_counts(held: HeldAnswers) -> None:
    assert held.holds("n1", beat(2), answer(2), 1100)
    assert held.holds("n1", beat(3), answer(3), 1150)
    assert held.release(["n1"], 1160) == [("n1", answer(3).encoded())]


def test_who_was_not_answered_for_a_while_does_not_wait(held: HeldAnswers) -> None:
    assert not held.holds("n1", beat(2), answer(2), 1000 + 2 * HEARTBEAT + 1)
    assert not held.holds("n2", beat(1), answer(1), 1100)


@pytest.mark.parametrize("what", ["refused", "loads", "fresh", "down", "lapsed"])
def test_what_is_new_does_not_wait_and_replaces_what_does(held: HeldAnswers, what: str) -> None:
    assert held.holds("n1", beat(2), answer(2), 1100)
    heartbeat, new = beat(3), answer(3, NOT_UP if what == "refused" else GRANTED)
    if what == "loads":
        new.loads.append((1, {"replicas": 2}))
    heartbeat.fresh = what == "fresh"
    heartbeat.up = what != "down"
    heartbeat.lapsed = what == "lapsed"
    assert decode_beat(heartbeat.encoded()).lapsed == heartbeat.lapsed
    assert not held.holds("n1", heartbeat, new, 1150)
    assert held.due_ns == NEVER, "nothing waits"
    assert held.release(["n1"], 1160) == []


def test_a_member_that_is_not_reached_gets_nothing(held: HeldAnswers) -> None:
    assert held.holds("n1", beat(2), answer(2), 1100)
    held.forget("n1")
    assert held.due_ns == NEVER, "nothing waits"
    assert held.release(["n1"], 1160) == []
    assert not held.holds("n1", beat(3), answer(3), 1170), "it may wait for its first answer"
