"""The first batch of a query that publishes: the other queries wait for it, but not for long."""

from __future__ import annotations

import threading
import time

import pytest

from pyspark_folkmoot.pipeline import wait


class Query:
    """A query that is in its first batch until it was looked at a few times."""

    isActive = True  # noqa: N815 - Spark's name

    def __init__(self, looks: int, idle: bool = False) -> None:
        self.left = looks
        self.idle = idle

    @property
    def lastProgress(self) -> dict[str, int] | None:  # noqa: N802 - Spark's name
        self.left -= 1
        return {"batchId": 7} if self.left < 0 and not self.idle else None

    @property
    def status(self) -> dict[str, object]:
        return {"message": "Processing new data", "isTriggerActive": self.left >= 0}


@pytest.mark.parametrize("idle", [False, True])
def test_the_others_wait_for_the_first_batch_of_a_query_that_publishes(
    idle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    wait.first_batch(Query(3, idle), threading.Event())  # type: ignore[arg-type]
    assert len(waits) == 3


def test_a_stop_or_a_long_first_batch_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    query = Query(1000)
    wait.first_batch(query, threading.Event())  # type: ignore[arg-type]
    assert query.left == 1000 - (wait.FIRST_S - 1), "one look a second, for a minute"
    stop = threading.Event()
    stop.set()
    wait.first_batch(query, stop)  # type: ignore[arg-type]
    assert query.left == 1000 - (wait.FIRST_S - 1)
