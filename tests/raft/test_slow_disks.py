"""Elections while each write takes longer than an election timeout: a bounded number of writes, and no lasting harm."""

from __future__ import annotations

import pytest

from tests.raft.timed import ELECTION, HEARTBEAT, WRITES, Timed

FAST = 20  # what a write takes at a disk that is not slow
SEEDS = [1, 0]  # with three and five voters


def slowed(seed: int, heartbeats: int, mixed: bool) -> Timed:
    """Return a cluster that begins, in which a write takes so many heartbeats; mixed: not at each second member."""
    timed = Timed(seed, [])
    timed.disk_delays = [heartbeats * HEARTBEAT] * (timed.size + 1)
    if mixed:
        timed.disk_delays[1::2] = [FAST] * len(timed.disk_delays[1::2])
    return timed


def until_led(timed: Timed, term: int, within: int) -> int:
    """Return how long it takes until a leader of a later term has committed, and the time that was set."""
    start = timed.now
    while timed.now - start <= within:
        timed.run_until(timed.now + HEARTBEAT // 4)
        leader = timed.leader()
        if leader is not None and leader.raft.term > term and leader.raft.log.commit >= leader.raft.term_start():
            return timed.now - start
    raise AssertionError(f"nobody leads within {within}: {[node.raft for node in timed.nodes]}")


@pytest.mark.parametrize("mixed", [False, True], ids=["all", "some"])
@pytest.mark.parametrize("heartbeats", [5, 10, 30])
def test_a_leader_is_elected_within_some_writes(heartbeats: int, mixed: bool) -> None:
    within = 2 * ELECTION + WRITES * heartbeats * HEARTBEAT
    for seed in SEEDS:
        timed = slowed(seed, heartbeats, mixed)
        until_led(timed, 1, within)
        timed.run_until(timed.now + within)
        # One that goes is succeeded within the same time, whether there is a proof of its end or not.
        for is_proved in (False, True):
            leader = timed.leader()
            assert leader is not None
            term = leader.raft.term
            leader.crash(timed.rng)
            timed.run_until(timed.now + 2 * HEARTBEAT)  # nothing of it is under way any more
            for node in timed.nodes:
                if node.is_up and is_proved:
                    node.raft.ended(leader.me, timed.local(node.me))
                    timed.turn(node)
            until_led(timed, term, within)
            timed.restart(leader)
            timed.run_until(timed.now + within)


@pytest.mark.parametrize("heartbeats", [5, 10])
def test_a_leader_stays_while_its_followers_save_entries(heartbeats: int) -> None:
    for seed in SEEDS:
        timed = slowed(seed, heartbeats, False)
        until_led(timed, 1, 2 * ELECTION + WRITES * heartbeats * HEARTBEAT)
        timed.run_until(timed.now + 4 * heartbeats * HEARTBEAT)
        timed.client_pause = HEARTBEAT // 8  # entries are under way all the time, and nothing else
        leader = timed.leader()
        assert leader is not None
        term = leader.raft.term
        commit = timed.checker.commit
        for _ in range(4 * heartbeats):
            timed.run_until(timed.now + HEARTBEAT)
            assert timed.leader() is leader
            assert leader.raft.term == term
            assert leader.raft.lease_ns() > timed.local(leader.me)
        assert timed.checker.commit > commit + heartbeats
