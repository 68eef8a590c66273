"""What is killed: nodes, never more than the replicas permit; the Spark driver; its executors."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import psutil

from folkmoot.demo.cluster import Cluster, Node
from folkmoot.demo.driver import Driver
from folkmoot.kernel.errors import FolkmootError
from folkmoot.kernel.rng import Rng

__all__ = ["Victims"]

_SPARE = 2  # copies that may be missing: with three replicas
_WHOLE_S = 120.0
_PROGRESS_S = 600.0  # on a busy machine Spark takes minutes to start
_POLL_S = 0.2
_EXECUTOR = "CoarseGrainedExecutorBackend"


class Victims:
    """Kills processes and starts them again; `say` is called with a line for each event."""

    def __init__(self, cluster: Cluster, driver: Driver, rng: Rng, say: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.driver = driver
        self.rng = rng
        self.say = say
        self.kills: dict[str, int] = {"node": 0, "driver": 0, "executor": 0}
        self.gave_up = 0  # how many times the driver ended by itself

    def strike(self, what: list[str]) -> None:
        """Kill all of these at once ("node" may occur twice), wait a moment, and start nodes and the driver again."""
        nodes: list[Node] = []
        if "node" in what:
            # Incomplete copies count as missing.
            if not self.cluster.await_whole(_WHOLE_S):
                raise FolkmootError(f"not every partition has three copies after {_WHOLE_S:.0f} s; see n*.log")
            left = list(self.cluster.nodes)
            nodes += [left.pop(self.rng.below(len(left))) for _ in range(min(what.count("node"), _SPARE))]
        for node in nodes:
            node.kill()
        if "executor" in what:
            self._kill_executor()
        if "driver" in what:
            self.driver.kill()
            self.kills["driver"] += 1
        self.kills["node"] += len(nodes)
        self.say(
            f"kill -9 of {', '.join([node.place.name for node in nodes] + [one for one in what if one != 'node'])}"
        )
        time.sleep(0.5 + self.rng.below(4000) / 1000)
        for node in nodes:
            node.begin()
        if "driver" in what:
            self.driver.start()
        for node in nodes:
            node.ready()

    def _kill_executor(self) -> None:
        executors = self._executors()
        if executors:  # otherwise one is restarting
            executors[self.rng.below(len(executors))].kill()
            self.kills["executor"] += 1

    def _executors(self) -> list[psutil.Process]:
        found = []
        try:
            children = psutil.Process(self.driver.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []  # the driver has ended by itself; `await_progress` notices it
        for process in children:
            try:
                if any(_EXECUTOR in word for word in process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return sorted(found, key=lambda process: process.pid)

    def await_progress(self) -> None:
        """Wait until each query has completed a batch that it begins from now on; raises FolkmootError on a timeout."""
        before = self._batches()
        until = time.monotonic() + _PROGRESS_S
        while time.monotonic() < until:
            if not self.driver.runs():
                self.gave_up += 1
                self.say("the driver has ended by itself, and starts again")
                self.driver.start()
            now = self._batches()
            if now and all(batch >= before.get(name, -1) + 2 for name, batch in now.items()):
                return
            time.sleep(_POLL_S)
        raise FolkmootError(f"no batch completed for {_PROGRESS_S:.0f} s; see {self.driver.log}")

    def _batches(self) -> dict[str, int]:
        path = self.driver.file.parent / "state" / "torture" / "status.json"
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return {name: int(query.get("batch") or 0) for name, query in found["queries"].items()}
