"""The share of a turn that each client gets: deficit round robin, with debts, and first those without waiting input."""

from __future__ import annotations

import pytest

from folkmoot.session.connection import Connection, PeerInfo
from folkmoot.store.writer import Writer
from folkmoot.turn.work import ROW_STEPS, Work

TURN = 800
QUANTUM = 100


@pytest.fixture
def work() -> Work:
    return Work(Writer(1, 1), TURN)


def client(number: int) -> Connection:
    return Connection(number, None, PeerInfo("tcp", "192.0.2.1:1"), 0, [])


def spend(work: Work, connection: Connection, steps: int) -> bool:
    """Serve a client with a packet of so many steps; False: it must wait."""
    if not work.begin(connection):
        return False
    work.steps += steps
    work.end(connection)
    return True


def test_a_client_may_spend_a_quantum_at_once(work: Work) -> None:
    one = client(1)
    assert work.begin(one)
    assert work.left() == QUANTUM
    work.steps += QUANTUM - 1
    assert not work.is_spent()
    work.steps += 1
    assert work.is_spent()
    work.end(one)
    assert not work.begin(one)
    work.end_turn()
    assert work.begin(one)


def test_rows_count(work: Work) -> None:
    one = client(1)
    assert work.begin(one)
    work.writer.put(0, b"key", b"row")
    work.writer.delete(0, b"key")
    work.end(one)
    assert work.done() == 2 * ROW_STEPS
    assert one.credit == QUANTUM - 2 * ROW_STEPS


def test_an_expensive_packet_is_a_debt(work: Work) -> None:
    """Beside another client it misses as many rounds as it has used quanta; alone it waits for nobody."""
    debtor, other = client(1), client(2)
    assert spend(work, debtor, 3 * QUANTUM)
    assert spend(work, other, QUANTUM)
    for connection in (debtor, other):
        work.wait(connection)
    work.begin_rounds()
    served: list[int] = []
    for _ in range(3):
        following = work.next()
        assert following is not None
        served.append(following.id)
        assert spend(work, following, QUANTUM)
        work.wait(following)
    assert served == [2, 2, 1]


def test_a_debtor_alone_is_served_in_the_same_turn(work: Work) -> None:
    debtor = client(1)
    assert spend(work, debtor, 3 * QUANTUM)
    work.wait(debtor)
    work.begin_rounds()
    assert work.next() is debtor


def test_a_turn_ends(work: Work) -> None:
    clients = [client(number) for number in range(20)]
    served = [connection for connection in clients if spend(work, connection, QUANTUM)]
    assert len(served) == TURN // QUANTUM
    for connection in clients:
        work.wait(connection)
    work.begin_rounds()
    count = 0
    while (following := work.next()) is not None:
        assert spend(work, following, QUANTUM)
        count += 1
    assert count == TURN // 2 // QUANTUM
    work.end_turn()
    assert work.last_served == TURN + TURN // 2
    assert len(work) == 20 - count


def test_who_has_no_waiting_input_comes_first_and_nobody_waits_for_ever(work: Work) -> None:
    heavy, light = client(1), client(2)
    assert spend(work, heavy, 2 * QUANTUM)
    work.wait(heavy)
    work.steps += TURN
    assert not work.begin(light)  # the turn is spent
    work.wait(light)
    work.begin_rounds()
    order = [work.next(), work.next()]
    assert order == [light, heavy]
    for _ in range(5):
        work.wait(light)
        work.wait(heavy)
        assert {work.next(), work.next()} == {light, heavy}


def test_clients_are_served_within_the_part_of_a_node(work: Work) -> None:
    one = client(1)
    work.begin_part(300)
    work.steps += 10
    assert spend(work, one, QUANTUM)
    assert work.left() == 300 - 10 - QUANTUM
    assert not work.is_spent()
    work.steps += 200
    assert work.is_spent()
    assert work.end_part() == 310
    work.end_turn()
    assert work.last_served == 310


def test_what_must_be_finished_is_not_interrupted(work: Work) -> None:
    stop = work.begin_all()
    work.steps += 100 * TURN
    assert not work.is_spent()
    work.end_all(stop)
    assert work.is_spent()


def test_a_client_that_has_gone_is_served_although_the_task_that_slept_has_ended(work: Work) -> None:
    """Else its end would wait behind a task that nobody wakes any more."""
    one = client(1)
    one.queued = one.aside = True  # as with a task that sleeps, which was dropped meanwhile
    assert work.next() is None
    work.give_up(one)
    assert work.next() is one
