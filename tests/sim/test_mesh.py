"""The network between machines: what is sent between two lives comes once and in order, whatever breaks in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from tests.sim.standin import Talkers


def test_all_meet_and_numbers_come_in_order() -> None:
    talkers = Talkers()
    talkers.run(2 * SECOND)
    talkers.hush()
    assert talkers.gaps() == []
    assert talkers.talker("n1").sent["n2"] > 20


def test_the_same_seed_is_the_same_world() -> None:
    digests = []
    for seed in (1, 1, 2):
        talkers = Talkers(seed=seed)
        talkers.run(SECOND)
        digests.append(talkers.world.trace.hexdigest())
    assert digests[0] == digests[1] != digests[2]


def hang(talkers: Talkers) -> None:
    talkers.hosts[0].hang()
    talkers.run(SECOND)
    talkers.hosts[0].go_on()


def cut_both_ways(talkers: Talkers) -> None:
    one, two = talkers.hosts[:2]
    talkers.mesh.cut(one, two)
    talkers.mesh.cut(two, one)
    talkers.run(4 * SECOND)
    talkers.mesh.heal()


def cut_one_way(talkers: Talkers) -> None:
    talkers.mesh.cut(talkers.hosts[0], talkers.hosts[1])
    talkers.run(4 * SECOND)
    talkers.mesh.mend(talkers.hosts[0], talkers.hosts[1])


def go_dark(talkers: Talkers) -> None:
    talkers.hosts[1].darken(on=True)
    talkers.run(3 * SECOND)
    talkers.hosts[1].darken(on=False)


def reset(talkers: Talkers) -> None:
    for wire in list(talkers.mesh.wires):
        wire.reset(0, 200 * MILLISECOND)
    talkers.run(SECOND)


def slow_down(talkers: Talkers) -> None:
    talkers.mesh.slow_us["n1", "n2"] = 300 * MILLISECOND
    talkers.run(SECOND)
    talkers.mesh.heal()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("fault", [hang, cut_both_ways, cut_one_way, go_dark, reset, slow_down])
def test_nothing_is_lost_while_both_processes_live(fault: Callable[[Talkers], None], seed: int) -> None:
    talkers = Talkers(seed=seed)
    talkers.run(SECOND)
    fault(talkers)
    talkers.run(2 * SECOND)
    talkers.hush()
    assert talkers.gaps() == []
    assert sum(talkers.talker("n1").sent.values()) > 40


def test_a_cut_way_lets_nothing_through_and_the_other_does() -> None:
    talkers = Talkers(2)
    talkers.run(SECOND)
    one, two = talkers.hosts
    talkers.mesh.cut(one, two)
    talkers.run(30 * MILLISECOND)
    before = list(talkers.talker("n2").got["n1", 1])
    heard = len(talkers.talker("n1").got["n2", 1])
    talkers.run(100 * MILLISECOND)
    assert talkers.talker("n2").got["n1", 1] == before
    assert len(talkers.talker("n1").got["n2", 1]) > heard


def test_a_killed_process_is_refused_at_once() -> None:
    talkers = Talkers(seed=3)
    talkers.run(SECOND)
    host = talkers.hosts[0]
    while not (host.node is None and not host.off):  # every fourth crash is a loss of power
        if host.node is None:
            host.start()
            talkers.run(5 * SECOND)
        host.crash()
    talkers.run(500 * MILLISECOND)
    for name in ("n2", "n3"):
        assert ("n1", True) in talkers.talker(name).downs
        assert ("connection refused", True) in talkers.talker(name).failures


def test_a_machine_without_power_says_nothing_until_it_is_back() -> None:
    talkers = Talkers(seed=3)
    talkers.run(SECOND)
    host = talkers.hosts[0]
    while not host.off:
        if host.node is None:
            host.start()
            talkers.run(5 * SECOND)
        host.crash()
    failures = len(talkers.talker("n2").failures)
    talkers.run(500 * MILLISECOND)
    assert len(talkers.talker("n2").failures) == failures
    talkers.run(10 * SECOND)
    assert talkers.talker("n2").failures[failures:] == [("timed out", False)] * (
        len(talkers.talker("n2").failures) - failures
    )
    assert len(talkers.talker("n2").failures) > failures
    host.start()
    talkers.run(5 * SECOND)
    talkers.hush()
    assert talkers.gaps() == []


def test_a_process_that_hangs_hears_nothing_and_loses_no_connection() -> None:
    talkers = Talkers()
    talkers.run(SECOND)
    host = talkers.hosts[0]
    ends = list(host.peering.ends) if host.peering is not None else []
    turns = host.turns
    host.hang()
    talkers.run(500 * MILLISECOND)
    assert host.turns == turns
    assert all(end.open for end in ends)
    host.go_on()
    talkers.run(SECOND)
    assert host.turns > turns
    assert talkers.talker("n1").stalls == [], "a loop that stands still cannot say so"


def test_lives_and_faults_at_random_end_in_order() -> None:
    for seed in range(1, 9):
        talkers = Talkers(4, seed)
        rng = talkers.rng.fork()
        for _ in range(30):
            talkers.run(rng.below(400 * MILLISECOND))
            host = talkers.hosts[rng.below(4)]
            kind = rng.below(5)
            if host.node is None:
                host.start()
            elif kind == 0:
                host.crash()
            elif kind == 1:
                host.hang()
            elif kind == 2:
                host.go_on()
            elif kind == 3:
                talkers.mesh.cut(host, talkers.hosts[rng.below(4)])
            else:
                talkers.mesh.heal()
        for host in talkers.hosts:
            host.go_on()
            if host.node is None:
                host.start()
        talkers.mesh.heal()
        talkers.run(5 * SECOND)
        talkers.hush()
        assert talkers.gaps() == [], seed
