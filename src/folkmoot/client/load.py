"""Runs a workload against a broker and returns what it found: the entry to the load generator.

Owns the choice of the run by the workload's shape. It never prints.
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
    """Run a workload and return its figures; it ends by itself, and what went wrong is in the result.

    `pid` is the broker's process, if its CPU time and memory are wanted; `spin` keeps the generator from sleeping.
    Raises `FolkmootError` for a host or a process that does not exist.
    """
    run = RUNS.get(workload.shape, TrafficRun)
    return run(workload, target, span, pid=pid, progress=progress, spin=spin).run()
