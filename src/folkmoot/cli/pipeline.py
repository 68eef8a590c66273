"""`folkmoot pipeline`: runs, checks, explains, inspects and rebuilds the pipeline in a YAML file.

This module parses arguments and prints. `pyspark_folkmoot.pipeline` does the rest; it is imported when a command runs,
and Spark only when something must be analysed or run.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from folkmoot.cli.error import Refusal
from folkmoot.kernel.errors import FolkmootError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_folkmoot.pipeline import Loaded
    from pyspark_folkmoot.pipeline.lock import StateLock
    from pyspark_folkmoot.pipeline.stage import Stages

__all__ = ["pipeline"]

INSTALL: Final = "pip install 'folkmoot[spark]'"


@click.group(no_args_is_help=True)
def pipeline() -> None:
    """Run, check or inspect a Spark pipeline."""


file_argument = click.argument("file", type=click.Path(path_type=Path), help="The pipeline file (YAML).")
master_option = click.option("--master", help="Master URL of Spark, instead of spark.master in the file.")
syntax_option = click.option("--syntax", is_flag=True, help="Check without Spark: no columns and no SQL.")


@pipeline.command("run")
@file_argument
@master_option
@click.option("--once", is_flag=True, help="Process the available records and end, regardless of 'trigger'.")
@click.option("--package", is_flag=True, help="Send the code of Folkmoot to the executors.")
def run_command(file: Path, master: str | None, once: bool, package: bool) -> int:
    """Run the pipeline until it is done, a query fails (status 1), or Ctrl-C or SIGTERM stops it."""
    loaded = load(file)
    if once:
        loaded.model = loaded.model.model_copy(update={"trigger": "once"})
    stop = threading.Event()
    catch_signals(stop)
    from pyspark_folkmoot.pipeline.stage import Stages
    from pyspark_folkmoot.pipeline.status import StatusFile, starting

    stages = Stages()
    # Take the lock first: a second driver must not replace Spark's log of the running driver.
    with faults_told(loaded), starting(loaded) as lock:
        try:
            return run(loaded, master or loaded.model.spark.master, package, stop, lock, stages)
        except Exception:
            # A signal to the whole process group also ends Java, and all later calls to it fail.
            if not stop.is_set():
                raise
            say("stopped before it ran")
            StatusFile(loaded).state("stopped")
            return 0


def run(loaded: Loaded, master: str, package: bool, stop: threading.Event, lock: StateLock, stages: Stages) -> int:
    """Run the pipeline in its own Spark session; return the exit status."""
    spark = session(loaded, master, package, loaded.state / "spark.log")
    stages.end("Spark's session")
    # Spark's session installs its own signal handler.
    catch_signals(stop)
    from pyspark_folkmoot.pipeline.engine import run_pipeline

    try:
        return run_pipeline(spark, loaded, say, stop, lock, stages)
    finally:
        end_session(spark)


@pipeline.command("check")
@file_argument
@syntax_option
def check(file: Path, syntax: bool) -> int:
    """Check the pipeline without starting it, and print every fault with its line (status 2)."""
    loaded = load(file)
    if not syntax:
        from pyspark_folkmoot.pipeline.reach import check_streams

        with faults_told(loaded):
            silent = check_streams(loaded)
        if silent:
            say(f"the streams were not checked: {silent}")
        analysed(loaded)
    counts = f"{len(loaded.graph.views)} views, {len(loaded.model.sinks)} sinks"
    print(f"{file}: pipeline {loaded.model.name} is valid: {counts}" + (" (without columns and SQL)" if syntax else ""))
    return 0


@pipeline.command("explain")
@file_argument
@syntax_option
def explain(file: Path, syntax: bool) -> int:
    """Print what will run: sources, views, steps and sinks, with columns, checkpoints and expectations."""
    loaded = load(file)
    from pyspark_folkmoot.pipeline.explain import explain as text_of

    print(text_of(loaded, None if syntax else analysed(loaded)))
    return 0


@pipeline.command("status")
@file_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(file: Path, as_json: bool) -> int:
    """Show what the pipeline has done and how far it is behind, without Spark."""
    loaded = load(file)
    from pyspark_folkmoot.pipeline.report import report, report_text

    with faults_told(loaded):
        found = report(loaded)
    if found is None:
        raise Refusal(f"the pipeline has not run yet: there is no status in {loaded.state}", 1)
    print(json.dumps(found, indent=1) if as_json else report_text(found))
    return 1 if found["run"]["state"] in ("failed", "killed") else 0


@pipeline.command("backfill")
@file_argument
@click.option("--sink", required=True, help="The Delta sink whose table is rebuilt.")
@click.option("--from", "start", help="Start: earliest or a TIME; without it, the start of the source.")
@click.option("--to", "end", help="End: a TIME, from which the pipeline continues.")
@master_option
def backfill_command(file: Path, sink: str, start: str | None, end: str | None, master: str | None) -> int:
    """Rebuild the table of a sink from the stream with a new checkpoint, and replace the old table."""
    from pyspark_folkmoot.pipeline.backfill import backfill, backfill_lock, check_range, sink_of

    loaded = load(file)
    check_range(start, end)
    with faults_told(loaded):
        sink_of(loaded, sink)
    with faults_told(loaded), backfill_lock(loaded) as lock:
        spark = session(loaded, master or loaded.model.spark.master, False, loaded.state / "spark.log")
        try:
            return backfill(spark, loaded, sink, start, end, lambda text: say(loaded.masked(text)), lock)
        finally:
            end_session(spark)


@pipeline.command("prepare")
@click.option("--force", is_flag=True, help="Write the file anew.")
def prepare(force: bool) -> int:
    """Store Spark's classes in a file (170 MB), so that all later drivers of this environment start faster."""
    try:
        from pyspark_folkmoot.class_archive import archive_file, write_archive
        from pyspark_folkmoot.java import java_home
    except ImportError as error:
        raise Refusal(f"{error.name} is missing: {INSTALL}") from None
    with faults_told():
        found = archive_file(java_home())
        if found is not None and not force:
            print(f"Spark's classes are in {found}")
            return 0
        with spark_log(None):
            found = write_archive()
    print(f"Spark's classes are in {found} ({found.stat().st_size >> 20} MB)")
    return 0


def load(file: Path) -> Loaded:
    """Return the pipeline in `file`; on faults, print all of them on stderr and exit with status 2."""
    try:
        from pyspark_folkmoot.pipeline.loading import load_pipeline
    except ImportError as error:
        raise Refusal(f"{error.name} is missing: {INSTALL}") from None
    with faults_told():
        return load_pipeline(file)


@contextmanager
def faults_told(loaded: Loaded | None = None) -> Iterator[None]:
    """Print faults as compilers do, `FILE:LINE: TEXT`, and exit with status 2; mask secrets in every text."""
    from pyspark_folkmoot.option import OptionError
    from pyspark_folkmoot.pipeline.fault import Faults, PipelineProblem

    masked = str if loaded is None else loaded.masked
    try:
        yield
    except Faults as faults:
        print(masked(str(faults)), file=sys.stderr)
        raise SystemExit(2) from None
    except Refusal:
        raise
    except (FolkmootError, OptionError) as error:
        raise PipelineProblem(masked(str(error))) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        raise PipelineProblem(masked(f"{where}{error.strerror or error}")) from None


def analysed(loaded: Loaded) -> Any:
    """Return the result of Spark's analyzer, from a local session, wherever the pipeline runs."""
    from pyspark_folkmoot.pipeline.analyse import analyse, known_schemas

    with faults_told(loaded):
        schemas = known_schemas(loaded, pin=False)
        spark = session(loaded, "local[1]", False, short=True)
        try:
            return analyse(spark, loaded, schemas)
        finally:
            end_session(spark)


@contextmanager
def spark_log(log: Path | None) -> Iterator[None]:
    """Let the Java process that starts inside this context write its log into a file, for its whole life."""
    sys.stderr.flush()
    if log is not None and log.exists():
        log.replace(log.with_name(f"{log.name}.1"))
    ours = os.dup(2)
    file = log.open("wb") if log is not None else tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    try:
        os.dup2(file.fileno(), 2)
        yield
    except BaseException:
        os.dup2(ours, 2)
        print(f"Spark's log is {log}" if log is not None else said_by(file), file=sys.stderr)
        raise
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        file.close()


def said_by(file: IO[bytes]) -> str:
    """Return the end of what a process has written into a file."""
    with os.fdopen(os.dup(file.fileno()), "rb") as copy:
        copy.seek(0)
        return copy.read()[-2000:].decode("utf-8", "replace")


def session(loaded: Loaded, master: str, package: bool, log: Path | None = None, short: bool = False) -> SparkSession:
    """Return a session with the settings of the pipeline; Spark's log goes into the file `log`, or nowhere.

    short: the session ends soon, so Java should start quickly and need not run fast.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from pyspark_folkmoot.session import JAVA_OPTIONS, SHORT_LIVED, spark_session
    except ImportError as error:
        raise Refusal(
            f"{error.name} is missing, but this command needs Spark: {INSTALL} (not needed with `--syntax`)"
        ) from None
    from pyspark_folkmoot.master import NoMaster, check_master
    from pyspark_folkmoot.pipeline.package import add_folder, add_package

    try:
        check_master(master)
    except NoMaster as error:
        raise Refusal(f"--master: {error}") from None
    conf = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in loaded.model.spark.conf.items()
    }
    if short:
        conf.setdefault(JAVA_OPTIONS, SHORT_LIVED)
    # Steps use modules beside the file: the workers import them as the driver does.
    add_folder(loaded.folder)
    # Its messages are reported in clearer words, and are in the error log.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    try:
        with spark_log(log):
            spark = spark_session(loaded.model.name, master, conf)
    except (Py4JError, PySparkException) as error:
        raise Refusal(f"Spark did not start: {why_not(error, log)}", 1) from None
    if package:
        add_package(spark)
    return spark


def why_not(error: Exception, log: Path | None) -> str:
    """Return why there is no session: the innermost cause in Java, or the first error in Spark's log."""
    text = str(error)
    causes = re.findall(r"^Caused by: (?:[\w.$]+: )?(.*)", text, re.MULTILINE)
    if causes:
        return str(causes[-1])
    said = "" if log is None else log.read_text(encoding="utf-8", errors="replace")
    faults = re.findall(r"^(?:\S+ \S+ ERROR |Error: |(?=Invalid ))(.*)", said, re.MULTILINE)
    return str(faults[0]) if faults else text.splitlines()[0]


def end_session(spark: SparkSession) -> None:
    """Stop Spark; a session without its Java process has stopped already."""
    try:
        spark.stop()
    except Exception:  # noqa: BLE001 - nothing is left to stop
        return


def catch_signals(stop: threading.Event) -> None:
    """Let Ctrl-C and SIGTERM end the run between batches; a second signal ends it at once."""

    def end(number: int, _frame: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def say(text: str) -> None:
    """Print a line of the run's log on stderr."""
    print(text, file=sys.stderr, flush=True)
