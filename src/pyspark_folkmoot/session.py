"""A Spark session that needs nothing but pip: Java, Python, time zone and state store are set for the formats."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_folkmoot.class_archive import archive_option
from pyspark_folkmoot.java import java_home
from pyspark_folkmoot.master import check_master
from pyspark_folkmoot.spark_home import spark_home
from pyspark_folkmoot.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JAVA_OPTIONS", "SHORT_LIVED", "register", "spark_session"]

STOP_TIMEOUT: Final = "30s"
"""How long `query.stop()` waits for the query's thread; Spark's default is unlimited. Tasks that can be interrupted end
much earlier; a task that hangs in a system call or waits for unreachable nodes could block the stop forever."""

JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""Options of Java that stand before those of `spark.driver.extraJavaOptions`, which belong to the user."""

SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Java options for sessions of a few minutes, in which the optimizing compiler would use most of the CPU time.

Without that compiler Java reserves only 48 MB for compiled code. A session fills that in a few minutes of different
queries, and then tasks fail: it gets what Java reserves otherwise."""

ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def spark_session(
    name: str = "folkmoot", master: str = "local[*]", conf: Mapping[str, str] | None = None, quiet: bool = True
) -> SparkSession:
    """Return a session with the formats `folkmoot` and `folkmoot_delta`; the running session, if there is one.

    `conf` overrides the settings made here. `quiet` limits Spark's own log to errors. Raises `NoJava` and `NoMaster`.
    """
    check_master(master)
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # Workers must use this Python with these packages, also if they are linked from a source tree.
    here = master == "local" or master.startswith("local[")
    os.environ["PYSPARK_PYTHON"] = worker_python() if here else sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = _python_path()
    local = master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        quick = None if "SPARK_HOME" in os.environ else spark_home()
        if quick is not None:
            os.environ["SPARK_HOME"] = str(quick)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stopTimeout": STOP_TIMEOUT,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if local:
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        # The default of 200 is meant for clusters: on one machine most of the tasks would be empty.
        settings["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 2))
    settings |= conf or {}
    options = settings.get(JAVA_OPTIONS, "")
    if local and "Archive" not in options:  # Java takes one archive, and only with the jars of the same home
        settings[JAVA_OPTIONS] = f"{archive_option(home)} {options}".strip()
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if quiet:
        spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Register the formats with any Spark session; the executors must have the package too."""
    from pyspark_folkmoot.delta import DeltaTables
    from pyspark_folkmoot.source import FolkmootStreams

    spark.dataSource.register(FolkmootStreams)
    spark.dataSource.register(DeltaTables)


def _python_path() -> str:
    """Return PYTHONPATH with the folders from which `folkmoot` and `pyspark_folkmoot` were imported in front."""
    import folkmoot
    import pyspark_folkmoot

    # Not resolved: a compiled tree consists of links to the sources.
    roots = [Path(str(module.__file__)).absolute().parent.parent for module in (folkmoot, pyspark_folkmoot)]
    given = [Path(part).absolute() for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join(dict.fromkeys(str(part) for part in [*given, *roots]))
