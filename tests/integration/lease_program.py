"""`folkmoot` with a node whose lease a test sets: SIGUSR1 reads the time of its end from the file $LEASE_FILE.

The time is that of CLOCK_BOOTTIME in nanoseconds, which all processes of a machine share.
"""

from __future__ import annotations

import os
import signal
import sys
from asyncio import AbstractEventLoop
from pathlib import Path

from folkmoot.cli import main
from folkmoot.node import Node
from folkmoot.runtime import serve
from folkmoot.runtime.loop import Turns

FILE = Path(os.environ["LEASE_FILE"])


class LeasedTurns(Turns):
    """A driver whose node has the lease in the file."""

    def __init__(self, node: Node, loop: AbstractEventLoop) -> None:
        super().__init__(node, loop)
        self.read_lease()
        loop.add_signal_handler(signal.SIGUSR1, self.read_lease)

    def read_lease(self) -> None:
        self.node.lease(int(FILE.read_text()))
        self.begin()


if __name__ == "__main__":
    vars(serve)["Turns"] = LeasedTurns
    sys.exit(main())
