"""The memory of the process and of its machine: what there is, what is used, and giving back what is free.

Owns the files of the kernel in which that stands: /proc/meminfo, /proc/self/statm, and the limits of the control groups
(version 1 and 2) that the process is in. The node decides what a lack of memory means.
"""

from __future__ import annotations

import ctypes
import os
from asyncio import TimerHandle
from pathlib import Path
from typing import Final

from folkmoot.runtime.clock import next_beat
from folkmoot.runtime.loop import Turns
from folkmoot.turn.memory import REFUSING

__all__ = ["AUTO_PERCENT", "MemoryWatch", "available_bytes", "budget_of"]

AUTO_PERCENT: Final = 60
"""The part of the machine's memory, or of its control group's, that the setting "auto" takes: the rest is for the page
cache, for other processes, and for what a process has in memory while it frees it."""

# A small machine has little else to do: there a node gets this much, or all but a tenth.
AUTO_BYTES_MIN: Final = 256 << 20
AUTO_PERCENT_MAX: Final = 90

LOOK_S: Final = 1.0
# A flood fills a gigabyte in less than a second: near the limit the process is measured more often.
LOOK_SOON_S: Final = 0.05

# Memory that the process has freed stays with the allocator and counts as used until it is given back, which stops the
# process for a moment. It is done before publishers are slowed or clients refused for nothing (`turn.memory`).
TRIM_PERCENT: Final = 70
TRIM_S: Final = 2.0  # between two attempts
TRIM_IDLE_S: Final = 60.0  # after one that gave back less than a fiftieth, unless clients are refused

PROC: Final = Path("/proc")
GROUPS: Final = Path("/sys/fs/cgroup")


def budget_of(setting: int, proc: Path = PROC, groups: Path = GROUPS) -> int:
    """Return the memory that the process may use, in bytes; 0: no limit. A negative `setting` is "auto"."""
    if setting >= 0:
        return setting
    available = available_bytes(proc, groups)
    return max(available * AUTO_PERCENT // 100, min(available * AUTO_PERCENT_MAX // 100, AUTO_BYTES_MIN))


def available_bytes(proc: Path = PROC, groups: Path = GROUPS) -> int:
    """Return the memory of the machine, or of the smallest control group around the process; 0: it is not known."""
    found = [size for size in (*_group_limits(proc, groups), _machine_bytes(proc)) if size > 0]
    return min(found, default=0)


def _machine_bytes(proc: Path) -> int:
    for line in _text(proc / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal" and rest.split()[0].isdigit():
            return int(rest.split()[0]) * 1024
    return 0


def _group_limits(proc: Path, groups: Path) -> list[int]:
    """Return the limits of the groups that the process is in, and of those around them; "max" is none."""
    limits: list[int] = []
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:  # version 2
            limits += _limits_below(groups, path, ("memory.max", "memory.high"))
            limits += _limits_below(groups / "unified", path, ("memory.max", "memory.high"))
        elif "memory" in controllers.split(","):
            limits += _limits_below(groups / "memory", path, ("memory.limit_in_bytes", "memory.soft_limit_in_bytes"))
    return limits


def _limits_below(root: Path, path: str, names: tuple[str, ...]) -> list[int]:
    """Return the limits in the folder of a group and in all above it. Within a container its own group is the root."""
    found: list[int] = []
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts) + 1):
        folder = root.joinpath(*parts[:depth])
        for name in names:
            text = _text(folder / name).strip()
            if text.isdigit():
                found.append(int(text))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class MemoryWatch:
    """Measures the process once a second, more often near its budget, and when the node asks; reports to the node."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._handle: TimerHandle | None = None
        self._trimmed_s = 0.0
        self._pause_s = 0.0  # from then to the next attempt, unless clients are refused
        self._statm = -1

    def start(self) -> None:
        """Begin to measure; without a budget, or on a system without /proc, there is nothing to do."""
        if not self._turns.node.config.limits.memory_bytes_max or self.resident_bytes() <= 0:
            return
        self._turns.measure = self.measure
        self.measure()
        self._set()

    def stop(self) -> None:
        """Stop measuring; idempotent."""
        self._turns.measure = _nothing
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._statm >= 0:
            os.close(self._statm)
            self._statm = -1

    def resident_bytes(self) -> int:
        """Return the bytes of the process that are in memory; 0: not known."""
        try:
            if self._statm < 0:
                self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
            resident = os.pread(self._statm, 256, 0).split()[1]
        except (OSError, IndexError):
            return 0
        return int(resident) * self._page_bytes

    def measure(self) -> None:
        """Measure now."""
        if self._turns.halted:
            return
        self._turns.node.measured(self._after_trim(self.resident_bytes()), self._turns.begin())

    def _after_trim(self, resident: int) -> int:
        """Give freed memory back to the system if much is used and it is time to; return what is resident then."""
        counters = self._turns.node.counters
        now_s = self._turns.loop.time()
        pause_s = min(self._pause_s, TRIM_S) if counters.memory_stage >= REFUSING else self._pause_s
        is_full = resident * 100 >= counters.memory_budget_bytes * TRIM_PERCENT
        if not is_full or now_s - self._trimmed_s < pause_s or _malloc_trim is None:
            return resident
        _malloc_trim(0)
        left = self.resident_bytes()
        self._trimmed_s = now_s
        self._pause_s = TRIM_S if (resident - left) * 50 >= resident else TRIM_IDLE_S
        return left

    def _look(self) -> None:
        self.measure()
        if not self._turns.halted:
            self._set()

    def _set(self) -> None:
        counters = self._turns.node.counters
        near = counters.memory_bytes * 10 > counters.memory_budget_bytes * 7
        due_s = next_beat(self._turns.loop.time(), LOOK_SOON_S if near else LOOK_S)
        self._handle = self._turns.loop.call_at(due_s, self._look)


def _nothing() -> None:
    """Measure nothing any more."""


def _find_trim() -> ctypes._NamedFuncPointer | None:
    """Return malloc_trim of glibc; other libraries have none and give memory back by themselves."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None


_malloc_trim = _find_trim()
