"""`make bench`: measure Folkmoot against Mosquitto on this machine and write down what was seen.

Owns the entry; `benchmarks/suite.py` does the work. `python benchmarks/run.py --help` says what can be chosen.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from benchmarks.suite import main

    sys.exit(main())
