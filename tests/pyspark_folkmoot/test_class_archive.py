"""The archive of Spark's classes: used when it fits, ignored when somebody else could have written it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_folkmoot import class_archive
from pyspark_folkmoot.class_archive import NoArchive, archive_file, archive_option, write_archive
from pyspark_folkmoot.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without an archive, and a home without one; the folder of the environment's archive."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = tmp_path / "environment" / "share" / "folkmoot-java"
    made.mkdir(parents=True)
    return made


def written(folder: Path, mode: int = 0o600) -> Path:
    """A file in the place of the archive."""
    file = folder / class_archive._name(None)
    file.write_bytes(b"classes")
    file.chmod(mode)
    return file


def test_without_an_archive_java_gets_no_option(folder: Path) -> None:
    assert archive_option(None) == ""


def test_an_archive_in_the_environment_is_used(folder: Path) -> None:
    file = written(folder)
    assert archive_file(None) == file
    assert f'"-XX:SharedArchiveFile={file}"' in archive_option(None)


def test_an_archive_at_home_serves_an_environment_that_is_read_only(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home" / ".cache" / "folkmoot-java"
    home.mkdir(parents=True)
    file = written(home)
    assert archive_file(None) == file


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_an_archive_that_others_can_write_is_ignored(folder: Path, mode: int) -> None:
    written(folder, mode)
    assert archive_file(None) is None


def test_other_jars_need_another_archive(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(folder)
    spark = tmp_path / "spark"
    (spark / "jars").mkdir(parents=True)
    (spark / "bin").mkdir()
    (spark / "bin" / "spark-submit").touch()
    monkeypatch.setenv("SPARK_HOME", str(spark))
    assert archive_file(None) is None


def test_java_maps_the_archive(spark: SparkSession) -> None:
    file = archive_file(java_home())
    if file is None:
        pytest.skip("Spark's classes are not stored: run `make classes`")
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    assert str(file) in Path(f"/proc/{java}/maps").read_text(encoding="utf-8")


def test_a_process_with_a_session_cannot_write_one(spark: SparkSession) -> None:
    with pytest.raises(NoArchive, match="use a new process"):
        write_archive()
