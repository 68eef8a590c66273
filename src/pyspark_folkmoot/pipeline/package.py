"""How executors get the code: by PYTHONPATH if they share a disk with the driver, otherwise with the session."""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["add_folder", "add_package"]


def add_folder(folder: Path) -> None:
    """Let this process, and the workers of sessions created later, import from `folder`."""
    import sys

    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    given = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if str(folder) not in given:
        os.environ["PYTHONPATH"] = os.pathsep.join([*given, str(folder)])


def add_package(spark: SparkSession) -> Path:
    """Send `folkmoot` and `pyspark_folkmoot` to the executors of a session; return the archive that was sent.

    Its dependencies (pyarrow, deltalake, numpy, urllib3, pydantic, protobuf) must be installed. Python processes on the
    driver's machine do not use the archive: they import what the driver imports.
    """
    import folkmoot
    import pyspark_folkmoot

    archive = Path(tempfile.mkdtemp(prefix="folkmoot-")) / "folkmoot-code.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for module in (folkmoot, pyspark_folkmoot):
            root = Path(str(module.__file__)).parent
            # A compiled tree consists of links to the folders of the sources, which `rglob` does not follow.
            for folder, _, names in os.walk(root, followlinks=True):
                for file in sorted(Path(folder, name) for name in names if name.endswith(".py")):
                    out.write(file, file.relative_to(root.parent))
    spark.sparkContext.addPyFile(str(archive))
    return archive
