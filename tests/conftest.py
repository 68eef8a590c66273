"""What every test run shares: which half of the code it tests, said at its start, and never a stale compiled one."""

from __future__ import annotations

import gc
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from folkmoot.cli.version import is_compiled, stale_sources, version_line
from pyspark_folkmoot.spark_home import spark_home
from tests.harness.fixture import box, make
from tests.harness.selection import (
    changed_files,
    changed_packages,
    in_order,
    is_pure,
    package_of,
    soak_reason,
)
from tests.harness.soak import SOAK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["box", "make"]

ROOT = Path(__file__).resolve().parent.parent

# What tests write may be a secret, which a node refuses if others can read it. Git keeps no such permissions.
os.umask(0o077)
for key in (ROOT / "tests" / "integration" / "certificates").glob("*.key"):
    if key.stat().st_mode & 0o077:
        key.chmod(0o600)

# Folders whose tests take long, in the order in which they begin: two workers end at about the same time then.
LONG = {"e2e": 0, "pyspark_folkmoot": 1, "sim": 2, "integration": 3, "jepsen": 4}

# A run is the same run every time; FOLKMOOT_FUZZ=10 searches ten times as long, with fresh examples.
FUZZ = int(os.environ.get("FOLKMOOT_FUZZ", "0"))
hypothesis.settings.register_profile("project", deadline=None, derandomize=not FUZZ, max_examples=100 * max(FUZZ, 1))
hypothesis.settings.load_profile("project")

# Half of the processor time of a short Spark program goes into the optimising compiler of the JVM, which pays off only
# in programs that run for minutes. Every Spark that a test starts, in whatever process, does without it.
# Its code cache is not the smaller one that Java takes then: the shared Spark would fill that.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
EXECUTORS = f'"-Dspark.executor.extraJavaOptions={SHORT_LIVED}"'
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{SHORT_LIVED} {EXECUTORS}")
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", SHORT_LIVED)

# Sessions that tests make without `spark_session` have quick Python workers too.
QUICK_HOME = spark_home()
if QUICK_HOME is not None:
    os.environ.setdefault("SPARK_HOME", str(QUICK_HOME))

# For every file of a checkpoint Spark's own choice starts processes (chmod, readlink): a sixth of the processor time of
# a query. Drivers that tests start and kill have Spark's own choice.
CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}

# The reports sort and join a few rows many times: to plan them anew after each step, and to compile each expression,
# would take most of the time.
FEW_ROWS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the Makefile's targets; they go together with any paths and with -k and -m."""
    group = parser.getgroup("folkmoot")
    group.addoption("--pure-half", action="store_true", help="only tests of the pure half")
    group.addoption("--inner-loop", action="store_true", help="no slow tests; those of changed modules first")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import tests of other parts when the pure half is wanted and no paths are given."""
    if collection_path.parent != ROOT / "tests" or not collection_path.is_dir():
        return None
    given = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    return None if given or in_half(config, collection_path.name) else True


def in_half(config: pytest.Config, package: str) -> bool:
    """Whether a run takes the tests of a folder."""
    if not config.getoption("--pure-half") or is_pure(package):
        return True
    return bool(config.getoption("--inner-loop")) and package in changed_packages(changed_files()) - LONG.keys()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect without looking for garbage: of millions of objects none is any, and each look costs more than the last.

    What is there afterwards stays to the end of the run; no later look needs to see it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Let what was collected end like everything else."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `make soak` runs and what the options leave out; what takes long begins first."""
    inner_loop = config.getoption("--inner-loop")
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))  # one worker has the one Spark
        elif package_of(item.path) == "e2e" and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.xdist_group("drivers"))  # processes with a Spark each: one at a time

    def wanted(item: pytest.Item) -> bool:
        package = package_of(item.path)
        if not in_half(config, package) or (inner_loop and item.get_closest_marker("slow")):
            return False
        changed = inner_loop and package in changed_packages(changed_files())
        return SOAK or changed or item.nodeid in config.args or not soak_reason(item, is_compiled())

    chosen = [item for item in items if wanted(item)]
    if len(chosen) < len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    if inner_loop:
        items[:] = in_order(chosen, changed_files())
    else:
        items[:] = sorted(chosen, key=lambda item: LONG.get(package_of(item.path), len(LONG)))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """No test of the pure half among those that were named is no fault; without any names there must be some."""
    config = session.config
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    chosen = named or config.getoption("keyword") or config.getoption("markexpr")
    if chosen and config.getoption("--pure-half") and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files are what workers take, groups where tests have one, and single tests of the simulator."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            test, _, group = nodeid.rpartition("@")
            if test and "]" not in group:
                return group
            return nodeid if nodeid.startswith("tests/sim/") else nodeid.split("::", maxsplit=1)[0]

    config.option.loadscopereorder = False  # the order is that of the collection
    return Scheduling(config, log)


def pytest_report_header() -> str:
    """Say version, Python, compiled or pure."""
    return version_line()


def pytest_sessionstart() -> None:
    """Refuse to test native modules that are older than their sources; let child processes be interrupted."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it runs in the background like this, and children would inherit it: Ctrl-C is tested.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    stale = stale_sources()
    if stale:
        raise pytest.UsageError(
            f"{stale[0]} has changed since it was compiled: run `make build`, or set PYTHONPATH=src"
        )


@pytest.fixture(scope="session")
def source_path() -> Path:
    """The PYTHONPATH under which a child process runs interpreted."""
    return ROOT / "src"


@pytest.fixture(scope="session")
def native_path() -> Path:
    """The PYTHONPATH under which a child process runs compiled; skips where the compiled tree is not there."""
    path = ROOT / "build" / "native"
    if not (path / "native-sources.txt").is_file():
        pytest.skip("the compiled tree is not built: run `make build` (it needs a C compiler)")
    return path


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[SparkSession]:
    """The one Spark of a run: starting one takes ten times as long as most tests of it."""
    from pyspark_folkmoot import spark_session

    session = spark_session("tests", master="local[2]", conf={"spark.sql.shuffle.partitions": "2", **CHECKPOINTS})
    yield session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its sockets; the test that happens to be the last one may have none
        session.stop()


@pytest.fixture(scope="module")
def few_rows(spark: SparkSession) -> Iterator[None]:
    """Settings of the shared Spark for the tests of the reports."""
    before = {key: spark.conf.get(key) for key in FEW_ROWS}
    for key, value in FEW_ROWS.items():
        spark.conf.set(key, value)
    yield
    for key, old in before.items():
        spark.conf.set(key, str(old))


@pytest.fixture(scope="module")
def spark(shared_spark: SparkSession) -> Iterator[SparkSession]:
    """The shared Spark; what a file of tests has left in it (queries, views, tables in memory) does not stay."""
    yield shared_spark
    for query in shared_spark.streams.active:
        query.stop()
    for table in shared_spark.catalog.listTables():
        if table.isTemporary:
            shared_spark.catalog.dropTempView(table.name)
    shared_spark.catalog.clearCache()
