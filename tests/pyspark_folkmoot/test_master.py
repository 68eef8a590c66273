"""Names of Spark's masters: what there is passes, all else is refused with what to write."""

from __future__ import annotations

import pytest

from pyspark_folkmoot.master import NoMaster, check_master


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[4]",
        "local[*]",
        "local[2,3]",
        "local[*, 3]",
        "local-cluster[2,1,1024]",
        "spark://10.0.0.1:7077",
        "spark://a:7077,b:7077",
        "yarn",
        "k8s://https://10.0.0.1:6443",
    ],
)
def test_masters_of_spark(master: str) -> None:
    assert check_master(master) == master


@pytest.mark.parametrize("master", ["", "locl[*]", "local[]", "local[-1]", "spark://10.0.0.1", "k8s://", "mesos://a:1"])
def test_what_is_none_is_told_with_what_there_is(master: str) -> None:
    with pytest.raises(NoMaster, match="spark://HOST:PORT"):
        check_master(master)


def test_connect_is_told_apart() -> None:
    with pytest.raises(NoMaster, match="is Spark Connect"):
        check_master("sc://localhost:15002")
