"""The disk of one node of a cluster fills up while a fleet of clients goes on, and has room again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster_fleet import Fleet
from tests.integration.cluster_rig import Rig
from tests.integration.serving import await_true
from tests.integration.small_disk import mounted
from tests.integration.test_disk import fill

SIZE = 192 << 20
LEFT = 10 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own for one node; the least free space that a node insists on is 64 MiB."""
    with mounted(tmp_path / "disk", SIZE) as place:
        yield place


@pytest.fixture
def rig(tmp_path: Path, small_disk: Path) -> Iterator[Rig]:
    with Rig(tmp_path, 3, disks={"n2": small_disk}) as found:
        yield found


@pytest.fixture
def fleet(rig: Rig, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(rig.door, tmp_path, may_refuse=True) as found:
        found.flow()
        yield found


def test_a_full_disk_costs_nothing_that_was_acknowledged(rig: Rig, fleet: Fleet, small_disk: Path) -> None:
    node = rig.nodes["n2"]
    filler = fill(small_disk, LEFT)
    await_true(lambda: "storage_full" in node.log())
    fleet.run(3.0)
    filler.unlink()
    await_true(lambda: "storage_has_room" in node.log())
    fleet.flow()
    rig.await_whole()
    fleet.expect_no_fault()


def test_kill_9_of_a_node_with_a_full_disk(rig: Rig, fleet: Fleet, small_disk: Path) -> None:
    filler = fill(small_disk, LEFT)
    await_true(lambda: "storage_full" in rig.nodes["n2"].log())
    fleet.run(1.0)
    rig.kill("n2")
    fleet.flow()
    filler.unlink()
    rig.start("n2")
    fleet.flow()
    rig.await_whole()
    fleet.expect_no_fault()
