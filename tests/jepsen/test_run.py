"""Real nodes under faults, judged by the history checker: a minute in `make test`, the rest in `make soak`.

FOLKMOOT_SEED chooses another seed for the runs that are expected to hold. A run that fails prints its schedule and its
verdict, and keeps its history in the folder of the test.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.jepsen.check import check, report
from tests.jepsen.nemesis import NEMESES, draw, missing
from tests.jepsen.rig import Unable
from tests.jepsen.run import Options, run
from tests.jepsen.verdict import PROMISES, Verdict

SEED = int(os.environ.get("FOLKMOOT_SEED", "1"))
EXCUSED_MOST = {"majority": 0.05, "available": 0.20}


def judged(folder: Path, options: Options, *nemeses: str) -> Verdict:
    """Run, check and print; skips where the machine does not allow it."""
    for name in nemeses:
        if why := missing(name):
            pytest.skip(why)
    names = [f"n{number}" for number in range(1, options.nodes + 1)]
    schedule = draw(options.seed, names, options.seconds, nemeses)
    print("\n".join([f"seed {options.seed}", *(str(fault) for fault in schedule)]))
    try:
        events = run(options, schedule, folder, lambda text: None)
    except Unable as error:
        pytest.skip(str(error))
    verdict = check(events)
    print(report(verdict))
    return verdict


def expect_kept(verdict: Verdict, options: Options) -> None:
    """No promise is broken, each was tested, and few of its cases were excused."""
    assert verdict.broken() == [], report(verdict)
    for promise in PROMISES:
        assert verdict.judged[promise], f"{promise} was not tested"
        share = len(verdict.excused(promise)) / verdict.judged[promise]
        assert share <= EXCUSED_MOST[options.policy], f"{promise}: {share:.0%} of its cases were excused"


@pytest.mark.slow
def test_killed_and_restarted_nodes_break_no_promise(tmp_path: Path) -> None:
    options = Options(nodes=3, seconds=38.0, seed=SEED)
    expect_kept(judged(tmp_path, options, "kill", "rolling"), options)


GROUPS = [
    "kill,kill-all,stop,rolling,clients,split",
    "wiped-disk,old-folder,full-disk,leave-join,loss,twice",
    "one-way,twice-reset,stutter,clock-jump,clock-slow,split-reset",
    "partial,bridge,partial-reset,bridge-reset,old-folder-twice",
    "slow",
]
"""All nemeses. `slow` is by itself because many kernels do not have it."""

GROUP_S = 135.0
"""Each nemesis of a group comes once in this time, whatever the seed draws."""


def test_each_nemesis_is_in_a_group_and_comes() -> None:
    assert sorted(",".join(GROUPS).split(",")) == sorted(NEMESES)
    names = [f"n{number}" for number in range(1, 6)]
    for group in GROUPS:
        wanted = group.split(",")
        for seed in range(1, 100):
            assert {fault.name for fault in draw(seed, names, GROUP_S, wanted)} == set(wanted), f"seed {seed}"


@pytest.mark.slow
@pytest.mark.soak("all nemeses, at five nodes, with both policies: three nodes under two of them run always")
@pytest.mark.parametrize("policy", ["majority", "available"])
@pytest.mark.parametrize("nemeses", GROUPS)
def test_five_nodes_break_no_promise(tmp_path: Path, nemeses: str, policy: str) -> None:
    options = Options(nodes=5, policy=policy, seconds=GROUP_S, seed=SEED)
    expect_kept(judged(tmp_path, options, *nemeses.split(",")), options)


@pytest.mark.slow
@pytest.mark.soak("all nemeses but leaves, at two nodes and a witness: three nodes under two of them run always")
@pytest.mark.parametrize("nemeses", GROUPS)
def test_two_nodes_and_a_witness_break_no_promise(tmp_path: Path, nemeses: str) -> None:
    options = Options(nodes=3, witnesses=1, policy="majority", seconds=GROUP_S, seed=SEED)
    expect_kept(judged(tmp_path, options, *[name for name in nemeses.split(",") if name != "leave-join"]), options)


def found(name: str, nemeses: str, sentence: str, **options: Any) -> Any:
    """A run that has broken a promise before it was mended, and how."""
    return pytest.param(nemeses, Options(**options), sentence, id=name)


FOUND = [
    found(
        "a-subscription-disappears",
        "twice,twice-reset",
        "A heal drops subscriptions of clients that never unsubscribed, and are told that their sessions are present.",
        policy="available",
        seconds=130.0,
        seed=11,
    ),
    found(
        "messages-of-a-lone-node",
        "twice,twice-reset",
        "A heal drops messages of QoS 2 that a node has acknowledged while it was alone; wills arrive from both sides.",
        policy="available",
        replicas=5,
        partitions=32,
        seconds=130.0,
        seed=12,
    ),
    found(
        "bridge",
        "bridge",
        "Two nodes stay ready in a view that the others have left, and answer nothing.",
        policy="available",
        seconds=45.0,
        seed=2,
    ),
    found(
        "bridge-with-resets",
        "bridge-reset",
        "The node in the middle changes between two views several times a second; offsets that were read change.",
        policy="available",
        seconds=130.0,
        seed=13,
    ),
    found(
        "a-snapshot-put-back-twice",
        "old-folder-twice",
        "The second process has the start number of the first: it gets what was meant for that one, and requests hang.",
        nodes=3,
        seconds=100.0,
        seed=14,
    ),
]


@pytest.mark.slow
@pytest.mark.soak("ten minutes: what an earlier version did wrong, seen by this checker")
@pytest.mark.parametrize(("nemeses", "options", "sentence"), FOUND)
def test_what_was_found_stays_mended(tmp_path: Path, nemeses: str, options: Options, sentence: str) -> None:
    assert judged(tmp_path, options, *nemeses.split(",")).broken() == [], sentence
