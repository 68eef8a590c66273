"""The two processes of the demonstration that are killed: the broker's node and the Spark driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from folkmoot.kernel.errors import FolkmootError

__all__ = ["Node", "Spark"]

_START_S = 90.0


class Child:
    """A process with a log file; its own process group, so that a kill takes everything that belongs to it."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, module: str, *arguments: str) -> str:
        """Start `python -m module`; return the line that begins with `ready`."""
        start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - this Python and our own modules
                [sys.executable, "-m", module, *arguments], stdout=output, stderr=output, start_new_session=True
            )
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            with self.log.open("rb") as file:
                file.seek(start)
                for line in file.read().decode(errors="replace").splitlines(keepends=True):
                    if line.startswith("ready") and line.endswith("\n"):
                        return line
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise FolkmootError(f"{self.name} did not start; the end of {self.log} says why")

    def kill(self) -> None:
        """Kill -9 the process and all that it has started."""
        assert self._process is not None, "only what runs is killed"
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self, timeout_s: float = 30.0) -> None:
        """End the process if it runs: SIGTERM, after the timeout SIGKILL."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def wait(self, timeout_s: float) -> int:
        """Wait for the end of the process and return its status; raises FolkmootError after the timeout."""
        assert self._process is not None, "only what runs ends"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise FolkmootError(f"{self.name} did not finish in {timeout_s:.0f} s; see {self.log}") from None


class Node(Child):
    """A node of the broker with a stream on everything below `nyc/`; after the first start its ports stay the same."""

    def __init__(self, folder: Path) -> None:
        super().__init__("the node", folder / "node.log")
        self._data = folder / "node"
        self.mqtt = "127.0.0.1:0"
        self.admin = "127.0.0.1:0"

    def start(self) -> None:
        """Start the node and wait until it serves."""
        arguments = ("--data", str(self._data), "--mqtt", self.mqtt, "--admin", self.admin)
        line = self.launch("folkmoot", "serve", *arguments, "--stream", "nyc=nyc/#", "--log-level", "warning")
        fields = dict(word.split("=", 1) for word in line.split()[1:] if "=" in word)
        self.mqtt = fields["mqtt"]
        self.admin = fields["admin"]

    @property
    def url(self) -> str:
        """The address of the node's HTTP server."""
        return f"http://{self.admin}"


class Spark(Child):
    """The Spark driver that runs `folkmoot.demo.pipeline`."""

    def __init__(self, folder: Path) -> None:
        super().__init__("the Spark driver", folder / "spark.log")
        self._folder = folder

    def start(self, url: str) -> None:
        """Start the driver and wait until its queries run; it goes on where its checkpoints say."""
        self.launch("folkmoot.demo.pipeline", url, str(self._folder))
