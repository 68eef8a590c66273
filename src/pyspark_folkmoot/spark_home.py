"""A SPARK_HOME whose Python workers import the installed PySpark instead of the copy of it in a zip file.

Spark puts `python/lib/pyspark.zip` of its home before everything else on the path of its Python processes. The zip has
sources only, and Python stores no byte code of what it imports from a zip: each worker, each reader of a stream and
each commit of a sink would compile PySpark anew, which takes 0.7 s of CPU time. The home made here links to everything
in the installed package but the zip.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import Final

from pyspark_folkmoot.own_folder import is_trusted, own_folders

__all__ = ["spark_home"]

_LEFT_OUT: Final = frozenset({"python"})
_ENTRIES: Final = ("bin", "jars", "sbin")


def spark_home() -> Path | None:
    """Return the home, made if it is not there; None if PySpark is not from pip, or no folder can be written.

    It is for sessions whose workers run in this Python on this machine.
    """
    package = _package()
    if package is None:
        return None
    for folder in own_folders():
        home = folder / "spark-home"
        if _fits(home, package):
            return home
        try:
            _make(home, package)
        except OSError:  # an environment that is read-only for this user
            continue
        return home
    return None


def _package() -> Path | None:
    """Return the folder of the installed PySpark, if it is a home of Spark too."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).absolute().parent
    return package if all((package / name).is_dir() for name in _ENTRIES) else None


def _fits(home: Path, package: Path) -> bool:
    """Whether a home links to this package, and nobody else could have written it."""
    try:
        return is_trusted(home) and all((home / name).readlink() == package / name for name in _ENTRIES)
    except OSError:
        return False


def _make(home: Path, package: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=home.parent, prefix="home-"))
    try:
        fresh.chmod(0o755)
        for entry in package.iterdir():
            if entry.is_dir() and entry.name not in _LEFT_OUT:
                (fresh / entry.name).symlink_to(entry)
        if home.is_dir():
            home.replace(Path(tempfile.mkdtemp(dir=fresh)) / "old")  # of another version of Spark
        fresh.replace(home)
    except OSError:
        if not _fits(home, package):  # another process was faster
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
