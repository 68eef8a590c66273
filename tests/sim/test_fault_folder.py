"""When folders of different moments come back together: only where one copy is neither set back nor late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from folkmoot.kernel.rng import Rng
from folkmoot.sim.fault_folder import FolderFaults
from folkmoot.sim.trace import Trace
from folkmoot.sim.world import World


@pytest.mark.parametrize(
    ("busy", "slow", "lacking", "restored"),
    [
        (False, {}, ["n1"], True),
        (True, {}, ["n1"], False),
        (False, {("n1", "n2"): 1}, ["n1"], False),
        (False, {}, ["n1", "n2"], False),
    ],
)
def test_a_folder_is_set_back_only_where_another_copy_is_there_at_once(
    busy: bool, slow: dict[tuple[str, str], int], lacking: list[str], restored: bool
) -> None:
    hosts: list[Any] = [SimpleNamespace(name=name, node=object(), member=True) for name in ("n1", "n2")]
    site: Any = SimpleNamespace(running=hosts, hosts=hosts)
    trouble: Any = SimpleNamespace(
        weak=dict.fromkeys(lacking, True),
        exhaust=lambda: None,
        fail=lambda _hosts: None,
        copies=2,
        note=lambda *_: None,
    )
    links: Any = SimpleNamespace(busy=busy, mesh=SimpleNamespace(slow_us=slow))
    faults: Any = FolderFaults(World(1, Trace()), Rng(1), site, trouble, links, False)
    found: list[str] = []
    faults._crash = lambda host: None
    faults.restore = lambda host, copy: found.append(host.name)
    faults._return_mixed(hosts[0], object())
    assert found == (["n1"] if restored else [])
