"""Several nodes of one cluster under test, as processes on loopback: of any broker, and of Folkmoot.

Owns starting them with fixed ports, asking them whether all is well, killing and starting again. It never measures.
Clusters of other brokers are in `benchmarks/peers/`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.server import Server

KINDS = ("mqtt", "admin", "peer")
WHOLE_S = 60.0
POLL_S = 0.02
PORTS = (15_000, 32_000)


def lasting_port() -> int:
    """Return a free port below those that the system gives to connections: a node that is started again needs it."""
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


class Cluster(ABC):
    """`count` nodes n1, n2, ... with ports of their own; all have found together when this returns.

    A subclass says how a node is started, and when all is well. kinds: what a node listens for.
    """

    kinds: ClassVar[tuple[str, ...]] = KINDS
    whole_s: ClassVar[float] = WHOLE_S

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.names = [f"n{number}" for number in range(1, count + 1)]
        self.ports = {name: {kind: lasting_port() for kind in self.kinds} for name in self.names}
        self.servers: dict[str, Server] = {}
        try:
            for name in self.names:
                self.start(name)
            self.await_whole()
        except BaseException:
            self.stop()
            raise

    @abstractmethod
    def start(self, name: str) -> None:
        """Start a node with the data that it has."""

    @abstractmethod
    def whole(self) -> bool:
        """Tell whether all nodes that run are members, and have all data that they are to have."""

    def kill(self, name: str) -> float:
        """End a node as `kill -9` does; return when, in seconds of the monotonic clock."""
        one = self.servers.pop(name)
        began = time.monotonic()
        one.process.kill()
        one.process.wait()
        one.stop()
        return began

    def stop(self) -> None:
        """End all nodes; idempotent."""
        for one in self.servers.values():
            one.stop()
        self.servers.clear()

    def pids(self) -> dict[str, int]:
        return {name: one.pid for name, one in self.servers.items()}

    def mqtt_ports(self) -> dict[str, int]:
        return {name: self.ports[name]["mqtt"] for name in self.names}

    def ask(self, name: str, path: str) -> Any:
        """Return what a node answers on its admin port, None when it does not."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[name]["admin"], timeout=2.0)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return json.loads(answer.read()) if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def await_whole(self, timeout_s: float | None = None) -> None:
        """Wait until all is well again; raises RuntimeError."""
        self._await(self.whole, timeout_s or self.whole_s)

    def _await(self, condition: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the nodes did not find together in {timeout_s:.0f} s: see {self.folder}")
            time.sleep(POLL_S)


class Nodes(Cluster):
    """`count` nodes of Folkmoot that keep `replicas` copies; all are members and whole when this returns."""

    def __init__(self, folder: Path, count: int, replicas: int, *options: str) -> None:
        self.replicas = replicas
        self.options = options
        super().__init__(folder, count)

    def command(self, name: str) -> list[str]:
        words = [sys.executable, "-m", "folkmoot", "serve", "--node-id", name, "--data", str(self.folder / name)]
        for kind in self.kinds:
            words += [f"--{kind}", f"127.0.0.1:{self.ports[name][kind]}"]
        for other in self.names:
            if other != name:
                words += ["--seed", f"127.0.0.1:{self.ports[other]['peer']}"]
        return [*words, "--replicas", str(self.replicas), "--log-level", "warning", *self.options]

    def start(self, name: str) -> None:
        """Start a node with the data that it has."""
        self.servers[name] = Server(name, self.command(name), None, self.folder / f"{name}.log")

    def ask_any(self, path: str) -> Any:
        """Return what the first node that answers says on its admin port; raises RuntimeError if none does."""
        for name in self.servers:
            found = self.ask(name, path)
            if found is not None:
                return found
        raise RuntimeError("no node answers")

    def leaders(self) -> list[str]:
        """Return who leads each partition, by its number."""
        return [str(one["leader"]) for one in self.ask_any("/api/v1/partitions")]

    def controller(self) -> str:
        """Return which node leads the configuration log."""
        return str(self.ask_any("/api/v1/status")["controller"])

    def await_members(self, timeout_s: float = WHOLE_S) -> None:
        """Wait until all nodes that run are members of one view; raises RuntimeError."""
        self._await(self.together, timeout_s)

    def statuses(self) -> list[Any]:
        """Return what all nodes say of themselves if they are members of one view, and nobody else is; else nothing."""
        found = [self.ask(name, "/api/v1/status") for name in self.servers]
        if any(status is None or status["state"] != "member" for status in found):
            return []
        names = sorted(self.servers)
        for status in found:
            if sorted(node["id"] for node in status["nodes"] if node["state"] == "active") != names:
                return []
        return found if len({status["epoch"] for status in found}) == 1 else []

    def together(self) -> bool:
        return bool(self.statuses())

    def whole(self) -> bool:
        found = [status["partitions"] for status in self.statuses()]
        return bool(found) and all(is_whole(parts) for parts in found)


def is_whole(parts: dict[str, int]) -> bool:
    """Tell from a node's counts of partitions whether all are open and have all copies, and none is to move."""
    return parts["open"] == parts["total"] and not parts["moving"] and not parts["under_replicated"]
