"""The machine under the benchmarks: what it is, which core is whose, what its disk takes for a sync.

Owns facts about the machine. It never runs a broker.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SYNCS = 200


@contextmanager
def held_to(core: int | None) -> Iterator[None]:
    """Hold this thread, and what it starts, to a core for a while; None changes nothing."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class Cores:
    """The core of the broker and that of the load generator; None on a machine with one core."""

    broker: int | None
    generator: int | None

    @classmethod
    def choose(cls) -> Cores:
        """Take the first and the last core that this process may use."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(usable[0], usable[-1]) if len(usable) > 1 else cls(None, None)

    @property
    def apart(self) -> bool:
        """Whether the generator has a core of its own, and so may spin."""
        return self.generator is not None


def describe(folder: Path) -> dict[str, object]:
    """Return what a reader must know to judge the figures; `folder` is where the brokers keep their data."""
    memory_kb = int(next(line for line in read("/proc/meminfo").splitlines() if line.startswith("MemTotal")).split()[1])
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory_kb / 1048576, 1),
        "virtual": "hypervisor" in read("/proc/cpuinfo"),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "fdatasync_us": sync_us(folder),
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def processor() -> str:
    """Return the processor's name, with its clock where the name says nothing of it."""
    lines: dict[str, str] = {}
    for line in read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        lines[key.strip()] = value.strip()
    name = lines.get("model name", platform.machine())
    clock = lines.get("cpu MHz")
    name = name.replace("(R)", "").replace("(TM)", "")
    return f"{name}, {float(clock) / 1000:.1f} GHz" if clock and "GHz" not in name else name


def sync_us(folder: Path) -> float:
    """Return the median time of an fdatasync after 4 KB in `folder`, in microseconds."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter_ns()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter_ns() - began)
    return round(statistics.median(times) / 1000, 1)


def version_of(command: list[str]) -> str:
    """Return the first line that a program says about itself."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).splitlines()[0].strip()
