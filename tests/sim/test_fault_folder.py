"""When folders of different moments come back together: only where one copy is neither set back nor late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from folkmoot.kernel.rng import Rng
from folkmoot.sim.fault_folder import FolderFaults
from folkmoot.sim.fault_link import LinkFaults
from folkmoot.sim.trace import Trace
from folkmoot.sim.trouble import Trouble
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


@pytest.mark.parametrize("exhausted", [False, True])
@pytest.mark.parametrize("blank", [False, True])
def test_no_link_is_cut_while_a_copy_that_was_set_back_may_need_it(exhausted: bool, blank: bool) -> None:
    hosts: list[Any] = [SimpleNamespace(name=name, node=object(), member=True, blank=False) for name in ("n1", "n2")]
    hosts[0].blank = blank
    trouble: Any = SimpleNamespace(exhausted=exhausted, majority=False, split=lambda: None)
    cuts: list[str] = []
    mesh: Any = SimpleNamespace(cut=lambda one, two: cuts.append(one.name), mend=lambda one, two: None)
    for draw in ("change", "stand"):
        links: Any = LinkFaults(World(1, Trace()), Rng(1), SimpleNamespace(hosts=hosts), trouble, mesh)  # type: ignore[arg-type]
        links._flap = lambda _number, drawn, _period: cuts.extend([one for one, _two in drawn])
        getattr(links, draw)()
    assert bool(cuts) != (exhausted and blank)


@pytest.mark.parametrize("another", [False, True])
def test_a_disk_that_is_to_be_emptied_later_is_not_if_another_was_lost_meanwhile(another: bool) -> None:
    """With min_in_sync = 2 what was acknowledged is on two disks: one of them may be lost, not both."""
    world = World(1, Trace())
    hosts: list[Any] = [
        SimpleNamespace(name=name, node_id=name, node=None, up=False, member=True, witness=False, blank=False)
        for name in ("n1", "n2", "n3")
    ]
    trouble = Trouble(world, hosts, copies=2, least=2)
    trouble.weaken(hosts[1:])
    assert list(trouble.weak) == ["n2", "n3", "n1"]
    hosts[0].blank = another
    faults: Any = FolderFaults(world, Rng(1), SimpleNamespace(hosts=hosts), trouble, SimpleNamespace(), False)  # type: ignore[arg-type]
    emptied: list[str] = []
    faults._change_folder = lambda host, copy: emptied.append(host.name)
    faults._empty_later(hosts[1], hosts[2:])
    assert emptied == ([] if another else ["n2"])
