"""The short form of the torture; `make torture` is the long one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from folkmoot.torture.__main__ import KINDS, rounds_of
from folkmoot.torture.scene import PLACES, Scene, Verdict


def test_every_kind_of_kill_comes_in_every_order() -> None:
    rounds = rounds_of(30, 1)
    assert Counter(map(str, rounds)) == {str(kind): 5 for kind in KINDS}
    assert rounds != rounds_of(30, 2)


def test_a_verdict_sees_what_is_missing_and_what_is_too_much() -> None:
    verdict = Verdict()
    verdict.add("here", Counter({"a": 1, "b": 2}), Counter({"a": 1, "b": 1, "c": 1}))
    assert (verdict.wanted["here"], verdict.gaps["here"], verdict.duplicates["here"]) == (3, 1, 1)
    assert not verdict.holds


@pytest.mark.slow
@pytest.mark.soak("other tests kill drivers, nodes and executors one by one; `make torture` is its long form")
@pytest.mark.timeout(1500)
def test_nothing_is_lost_or_twice_when_all_is_killed(tmp_path: Path) -> None:
    said: list[str] = []
    scene = Scene(tmp_path / "run", 1, said.append, "local[2]")
    try:
        verdict = scene.run([["node", "driver"]], 300)
    finally:
        scene.close()
    assert verdict.holds, (verdict.gaps, verdict.duplicates, said)
    assert min(verdict.wanted[place] for place in PLACES) > 100
