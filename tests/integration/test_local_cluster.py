"""`folkmoot cluster` as a process: nodes that serve, one log, deaths that are told, an end that is clean."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.serving import WAIT_S, await_true

Places = dict[str, dict[str, str]]


class Local:
    """One run of the command; everything that it says goes to files."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.out, self.err = folder.with_suffix(".out"), folder.with_suffix(".err")
        command = [sys.executable, "-m", "folkmoot", "cluster", "--data", str(folder), *words]
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err)

    def lines(self) -> list[str]:
        return self.out.read_text().splitlines()

    def log(self) -> str:
        return self.err.read_text()

    def ready(self) -> Places:
        """Wait until all nodes have found together; where they serve."""
        try:
            await_true(
                lambda: self.process.poll() is not None or any(one.startswith("cluster") for one in self.lines())
            )
        except AssertionError:
            raise AssertionError(self.log()) from None
        assert self.process.poll() is None, self.log()
        words = [line.split() for line in self.lines() if " ready " in line and not line.startswith("cluster")]
        return {name: dict(word.split("=", 1) for word in rest) for name, _ready, *rest in words}

    def pid(self, name: str) -> int:
        """The process of a node, as its data folder tells."""
        return int((self.folder / name / "lock").read_text())

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Local]]:
    runs: list[Local] = []

    def run(*words: str) -> Local:
        runs.append(Local(tmp_path / "cluster", *words))
        return runs[-1]

    yield run
    for local in runs:
        if local.process.poll() is None:
            local.end(signal.SIGTERM)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def says(place: str, *words: str) -> str:
    """What a command of an operator prints."""
    command = [sys.executable, "-m", "folkmoot", *words, "--url", place]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S).stdout


def test_nodes_serve_stop_and_come_back_on_the_same_ports(start: Callable[..., Local]) -> None:
    local = start("--nodes", "2", "--", "--stream", "kept=kept/#")
    places = local.ready()
    assert sorted(places) == ["n1", "n2"]
    assert f"cluster ready nodes=2 replicas=3 data={local.folder}" in local.lines()
    for name, place in places.items():
        assert says(place["admin"], "status").startswith(f"{name} (folkmoot ")
        assert '"kept"' in says(place["admin"], "stream", "list", "--json")
    pids = [local.pid(name) for name in places]
    assert local.end() == 0
    assert not any(alive(pid) for pid in pids)
    log = local.log().splitlines()
    assert {line.split(" | ")[0] for line in log} == {"n1", "n2"}
    assert sum(line.endswith("stopped") for line in log) == 2
    again = start("--nodes", "2")
    assert again.ready() == places
    assert again.end(signal.SIGTERM) == 0


def test_a_node_that_dies_is_told_and_the_others_go_on(start: Callable[..., Local]) -> None:
    local = start("--nodes", "2")
    places = local.ready()
    os.kill(local.pid("n2"), signal.SIGKILL)
    await_true(lambda: "n2 | was killed by SIGKILL" in local.log())
    await_true(lambda: "n2 | still running: n1" in local.log())
    assert says(places["n1"]["admin"], "status")
    assert local.process.poll() is None
    os.kill(local.pid("n1"), signal.SIGKILL)
    assert local.process.wait(WAIT_S) == 1
    assert "n1 | it was the last node" in local.log()


def test_a_node_that_dies_is_started_again_where_that_is_wanted(start: Callable[..., Local]) -> None:
    local = start("--nodes", "1", "--restart")
    places = local.ready()
    first = local.pid("n1")
    os.kill(first, signal.SIGKILL)
    await_true(lambda: len([line for line in local.lines() if line.startswith("n1 ready")]) == 2)
    assert local.pid("n1") != first
    assert says(places["n1"]["admin"], "status")
    assert local.end() == 0


def test_a_node_that_cannot_start_ends_all_and_says_why(start: Callable[..., Local]) -> None:
    local = start("--nodes", "2", "--", "--durability", "maybe")
    begun = time.monotonic()
    assert local.process.wait(WAIT_S) == 1
    assert time.monotonic() - begun < 15
    # Of the first that ended: the other may have been stopped before it could say it.
    assert re.search(r"^(n[12]) \| error: (?s:.*)^\1 \|   node\.durability: ", local.log(), re.MULTILINE), local.log()
    assert local.lines() == []


def test_the_end_of_the_terminal_ends_all(start: Callable[..., Local]) -> None:
    local = start("--nodes", "1")
    local.ready()
    pid = local.pid("n1")
    assert local.end(signal.SIGHUP) == 0
    assert not alive(pid)


def test_a_node_that_has_left_is_not_started_again(start: Callable[..., Local]) -> None:
    local = start("--nodes", "2", "--replicas", "2", "--restart")
    places = local.ready()
    admin = ",".join(place["admin"] for place in places.values())
    words = [sys.executable, "-m", "folkmoot", "leave", "n2", "--admin", admin]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done
    await_true(lambda: "n2 | still running: n1" in local.log())
    assert "restarts in" not in local.log()
    assert local.end() == 0
