"""Options: every wrong one names itself and lists the valid ones."""

from __future__ import annotations

import pickle

import pytest

from pyspark_folkmoot.option import OptionError
from pyspark_folkmoot.plan import VALID, Plan

GOOD = {"url": "127.0.0.1:1", "stream": "s"}


def test_all_options_are_read() -> None:
    plan = Plan(
        {
            "URL": "http://a:1, b:2",
            "stream": "s",
            "token": "t",
            "startingoffsets": '{"0": 5, "1": 7}',
            "endingOffsets": "latest",
            "maxRecordsPerTrigger": "10",
            "minPartitions": "4",
            "failOnDataLoss": "False",
            "topicPrefix": "a/",
            "partitions": "0,2-4",
            "columns": "payload, topic",
            "patienceSeconds": "0",
        }
    )
    assert plan.urls == ["http://a:1", "http://b:2"]
    assert (plan.stream, plan.token, plan.starting, plan.ending) == ("s", "t", {0: 5, 1: 7}, "latest")
    assert (plan.rows_max, plan.tasks_min, plan.fail_on_data_loss, plan.patience_s) == (10, 4, False, 0)
    assert (plan.topic_prefix, plan.only, plan.columns) == ("a/", [0, 2, 3, 4], ("topic", "payload"))


def test_defaults() -> None:
    plan = Plan(GOOD)
    assert (plan.token, plan.starting, plan.rows_max, plan.tasks_min, plan.fail_on_data_loss) == (
        None,
        None,
        None,
        1,
        True,
    )
    assert len(plan.columns) == 12


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("url", ""),
        ("url", "ftp://x"),
        ("stream", " "),
        ("startingOffsets", "begin"),
        ("startingOffsets", "{}"),
        ("startingOffsets", '{"0": -1}'),
        ("startingOffsets", '{"0": true}'),
        ("startingOffsets", '{"a": 1}'),
        ("endingOffsets", "earliest"),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "2026-03-01T12:00:00"),
        ("maxRecordsPerTrigger", "0"),
        ("minPartitions", "few"),
        ("failOnDataLoss", "no"),
        ("partitions", "1-"),
        ("columns", "topic,colour"),
        ("columns", ","),
        ("patienceSeconds", "-1"),
    ],
)
def test_a_wrong_value_names_the_option_and_lists_all(name: str, value: str) -> None:
    with pytest.raises(OptionError) as error:
        Plan({**GOOD, name: value})
    assert f"option '{name}'" in str(error.value)
    assert ", ".join(VALID) in str(error.value)


def test_a_wrong_name_gets_a_suggestion() -> None:
    with pytest.raises(OptionError, match=r"no option 'startingoffset'; did you mean 'startingOffsets'\?.*topicPrefix"):
        Plan({**GOOD, "startingoffset": "latest"})
    with pytest.raises(OptionError, match="no option 'xyz'; valid options: url"):
        Plan({**GOOD, "xyz": "1"})


def test_what_is_missing_is_named() -> None:
    with pytest.raises(OptionError, match=r"option 'stream'.*is required"):
        Plan({"url": "a:1"})


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_offsets_and_time_exclude_each_other(side: str) -> None:
    with pytest.raises(OptionError, match=f"'{side}Offsets'.*'{side}Timestamp' exclude"):
        Plan({**GOOD, f"{side}Offsets": "latest", f"{side}Timestamp": "2026-01-01"})


def test_a_plan_travels_without_its_connections() -> None:
    plan = Plan(GOOD)
    client = plan.client()
    copy = pickle.loads(pickle.dumps(plan))
    assert copy.client() is not client
    assert copy.urls == plan.urls
