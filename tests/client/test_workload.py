"""Workloads as data: the seven that speed is judged by, and what numbers are refused."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.cli.bench import workload_of
from folkmoot.cli.error import Refusal
from folkmoot.client.workload import PERSISTENT, TRANSIENT, Span, Target, Workload, WorkloadError


def test_the_seven_workloads() -> None:
    seen = [(load.shape, load.qos, load.publishers, load.subscribers, load.window) for load in TRANSIENT]
    assert seen == [
        ("pairs", 0, 1, 1, 100),
        ("pairs", 0, 10, 10, 100),
        ("pairs", 0, 100, 100, 10),
        ("pairs", 0, 1000, 1000, 1),
        ("pairs", 1, 10, 10, 50),
        ("pairs", 2, 10, 10, 50),
        ("fan-out", 0, 1, 50, 100),
    ]
    assert {(load.payload_bytes, load.persistent, load.rate) for load in TRANSIENT} == {(64, False, 0.0)}
    assert {load.copies for load in TRANSIENT} == {1, 50}


def test_the_persistent_ones_differ_in_publishers_and_window_only() -> None:
    assert all(load.persistent and load.qos == 1 for load in PERSISTENT)
    assert [(load.window, load.publishers) for load in PERSISTENT] == [
        (window, count) for window in (1, 50) for count in (1, 10, 100)
    ]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"shape": "ring"}, "ring"),
        ({"qos": 3}, "qos"),
        ({"version": 3}, "version"),
        ({"window": 0}, "window"),
        ({"window": 16_385}, "window"),
        ({"payload_bytes": 11}, "payload"),
        ({"rate": -1.0}, "rate"),
        ({"publishers": 2}, "pairs"),
        ({"shape": "fan-in", "subscribers": 2}, "fan-in"),
        ({"shape": "fan-out", "publishers": 2}, "fan-out"),
        ({"shape": "idle"}, "connections"),
        ({"sample_every": 0}, "1"),
        ({"window": 100, "payload_bytes": 1_000_000}, "64 MiB"),
    ],
)
def test_a_wrong_number_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(WorkloadError, match=named):
        Workload("wrong", **fields)


@pytest.mark.parametrize("fields", [{"seconds": 0}, {"seconds": 3601}, {"messages": -1}, {"warmup_s": -1}])
def test_a_span_has_an_end(fields: dict[str, Any]) -> None:
    with pytest.raises(WorkloadError):
        Span(**fields)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("mqtt://h", Target("h", 1883)),
        ("h:7", Target("h", 7)),
        ("tcp://[::1]:7", Target("::1", 7)),
        ("mqtt://a%40b:c%3Ad@h:7", Target("h", 7, "a@b", "c:d")),
    ],
)
def test_a_url(url: str, target: Target) -> None:
    assert Target.parse(url) == target


@pytest.mark.parametrize("url", ["mqtts://h", "mqtt://", "mqtt://h:99999", "http://h"])
def test_a_wrong_url_is_named(url: str) -> None:
    with pytest.raises(WorkloadError, match=url):
        Target.parse(url)


@pytest.mark.parametrize(
    ("shape", "numbers", "rows"),
    [
        ("pairs", {"pairs": 3}, (3, 3, 0)),
        ("pairs", {}, (1, 1, 0)),
        ("fan-in", {"publishers": 4}, (4, 1, 0)),
        ("fan-out", {"subscribers": 5}, (1, 5, 0)),
        ("connect", {"connections": 6}, (1, 1, 6)),
        ("idle", {}, (1, 1, 1000)),
        ("retained", {}, (1, 1, 0)),
    ],
)
def test_flags_become_a_workload(shape: str, numbers: dict[str, int | None], rows: tuple[int, int, int]) -> None:
    load = workload_of(shape, numbers)
    assert (load.shape, (load.publishers, load.subscribers, load.connections)) == (shape, rows)


def test_a_flag_of_another_shape_is_refused() -> None:
    with pytest.raises(Refusal, match="--subscribers"):
        workload_of("fan-in", {"subscribers": 5})
    with pytest.raises(WorkloadError, match="pears"):
        workload_of("pears", {})


def test_a_load_at_a_rate_times_every_message() -> None:
    assert workload_of("pairs", {}).sample_every > 1
    assert workload_of("pairs", {}, rate=10.0).sample_every == 1
    assert workload_of("pairs", {}, rate=10.0, sample=5).sample_every == 5
