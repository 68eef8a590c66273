"""What comes too late while nothing is wrong is found, although everything comes to rest in the end."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.sim import Result, Simulation, parse_scenario
from folkmoot.sim.network import Link

HEAD = """nodes 1
seed 1
without features, faults
set rounds=1
set latency_us=500
set sync_us=1000
script
client a at node
client b at node
wait
subscribe b t/# 1
wait
run 25s
"""


def simulation_of(steps: str) -> tuple[Simulation, Any]:
    """A run of one node, and its host."""
    simulation = parse_scenario(HEAD + steps).simulation()
    return simulation, simulation.site.hosts[0]


def held_back(steps: str, kind: int, marker: bytes, late_us: int) -> Result:
    """Run a script; the node sends the packets of a kind that contain the marker so much later."""
    simulation, host = simulation_of(steps)
    output = host.output

    def later(link: Link, data: bytes) -> None:
        if data[0] & 0xF0 == kind and marker in data and simulation.world.now - begun_us > 20 * SECOND:
            simulation.world.after(late_us, output, link, data)
        else:
            output(link, data)

    begun_us = simulation.world.now
    host.output = later
    return simulation.run()


@pytest.mark.parametrize(("late_us", "promises"), [(2 * SECOND, []), (15 * SECOND, ["liveness"])])
@pytest.mark.parametrize(
    ("steps", "kind", "marker"),
    [
        ("publish a t/1 hello 1\nwait\nrun 20s", 0x30, b"hello"),
        ("subscribe b other 1\nwait", 0x90, b""),
        ("publish b x hello 1\nwait", 0x40, b""),
    ],
)
def test_what_comes_late_is_found(steps: str, kind: int, marker: bytes, late_us: int, promises: list[str]) -> None:
    found = held_back(steps, kind, marker, late_us).violations
    assert [violation.promise for violation in found][:1] == promises


@pytest.mark.parametrize("us", [2 * SECOND, 15 * SECOND])
def test_a_client_that_is_let_in_late_is_found(us: int) -> None:
    """As when a node waits for a timer."""
    simulation, host = simulation_of("drop b\nrun 1s\nmove b node\nwait")
    opened = host.link_opened
    begun_us = simulation.world.now + 20 * SECOND

    def refuse(link: Link) -> bool:
        late = begun_us < simulation.world.now < begun_us + 5 * SECOND + us
        return not late and bool(opened(link))

    host.link_opened = refuse
    found = simulation.run().violations
    assert [violation.promise for violation in found][:1] == ["liveness"] * (us > 10 * SECOND)


@pytest.mark.parametrize("dropped", [False, True])
def test_a_message_with_qos_0_that_is_missing_between_others_is_found(dropped: bool) -> None:
    """Over connections that nothing has held back."""
    simulation, host = simulation_of("publish a t/1 first 0\nwait\npublish a t/1 second 0\nwait")
    output = host.output
    host.output = lambda link, data: None if dropped and b"first" in data else output(link, data)
    result = simulation.run()
    assert [violation.promise for violation in result.violations][:1] == ["A5"] * dropped
    assert result.judged["A5"] >= 1


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize(
    "later", ["run 11s", "run 6s\npublish a t/2 second 1\nwait"], ids=["nothing else came", "a later message came"]
)
def test_a_message_that_a_transient_session_should_have_got_is_found(dropped: bool, later: str) -> None:
    """Although the session has ended, and nothing that has to come in order with it has come."""
    simulation, host = simulation_of(
        f"client c at node expiry 0\nwait\nsubscribe c t/# 1\nwait\npublish a t/1 first 1\nwait\n{later}\ndisconnect c"
    )
    output = host.output
    host.output = lambda link, data: (
        None if dropped and link.client_id == "c" and b"first" in data else output(link, data)
    )
    found = simulation.run().violations
    assert [violation.promise for violation in found][:1] == ["A1"] * dropped
