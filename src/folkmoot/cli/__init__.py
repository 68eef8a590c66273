"""The command line: owns parsing of arguments and printing; never decides anything about MQTT.

The parsing library is imported inside `main`, so that `folkmoot --version` answers in a few milliseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (without the program's name; default: the process's) and return its exit status.

    0 is success, 1 a command that found something wrong, 2 a wrong argument or setting, 130 Ctrl-C.
    """
    from folkmoot.cli.version import stale_sources, version_line

    words = list(sys.argv[1:] if arguments is None else arguments)
    stale = stale_sources()
    if stale:
        print(
            f"warning: compiled before {stale[0]} was changed: run `make build`, or set PYTHONPATH=src", file=sys.stderr
        )
    if words == ["--version"]:
        print(version_line())
        return 0
    from folkmoot.cli.app import run

    return run(words)
