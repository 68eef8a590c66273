"""`folkmoot simulate`: its last line, its exit status, and what it says when a promise is broken."""

from __future__ import annotations

import re

import pytest

from folkmoot.cli import main, simulate
from folkmoot.sim import Result, Simulation
from folkmoot.sim.swarm import Swarm
from tests.sim.plant import ForgetsSessions

LAST = re.compile(r"digest [0-9a-f]{24} events \d+ violations (\d+)")


def last_line(capsys: pytest.CaptureFixture[str]) -> re.Match[str]:
    found = LAST.fullmatch(capsys.readouterr().out.splitlines()[-1])
    assert found is not None
    return found


def test_a_good_run_says_its_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "3", "--steps", "50"]) == 0
    first = last_line(capsys)
    assert first[1] == "0"
    assert main(["simulate", "--seed", "3", "--steps", "50"]) == 0
    assert last_line(capsys)[0] == first[0]


def test_verbose_says_what_was_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "3", "--steps", "50", "--verbose", "--marks"]) == 0
    out = capsys.readouterr().out
    assert "on: " in out
    assert "numbers: clients=" in out
    assert re.search(r"mark +\d+ session resumed|mark +\d+ event connected", out)


def test_trace_prints_packets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "3", "--steps", "50", "--trace"]) == 0
    out = capsys.readouterr().out
    assert "-> link1 Connect(" in out
    assert "Connack(session_present=False, code=0" in out


def test_a_violation_shows_the_trace_and_how_to_repeat_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stormy(swarm: Swarm) -> None:
        swarm.on["crashes"] = True
        swarm.fault_every = 10

    def planted(seed: int, steps: int, sink: None = None) -> Simulation:
        return Simulation(seed, steps, sink, disk_class=ForgetsSessions, shape=stormy)

    monkeypatch.setattr(simulate, "Simulation", planted)
    assert main(["simulate", "--seed", "1", "--steps", "400"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("VIOLATION" in line for line in lines)
    assert "again: folkmoot simulate --seed 1 --steps 400 --trace --verbose" in lines
    assert lines[-1].endswith("violations 1")


def test_many_seeds_are_one_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "3", "--seeds", "4", "--steps", "40", "--jobs", "2"]) == 0
    assert last_line(capsys)[1] == "0"


def test_a_trace_of_many_seeds_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seeds", "2", "--trace"]) == 2
    assert "leave --seeds out" in capsys.readouterr().err


def test_a_result_can_cross_processes() -> None:
    result = simulate.run_in_process(3, 20)
    assert isinstance(result, Result)
    assert LAST.fullmatch(result.line)
