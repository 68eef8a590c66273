"""The nodes of a cluster as child processes: starts, watches, restarts and stops them."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from folkmoot.cli.child import Child
from folkmoot.cli.place import HOST, Place

__all__ = ["LocalCluster"]

STOP_S: Final = 15.0
POLL_S: Final = 0.2
AGAIN_S: Final = 0.5
# The pause before a restart grows while a node dies again and again right after its start.
RESTART_S: Final = 1.0
RESTART_S_MAX: Final = 30.0
STEADY_S: Final = 60.0


class LocalCluster:
    """The nodes at `places`, with data in `folder`/NAME; `run` returns the exit status when all nodes have ended."""

    def __init__(
        self, folder: Path, places: Sequence[Place], replicas: int, arguments: Sequence[str], restart: bool
    ) -> None:
        self._places = list(places)
        self._restart = restart
        self._replicas = replicas
        self._folder = folder
        self._children = [Child(place.name, self._words(place, arguments), self._ready, say) for place in places]
        self._was_ready: set[str] = set()
        self._stop = asyncio.Event()
        self._stopped_at = 0.0
        self._failed = False

    def _words(self, place: Place, arguments: Sequence[str]) -> list[str]:
        """Return the arguments of `folkmoot serve` for one node."""
        words = ["--node-id", place.name, "--data", str(self._folder / place.name)]
        words += ["--mqtt", place.address("mqtt"), "--admin", place.address("admin"), "--peer", place.address("peer")]
        for one in self._places:  # the same list for all: the first node founds the cluster
            words += ["--seed", one.address("peer")]
        return [*words, "--replicas", str(self._replicas), *arguments]

    async def run(self) -> int:
        """Run until a signal comes or the last node has ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled)
        others = [asyncio.ensure_future(self._announce()), asyncio.ensure_future(self._end_all())]
        try:
            await asyncio.gather(*[self._keep(child) for child in self._children])
        finally:
            for task in others:
                task.cancel()
            for child in self._children:
                child.kill()
        return 1 if self._failed or not self._stop.is_set() else 0

    def _signalled(self) -> None:
        """Stop all nodes; at a second signal, at once. A second signal right after the first one does not count."""
        now = time.monotonic()
        if not self._stop.is_set():
            self._stop.set()
            self._stopped_at = now
        elif now - self._stopped_at > AGAIN_S:
            for child in self._children:
                child.stop()

    async def _keep(self, child: Child) -> None:
        """Run one node, and restart it if --restart is given."""
        pause_s = RESTART_S
        while not self._stop.is_set():
            begun = time.monotonic()
            status = await child.run()
            if self._stop.is_set():
                if status:
                    self._failed = True
                    say(child.name, ended(status))
                return
            say(child.name, ended(status))
            if child.name not in self._was_ready:
                # It never worked: a wrong setting, a port in use. Its log shows the reason.
                self._failed = True
                self._stop.set()
                return
            if not self._restart or status == 0:  # it has left the cluster, or was stopped
                self._one_less(child, status)
                return
            pause_s = RESTART_S if time.monotonic() - begun > STEADY_S else min(2 * pause_s, RESTART_S_MAX)
            say(child.name, f"restarts in {pause_s:g} s")
            await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> None:
        """Wait for this time, or until all nodes are to stop."""
        try:
            async with asyncio.timeout(pause_s):
                await self._stop.wait()
        except TimeoutError:
            return

    def _one_less(self, child: Child, status: int) -> None:
        left = [other.name for other in self._children if other.pid]
        if left:
            hint = " (with --restart it would be restarted)" if status else ""
            say(child.name, f"still running: {', '.join(left)}{hint}")
        else:
            say(child.name, "it was the last node")
            self._failed = True

    def _ready(self, child: Child, words: dict[str, str]) -> None:
        """Print the addresses of a node that is ready."""
        self._was_ready.add(child.name)
        places = [f"{name}={place}" for name, place in words.items() if name != "node"]
        tell(f"{child.name} ready {' '.join(places)}", sys.stdout)

    async def _announce(self) -> None:
        """Print one line when all nodes have formed the cluster."""
        waiting = list(self._places)
        while waiting:
            await asyncio.sleep(POLL_S)
            waiting = [place for place in waiting if not await healthy(place.ports["admin"])]
        tell(f"cluster ready nodes={len(self._places)} replicas={self._replicas} data={self._folder}", sys.stdout)

    async def _end_all(self) -> None:
        """Wait for the stop event, stop all nodes, and kill those that do not end."""
        await self._stop.wait()
        for child in self._children:
            child.stop()
        await asyncio.sleep(STOP_S)
        for child in self._children:
            if child.pid:
                say(child.name, f"has not ended after {STOP_S:g} s and is killed; what it acknowledged is safe")
                child.kill()


def say(name: str, line: str) -> None:
    """Write a line of one node to the shared log."""
    tell(f"{name} | {line}", sys.stderr)


def tell(line: str, place: TextIO) -> None:
    """Write a line; if the reader is gone, the nodes continue."""
    try:
        print(line, file=place, flush=True)
    except BrokenPipeError:
        return


def ended(status: int) -> str:
    """Return as text how a process ended."""
    if status >= 0:
        return f"has ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


async def healthy(port: int) -> bool:
    """Whether a node reports that it has its data and serves."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    try:
        writer.write(b"GET /health/ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        async with asyncio.timeout(1.0):
            return (await reader.readline()).split()[1:2] == [b"200"]
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
