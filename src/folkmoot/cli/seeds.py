"""Many seeds of the simulator: the loop over seeds, its processes, its progress and its results.

It ends after the last seed or when its time is over. Ctrl-C prints the results so far.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from hashlib import blake2b
from multiprocessing import get_context
from types import FrameType

import click

from folkmoot.sim import DEMANDS, JUDGED, JUDGED_MIN_PERCENT, Options, Result, share_of, too_seldom

__all__ = ["demand_lines", "judgement_lines", "print_marks", "run_in_process", "run_many"]

SHOWN_FAILURES = 10
SHOWN_SEEDS = 8
CLEAR_LINE = "\r\033[K"
"""Clears the progress bar before a line is printed."""
RUNS_PER_PROCESS = 1_000
"""A process is replaced after this many runs, to discard what they may have left in it."""

RUN_CPU_S = 300.0
"""Processor time after which a run counts as endless; a few seconds are usual."""

GARBAGE_OBJECTS = 100_000
"""New objects between two collections of garbage: of those in a run hardly any are in cycles."""


class Policy:
    """The results of the runs with one policy."""

    def __init__(self) -> None:
        self.runs = 0
        self.failed = 0
        self.kinds: dict[str, list[int]] = {}  # the seeds that failed, by how
        self.judged: dict[str, int] = {}
        self.excused: dict[tuple[str, str], int] = {}
        self.demands: dict[tuple[str, str], int] = {}

    def add(self, result: Result) -> None:
        """Add the result of one run."""
        self.runs += 1
        if result.violations:
            self.failed += 1
            self.kinds.setdefault(result.violations[0].kind, []).append(result.seed)
        for promise, count in result.judged.items():
            self.judged[promise] = self.judged.get(promise, 0) + count
        for key, count in result.excused.items():
            self.excused[key] = self.excused.get(key, 0) + count
        for key, count in result.demands.items():
            self.demands[key] = self.demands.get(key, 0) + count

    def lines(self) -> list[str]:
        """Return the summary: failures by kind, judged and excused cases by promise."""
        found = []
        for kind, seeds in sorted(self.kinds.items(), key=lambda item: (-len(item[1]), item[0])):
            shown = " ".join([str(seed) for seed in seeds[:SHOWN_SEEDS]])
            found.append(f"  {len(seeds):5d} {kind} (seeds {shown}{' ...' if len(seeds) > SHOWN_SEEDS else ''})")
        return found + judgement_lines(self.judged, self.excused) + demand_lines(self.demands)


def judgement_lines(judged: dict[str, int], excused: dict[tuple[str, str], int]) -> list[str]:
    """Return how many cases of each promise were judged, and which ones were excused."""
    found = []
    for promise in sorted({*judged, *[key[0] for key in excused]}):
        done, left_out = share_of(promise, judged, excused)
        found.append(f"  {promise}: judged {done}, excused {left_out} ({100 * done / (done + left_out):.1f} % judged)")
        for (name, condition), count in sorted(excused.items()):
            if name == promise:
                found.append(f"  {count:9d} {condition}")
    return found


def demand_lines(demands: dict[tuple[str, str], int]) -> list[str]:
    """Return how many looks at each demand were judged, and why the others were not."""
    found = []
    for demand in DEMANDS:
        looks = {why: count for (name, why), count in sorted(demands.items()) if name == demand}
        if looks:
            total = sum(looks.values())
            judged = looks.pop(JUDGED, 0)
            found.append(
                f"  {demand}: judged {judged}, not judged {total - judged} ({100 * judged / total:.1f} % judged)"
            )
            found += [f"  {count:9d} {why}" for why, count in looks.items()]
    return found


class Tally:
    """The results of the runs so far."""

    def __init__(self) -> None:
        self.runs = 0
        self.events = 0
        self.violations = 0
        self.failed: list[Options] = []
        self.promises: dict[str, int] = {}
        self.policies: dict[bool, Policy] = {}  # by whether it is "majority"
        self.marks: dict[str, int] = {}
        self._digest = blake2b(digest_size=12)

    def add(self, options: Options, result: Result) -> None:
        """Add the result of one run."""
        self.runs += 1
        self._digest.update(result.digest.encode())
        self.events += result.events
        self.violations += len(result.violations)
        for name, count in result.marks.items():
            self.marks[name] = self.marks.get(name, 0) + count
        self.policies.setdefault(result.majority, Policy()).add(result)
        if result.violations:
            self.failed.append(options)
            promise = result.violations[0].promise
            self.promises[promise] = self.promises.get(promise, 0) + 1

    @property
    def line(self) -> str:
        """Return the last line of the output, in the format of a single seed."""
        return f"digest {self._digest.hexdigest()} events {self.events} violations {self.violations}"


def run_in_process(options: Options) -> Result:
    """Run one seed; `run_many` calls this in another process.

    A run that takes too long counts as a violation, like one that raises: the traceback shows where it was.
    """
    signal.signal(signal.SIGPROF, _give_up)
    signal.setitimer(signal.ITIMER_PROF, RUN_CPU_S)
    gc.set_threshold(GARBAGE_OBJECTS, 50, 50)
    try:
        return options.simulation().run()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _give_up(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"the run has taken {RUN_CPU_S:g} s of processor time: something in it does not end")


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_all(
    pool: ProcessPoolExecutor, runs: list[Options], jobs: int, until: float
) -> Iterator[tuple[Options, Result]]:
    """Yield the results in the order of the seeds; start none after `until` (monotonic seconds, 0: no end)."""
    under_way: list[tuple[Options, Future[Result]]] = []
    left = iter(runs)
    while True:
        while len(under_way) < 4 * jobs and not (until and time.monotonic() > until):
            options = next(left, None)
            if options is None:
                break
            under_way.append((options, pool.submit(run_in_process, options)))
        if not under_way:
            return
        options, future = under_way.pop(0)
        yield options, future.result()


def run_many(options: Options, seeds: int, jobs: int, *, marks: bool, mix: bool = False, minutes: float = 0) -> int:
    """Run many seeds with a progress bar; print the commands of those with violations."""
    runs = [options.with_seed(options.seed + number) for number in range(seeds)]
    if mix:
        runs = [run.mixed() for run in runs]
    tally = Tally()
    began = time.monotonic()
    stopped = ""
    # Spawned, because a forked child would inherit the threads of the caller.
    pool = ProcessPoolExecutor(
        min(jobs, seeds),
        mp_context=get_context("spawn"),
        initializer=_leave_interrupts_to_the_parent,
        max_tasks_per_child=RUNS_PER_PROCESS,
    )
    try:
        _count(tally, run_all(pool, runs, jobs, began + 60 * minutes if minutes else 0), seeds)
    except KeyboardInterrupt:
        stopped = ", stopped by Ctrl-C"
    finally:
        pool.shutdown(wait=not stopped, cancel_futures=True)
    if marks:
        print_marks(tally.marks)
    seldom = print_policies(tally) if options.topologies else False
    for failed in tally.failed:
        print(f"again: {failed.command}")
    taken_s = time.monotonic() - began
    broken = "".join([f", {count} of {promise}" for promise, count in sorted(tally.promises.items())])
    print(f"seeds {tally.runs} of {seeds} in {taken_s:.0f} s, failed {len(tally.failed)}{broken}{stopped}")
    print(tally.line)
    return 1 if tally.failed or seldom else 0


def print_policies(tally: Tally) -> bool:
    """Print the summary of each policy; return whether a promise was judged too seldom."""
    seldom = False
    for majority in sorted(tally.policies):
        policy = tally.policies[majority]
        print(f"{'majority' if majority else 'available'}: {policy.failed} of {policy.runs} seeds failed")
        for line in policy.lines():
            print(line)
        for promise in too_seldom(majority, policy.judged, policy.excused):
            seldom = True
            print(f"  {promise} was judged in less than {JUDGED_MIN_PERCENT[majority]} % of its cases")
    return seldom


def _count(tally: Tally, results: Iterator[tuple[Options, Result]], seeds: int) -> None:
    clear = CLEAR_LINE if sys.stderr.isatty() else ""
    with click.progressbar(results, seeds, "simulating", show_pos=True, file=sys.stderr) as bar:
        for options, result in bar:
            tally.add(options, result)
            if result.violations and len(tally.failed) <= SHOWN_FAILURES:
                text = f"seed {result.seed}: {result.violations[0]!r}".splitlines()[0]
                print(clear + text, file=sys.stderr)


def print_marks(marks: dict[str, int]) -> None:
    """Print by name how often each branch was reached."""
    for name in sorted(marks):
        print(f"mark {marks[name]:8d} {name}")
