"""The meter of a process: this one, and one that is not there."""

from __future__ import annotations

import os
import time

import pytest

from folkmoot.client.processmeter import ProcessMeter
from folkmoot.kernel.errors import FolkmootError


def test_cpu_time_is_that_of_the_process_clock() -> None:
    meter = ProcessMeter(os.getpid())
    before = time.process_time_ns()
    found = meter.read()
    after = time.process_time_ns()
    assert before <= found.cpu_ns <= after


def test_memory_grows_with_what_is_touched() -> None:
    meter = ProcessMeter(os.getpid())
    before = meter.read()
    block = b"x" * 64_000_000
    after = meter.read()
    assert after.resident_bytes - before.resident_bytes > 32_000_000
    assert after.resident_peak_bytes >= after.resident_bytes - 1_000_000
    assert len(block) == 64_000_000


def test_a_process_that_is_not_there_is_named() -> None:
    with pytest.raises(FolkmootError, match="4999999"):
        ProcessMeter(4_999_999)
