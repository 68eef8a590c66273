"""The three nodes of the demonstration: processes on loopback, with streams of `nyc/#` and of events.

Their folders and ports are those that `folkmoot cluster` uses, so that it can run the same cluster later.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from folkmoot.cli.place import Place, find_places
from folkmoot.client.admin import AdminClient
from folkmoot.client.problem import StreamProblem
from folkmoot.demo.process import Child
from folkmoot.kernel.errors import FolkmootError

__all__ = ["STREAMS", "Cluster", "Node"]

STREAMS = ("nyc=nyc/#", "events=$events/#")

_NODES = 3
_EVENTS_INTERVAL = "2s"  # instead of ten seconds: the picture of a short run needs a finer resolution
_FOUND_S = 60.0
_POLL_S = 0.1


class Node(Child):
    """One node; it keeps its ports when it is started again."""

    def __init__(self, place: Place, seeds: list[str], streams: Sequence[str], folder: Path, logs: Path) -> None:
        super().__init__(f"the node {place.name}", logs / f"{place.name}.log")
        self.place = place
        self._arguments = ["--node-id", place.name, "--data", str(folder / place.name)]
        for kind in ("mqtt", "admin", "peer"):
            self._arguments += [f"--{kind}", place.address(kind)]
        for seed in seeds:
            self._arguments += ["--seed", seed]
        for stream in streams:
            self._arguments += ["--stream", stream]
        self._arguments += ["--replicas", str(_NODES), "--log-level", "info"]

    def begin(self) -> None:
        """Start the node; `ready` waits until it serves."""
        self.launch("folkmoot", "serve", *self._arguments, FOLKMOOT_LIMITS_EVENTS_INTERVAL=_EVENTS_INTERVAL)


class Cluster:
    """The nodes n1, n2, n3; data in `folder`/cluster, logs in `folder`."""

    def __init__(self, folder: Path, streams: Sequence[str] = STREAMS) -> None:
        self.folder = folder / "cluster"
        self.folder.mkdir(parents=True, exist_ok=True)
        places = find_places(self.folder, _NODES, {})
        self.nodes = [
            Node(place, [other.address("peer") for other in places if other is not place], streams, self.folder, folder)
            for place in places
        ]

    @property
    def mqtt(self) -> list[tuple[str, int]]:
        """Host and port of each node for MQTT."""
        found = [node.place.address("mqtt").rsplit(":", 1) for node in self.nodes]
        return [(host, int(port)) for host, port in found]

    @property
    def urls(self) -> str:
        """The HTTP addresses of all nodes, separated by commas."""
        return ",".join(f"http://{node.place.address('admin')}" for node in self.nodes)

    def start(self) -> None:
        """Start all nodes and wait until they form a cluster."""
        for node in self.nodes:
            node.begin()
        for node in self.nodes:
            node.ready()
        if not self.await_whole(_FOUND_S):
            raise FolkmootError(
                f"the nodes did not form a cluster within {_FOUND_S:.0f} s; see {self.folder.parent}/n*.log"
            )

    def await_whole(self, timeout_s: float) -> bool:
        """Wait until every partition has a leader and all its copies; return whether that happened in time."""
        client = AdminClient(self.urls)
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if self._whole(client):
                return True
            time.sleep(_POLL_S)
        return False

    def _whole(self, client: AdminClient) -> bool:
        try:
            found = client.status()["partitions"]
        except StreamProblem:
            return False
        return bool(found["open"] == found["total"] and not found["under_replicated"] and not found["moving"])

    def stop(self) -> None:
        """Stop the running nodes."""
        for node in self.nodes:
            node.ask_to_end()
        for node in self.nodes:
            node.stop()
