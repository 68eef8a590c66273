"""The home from which Python workers import the installed PySpark: made once, made anew when it does not fit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from pyspark_folkmoot.spark_home import spark_home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

PACKAGE = Path(str(pyspark.__file__)).parent


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without a home of Spark."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return tmp_path / "environment"


def made() -> Path:
    """The home, which must exist."""
    home = spark_home()
    assert home is not None
    return home


def test_it_has_everything_but_the_zip(environment: Path) -> None:
    home = made()
    assert home.is_relative_to(environment)
    assert (home / "jars").resolve() == (PACKAGE / "jars").resolve()
    assert (home / "bin" / "spark-submit").is_file()
    assert not (home / "python").exists()
    assert made() == home


def test_that_of_another_installation_is_replaced(environment: Path) -> None:
    home = made()
    (home / "jars").unlink()
    (home / "jars").symlink_to(environment)
    assert made() == home
    assert (home / "jars").resolve() == (PACKAGE / "jars").resolve()
    assert [path.name for path in home.parent.iterdir()] == ["spark-home"]


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_one_that_others_can_write_is_replaced(environment: Path, mode: int) -> None:
    home = made()
    home.chmod(mode)
    assert made() == home
    assert home.stat().st_mode & 0o022 == 0


def test_an_environment_that_is_read_only_has_it_in_the_home_of_the_user(environment: Path) -> None:
    environment.write_text("no folder")
    assert made().is_relative_to(environment.parent / "user" / ".cache")


def test_without_a_place_there_is_none(environment: Path) -> None:
    environment.write_text("no folder")
    (environment.parent / "user").write_text("no folder")
    assert spark_home() is None


def test_workers_import_the_installed_package(spark: SparkSession) -> None:
    def where(_batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyspark.worker

        yield pa.record_batch({"file": [str(pyspark.worker.__file__)]})

    (row,) = spark.range(1, numPartitions=1).mapInArrow(where, "file STRING").collect()
    assert Path(row["file"]).resolve().parent == PACKAGE.resolve()
