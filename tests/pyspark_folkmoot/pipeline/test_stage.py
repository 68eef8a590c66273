"""The stages of a start: what each took, and all of them."""

from __future__ import annotations

from pyspark_folkmoot.pipeline.stage import Stages


def test_stages_follow_each_other() -> None:
    times = iter([100.0, 104.1, 106.1, 109.5])
    stages = Stages(lambda: next(times))
    for name in ("Spark's session", "analysis", "queries"):
        stages.end(name)
    assert stages.text() == "started in 9.5 s: Spark's session 4.1 s, analysis 2.0 s, queries 3.4 s"
