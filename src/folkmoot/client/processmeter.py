"""The resource usage of a process: CPU time and memory, read from the system.

Uses /proc and the process clocks of Linux. Works for any process.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from folkmoot.kernel.errors import FolkmootError

__all__ = ["ProcessMeter", "ProcessUse"]


@dataclass(frozen=True)
class ProcessUse:
    """The usage of a process so far: CPU in nanoseconds, resident memory in bytes (current and peak)."""

    cpu_ns: int
    resident_bytes: int
    resident_peak_bytes: int


class ProcessMeter:
    """Reads the usage of process `pid`; raises `FolkmootError` if there is no such process, or no /proc."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status = Path(f"/proc/{pid}/status")
        self._stat = Path(f"/proc/{pid}/stat")
        self.read()

    def read(self) -> ProcessUse:
        """Return the usage so far, including all threads that the process has had."""
        try:
            status = self._status.read_text(encoding="ascii", errors="replace")
            cpu_ns = self._cpu_ns()
        except OSError as error:
            raise FolkmootError(f"process {self.pid}: {error.strerror}; --pid needs a running process here") from error
        sizes = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Vm"))
        return ProcessUse(cpu_ns, size_bytes(sizes, "VmRSS"), size_bytes(sizes, "VmHWM"))

    def _cpu_ns(self) -> int:
        try:
            # The clock of another process (clock_getcpuclockid(3)) counts nanoseconds; stat only has hundredths.
            return time.clock_gettime_ns((~self.pid << 3) | 2)
        except OSError:
            fields = self._stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))


def size_bytes(sizes: dict[str, str], name: str) -> int:
    """Return a size from /proc/PID/status in bytes, 0 if the process has no memory any more."""
    value = sizes.get(name, "0 kB").split()
    return int(value[0]) * 1024
