"""A process of the demonstration that is started, killed and started again."""

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
    """A process with a log file; its own process group, so that a kill takes everything that belongs to it."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._asked = False

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
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
        """Return what the process has written since it was started last."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode("utf-8", "replace").splitlines()

    def ready(self, word: str = "ready") -> None:
        """Wait until the process has written a line that begins with `word`; raises FolkmootError if it does not."""
        assert self._process is not None, "only what was started gets ready"
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if any(line.startswith(word) for line in self.lines()):
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise FolkmootError(f"{self.name} did not start; the end of {self.log} says why")

    def kill(self) -> None:
        """Kill -9 the process and all that it has started."""
        assert self._process is not None, "only what runs is killed"
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def ask_to_end(self) -> None:
        """Send SIGTERM if the process runs; only once, because nodes take a second one for impatience."""
        if self._process is not None and self._process.poll() is None and not self._asked:
            self._asked = True
            self._process.terminate()

    def stop(self, timeout_s: float = 30.0) -> None:
        """End the process if it runs: SIGTERM, after the timeout SIGKILL."""
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
