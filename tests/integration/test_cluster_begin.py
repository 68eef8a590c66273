"""How real nodes become a cluster, and come back to it: founding, a folder that was set back, a copied folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.mqtt.packet import Ack, Publish
from tests.integration.cluster_rig import ASK_S, Rig
from tests.integration.serving import RawClient, await_true


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path, 3) as found:
        yield found


def keep(rig: Rig, through: str, word: bytes) -> None:
    """Publish forty retained messages, each of which is acknowledged."""
    with RawClient(rig.nodes[through]) as client:
        client.connect("keeper", clean=True, session_s=0)
        for number in range(1, 41):
            client.send(Publish(b"kept/%d" % number, word, 1, True, False, number))
            answer = client.receive()
            assert isinstance(answer, Ack)
            assert answer.code < 0x80


def kept(rig: Rig, through: str) -> set[bytes]:
    """Return what is retained."""
    with RawClient(rig.nodes[through]) as client:
        client.connect("reader", clean=True, session_s=0)
        client.subscribe(b"kept/+", 0)
        found = [client.receive() for _ in range(40)]
    return {packet.payload for packet in found if isinstance(packet, Publish)}


def test_a_folder_that_is_set_back_comes_back_as_another_member(rig: Rig, tmp_path: Path) -> None:
    node = rig.nodes["n2"]
    keep(rig, "n1", b"old")
    rig.stop("n2")
    shutil.copytree(node.data, tmp_path / "backup")
    rig.start("n2")
    rig.await_whole()
    keep(rig, "n1", b"new")
    rig.kill("n2")
    for _ in range(2):  # the second time it is as old as the first time, and another member again
        told = node.log().count("disk_renewed ")
        shutil.rmtree(node.data)
        shutil.copytree(tmp_path / "backup", node.data)
        rig.start("n2")
        await_true(lambda: node.log().count("disk_renewed ") > told, poll_s=ASK_S)  # noqa: B023
        rig.await_whole()
        assert kept(rig, "n2") == {b"new"}
        rig.kill("n2")
    rig.start("n2")
    rig.await_whole()
    assert node.log().count("restarted ") == 2


def test_so_many_nodes_as_are_expected_found_a_cluster(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 3, more="expect = 3\n")
    try:
        rig.start("n1", "n3")
        await_true(lambda: "2 of 3 expected nodes are here" in rig.nodes["n3"].log())
        assert "cluster_founded" not in rig.nodes["n1"].log()
        rig.start("n2")
        rig.await_whole()
        assert [name for name in rig.names if "cluster_founded" in rig.nodes[name].log()] == ["n1"]
    finally:
        rig.close()


@pytest.mark.parametrize("policy", ["available", "majority"])
def test_two_nodes_and_a_witness_lose_one(tmp_path: Path, policy: str) -> None:
    with Rig(tmp_path, 3, policy=policy, witness="n3") as rig:
        keep(rig, "n1", b"first")
        states = [(node["id"], node["state"]) for node in rig.nodes["n3"].answer("/api/v1/status")["nodes"]]
        assert states == [("n1", "active"), ("n2", "active"), ("n3", "witness")]
        await_true(lambda: voters(rig) == 3, 20.0, ASK_S)
        for lost in ("n1", "n2"):
            rig.kill(lost)
            stays = "n2" if lost == "n1" else "n1"
            rig.await_out(lost)
            keep(rig, stays, lost.encode())
            assert kept(rig, stays) == {lost.encode()}
            rig.start(lost)
            rig.await_whole()
        assert [name for name in rig.names if "cluster_forked" in rig.nodes[name].log()] == []


def voters(rig: Rig) -> int:
    """Return how many nodes vote."""
    answer = rig.nodes["n1"].answer("/api/v1/status")
    return len(answer["voters"])
