"""The family `--topologies`: what its seeds draw, that it is the same run for the same seed, and that it judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from folkmoot.cli.version import is_compiled
from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.pack import varint
from folkmoot.kernel.rng import Rng
from folkmoot.mqtt.framer import Framer
from folkmoot.mqtt.packet import Disconnect
from folkmoot.mqtt.reason import PROTOCOL_ERROR
from folkmoot.sim import JUDGED, Options, Result, Simulation, parse_scenario, share_of
from folkmoot.sim.client import Client
from folkmoot.sim.excuse import ANSWERS, PROGRESS, WAITING
from folkmoot.sim.network import Link
from folkmoot.sim.swarm import CLUSTER_FAULTS, FAULTS, TOPOLOGY_FAULTS, Swarm
from tests.sim.test_seed import run_elsewhere

HEAD = """nodes 3
seed 1
topologies
without features, faults
set replicas=3
set lean=0
set partitions=4
"""


def drawn(seed: int, nodes: int = 5) -> Swarm:
    return Swarm(Rng(seed), nodes=nodes, family=Rng(seed ^ 1), later=Rng(seed ^ 2))


def test_half_of_the_seeds_have_splits_and_half_of_those_a_majority() -> None:
    swarms = [drawn(seed) for seed in range(1000)]
    split = [swarm for swarm in swarms if swarm.splits]
    assert 450 < len(split) < 550
    assert all(swarm.on["link matrices"] for swarm in split)
    assert not [swarm for swarm in swarms if not swarm.splits and (swarm.on["link matrices"] or swarm.on["blackouts"])]
    assert 0.45 * len(split) < sum([swarm.majority for swarm in split]) < 0.55 * len(split)


def test_every_fault_is_drawn_and_no_run_has_none() -> None:
    swarms = [drawn(seed) for seed in range(300)]
    for name in TOPOLOGY_FAULTS:
        assert any(swarm.on[name] for swarm in swarms), name
    assert [swarm for swarm in swarms if not any(swarm.on[name] for name in TOPOLOGY_FAULTS)] == []


def test_two_copies_have_to_be_in_sync_in_some_runs_with_both_policies() -> None:
    swarms = [drawn(seed) for seed in range(400)]
    for majority in (False, True):
        policy = [swarm for swarm in swarms if swarm.majority == majority]
        assert 0.08 * len(policy) < len([swarm for swarm in policy if swarm.min_in_sync == 2]) < 0.25 * len(policy)
    assert all(swarm.min_in_sync <= swarm.replicas for swarm in swarms)


def test_the_family_draws_the_nodes_when_nobody_says_how_many() -> None:
    sizes = {len(Options(seed, 1, topologies=True).simulation().members) for seed in range(60)}
    assert sizes == {2, 3, 5, 7}
    assert len(Options(1, 1, 5, topologies=True).simulation().members) == 5


def test_the_command_of_a_run_names_the_family() -> None:
    options = Options(7, 100, 3, topologies=True)
    assert options.copy().command == "folkmoot simulate --topologies --nodes 3 --seed 7 --steps 100"


def calm(swarm: Swarm) -> None:
    for name in (*FAULTS, *CLUSTER_FAULTS, *TOPOLOGY_FAULTS):
        swarm.on[name] = False
    swarm.lean = False


def run(seed: int, steps: int = 60, nodes: int = 3, shape: Any = None) -> Result:
    return Simulation(seed, steps, shape=shape, nodes=nodes, topologies=True).run()


def test_without_faults_everything_is_judged_and_nothing_is_wrong() -> None:
    result = run(3, shape=calm)
    assert result.violations == []
    assert result.judged["A1"] > 20
    assert result.judged["A3"] > 20
    assert result.judged["A11"] > 5
    assert result.demands[ANSWERS, JUDGED] > 20
    assert result.demands[WAITING, JUDGED] > 20
    assert [key for key in result.excused if key[0].startswith("A")] == []


def killing(swarm: Swarm) -> None:
    calm(swarm)
    swarm.on["kills"] = True
    swarm.on["upgrades"] = True
    swarm.majority = True
    swarm.fault_every = 8


@pytest.mark.parametrize("seed", range(1, 4))
def test_kills_and_upgrades_break_nothing_under_a_majority(seed: int) -> None:
    result = run(seed, shape=killing)
    assert result.violations == []
    assert result.marks.get("kill", 0) + result.marks.get("rolling upgrade", 0) > 0


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run(4), run(4)
    assert first.line == second.line
    assert (first.judged, first.excused) == (second.judged, second.excused)


@pytest.mark.skipif(
    not is_compiled(), reason="this is an interpreted run; `make test` compares it with the compiled one"
)
def test_interpreted_and_compiled_are_the_same_run(source_path: Any) -> None:
    interpreted = run_elsewhere(2, 30, 3, "--topologies", PYTHONPATH=str(source_path))
    assert interpreted == run(2, 30).line


# What machines do


def play(steps: str, **numbers: int) -> Any:
    head = HEAD + "".join([f"set {name}={value}\n" for name, value in numbers.items()])
    simulation = parse_scenario(head + "script\n" + steps).simulation()
    simulation.result = simulation.run()  # type: ignore[attr-defined]
    return simulation


def test_a_slow_wall_clock_falls_behind_and_the_monotonic_one_goes_on() -> None:
    simulation = Simulation(1, 1, nodes=3, topologies=True)
    host, world = simulation.site.hosts[0], simulation.world
    host.clock_offset_us = host.clock_drift_ppm = 0
    steady = host.clock() - world.now
    host.pace(10)
    world.run(world.now + 10 * SECOND)
    assert host.wall() == world.now - 9 * SECOND
    host.pace(0)
    stood = host.wall()
    world.run(world.now + SECOND)
    assert host.wall() == stood
    host.pace(100)
    world.run(world.now + SECOND)
    assert host.wall() == stood + SECOND
    host.adjust(-5 * SECOND)
    assert host.wall() == world.now - 5 * SECOND
    assert host.clock() - world.now == steady, "neither its pace nor a step moves the monotonic clock"


def test_an_empty_disk_keeps_the_id_and_a_replaced_machine_does_not() -> None:
    simulation = play("crash n3\nempty n3\nstart n3\nrun 5s\ncrash n2\nwipe n2\nstart n2\nrun 5s", majority=0)
    assert [host.node_id for host in simulation.members] == ["n1", "n2.1", "n3"]


def test_a_folder_that_is_restored_has_what_it_had() -> None:
    steps = (
        "client a at n1\nwait\nsubscribe a t 1\nwait\ncopy n3\npublish a t m 1\nwait\ncrash n3\nrestore n3\nstart n3"
    )
    simulation = play(steps, majority=1)
    assert simulation.result.marks["old folder restored"] == 1


def test_a_clone_has_the_id_of_its_origin() -> None:
    simulation = play("run 2s\nclone n1 n4\nrun 100ms", majority=1, spares=1)
    assert simulation.site.hosts[3].node_id == "n1" or simulation.site.hosts[3].births == 1
    assert simulation.result.marks["clone"] == 1


def test_only_the_links_that_are_named_stay() -> None:
    simulation = play("links n1-n2\nrun 10ms", majority=1)
    assert simulation.result.violations == []
    assert simulation.result.marks["links: links"] == 1


def test_a_process_in_a_loop_is_started_again_and_again_and_the_others_go_on() -> None:
    steps = "client a at n1\nwait\nsubscribe a t 1\nwait\nloop n3 500ms 4s\npublish a t m 1\nrun 2s\nexpect a m\nrun 4s"
    simulation = play(steps, majority=1)
    assert simulation.result.violations == []
    assert len(simulation.site.hosts[2].starts_us) > 5
    assert simulation.site.hosts[2].up


def test_stutter_stops_and_goes_on() -> None:
    simulation = play("stutter n1 200ms 20ms 2s\nrun 3s", majority=1)
    assert simulation.result.violations == []
    assert not simulation.site.hosts[0].hung


ONLY_COPIES = (Path(__file__).parents[1] / "scenarios" / "forget-of-the-only-copies.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(("keeps", "broken"), [(True, []), (False, ["A1"])])
def test_what_an_order_costs_is_judged(keeps: bool, broken: list[str]) -> None:
    """A node that was forgotten by force comes back, and what only it has is merged. Nothing excuses its loss."""
    text = ONLY_COPIES.replace("forget n2 n3", "forget n2 n3 force").partition("expect")[0]
    text = text if keeps else text.replace("start n3", "empty n3\nstart n3")
    result = parse_scenario(text).simulation().run()
    assert [violation.promise for violation in result.violations] == broken
    assert result.marks["forget taken in trouble"] == 1


def test_a_node_that_is_evicted_is_started_again_when_all_heals() -> None:
    simulation = play("run 2s\ncrash n3\nevict n1 n2\nrun 2s", majority=1)
    assert simulation.result.violations == []
    assert simulation.result.marks["evict taken in trouble"] == 1
    assert len(simulation.site.hosts[1].starts_us) == 2
    assert not simulation.site.hosts[1].put_out


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        ("links n1-n9", "which links stay"),
        ("links n1", "which links stay"),
        ("restore n1", "was not copied"),
        ("ask\nlinks n1-n2\nrun 1ms\nlinks x", "which links stay"),
    ],
)
def test_a_step_that_cannot_be_done_is_told(step: str, fault: str) -> None:
    found = play(step).result.violations
    assert fault in found[0].text


def test_the_steps_of_the_family_need_it() -> None:
    found = parse_scenario("nodes 3\nscript\nask").simulation().run().violations
    assert "topologies" in found[0].text


def test_a_probe_that_is_never_answered_is_found() -> None:
    """A node whose clients hear nothing, and which says that it is ready."""
    simulation = parse_scenario(HEAD + "set majority=1\nscript\nask\nrun 20s").simulation()
    host = simulation.site.hosts[1]
    host.output = lambda _link, _data: None  # type: ignore[method-assign, assignment]
    found = simulation.run().violations
    assert [(violation.promise, "n2 says it is ready" in violation.text) for violation in found] == [("A11", True)]


@pytest.mark.parametrize(
    ("kind", "awaited"), [(0x90, "SUBACK"), (0x40, "the acknowledgement"), (0x30, "delivery"), (0xB0, "UNSUBACK")]
)
def test_a_probe_that_gets_all_answers_but_one_is_found(kind: int, awaited: str) -> None:
    simulation = parse_scenario(HEAD + "set majority=1\nscript\nask\nrun 20s").simulation()
    host = simulation.site.hosts[1]
    output = host.output
    host.output = lambda link, data: output(link, without(kind, data))  # type: ignore[method-assign]
    found = simulation.run().violations
    assert [violation.promise for violation in found] == ["A11"]
    assert f"given {awaited} of probe-n2" in found[0].text


def without(kind: int, data: bytes) -> bytes:
    """Leave out packets of one kind."""
    found = [(first, body) for first, body in Framer(1 << 20).feed(data) if first & 0xF0 != kind]
    return b"".join([bytes([first]) + varint(len(body)) + body for first, body in found])


def test_a_client_that_waits_for_an_answer_of_a_node_that_is_ready_is_found() -> None:
    """Whoever it is: here an actor, whose SUBACK does not come."""
    simulation = parse_scenario(HEAD + "set majority=1\n" + SUBSCRIBES).simulation()
    host = simulation.site.hosts[1]
    output = host.output
    host.output = lambda link, data: output(link, without(0x90, data) if _name(link) == "a" else data)  # type: ignore[method-assign]
    found = simulation.run().violations
    assert [violation.promise for violation in found] == ["A11"]
    assert "a has waited" in found[0].text
    assert "SUBACK of n2" in found[0].text


SUBSCRIBES = "script\nclient a at n2\nwait\nask\nsubscribe a t/1 1\nrun 20s"


def _name(link: Link) -> str:
    return link.caller.name if isinstance(link.caller, Client) else ""


@pytest.mark.parametrize("strict", [False, True])
def test_a_refusal_without_a_reason_is_found(strict: bool) -> None:
    simulation = parse_scenario(HEAD + "script\nrun 1s").simulation()
    simulation.oracle.strict = strict
    simulation.oracle.refused("SUBSCRIBE", 0x83, "a session")
    assert [violation.promise for violation in simulation.world.violations] == ["A11"] * strict


def test_who_is_disconnected_for_what_it_has_not_done_is_found() -> None:
    simulation = parse_scenario(HEAD + "script\nclient a at n1\nwait").simulation()
    assert simulation.run().violations == []
    (client,) = simulation.workload.clients
    client._handle(Disconnect(PROTOCOL_ERROR), 2)
    found = simulation.world.violations
    assert [violation.promise for violation in found] == ["protocol"]
    assert "0x82" in found[0].text


@pytest.mark.parametrize("links", ["", "links n1-n2\n"])
def test_a_majority_that_serves_nobody_is_found(links: str) -> None:
    """All nodes refuse all clients: each refusal is an answer, and none is progress. One of three may be cut off."""
    simulation = parse_scenario(HEAD + f"set majority=1\nscript\nask\n{links}run 40s").simulation()
    assert simulation.prober is not None
    for watch in simulation.prober.watches:
        watch.step = watch.refused  # type: ignore[method-assign]
    result = simulation.run()
    found = result.violations
    assert [violation.promise for violation in found] == ["A11"]
    assert "nobody serves" in found[0].text
    looks = {why: count for (demand, why), count in result.demands.items() if demand == PROGRESS}
    assert set(looks) == {"machines or links have changed lately", JUDGED}


@pytest.mark.parametrize(("links", "leaving"), [("12 13 23", 0), ("12 13", 1), ("12", 1), ("", 2)])
def test_of_two_machines_without_a_link_one_leaves(links: str, leaving: int) -> None:
    simulation = parse_scenario(HEAD + "set majority=1\nscript\nask").simulation()
    prober = simulation.prober
    assert prober is not None
    hosts = simulation.site.hosts[:3]
    linked = {frozenset((int(pair[0]), int(pair[1]))) for pair in links.split()}
    prober.history.reached = lambda: [  # type: ignore[method-assign]
        [host, *[other for to, other in enumerate(hosts, 1) if {at, to} in linked]] for at, host in enumerate(hosts, 1)
    ]
    assert prober._leaving(hosts, []) == leaving
    assert prober._leaving(hosts, hosts[:2]) == 0, "what is counted already"


@pytest.mark.parametrize(
    ("cuts", "hindered"), [([("n2", "n1")], True), ([("n2", "n1"), ("n1", "n2")], False), ([], False)]
)
def test_a_side_that_hears_another_one_may_know_that_its_copies_are_behind(
    cuts: list[tuple[str, str]], hindered: bool
) -> None:
    simulation = parse_scenario(
        HEAD.replace("nodes 3", "nodes 2").replace("=3", "=2") + "script\nask\nrun 1s"
    ).simulation()
    prober = simulation.prober
    assert prober is not None
    assert simulation.faults is not None
    assert simulation.faults.topologies is not None
    simulation.run()
    hosts = {host.name: host for host in simulation.site.hosts}
    simulation.faults.topologies.links.apply("cut", cuts, NEVER)
    simulation.world.now += SECOND
    members = [hosts["n1"], hosts["n2"]]
    since_us = prober.history.changed_us
    assert prober._is_hindered(members[1:] if cuts else members, members, since_us) == hindered


SELDOM = {
    (True, True): (),
    (True, False): (),
    (False, True): ("A7",),  # two sides excuse much of what wills need: few of these runs have them
    (False, False): (),
}
"""Promises that runs with a policy ("majority": True), with or without splits, may not have judged in few seeds."""


SHARES_MIN_PERCENT = {(True, True): 90, (True, False): 90, (False, True): 50, (False, False): 80}
"""The share of the cases of a promise that must be judged in such runs; `too_seldom` asks for more, of all together."""


def split_or_not(majority: bool, splits: bool) -> Any:
    def shape(swarm: Swarm) -> None:
        swarm.majority = majority
        swarm.splits = swarm.on["link matrices"] = splits
        swarm.on["blackouts"] = swarm.on["blackouts"] and splits
        swarm.stands = swarm.stands and splits

    return shape


@pytest.mark.skipif(not is_compiled(), reason="it takes several seeds, and all runs are the same interpreted")
@pytest.mark.parametrize("splits", [True, False])
@pytest.mark.parametrize("majority", [True, False])
def test_enough_of_each_promise_is_judged(majority: bool, splits: bool) -> None:
    """With each policy, with splits and without: no part of the runs silently judges nothing."""
    judged: dict[str, int] = {}
    excused: dict[tuple[str, str], int] = {}
    demands: dict[tuple[str, str], int] = {}
    for seed in range(1, 31):
        result = run(seed, 40, shape=split_or_not(majority, splits))
        add(judged, result.judged)
        add(excused, result.excused)
        add(demands, result.demands)
    assert judged["A1"] > 30 * 50
    for promise in judged:
        done, left_out = share_of(promise, judged, excused)
        least = 40 if promise == "A5" else SHARES_MIN_PERCENT[majority, splits]
        enough = 100 * done >= least * (done + left_out) or done + left_out < 100
        assert enough or not promise.startswith("A"), (promise, done, left_out)
    wanted = ["A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "A9", "A11", "expiry", "liveness"]
    assert [name for name in wanted if not judged.get(name) and name not in SELDOM[majority, splits]] == []
    for demand in (ANSWERS, WAITING):
        looks = sum([count for (name, _why), count in demands.items() if name == demand])
        assert demands[demand, JUDGED] * 100 > 30 * looks, demand
    # Nothing stays as it is for long enough in short runs, unless links stay cut in the end.
    assert not splits or demands[PROGRESS, JUDGED] > 0


def add(total: dict[Any, int], counts: dict[Any, int]) -> None:
    for key, count in counts.items():
        total[key] = total.get(key, 0) + count
