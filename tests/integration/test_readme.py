"""The transcript of README.md: pasted line by line into a shell, with other ports, it does what it says."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page import ROOT, blocks

STEP_S = 120.0  # on a machine that is busy with other tests
PATIENCE_S = 8  # of the subscriber, for the same reason
END_S = 30.0
PORTS = (18_000, 20_000)  # neither the system nor `folkmoot cluster` picks any of these, and no other test
MESSAGES = 60  # fewer than in the page: each is a process of mosquitto_pub, and n1 is killed after a second
FIRST_LINE = re.compile(r"^export MQTT=\d+ ADMIN=\d+$")


class Step:
    """A line of the transcript without its "$ ", and what must come of it."""

    def __init__(self, line: str, output: list[str]) -> None:
        self.line = line
        self.output = output


class Shell:
    """A bash that is given one line at a time, as somebody who pastes would."""

    def __init__(self, folder: Path) -> None:
        scripts = folder / "bin"
        scripts.mkdir()
        (scripts / "folkmoot").write_text(f'#!/bin/sh\nexec {sys.executable} -m folkmoot "$@"\n', encoding="utf-8")
        (scripts / "folkmoot").chmod(0o755)
        environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"}
        environment.pop("FOLKMOOT_URL", None)
        self.steps = 0
        self.output = folder / "pasted.txt"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                ["bash", "--norc"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                text=True,
            )

    def paste(self, step: Step) -> list[str]:
        """Give a line to the shell; return what was printed until it, and its last expected line, were done."""
        assert self.process.stdin is not None
        begin = len(self.text())
        self.steps += 1
        mark = f"<done {self.steps}>"
        self.process.stdin.write(f"{step.line}\necho '{mark}'\n")
        self.process.stdin.flush()
        last = shape(step.output[-1]) if step.output else ()
        deadline = time.monotonic() + STEP_S
        while time.monotonic() < deadline:
            lines = [line for line in self.text()[begin:].splitlines() if line]
            if mark in lines and (not last or any(shape(line) == last for line in lines)):
                return [line for line in lines if line != mark]
            time.sleep(0.05)
        log = self.output.with_name("log.txt")
        said = log.read_text(encoding="utf-8")[-4000:] if log.exists() else ""
        pytest.fail(f"$ {step.line}\nhas not printed {step.output}, but:\n{self.text()[begin:]}\nlog.txt:\n{said}")

    def text(self) -> str:
        """All that the shell has printed."""
        return self.output.read_text(encoding="utf-8")

    def end(self) -> None:
        """End the shell."""
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait(END_S)
        self.process.stdin.close()


def transcript() -> list[Step]:
    """The lines of README's transcripts in their order, without that of the Spark program."""
    steps: list[Step] = []
    for block in blocks(ROOT / "README.md", "console"):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append(Step(line[2:], []))
            else:
                steps[-1].output.append(line)
    return [step for step in steps if not step.line.startswith("python ")]


def shape(line: str) -> tuple[str, ...]:
    """The first words of a line, its numbers masked: ports and sizes are others on every machine."""
    return tuple(re.sub(r"\d+", "#", word) for word in line.split()[:2])


def consecutive(count: int, apart_from: int = 0) -> int:
    """The first of so many free ports in a row, `count` or more away from another one."""
    for first in range(*PORTS, count):
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            if abs(first - apart_from) >= count:
                return first
    raise AssertionError(f"no {count} ports in a row are free")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    found = Shell(tmp_path)
    yield found
    # Nodes first: each is a process of its own, and outlives the shell.
    for lock in tmp_path.glob("demo/n*/lock"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            pid = int(lock.read_text(encoding="ascii"))
            if b"folkmoot" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    found.end()


def test_the_transcript_begins_with_the_ports() -> None:
    first, *others = [step.line for step in transcript()]
    assert FIRST_LINE.match(first)
    # So whoever changes the first line changes all of them.
    assert [line for line in others if re.search(r"18\d\d|80\d\d", line)] == []


@pytest.mark.skipif(
    not (shutil.which("mosquitto_pub") and shutil.which("mosquitto_sub")),
    reason="mosquitto-clients is not installed: `make clients` installs it",
)
def test_the_transcript_can_be_pasted_with_other_ports(shell: Shell) -> None:
    steps = transcript()
    mqtt = consecutive(3)
    admin = consecutive(3, mqtt)
    steps[0].line = f"export MQTT={mqtt} ADMIN={admin}"
    said: dict[str, list[str]] = {}
    for step in steps:
        step.line = step.line.replace("$(seq 300)", f"$(seq {MESSAGES})").replace(" -W 3 ", f" -W {PATIENCE_S} ")
        lines = shell.paste(step)
        said[step.line] = lines
        for expected in step.output:
            assert shape(expected) in [shape(line) for line in lines], f"$ {step.line}\n{lines}"
    said_by = {line.split()[0] if line.split()[0] != "folkmoot" else line.split()[1]: said[line] for line in said}
    assert said_by["mosquitto_sub"][-1] == str(MESSAGES)
    assert f"n1 ready mqtt=127.0.0.1:{mqtt} admin=127.0.0.1:{admin} " in "\n".join(said_by["cluster"])
    (room,) = [line.split() for line in said_by["stream"] if line.startswith("rooms ")]
    assert int(room[3]) >= MESSAGES  # a message whose PUBACK was lost is there twice
    nodes = {words[0]: words[2] for words in map(str.split, said_by["status"]) if re.fullmatch(r"n\d", words[0])}
    assert nodes == {"n1": "away", "n2": "active", "n3": "active"}
    shell.paste(Step("kill %1; wait %1", []))
