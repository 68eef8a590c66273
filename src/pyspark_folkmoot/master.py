"""Spark's master: its forms are checked before Java starts and would fail with a stack trace."""

from __future__ import annotations

import re
from typing import Final

from folkmoot.kernel.errors import FolkmootError

__all__ = ["NoMaster", "check_master"]

_LOCAL: Final = r"local(\[(\d+|\*)(,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
_REMOTE: Final = r"spark://[^\s/,:]+:\d+(,[^\s/,:]+:\d+)*|yarn|k8s://\S+"


class NoMaster(FolkmootError, ValueError):
    """The master has no form that Spark knows, or one that cannot be used here."""


def check_master(master: str) -> str:
    """Return `master`; raises NoMaster."""
    if master.startswith("sc://"):
        raise NoMaster(
            f"{master!r} is Spark Connect, and a driver needs a Java of its own: name the master behind it, "
            "or use the source and the sinks in a session of Connect"
        )
    if not re.fullmatch(f"{_LOCAL}|{_REMOTE}", master):
        raise NoMaster(
            f"{master!r} is no master of Spark: write local[*], local[4], local-cluster[2,1,1024], "
            "spark://HOST:PORT, yarn or k8s://ADDRESS"
        )
    return master
