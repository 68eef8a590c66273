"""The process from which Spark forks its Python workers, with the format `folkmoot` and what it needs imported once.

Spark has one such process for each kind of worker. Its own imports nothing, because a
process that has threads must not fork, and some packages start threads when they are imported. But Spark uses most
workers once: to plan a read, or to commit a batch. Each would import NumPy, PyArrow and this package anew, for 0.3 s of
CPU time.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["main"]

_STOCK: Final = "pyspark.daemon"
_FORMAT: Final = "pyspark_folkmoot.source"

# With these, NumPy's and PyArrow's libraries start no threads. Spark sets the first one itself for tasks.
_WITHOUT_THREADS: Final = {"OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def main() -> None:
    """Import, and then do what Spark's own process does; be that one if there are threads after the imports."""
    given = dict(os.environ)
    for name, value in _WITHOUT_THREADS.items():
        os.environ.setdefault(name, value)
    for module in [_FORMAT, *sys.argv[1:2]]:
        with suppress(ImportError):  # a worker that needs it says so
            importlib.import_module(module)
    if _threads() != 1:
        os.execve(sys.executable, [sys.executable, "-m", _STOCK, *sys.argv[1:]], given)  # noqa: S606
    gc.freeze()  # a collection in a worker would copy every page
    from pyspark.daemon import manager

    manager()


def _threads() -> int:
    """Return the number of threads of this process, those of libraries too where the system tells them."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else max(2, threading.active_count())


if __name__ == "__main__":
    main()
