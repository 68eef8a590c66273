"""`folkmoot` with a node whose lease a test sets: SIGUSR1 reads the time of its end from the file $LEASE_FILE.

The time is that of CLOCK_BOOTTIME in nanoseconds, which all processes of a machine share.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from asyncio import AbstractEventLoop
from pathlib import Path

from folkmoot.cli import main
from folkmoot.node import Node
from folkmoot.runtime import serve
from folkmoot.runtime.clock import Clock
from folkmoot.runtime.loop import Turns

FILE = Path(os.environ["LEASE_FILE"])
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LeasedTurns(Turns):
    """A driver whose node has the lease in the file."""

    def __init__(self, node: Node, loop: AbstractEventLoop, clock: Clock) -> None:
        super().__init__(node, loop, clock)
        self.read_lease()
        loop.add_signal_handler(signal.SIGUSR1, self.read_lease)

    def read_lease(self) -> None:
        behind_ns = self.steady_ns() - time.clock_gettime_ns(CLOCK)  # rather too early than too late
        self.node.lease(int(FILE.read_text()) + behind_ns)
        self.begin()


if __name__ == "__main__":
    vars(serve)["Turns"] = LeasedTurns
    sys.exit(main())
