"""The faults of the demonstration: nodes and the Spark driver are killed with kill -9 while the devices publish."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from folkmoot.demo.cluster import Cluster, Node
from folkmoot.demo.driver import Driver
from folkmoot.kernel.errors import FolkmootError

__all__ = ["Loss", "Trouble"]

# The part of all messages after which each fault happens.
_FIRST_DIES = 0.5
_FIRST_RETURNS = 0.7
_SECOND_DIES = 0.85
_WHOLE_S = 60.0
_POLL_S = 0.05


class Loss:
    """A node that was killed: when, when it was started again, and when every partition had all its copies again.

    Times are those of `time.monotonic`, in seconds; None if it did not happen.
    """

    def __init__(self, node: Node, dead_s: float) -> None:
        self.node = node
        self.dead_s = dead_s
        self.back_s: float | None = None
        self.whole_s: float | None = None


class Trouble:
    """Threads that kill the first node and the Spark driver, and later the second node, which is not started again.

    `done` returns the published part of all messages (0 to 1); `say` is called with a line for each event.
    """

    def __init__(self, cluster: Cluster, driver: Driver, done: Callable[[], float], say: Callable[[str], None]) -> None:
        self.losses: list[Loss] = []
        self.driver_away: tuple[float, float] | None = None  # from when to when, in seconds since 1970
        self.driver_dead_s: float | None = None  # the same begin, in seconds of time.monotonic
        self._cluster = cluster
        self._driver = driver
        self._done = done
        self._say = say
        self._over = threading.Event()
        self._error: FolkmootError | None = None
        self._threads = [threading.Thread(target=self._guard, args=(work,)) for work in (self._nodes, self._spark)]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wait until all faults have happened; raises FolkmootError if a process did not start again."""
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Stop the threads before the next fault."""
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except FolkmootError as error:
            self._error = error

    def _await(self, part: float) -> bool:
        """Wait until this part is published; return False if the faults are cancelled."""
        while self._done() < part:
            if self._over.wait(_POLL_S):
                return False
        return not self._over.is_set()

    def _nodes(self) -> None:
        first, second = self._cluster.nodes[:2]
        if not self._await(_FIRST_DIES):
            return
        loss = self._kill(first)
        if not self._await(_FIRST_RETURNS):
            return
        loss.back_s = time.monotonic()
        first.begin()
        first.ready()
        self._say(f"{first.place.name} starts again and catches up")
        if self._cluster.await_whole(_WHOLE_S):
            loss.whole_s = time.monotonic()
            self._say("every partition has three copies again")
        if self._await(_SECOND_DIES):
            self._kill(second)

    def _spark(self) -> None:
        if self._await(_FIRST_DIES):
            killed_s, self.driver_dead_s = time.time(), time.monotonic()
            self._driver.kill()
            self._say("[red]kill -9[/] of the Spark driver; it starts again")
            self._driver.start()
            self.driver_away = (killed_s, time.time())

    def _kill(self, node: Node) -> Loss:
        node.kill()
        self.losses.append(Loss(node, time.monotonic()))
        self._say(f"[red]kill -9[/] of the node {node.place.name}; its devices move to the others")
        return self.losses[-1]
