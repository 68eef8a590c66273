"""In every topology in which a voter reaches a quorum, there is progress soon, and then one leader stays."""

from __future__ import annotations

import pytest

from tests.raft.timed import ELECTION, TOPOLOGIES, WRITES, Timed


def run(first: int, count: int) -> dict[str, list[int]]:
    """Run seeds; return how long each topology waited for progress, where it was judged, besides the slowest disk."""
    waits: dict[str, list[int]] = {name: [] for name in TOPOLOGIES}
    for seed in range(first, first + count):
        timed = Timed(seed, [])
        timed.run()
        if timed.progress_after >= 0:
            waits[timed.topology].append(max(0, timed.progress_after - WRITES * timed.slowest))
    return waits


def test_every_topology_goes_on() -> None:
    waits = run(0, 6 * len(TOPOLOGIES))
    for name, found in waits.items():
        assert len(found) >= 2, f"{name} was hardly judged"
        # The first two timeouts are not watched (`demand_progress`); Omni-Paxos promises four in all.
        assert max(found) <= 6 * ELECTION, name


@pytest.mark.soak("the first seeds of every topology; these go further")
def test_every_topology_goes_on_further() -> None:
    waits = run(1000, 200 * len(TOPOLOGIES))
    assert max(max(found) for found in waits.values()) <= 8 * ELECTION
