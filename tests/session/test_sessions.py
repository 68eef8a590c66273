"""The sessions of a node, against one dict of all of them."""

from __future__ import annotations

import random

from folkmoot.session.session import Session
from folkmoot.session.sessions import Sessions

PARTITIONS = 4


def test_they_are_found_by_id_and_by_partition() -> None:
    rng = random.Random(1)
    sessions, model = Sessions(PARTITIONS), dict[str, Session]()
    for _ in range(2000):
        number = rng.randrange(30)
        session = Session(f"c{number}", number % PARTITIONS, True)
        if rng.random() < 0.5:
            sessions.put(session)
            model[session.client_id] = session
        elif session.client_id in model:
            sessions.remove(model.pop(session.client_id))
        assert len(sessions) == len(model)
        assert {one.client_id: one for one in sessions.values()} == model
        assert sessions.get(session.client_id) is model.get(session.client_id)
        assert (session.client_id in sessions) == (session.client_id in model)
        partition = rng.randrange(PARTITIONS)
        assert set(sessions.of_partition(partition)) == {one for one in model.values() if one.partition == partition}


def test_one_that_was_replaced_does_not_take_the_next_one_with_it() -> None:
    sessions = Sessions(PARTITIONS)
    first, second = Session("c", 1, True), Session("c", 1, True)
    sessions.put(first)
    sessions.put(second)
    sessions.remove(first)
    assert sessions["c"] is second
    assert sessions.of_partition(1) == [second]
