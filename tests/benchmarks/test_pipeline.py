"""What the section about pipelines reads off a table: when each row could be seen."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the extra spark is not installed")


def test_each_row_waits_from_its_message_to_the_commit_that_has_it(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    from benchmarks.pipeline import delays

    kind = pa.timestamp("us", tz="UTC")
    start = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
    taken = [[start + dt.timedelta(seconds=second) for second in seconds] for seconds in ((0, 1), (2, 3))]
    for number, times in enumerate(taken):
        write_deltalake(str(tmp_path), pa.table({"timestamp": pa.array(times, kind)}), mode="append")
        seen_s = start.timestamp() + 5 * (number + 1)
        os.utime(tmp_path / "_delta_log" / f"{number:020}.json", (seen_s, seen_s))
    assert sorted(delays(tmp_path, int(start.timestamp() * 1e6))) == [4000, 5000, 7000, 8000]
    assert sorted(delays(tmp_path, int(start.timestamp() * 1e6) + 1)) == [4000, 7000, 8000]
