"""Scenario files: each is replayed, and the format says where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.sim import ScriptError, parse_scenario
from folkmoot.sim.swarm import FAULTS

FOLDER = Path(__file__).resolve().parent.parent / "scenarios"
FILES = sorted(FOLDER.glob("*.txt"))

HEAD = "nodes 1\nseed 1\nscript\nclient a\nwait\n"


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_no_promise_is_broken(path: Path) -> None:
    result = parse_scenario(path.read_text(encoding="utf-8")).simulation().run()
    assert result.violations == []


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_file_says_what_it_shows(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_a_seed_is_run_as_the_options_say() -> None:
    scenario = parse_scenario("seed 4\nsteps 30\nwith crashes, wills\nwithout vandals\nset clients=3\n")
    swarm = scenario.simulation().swarm
    assert (swarm.has("crashes"), swarm.has("wills"), swarm.has("vandals"), swarm.clients) == (True, True, False, 3)
    assert scenario.options.command == (
        'folkmoot simulate --seed 4 --steps 30 --without "vandals" --with "crashes, wills" --set clients=3'
    )


def test_the_last_word_on_a_fault_counts() -> None:
    options = parse_scenario("without faults\nwith crashes\n").options
    assert "crashes" not in options.off
    assert options.on == ["crashes"]
    swarm = options.simulation().swarm
    assert [name for name in FAULTS if swarm.on[name]] == ["crashes"]
    options.switch("crashes", on=False)
    assert options.command == 'folkmoot simulate --seed 1 --steps 2000 --without "faults"'


def test_a_script_has_no_clients_but_its_own() -> None:
    simulation = parse_scenario(HEAD).simulation()
    assert simulation.run().violations == []
    assert [client.name for client in simulation.workload.clients] == ["a"]


def test_a_witness_accepts_no_clients() -> None:
    """In real life it has no listeners."""
    text = (
        "nodes 3\nseed 1\ntopologies\nwithout features, faults\nset witnesses=1\nscript\nclient a at n3\nwait\nrest\n"
    )
    simulation = parse_scenario(text).simulation()
    assert simulation.run().violations == []
    witness = simulation.site.hosts[2]
    assert witness.witness
    assert witness.links == {}
    (client,) = simulation.workload.clients
    assert client.host in simulation.site.doors


@pytest.mark.parametrize(
    ("step", "broken"),
    [
        ("expect a hello", True),
        ("expect-not a hello", False),
        ("subscribe a t 1\nwait\npublish a t hello 1\nwait\nexpect a hello", False),
        ("subscribe a t 1\nwait\npublish a t hello 1\nwait\nexpect-not a hello", True),
        ("subscribe a t 1\nwait\nunsubscribe a t\nwait\npublish a t hello 1\nrest\nexpect a hello", True),
    ],
)
def test_expectations_can_fail(step: str, broken: bool) -> None:
    found = parse_scenario(HEAD + step).simulation().run().violations
    assert [violation.promise for violation in found] == (["script"] if broken else [])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("dragons 3", "line 1: 'dragons' is none of"),
        ("seed x", "line 1"),
        ("seed 1\nwith dragons", "line 2: no feature or fault"),
        ("script\nfly n1", "line 2: 'fly' is no step"),
        ("script\n# fine\npublish a t", "line 3: publish needs 4 words"),
    ],
)
def test_what_means_nothing_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ScriptError, match=fault):
        parse_scenario(text)


@pytest.mark.parametrize("step", ["crash n9", "publish b t hello 1", "run soon", "cut node node"])
def test_a_step_that_cannot_be_done_is_told_with_its_line(step: str) -> None:
    found = parse_scenario(HEAD + step).simulation().run().violations
    assert "line 6" in found[0].text
