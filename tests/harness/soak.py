"""What runs in `make soak` only: FOLKMOOT_SOAK=1, and a number for either run."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["SOAK", "seeds"]

SOAK: Final = os.environ.get("FOLKMOOT_SOAK", "") not in ("", "0")
"""Whether everything runs; `make test` leaves out what CONTRIBUTING.md lists with the reasons."""


def seeds(quick: range, soak: range) -> range:
    """The seeds of this run: those of `make test` are among those of `make soak`."""
    assert set(quick) <= set(soak)
    return soak if SOAK else quick
