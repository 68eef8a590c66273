"""Runs a workload against a broker and returns the results: the entry point of the load generator.

Chooses the run by the shape of the workload. Never prints.
"""

from __future__ import annotations

from typing import Final

from folkmoot.client.loadconnect import ConnectRun, IdleRun
from folkmoot.client.loadresult import LoadResult
from folkmoot.client.loadretained import RetainedRun
from folkmoot.client.loadrun import LoadRun, Progress, ignore_progress
from folkmoot.client.loadtraffic import TrafficRun
from folkmoot.client.workload import Span, Target, Workload

__all__ = ["run_load"]

RUNS: Final[dict[str, type[LoadRun]]] = {"connect": ConnectRun, "idle": IdleRun, "retained": RetainedRun}


def run_load(
    workload: Workload,
    target: Target,
    span: Span,
    *,
    pid: int | None = None,
    progress: Progress = ignore_progress,
    spin: bool = False,
) -> LoadResult:
    """Run a workload and return its results, including errors; it always terminates.

    `pid` is the broker's process, to measure its CPU time and memory; with `spin` the generator never sleeps.
    Raises `FolkmootError` for a host or a process that does not exist.
    """
    run = RUNS.get(workload.shape, TrafficRun)
    return run(workload, target, span, pid=pid, progress=progress, spin=spin).run()
