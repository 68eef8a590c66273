"""The budget of a process follows from its machine and its control groups, and its memory is measured."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from folkmoot.kernel.limits import AUTO_BYTES
from folkmoot.node import Node, NodeConfig
from folkmoot.runtime.clock import Clock
from folkmoot.runtime.loop import Turns
from folkmoot.runtime.memory import AUTO_PERCENT, MemoryWatch, available_bytes, budget_of
from folkmoot.store.memory import MemoryStore

GB = 1 << 30


class Machine:
    """The files of a kernel."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.groups = folder / "cgroup"
        self.write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1000 kB\n")  # 16 GB
        self.root = folder

    def write(self, name: str, text: str) -> None:
        file = self.proc.parent / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def available(self) -> int:
        return available_bytes(self.proc, self.groups)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_without_groups_has_what_it_has(machine: Machine) -> None:
    assert machine.available() == 16 * GB
    assert budget_of(AUTO_BYTES, machine.proc, machine.groups) == 16 * GB * AUTO_PERCENT // 100


@pytest.mark.parametrize(("total_mb", "budget_mb"), [(100, 90), (256, 230), (300, 256), (426, 256), (1000, 600)])
def test_a_small_machine_gives_a_larger_part(machine: Machine, total_mb: int, budget_mb: int) -> None:
    machine.write("proc/self/cgroup", "0::/\n")
    machine.write("cgroup/memory.max", f"{total_mb << 20}\n")
    assert budget_of(AUTO_BYTES, machine.proc, machine.groups) >> 20 == budget_mb


def test_a_setting_counts_as_it_is(machine: Machine) -> None:
    assert budget_of(0, machine.proc, machine.groups) == 0
    assert budget_of(64 * GB, machine.proc, machine.groups) == 64 * GB


def test_the_smallest_group_around_the_process_counts_in_version_2(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/system.slice/broker.service\n")
    machine.write("cgroup/system.slice/broker.service/memory.max", "max\n")
    assert machine.available() == 16 * GB
    machine.write("cgroup/system.slice/memory.max", f"{4 * GB}\n")
    assert machine.available() == 4 * GB
    machine.write("cgroup/system.slice/broker.service/memory.high", f"{3 * GB}\n")
    assert machine.available() == 3 * GB
    machine.write("cgroup/system.slice/broker.service/memory.max", f"{2 * GB}\n")
    assert machine.available() == 2 * GB


def test_within_a_container_its_group_is_the_root(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/\n")
    machine.write("cgroup/memory.max", f"{GB}\n")
    assert machine.available() == GB
    machine.write("proc/self/cgroup", "0::/../../outside\n")  # as seen from another namespace
    assert machine.available() == GB


def test_version_1_has_other_names_and_a_huge_number_for_no_limit(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "12:cpu,cpuacct:/a\n7:memory:/docker/abc\n1:name=systemd:/b\n")
    machine.write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert machine.available() == 16 * GB
    machine.write("cgroup/memory/docker/abc/memory.limit_in_bytes", f"{5 * GB}\n")
    assert machine.available() == 5 * GB


def test_a_system_that_tells_nothing_sets_no_limit(tmp_path: Path) -> None:
    assert budget_of(AUTO_BYTES, tmp_path / "none", tmp_path / "nothing") == 0


def test_this_machine_has_a_budget() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < budget_of(AUTO_BYTES) <= total * AUTO_PERCENT // 100


def node_with(budget: int, clock: Clock) -> Node:
    config = NodeConfig()
    config.limits.memory_bytes_max = budget
    config.limits.sys_interval_us = 0
    node = Node(config, MemoryStore(), 1)
    node.open(clock.read())
    return node


async def run(budget: int) -> Turns:
    clock = Clock()
    turns = Turns(node_with(budget, clock), asyncio.get_running_loop(), clock)
    turns.submit = lambda _batch: None
    watch = MemoryWatch(turns)
    watch.start()
    for _ in range(3):
        ready = turns.loop.create_future()
        turns.loop.call_soon(ready.set_result, None)
        await ready
    watch.stop()
    watch.stop()  # again: it is idempotent
    turns.stop_timers()
    return turns


def test_the_node_is_told_what_the_process_has() -> None:
    turns = asyncio.run(run(100 * GB))
    resident = resident_bytes()
    assert resident // 2 < turns.node.counters.memory_bytes < 2 * resident


def test_a_process_that_is_larger_than_its_budget_is_short_of_memory() -> None:
    """Nothing can be freed here, and the node goes on."""
    turns = asyncio.run(run(1 << 20))
    assert turns.node.counters.memory_stage == 2
    assert turns.node.counters.memory_dropped_clients == 0


def test_without_a_budget_nothing_is_measured() -> None:
    turns = asyncio.run(run(0))
    assert turns.node.counters.memory_stage == 0
    assert turns.node.counters.memory_bytes < 1 << 20


def test_memory_that_is_free_again_keeps_nobody_out() -> None:
    """The allocator keeps what the process has freed: it is given back before clients are refused because of it."""
    blobs = [bytes(1000) for _ in range(100_000)]
    last = blobs[-1]  # nothing before it goes back to the system by itself
    before = resident_bytes()
    del blobs
    turns = asyncio.run(run(before * 100 // 90))
    assert len(last) == 1000
    assert turns.node.counters.memory_stage == 0
    assert turns.node.counters.memory_bytes < before - 50_000_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
