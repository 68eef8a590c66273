"""Gray failures: a disk that is slow for long, one that is slow for a moment, and one that is fast again."""

from __future__ import annotations

from folkmoot.membership.slowness import Slowness

MS = 1000
S = 1_000_000


def run(slowness: Slowness, begin: int, end: int, took_us: int, every: int = 50 * MS) -> list[int]:
    """Write a batch each `every`; return when `is_slow` changed."""
    changes = []
    for now in range(begin, end, every):
        slowness.durable(took_us, now)
        if slowness.look(now):
            changes.append(now)
    return changes


def test_a_disk_that_is_slow_for_long_leads_nothing_and_comes_back() -> None:
    slowness = Slowness(100 * MS, 3 * S, 10 * S)
    assert run(slowness, 0, 20 * S, 5 * MS) == []
    begun = run(slowness, 20 * S, 40 * S, 300 * MS)
    assert len(begun) == 1
    assert 23 * S <= begun[0] <= 27 * S
    assert slowness.is_slow
    ended = run(slowness, 40 * S, 80 * S, 5 * MS)
    assert len(ended) == 1
    assert ended[0] >= 50 * S
    assert not slowness.is_slow


def test_one_long_sync_is_no_failure() -> None:
    slowness = Slowness(100 * MS, 3 * S, 10 * S)
    for second in range(60):
        assert run(slowness, second * S, second * S + 900 * MS, 5 * MS) == []
        slowness.durable(800 * MS, second * S + 950 * MS)


def test_an_idle_disk_says_nothing() -> None:
    slowness = Slowness(100 * MS, 3 * S, 10 * S)
    assert run(slowness, 0, 60 * S, 300 * MS, 2 * S) == []
    assert not slowness.is_slow


def test_a_slow_disk_that_falls_idle_is_trusted_again() -> None:
    slowness = Slowness(100 * MS, 3 * S, 10 * S)
    run(slowness, 0, 20 * S, 300 * MS)
    assert slowness.is_slow
    changes = [now for now in range(20 * S, 60 * S, 100 * MS) if slowness.look(now)]
    assert len(changes) == 1
    assert not slowness.is_slow


def test_a_disk_that_is_slow_again_is_trusted_later() -> None:
    slowness = Slowness(100 * MS, 3 * S, 10 * S)
    run(slowness, 0, 20 * S, 300 * MS)
    first = run(slowness, 20 * S, 60 * S, 5 * MS)[0] - 20 * S
    run(slowness, 60 * S, 80 * S, 300 * MS)
    second = run(slowness, 80 * S, 160 * S, 5 * MS)[0] - 80 * S
    assert second > first + 5 * S


def test_the_end_needs_a_lower_share_than_the_beginning() -> None:
    slowness = Slowness(100 * MS, 3 * S, 10 * S)
    run(slowness, 0, 20 * S, 300 * MS)
    for now in range(20 * S, 80 * S, 100 * MS):  # every tenth is late: too few to begin, too many to end
        slowness.durable(300 * MS if now % S == 0 else 5 * MS, now)
        slowness.look(now)
    assert slowness.is_slow
