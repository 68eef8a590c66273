"""What an operator does with a cluster of real processes, while a fleet of clients goes on, and loses nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster_fleet import Fleet
from tests.integration.cluster_rig import ASK_S, ClusterNode, Rig
from tests.integration.serving import await_true

STOP_S = 10.0


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path, 3) as found:
        yield found


@pytest.fixture
def fleet(rig: Rig, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(rig.door, tmp_path) as found:
        found.flow()
        yield found


def command(rig: Rig, *words: str, at: str = "", timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run `folkmoot WORDS` against all nodes, or one."""
    names = [at] if at else sorted(rig.nodes)
    places = [f"{host}:{port}" for host, port in (rig.places[name]["admin"] for name in names if name in rig.places)]
    admin = ["--admin", ",".join(places), "--token", rig.token]
    words = (sys.executable, "-m", "folkmoot", *words, *admin)
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False)


def await_end(node: ClusterNode) -> int:
    """The exit status of a node that ends by itself."""
    assert node.process is not None
    status = node.process.wait(STOP_S)
    node.kill()  # what is left of it in the rig
    return status


def stop_when_safe(rig: Rig, name: str) -> None:
    """As the documentation tells operators: wait for a yes, then SIGTERM."""
    await_true(lambda: command(rig, "safe-to-stop", name).returncode == 0, 30.0)
    rig.stop(name)


def test_a_rolling_restart_is_no_more_than_a_reconnect(rig: Rig, fleet: Fleet) -> None:
    for name in rig.names:
        stop_when_safe(rig, name)
        others = [other for other in rig.names if other != name]
        assert command(rig, "safe-to-stop", others[0], at=others[1]).returncode == 1, "one is away"
        rig.start(name)
        await_true(lambda name=name: rig.nodes[name].answer("/api/v1/status")["state"] == "member", 20.0)
        fleet.flow(3)
    rig.await_whole()
    fleet.expect_no_fault()


def test_nodes_are_stopped_until_the_last_which_goes_on_and_brings_all_back(tmp_path: Path) -> None:
    """The stop of the last but one ends the votes of the others: the last one votes alone, and has everything."""
    with Rig(tmp_path, 3, policy="majority") as rig, Fleet(rig.door, tmp_path, may_refuse=True) as fleet:
        fleet.flow()
        first, second, last = rig.names
        for name in (first, second):
            rig.stop(name)
            fleet.flow(3)
        status = rig.nodes[last].answer("/api/v1/status")
        assert (status["controller"], status["voters"], status["writable"]) == (last, [last], True)
        rig.stop(last)
        rig.start(first)
        await_true(lambda: "no controller" in rig.nodes[first].ready()[1])
        rig.start(second)
        assert [rig.nodes[name].ready()[0] for name in (first, second)] == [503, 503]
        rig.start(last)
        fleet.flow()
        rig.await_whole()
        assert rig.nodes[first].answer("/api/v1/status")["voters"] == rig.names
        fleet.expect_no_fault()


def test_those_who_stay_notice_little_of_a_stop(rig: Rig, fleet: Fleet) -> None:
    leader = rig.leader("s2")
    rig.stop(leader)
    # It told the others before it ended: they need not find out.
    assert rig.await_out(leader) < 0.5
    assert fleet.flow(3) < 5.0
    rig.start(leader)
    rig.await_whole()
    fleet.expect_no_fault()


def test_a_node_leaves_and_its_process_ends(rig: Rig, fleet: Fleet) -> None:
    gone = rig.leader("s2")
    node = rig.nodes[gone]
    others = [name for name in rig.names if name != gone]
    done = command(rig, "leave", gone, at=others[0])
    assert (done.returncode, done.stderr) == (0, ""), done
    assert f"{gone} has left" in done.stdout
    assert "fewer copies than the 3" in done.stdout
    assert await_end(node) == 0
    fleet.flow()
    status = rig.nodes[others[0]].answer("/api/v1/status")
    assert [one["id"] for one in status["nodes"]] == sorted(others), "it is expected back no more"
    rig.start(gone)
    rig.await_whole()
    fleet.expect_no_fault()


def leave_one(rig: Rig) -> tuple[str, str, str]:
    """Let two of three nodes leave at once; return them, and the one that stays."""
    first, second, last = rig.where("s2")
    for name in (first, second):
        assert command(rig, "leave", name, "--no-wait", at=last).returncode == 0
    for name in (first, second):
        assert await_end(rig.nodes[name]) == 0
    return first, second, last


def test_two_leave_at_once_and_the_last_cannot(rig: Rig, fleet: Fleet) -> None:
    _first, _second, last = leave_one(rig)
    fleet.flow()
    refused = command(rig, "leave", last, at=last)
    assert refused.returncode == 2
    assert "the only remaining node" in refused.stderr
    fleet.expect_no_fault()


def test_nodes_join_one_that_was_alone(rig: Rig, fleet: Fleet) -> None:
    first, second, _last = leave_one(rig)
    fleet.flow()
    rig.start(first, second)
    rig.await_whole()
    fleet.expect_no_fault()


def test_while_a_node_leaves_another_dies(rig: Rig, fleet: Fleet) -> None:
    leaving, dies, stays = rig.where("s2")
    rig.kill(dies)
    rig.await_out(dies)
    assert command(rig, "leave", leaving, "--no-wait", at=stays).returncode == 0
    time.sleep(1.0)
    fleet.flow()
    assert rig.nodes[leaving].runs, "it keeps what it has while another is away"
    rig.start(dies)
    assert await_end(rig.nodes[leaving]) == 0
    fleet.flow()
    rig.start(leaving)
    rig.await_whole()
    fleet.expect_no_fault()


def test_a_leave_is_taken_back(rig: Rig, fleet: Fleet) -> None:
    leaving, dies, stays = rig.where("s2")
    rig.kill(dies)  # so that the node that leaves has to keep what it has
    rig.await_out(dies)
    assert command(rig, "leave", leaving, "--no-wait", at=stays).returncode == 0
    await_true(lambda: states(rig, stays)[leaving] == "leaving", poll_s=ASK_S)
    done = command(rig, "leave", leaving, "--undo", at=stays)
    assert (done.returncode, done.stderr) == (0, ""), done
    rig.start(dies)
    rig.await_whole()
    assert set(states(rig, stays).values()) == {"active"}
    assert rig.nodes[leaving].runs
    assert command(rig, "leave", leaving, "--undo", at=stays).returncode == 2
    fleet.flow()
    fleet.expect_no_fault()


def states(rig: Rig, asked: str) -> dict[str, str]:
    """The state of each node, as one of them tells it."""
    return {node["id"]: node["state"] for node in rig.nodes[asked].answer("/api/v1/status")["nodes"]}


def test_an_evicted_node_is_out_until_it_is_started_again(rig: Rig, fleet: Fleet) -> None:
    out, other, _third = rig.where("s2")
    assert command(rig, "evict", out, at=other).returncode == 0
    assert rig.await_out(out) < 2.0
    fleet.flow()
    assert rig.nodes[out].answer("/api/v1/status")["state"] == "excluded"
    assert command(rig, "evict", out, at=other).returncode == 2
    refused = command(rig, "forget", out, at=other)
    assert refused.returncode == 2
    assert "runs and is heard" in refused.stderr
    assert command(rig, "partitions", at=out).returncode == 2, "what it knows is old"
    assert f"{out} " not in command(rig, "status").stdout.splitlines()[0], "of several, a member is asked"
    assert command(rig, "safe-to-stop", out).returncode == 0
    rig.stop(out)
    rig.start(out)
    rig.await_whole()
    fleet.expect_no_fault()


def test_a_node_that_is_forgotten_is_expected_no_more(rig: Rig, fleet: Fleet) -> None:
    lost, other, third = rig.where("s2")
    assert command(rig, "forget", lost, at=other).returncode == 2, "it is here"
    rig.kill(lost)
    rig.await_out(lost)
    assert command(rig, "safe-to-stop", third, at=other).returncode == 1
    assert command(rig, "forget", lost, at=other).returncode == 0
    await_true(lambda: len(rig.nodes[other].answer("/api/v1/status")["nodes"]) == 2)
    assert command(rig, "safe-to-stop", third, at=other).returncode == 0
    fleet.flow()
    rig.empty(lost)
    rig.start(lost)
    rig.await_whole()
    fleet.expect_no_fault()
