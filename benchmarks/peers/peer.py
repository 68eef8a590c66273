"""The interface of all brokers of this comparison: to be obtained, and to be started as a cluster of three nodes.

Owns the folder where downloads and builds are kept, and how a step of an installation is run. It never measures.
"""

from __future__ import annotations

import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.nodes import Cluster

__all__ = ["CACHE", "NODES", "Missing", "Peer", "completed", "require"]

NODES: Final = 3
CACHE: Final = Path(__file__).resolve().parents[2] / "build" / "peers"
STEP_S: Final = 900.0
TAIL_BYTES: Final = 300


class Missing(Exception):
    """A broker cannot be had on this machine; the text is one line that says what is missing."""


class Peer(ABC):
    """A broker of the comparison.

    name: as its makers write it; promise: what its PUBACK says of a message with the settings used here.
    """

    name: ClassVar[str]
    promise: ClassVar[str]

    @abstractmethod
    def obtain(self) -> str:
        """Install or build it unless that was done before; return its version. Raises `Missing`."""

    @abstractmethod
    def start(self, folder: Path) -> Cluster:
        """Start three nodes on loopback that keep their data in a folder; they are whole when this returns.

        Raises RuntimeError if they do not find together. The caller stops them.
        """


def require(program: str, purpose: str) -> str:
    """Return the path of a program; raises `Missing`."""
    found = shutil.which(program)
    if found is None:
        raise Missing(f"the program `{program}` is missing, {purpose}")
    return found


def completed(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None, timeout_s: float = STEP_S
) -> str:
    """Run a program to its end in a folder and return what it prints; raises `Missing` if it fails."""
    words = " ".join(command[:4])
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"`{words}` did not end in {timeout_s:.0f} s") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout)[-TAIL_BYTES:].split())
        raise Missing(f"`{words}` failed: {said}")
    return done.stdout
