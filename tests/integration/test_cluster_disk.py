"""The disk of one node of a cluster fills up while a fleet of clients goes on, and has room again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.mqtt.packet import Ack, Publish
from tests.integration.cluster_fleet import Fleet
from tests.integration.cluster_rig import ASK_S, Rig
from tests.integration.serving import RawClient, await_true
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


def keep(rig: Rig, through: str, size: int = 1) -> list[str]:
    """Publish forty retained messages; why some were refused."""
    found = []
    with RawClient(rig.nodes[through]) as client:
        client.connect("keeper", clean=True, session_s=0)
        for number in range(1, 41):
            client.send(Publish(b"kept/%d" % number, b"m" * size, 1, True, False, number))
            answer = client.receive()
            assert isinstance(answer, Ack)
            if answer.code >= 0x80:
                assert answer.properties is not None
                found.append(f"{answer.code:#x} {answer.properties.reason}")
    return found


def disks(rig: Rig, asked: str) -> tuple[list[str], int, int]:
    """The full disks that a node names, how many partitions refuse, and how many the second node leads."""
    status = rig.nodes[asked].answer("/api/v1/status")
    leads = {node["id"]: node["leads"] for node in status["nodes"]}
    return status["disks_full"], status["partitions"]["refusing"], leads["n2"]


def test_others_lead_what_a_full_disk_leads_and_nothing_is_refused(rig: Rig, small_disk: Path) -> None:
    filler = fill(small_disk, 50 << 20)
    refusals: set[str] = set()
    telling: set[str] = set()

    def everybody_told() -> bool:
        """Before others lead what the full disk leads, it is refused, and every node tells so."""
        refusals.update(keep(rig, "n1"))
        telling.update(name for name in set(rig.names) - telling if disks(rig, name)[1] > 0)
        return bool(refusals) and telling == set(rig.names)

    await_true(everybody_told)
    assert refusals == {"0x97 no room on the disk of n2"}
    await_true(lambda: all(disks(rig, name) == (["n2"], 0, 0) for name in rig.names), 20.0, ASK_S)
    for name in rig.names:
        assert keep(rig, name) == []
    assert not rig.lacks()
    filler.unlink()
    await_true(lambda: disks(rig, "n1")[0] == [] and disks(rig, "n1")[2] > 0, 30.0, ASK_S)
    rig.await_whole()
    assert keep(rig, "n3") == []


def test_a_node_whose_reserve_is_used_up_is_out_until_it_has_room(rig: Rig, small_disk: Path) -> None:
    filler = fill(small_disk, 1 << 20)
    await_true(lambda: all(disks(rig, name) == (["n2"], 0, 0) for name in rig.names), 20.0, ASK_S)
    assert keep(rig, "n1", 100_000) == []  # the last copies wait until it is out
    rig.await_out("n2", 15.0)
    status = rig.nodes["n1"].answer("/api/v1/status")
    assert [(node["id"], node["state"]) for node in status["nodes"] if node["disk_full"]] == [("n2", "away")]
    assert keep(rig, "n3", 100_000) == []
    filler.unlink()
    rig.await_whole(40.0)
    await_true(lambda: disks(rig, "n1")[2] > 0, 20.0, ASK_S)
    log = rig.nodes["n2"].log()
    assert "replica_dropped" not in log
    assert log.count("storage_full ") == log.count("storage_has_room") == 1
