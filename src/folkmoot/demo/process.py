"""A process that the demonstration starts, kills and starts again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from folkmoot.kernel.errors import FolkmootError

__all__ = ["Child"]

_START_S = 300.0


class Child:
    """A process with a log file, in its own process group, so that a kill includes its children."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._asked = False

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        assert self._process is not None, "only what was started has a pid"
        return self._process.pid

    def runs(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def launch(self, module: str, *arguments: str, **variables: str) -> None:
        """Start `python -m module`; `variables` are added to the environment."""
        self._asked = False
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - this Python and our own modules
                [sys.executable, "-m", module, *arguments],
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **variables},
            )

    def lines(self) -> list[str]:
        """Return the lines that the process has written since its last start."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode("utf-8", "replace").splitlines()

    def ready(self, word: str = "ready") -> None:
        """Wait for a line that begins with `word`; raises FolkmootError if the process ends or takes too long."""
        assert self._process is not None, "only what was started gets ready"
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if any(line.startswith(word) for line in self.lines()):
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise FolkmootError(f"{self.name} did not start; see the end of {self.log}")

    def kill(self) -> None:
        """Kill the process and its children with SIGKILL."""
        assert self._process is not None, "only what runs is killed"
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def ask_to_end(self) -> None:
        """Send SIGTERM if the process runs; only once, because a second one makes a node end at once."""
        if self._process is not None and self._process.poll() is None and not self._asked:
            self._asked = True
            self._process.terminate()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop the process if it runs: SIGTERM, and after the timeout SIGKILL."""
        if self._process is None or self._process.poll() is not None:
            return
        self.ask_to_end()
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
