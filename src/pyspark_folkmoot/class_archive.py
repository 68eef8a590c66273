"""An archive of Spark's classes, with which Java starts in about two thirds of the CPU time.

Java calls it application class-data sharing (JEP 350): a run that ends normally writes the classes that it has loaded,
parsed and verified, and later runs map the file instead of reading thousands of classes from Spark's jars. Java
compares the archive with its own build and with the jars, and ignores one that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from folkmoot.kernel.errors import FolkmootError
from pyspark_folkmoot.java import java_home
from pyspark_folkmoot.own_folder import is_trusted, own_folders
from pyspark_folkmoot.spark_home import spark_home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["NoArchive", "archive_file", "archive_option", "write_archive"]

# Java says what does not fit, and it says so on standard output, where commands print JSON.
_QUIET: Final = "-Xlog:cds=error -Xlog:cds+dynamic=error"


class NoArchive(FolkmootError):
    """No archive of classes could be written."""


def archive_option(home: Path | None) -> str:
    """Return the options with which the Java in `home` (None: the one on the PATH) uses its archive, if it has one."""
    file = archive_file(home)
    return "" if file is None else f'"-XX:SharedArchiveFile={file}" {_QUIET}'


def archive_file(home: Path | None) -> Path | None:
    """Return the archive for the Java in `home` and this Spark, or None when there is none."""
    name = _name(home)
    return next((folder / name for folder in own_folders() if is_trusted(folder / name)), None)


def write_archive() -> Path:
    """Run a few small queries, write the archive of the classes that they needed, and return it.

    It must run in a process that has no Spark session yet. Raises `NoArchive` when Java did not write the file.
    """
    from pyspark import SparkContext

    from pyspark_folkmoot.session import JAVA_OPTIONS, SHORT_LIVED, spark_session

    if SparkContext._gateway is not None:  # noqa: SLF001
        raise NoArchive("this process already has a Spark session, and its Java writes no archive: use a new process")
    folder = _writable_folder()
    with tempfile.TemporaryDirectory(dir=folder, prefix="archive-") as scratch:
        fresh = Path(scratch) / "classes.jsa"
        option = f'"-XX:ArchiveClassesAtExit={fresh}" -Xlog:disable'
        conf = {JAVA_OPTIONS: f"{SHORT_LIVED} {option}", "spark.sql.shuffle.partitions": "1"}
        spark = spark_session("folkmoot-classes", "local[1]", conf)
        _exercise(spark, Path(scratch))
        spark.stop()
        gateway: Any = SparkContext._gateway  # noqa: SLF001
        gateway.shutdown()
        gateway.proc.stdin.close()  # Java ends with its standard input
        gateway.proc.wait()
        if not fresh.is_file():
            raise NoArchive("Java ended without writing an archive of classes: it needs 200 MB of free disk space")
        for old in folder.glob("spark-*.jsa"):
            old.unlink(missing_ok=True)
        return fresh.replace(folder / _name(java_home()))


def _exercise(spark: SparkSession, scratch: Path) -> None:
    """Load what pipelines load: SQL, files, a stream with state and a checkpoint, a Python worker."""
    source = scratch / "source"
    spark.range(10).selectExpr("id", "CAST(id AS STRING) AS name", "map('a', id) AS more").write.parquet(str(source))
    spark.read.parquet(str(source)).groupBy("name").count().join(spark.range(2)).collect()
    counted = (
        spark.readStream.schema("id LONG, name STRING")
        .parquet(str(source))
        .mapInArrow(_same, "id LONG, name STRING")
        .groupBy("name")
        .count()
    )
    query = (
        counted.writeStream.outputMode("complete")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(_collect)
        .start()
    )
    query.awaitTermination()


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    """Return the batches of a `mapInArrow` as they are."""
    return batches


def _collect(rows: DataFrame, _number: int) -> None:
    """Compute a batch."""
    rows.collect()


def _name(home: Path | None) -> str:
    """Return the name of the file for the Java in `home` and these jars of Spark."""
    from pyspark.find_spark_home import _find_spark_home

    program = shutil.which("java", path=None if home is None else str(home / "bin")) or "java"
    java = Path(program).resolve()
    quick = None if "SPARK_HOME" in os.environ else spark_home()
    jars = (quick or Path(_find_spark_home())) / "jars"
    parts = [str(java), str(java.stat().st_mtime_ns), str(jars)]
    for jar in sorted(jars.glob("*.jar")):
        status = jar.stat()
        parts.append(f"{jar.name} {status.st_size} {status.st_mtime_ns}")
    return f"spark-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}.jsa"


def _writable_folder() -> Path:
    """Return the first of the folders in which this user can write."""
    for folder in own_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise NoArchive(f"cannot write into {' or '.join(map(str, own_folders()))}: make one of them writable")
