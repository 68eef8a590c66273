from __future__ import annotations

import pytest

from folkmoot.runtime.gate import GRACE_S, Arrival, Gate, group_of


class Bench:
    def __init__(self, sockets_max: int, address_max: int, unfinished_max: int = 0) -> None:
        self.now = 0.0
        self.gate = Gate(sockets_max, address_max, lambda: self.now, unfinished_max)
        self.cut: list[Arrival] = []

    def enter(self, host: str = "10.0.0.1") -> Arrival | None:
        arrival = self.gate.enter(host)
        if arrival is not None:
            arrival.cut = lambda: self.cut.append(arrival)
        return arrival

    def entered(self, host: str = "10.0.0.1") -> Arrival:
        arrival = self.enter(host)
        assert arrival is not None
        return arrival

    def leave(self, arrival: Arrival) -> None:
        self.gate.finish(arrival)
        self.gate.leave()


def test_above_the_limit_nobody_enters_until_somebody_leaves() -> None:
    bench = Bench(2, 10)
    first, _ = bench.entered(), bench.entered()
    assert bench.enter("10.0.0.2") is None
    assert (bench.gate.sockets, bench.gate.refused) == (2, 1)
    bench.leave(first)
    bench.entered("10.0.0.2")


def test_an_address_has_only_so_many_unfinished_connections() -> None:
    bench = Bench(100, 2)
    first, _ = bench.entered(), bench.entered()
    assert bench.enter() is None
    bench.entered("10.0.0.2")
    bench.gate.finish(first)
    bench.gate.finish(first)
    bench.entered()
    assert bench.enter() is None
    assert (bench.gate.sockets, bench.gate.unfinished) == (4, 3)


def test_who_has_waited_for_long_makes_room() -> None:
    bench = Bench(100, 2)
    first, second = bench.entered(), bench.entered()
    bench.now += GRACE_S - 0.01
    assert bench.enter() is None
    bench.now += 0.01
    bench.entered()
    assert bench.cut == [first]
    bench.entered()
    assert bench.cut == [first, second]
    assert bench.enter() is None, "the newer ones have their time too"
    assert bench.gate.evicted == 2
    bench.leave(first)
    assert bench.gate.sockets == 3


def test_a_full_node_makes_room_at_the_expense_of_the_oldest_of_all() -> None:
    bench = Bench(3, 100)
    oldest = bench.entered("10.0.0.1")
    finished = bench.entered("10.0.0.2")
    bench.entered("10.0.0.3")
    bench.gate.finish(finished)
    bench.now += GRACE_S
    bench.entered("10.0.0.4")
    assert bench.cut == [oldest]


def test_finished_connections_are_never_evicted() -> None:
    bench = Bench(2, 2)
    for arrival in (bench.entered(), bench.entered()):
        bench.gate.finish(arrival)
    bench.now += 100
    assert bench.enter() is None
    assert bench.cut == []


def test_all_unfinished_connections_together_have_a_limit() -> None:
    bench = Bench(100, 100, unfinished_max=2)
    first, _ = bench.entered("10.0.0.1"), bench.entered("10.0.0.2")
    assert bench.enter("10.0.0.3") is None
    bench.now += GRACE_S
    bench.entered("10.0.0.3")
    assert bench.cut == [first]


def test_nobody_enters_while_the_store_lacks_descriptors() -> None:
    bench = Bench(100, 100)
    bench.gate.short = True
    assert bench.enter() is None
    bench.gate.short = False
    bench.entered()


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("not: an address", "not: an address"),
    ],
)
def test_an_ip_6_network_counts_as_one(host: str, group: str) -> None:
    assert group_of(host) == group


def test_nothing_is_kept_of_who_has_left() -> None:
    bench = Bench(1000, 1000)
    for number in range(500):
        bench.leave(bench.entered(f"10.0.{number >> 8}.{number & 255}"))
    assert (bench.gate.sockets, bench.gate.unfinished, len(bench.gate._groups)) == (0, 0, 0)


def test_one_that_is_being_closed_makes_room_before_one_that_may_still_connect() -> None:
    bench = Bench(2, 10)
    closing = ["one"]
    asked: list[float] = []

    def relieve(seconds: float) -> bool:
        asked.append(seconds)
        return bool(closing and closing.pop())

    bench.gate.relieve = relieve
    first, second = bench.entered(), bench.entered()
    bench.gate.finish(second)
    assert asked == []
    bench.now += GRACE_S
    third = bench.entered()
    assert (asked, closing, bench.cut) == ([GRACE_S], [], [])
    bench.gate.finish(third)
    bench.entered()
    assert (asked, bench.cut) == ([GRACE_S] * 2, [first]), "nothing else is being closed"


def test_the_end_of_others_is_no_room_for_those_that_do_not_connect() -> None:
    bench = Bench(100, 10, unfinished_max=1)
    bench.gate.relieve = lambda _seconds: True
    bench.entered()
    assert bench.enter("10.0.0.2") is None
