"""Packet identifiers over more messages than there are identifiers, and the messages in memory as a queue."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.session.entry import SENT_QOS1, Entry
from folkmoot.session.session import PACKET_IDS, Session
from folkmoot.store.message import Message


def entry(size: int) -> Entry:
    return Entry(1, Message(b"t", bytes(size), 1, False, b"", "p", 0, 0), 1, False, b"", b"")


def test_packet_ids_of_transient_sessions_go_round() -> None:
    """Each is between 1 and 65,535 and returns only when all others were used."""
    session = Session("a", 0, False)
    first = [session.take_packet_id() for _ in range(PACKET_IDS)]
    assert sorted(first) == list(range(1, PACKET_IDS + 1))
    assert [session.take_packet_id() for _ in range(PACKET_IDS)] == first


@given(st.sets(st.integers(1, PACKET_IDS), max_size=50), st.integers(1, PACKET_IDS))
def test_a_packet_id_in_use_is_passed_over(used: set[int], start: int) -> None:
    session = Session("a", 0, False)
    session.next_packet_id = start
    session.inflight = dict.fromkeys(sorted(used), SENT_QOS1)
    for _ in range(60):
        packet_id = session.take_packet_id()
        assert 1 <= packet_id <= PACKET_IDS
        assert packet_id not in session.inflight
        session.inflight[packet_id] = SENT_QOS1


def test_the_last_free_packet_id_is_found() -> None:
    session = Session("a", 0, False)
    session.inflight = dict.fromkeys([number for number in range(1, PACKET_IDS + 1) if number != 40_000], SENT_QOS1)
    for start in (1, 40_000, 40_001, PACKET_IDS):
        session.next_packet_id = start
        assert session.take_packet_id() == 40_000


@given(st.integers(1, 2**62))
def test_packet_ids_of_stored_messages_follow_their_sequence(sequence: int) -> None:
    session = Session("a", 0, True)
    packet_id = session.packet_id_of(sequence)
    assert 1 <= packet_id <= PACKET_IDS
    assert session.packet_id_of(sequence + PACKET_IDS) == packet_id
    assert session.packet_id_of(sequence + 1) == (packet_id + 1 if packet_id < PACKET_IDS else 1)


@given(st.lists(st.one_of(st.integers(0, 50), st.just(-1), st.just(-1), st.just(-100)), max_size=200))
def test_messages_in_memory_are_a_queue(steps: list[int]) -> None:
    """A size is pushed, -1 takes one out, -100 forgets all."""
    session, model = Session("a", 0, False), deque[Entry]()
    for step in steps:
        if step >= 0:
            made = entry(step)
            session.push_ready(made)
            model.append(made)
        elif step == -100:
            session.clear_ready()
            model.clear()
        elif model:
            assert session.pop_ready() is model.popleft()
        assert session.waiting == len(model)
        assert session.ready_bytes == sum([one.size for one in model])


@pytest.mark.parametrize("waiting", [1, 500, 5_000])
def test_what_was_taken_out_is_freed(waiting: int) -> None:
    """Also of a queue that never becomes empty."""
    session, model = Session("a", 0, False), deque[Entry]()
    for number in range(20_000):
        made = entry(number % 3)
        session.push_ready(made)
        model.append(made)
        if len(model) > waiting:
            assert session.pop_ready() is model.popleft()
        assert len(session.ready) <= waiting + 1 + 1024


def test_a_session_can_be_read() -> None:
    assert repr(Session("a", 0, True)) == "Session('a' persistent offline queue=0 inflight=0)"
