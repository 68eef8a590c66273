"""The command line: parses arguments and prints results; contains no rule of MQTT.

The parsing library is imported inside `main`, so that `folkmoot --version` takes only a few milliseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status; `arguments` (default: those of the process) omit the program name.

    Exit status: 0 success, 1 failure, 2 wrong arguments or settings, 130 Ctrl-C.
    """
    from folkmoot.cli.version import stale_sources, version_line

    words = list(sys.argv[1:] if arguments is None else arguments)
    stale = stale_sources()
    if stale:
        print(
            f"warning: {stale[0]} has changed since it was compiled: run `make build`, or set PYTHONPATH=src",
            file=sys.stderr,
        )
    if words == ["--version"]:
        print(version_line())
        return 0
    from folkmoot.cli.app import run

    return run(words)
