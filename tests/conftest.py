"""What every test run shares: which half of the code it tests, said at its start, and never a stale compiled one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest

from folkmoot.cli.version import stale_sources, version_line
from tests.harness.fixture import box, make

__all__ = ["box", "make"]

ROOT = Path(__file__).resolve().parent.parent

# A run is the same run every time; FOLKMOOT_FUZZ=10 searches ten times as long, with fresh examples.
FUZZ = int(os.environ.get("FOLKMOOT_FUZZ", "0"))
hypothesis.settings.register_profile("project", deadline=None, derandomize=not FUZZ, max_examples=100 * max(FUZZ, 1))
hypothesis.settings.load_profile("project")


def pytest_report_header() -> str:
    """Say version, Python, compiled or pure."""
    return version_line()


def pytest_sessionstart() -> None:
    """Refuse to test native modules that are older than their sources; let child processes be interrupted."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it runs in the background like this, and children would inherit it: Ctrl-C is tested.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    stale = stale_sources()
    if stale:
        raise pytest.UsageError(
            f"{stale[0]} has changed since it was compiled: run `make build`, or set PYTHONPATH=src"
        )


@pytest.fixture(scope="session")
def source_path() -> Path:
    """The PYTHONPATH under which a child process runs interpreted."""
    return ROOT / "src"


@pytest.fixture(scope="session")
def native_path() -> Path:
    """The PYTHONPATH under which a child process runs compiled; skips where the compiled tree is not there."""
    path = ROOT / "build" / "native"
    if not (path / "native-sources.txt").is_file():
        pytest.skip("the compiled tree is not built: run `make build` (it needs a C compiler)")
    return path
