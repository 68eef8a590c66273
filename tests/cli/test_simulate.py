"""`folkmoot simulate`: its last line, its exit status, and what it says when a promise is broken."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from folkmoot.cli import main, seeds
from folkmoot.sim import JUDGED, Options, Result, Simulation
from folkmoot.sim.excuse import PROGRESS
from folkmoot.sim.swarm import Swarm
from folkmoot.sim.world import Violation
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
    assert re.search(r"numbers: .*clients=\d", out)
    assert re.search(r"mark +\d+ session resumed|mark +\d+ event connected", out)


def test_trace_prints_packets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "3", "--steps", "50", "--trace"]) == 0
    out = capsys.readouterr().out
    assert "-> link1 Connect(" in out
    assert "Connack(session_present=False, code=0" in out


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run have a disk that forgets sessions, and many crashes."""

    def stormy(swarm: Swarm) -> None:
        swarm.fault_every = 10

    def planted(options: Options, sink: Callable[[str], None] | None = None) -> Simulation:
        def shape(swarm: Swarm) -> None:
            swarm.on["crashes"] = True
            options.shape(swarm)
            stormy(swarm)

        return Simulation(options.seed, options.steps, sink, disk_class=ForgetsSessions, shape=shape)

    monkeypatch.setattr(Options, "simulation", planted)


@pytest.mark.usefixtures("forgetful")
def test_a_violation_shows_the_trace_and_how_to_repeat_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "1", "--steps", "400"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("VIOLATION" in line for line in lines)
    assert "again: folkmoot simulate --seed 1 --steps 400 --trace --verbose" in lines
    assert lines[-1].endswith("violations 1")


@pytest.mark.usefixtures("forgetful")
def test_a_failing_run_is_made_shorter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "1", "--steps", "400", "--shrink"]) == 1
    lines = capsys.readouterr().out.splitlines()
    again = next(line for line in lines if line.startswith("again: "))
    found = re.search(r"--steps (\d+)", again)
    assert found is not None
    assert int(found[1]) < 200
    assert '--without "' in again
    assert "crashes" not in again


def test_a_good_run_cannot_be_made_shorter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "3", "--steps", "30", "--shrink"]) == 0
    assert "nothing to shrink" in capsys.readouterr().out


def test_features_faults_and_numbers_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--with", "crashes, wills", "--without", "vandals", "--set", "clients=2", "--verbose"]
    assert main(["simulate", "--seed", "3", "--steps", "30", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    on, off, numbers = lines[:3]
    assert "crashes" in on
    assert "wills" in on
    assert "vandals" in off
    assert " clients=2 " in numbers


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--with", "dragons"], "no feature or fault is called 'dragons'"),
        (["--set", "dragons=1"], "no number is called 'dragons'"),
        (["--set", "clients=many"], "clients is a number"),
        (["--scenario", "/nowhere/at/all.txt"], "cannot read"),
    ],
)
def test_what_there_is_not_is_refused(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *words]) == 2
    assert text in capsys.readouterr().err


def test_a_scenario_runs_from_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("seed 5\nscript\nclient a\nwait\nexpect a never\n", encoding="utf-8")
    assert main(["simulate", "--scenario", str(path)]) == 1
    out = capsys.readouterr().out
    assert "line 5: a has not got never" in out
    assert f"again: folkmoot simulate --scenario {path}" in out


def test_many_seeds_are_one_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--from", "3", "--seeds", "4", "--steps", "40", "--jobs", "2", "--mix", "--marks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"seeds 4 of 4 in \d+ s, failed 0", lines[-2])
    assert LAST.fullmatch(lines[-1])
    assert any(line.startswith("mark ") for line in lines)


def test_time_that_is_over_ends_a_long_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seeds", "100000", "--steps", "20", "--jobs", "1", "--minutes", "0.001"]
    assert main(["simulate", *words]) == 0
    found = re.match(r"seeds (\d+) of 100000 in", capsys.readouterr().out.splitlines()[-2])
    assert found is not None
    assert int(found[1]) < 100


def test_a_mix_is_drawn_from_each_seed() -> None:
    runs = [Options(seed, 100, 5).mixed() for seed in range(1, 40)]
    assert {run.nodes for run in runs} == {3, 4, 5}
    assert min(run.steps for run in runs) >= 20
    assert max(run.steps for run in runs) <= 100
    assert [run.command for run in runs] == [Options(seed, 100, 5).mixed().command for seed in range(1, 40)]


def test_a_trace_of_many_seeds_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seeds", "2", "--trace"]) == 2
    assert "leave --seeds out" in capsys.readouterr().err


def test_a_result_can_cross_processes() -> None:
    result = seeds.run_in_process(Options(3, 20))
    assert isinstance(result, Result)
    assert LAST.fullmatch(result.line)


def test_a_run_that_never_ends_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_ends(self: Options) -> Simulation:
        simulation = Simulation(self.seed, self.steps)
        simulation.script = spin
        return simulation

    def spin() -> None:
        while True:
            pass

    monkeypatch.setattr(seeds, "RUN_CPU_S", 0.05)
    monkeypatch.setattr(Options, "simulation", never_ends)
    (violation,) = seeds.run_in_process(Options(3, 20)).violations
    assert violation.promise == "never raises"
    assert "0.05 s of processor time: something in it does not end" in violation.text
    assert "in spin" in violation.text


def test_the_family_of_topologies_ends_with_a_summary_of_each_policy(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topologies", "--nodes", "3", "--from", "2", "--seeds", "3", "--steps", "5", "--jobs", "1"]
    main(["simulate", *words])
    lines = capsys.readouterr().out.splitlines()
    counts = [re.fullmatch(r"(available|majority): (\d+) of (\d+) seeds failed", line) for line in lines]
    assert sum([int(found[3]) for found in counts if found is not None]) == 3
    assert any(re.fullmatch(r"  A1: judged \d+, excused \d+ \(\d+\.\d % judged\)", line) for line in lines)
    assert LAST.fullmatch(lines[-1])


def test_a_summary_has_the_kinds_of_violations_and_the_shares_of_promises() -> None:
    policy = seeds.Policy()
    for seed in (3, 4, 5):
        result = seeds.run_in_process(Options(seed, 5))
        result.judged = {"A3": 30}
        result.demands = {(PROGRESS, JUDGED): 2, (PROGRESS, "it is no majority"): 1}
        result.excused = {("A3", "messages of two sides"): 10}
        if seed > 3:
            result.violations = [
                Violation("A3", 0, f"session {seed} of c1 got m{seed}(c{seed} t qos 1) after m9(c2 t qos 1)")
            ]
        policy.add(result)
    assert (policy.runs, policy.failed) == (3, 2)
    assert policy.lines() == [
        "      2 A3: session _ of _ got _ after _ (seeds 4 5)",
        "  A3: judged 90, excused 30 (75.0 % judged)",
        "         30 messages of two sides",
        "  a connected quorum makes progress: judged 6, not judged 3 (66.7 % judged)",
        "          3 it is no majority",
    ]
    tally = seeds.Tally()
    tally.policies[True] = policy
    assert seeds.print_policies(tally), "less than 95 % were judged"
    policy.judged["A3"] = 1000
    assert not seeds.print_policies(tally)
