"""The Spark driver of the demonstration, and the report on availability: `folkmoot` commands as processes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from folkmoot.demo.process import Child
from folkmoot.kernel.errors import FolkmootError

__all__ = ["EXAMPLE", "Driver", "Report"]

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "flights" / "flights.yaml"
_STOP_S = 120.0
_DRAIN_S = 300.0
_REPORT_S = 300.0


class Driver(Child):
    """`folkmoot pipeline run` of `file`: a copy of the example (or of another file) with the addresses of these nodes.

    `master` is Spark's master; "" means that of the file.
    """

    def __init__(self, folder: Path, example: Path | None = None, master: str = "") -> None:
        super().__init__("the Spark driver", folder / "pipeline.log")
        self._example = EXAMPLE if example is None else example
        self._options = ["--master", master] if master else []
        self.file = folder / self._example.name
        self.started = ""  # the line about its last start: how long each stage took

    def prepare(self, urls: str) -> None:
        """Write the file; its tables and checkpoints are created beside it."""
        try:
            text = self._example.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise FolkmootError(
                f"{self._example} is missing: the demonstration needs a clone of the repository"
            ) from None
        self.file.write_text(text.replace("${FOLKMOOT_URL}", urls), encoding="utf-8")

    def start(self) -> None:
        """Start it and wait until its queries run; it resumes where its checkpoints say."""
        self.launch("folkmoot", "pipeline", "run", str(self.file), *self._options)
        self.ready("running")
        self.started = next((line for line in self.lines() if line.startswith("started in ")), "")

    def finish(self) -> None:
        """Stop it at the end of its batches; raises FolkmootError if that fails."""
        self.ask_to_end()
        self._await_end(_STOP_S)

    def drain(self) -> None:
        """Run it once more, for everything that the streams have; raises FolkmootError if that fails."""
        self.launch("folkmoot", "pipeline", "run", str(self.file), *self._options, "--once")
        self._await_end(_DRAIN_S)

    def _await_end(self, timeout_s: float) -> None:
        status = self.wait(timeout_s)
        if status != 0:
            raise FolkmootError(f"{self.name} ended with status {status}; see {self.log}")


class Report(Child):
    """`folkmoot report availability`, which writes tables and a picture into `out`."""

    def __init__(self, folder: Path) -> None:
        super().__init__("the report", folder / "report.log")
        self.out = folder / "report"

    def make(self, urls: str, marks: Sequence[tuple[float, str]] = ()) -> None:
        """Make the report from all events; raises FolkmootError if that fails.

        marks: times (seconds since 1970) and labels of events that the nodes do not know.
        """
        options = [f"--mark={datetime.fromtimestamp(at_s, UTC).isoformat()} {label}" for at_s, label in marks]
        self.launch("folkmoot", "report", "availability", "--url", urls, "--out", str(self.out), *options)
        status = self.wait(_REPORT_S)
        if status != 0:
            raise FolkmootError(f"{self.name} ended with status {status}; see {self.log}")
