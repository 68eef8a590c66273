"""`python -m folkmoot`: the same as the command `folkmoot`; owns nothing."""

from __future__ import annotations

import sys

from folkmoot.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
