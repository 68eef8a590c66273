"""One run: nodes and clients in namespaces, a schedule of faults, and the history of what clients saw."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.cluster_net import Net
from tests.jepsen import history
from tests.jepsen.history import Event, Recorder
from tests.jepsen.nemesis import Fault
from tests.jepsen.rig import ADMIN, CLIENTS, MQTT, PARTITIONS, Rig, sleep_until
from tests.jepsen.workload import STREAM, STREAM_FILTER, WHOLE

__all__ = ["Options", "run"]

ROOT = Path(__file__).resolve().parents[2]
END_S = 20.0


@dataclass(frozen=True)
class Options:
    """What distinguishes a run from another one."""

    nodes: int = 5
    witnesses: int = 0  # of these, voters without data: the last ones
    policy: str = "majority"
    replicas: int = 3
    partitions: int = 256
    cluster: tuple[str, ...] = ()
    seconds: float = 60.0
    seed: int = 1
    rate: float = 100.0


class Witness:
    """The process with all clients, in a namespace of its own; it takes orders and answers in lines of JSON."""

    def __init__(self, net: Net, folder: Path, plan: dict[str, Any]) -> None:
        (folder / "plan.json").write_text(json.dumps(plan))
        words = [*net.enter(CLIENTS), sys.executable, "-m", "tests.jepsen", "clients", str(folder)]
        self.log = (folder / "clients.log").open("wb")
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, cwd=ROOT
        )

    def order(self, what: str, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([what, *words]) + "\n")
        self.process.stdin.flush()

    def waits_for_copies(self) -> bool:
        """Wait until all copies are in sync, or too long; tell whether they are."""
        self.order("copies")
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip() == WHOLE

    def expect(self, what: str) -> None:
        """Wait for a line; raises RuntimeError when the process has ended instead (it bounds its own waits)."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if line != what:
            self.process.wait(10.0)
            raise RuntimeError(f"the clients said {line!r} instead of {what!r}:\n{Path(self.log.name).read_text()}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.log):
            assert file is not None
            file.close()


def run(options: Options, schedule: Sequence[Fault], folder: Path, say: Callable[[str], None]) -> list[Event]:
    """Run once, in an empty folder; the history, which is also in `history.jsonl` there.

    Raises Unable when the machine does not allow it, RuntimeError when clients or nodes could not begin.
    """
    names = [f"n{number}" for number in range(1, options.nodes + 1)]
    serving = names[: options.nodes - options.witnesses]
    base_ns = time.monotonic_ns()
    with ExitStack() as stack:
        net = stack.enter_context(Net([*names, CLIENTS]))
        mine = stack.enter_context((folder / "faults.jsonl").open("w", buffering=1))
        recorder = Recorder(mine, base_ns)
        recorder.add("run", **header(options, names, schedule))
        rig = Rig(
            folder,
            net,
            names,
            recorder,
            policy=options.policy,
            replicas=options.replicas,
            partitions=options.partitions,
            cluster=options.cluster,
            stream=(STREAM, STREAM_FILTER),
            small={name for fault in schedule for name in fault.small},
            clocks={name for fault in schedule for name in fault.clocks},
            witnesses=names[len(serving) :],
        )
        stack.callback(rig.close)
        rig.start(*names)
        witness = Witness(net, folder, plan(options, rig, serving, base_ns))
        stack.callback(witness.close)
        rig.post = lambda node, path: witness.order("post", node, path)
        witness.expect("serving")
        say("clients are subscribed")
        faults(options, schedule, rig, recorder, witness.waits_for_copies, say)
        witness.order("rest")
        say("all faults are over; waiting until all is said")
        witness.expect("done")
        witness.process.wait(END_S)
        rig.watch()
    events = history.read(folder / "faults.jsonl", folder / "clients.jsonl")
    history.write(folder / "history.jsonl", events)
    for name in names:
        shutil.rmtree(folder / f"data-{name}", ignore_errors=True)
        shutil.rmtree(folder / f"kept-{name}", ignore_errors=True)
    return events


def faults(
    options: Options,
    schedule: Sequence[Fault],
    rig: Rig,
    recorder: Recorder,
    waits_for_copies: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    """Do what the schedule says, when it says it, then mend all.

    waits_for_copies: waits until all copies are in sync, or too long; returns whether they are.
    """
    recorder.add("phase", name="faults")
    began = time.monotonic()
    for fault in schedule:
        for number, (at, step) in enumerate(fault.steps):
            sleep_until(began + fault.begin_s + at)
            if number in fault.takes:
                asked = time.monotonic()
                whole = waits_for_copies()
                began += time.monotonic() - asked  # all that follows keeps its distance
                if not whole:
                    say(f"LEFT OUT from here on, since not all copies are in sync: {fault}")
                    recorder.add("fault", name=fault.name, do="leave out", what=fault.what)
                    break
            if number == 0:
                recorder.add("fault", name=fault.name, do="begin", what=fault.what)
                say(str(fault))
            step(rig)
            rig.watch()
        else:
            recorder.add("fault", name=fault.name, do="end", what=fault.what)
    sleep_until(began + options.seconds)
    rig.watch()
    rig.mend()
    for name, node in rig.nodes.items():
        if not node.runs:
            rig.start(name)
    recorder.add("phase", name="heal")


def header(options: Options, names: list[str], schedule: Sequence[Fault]) -> dict[str, Any]:
    """The first event."""
    copies = min(options.replicas, options.nodes - options.witnesses)
    found: dict[str, Any] = {"policy": options.policy, "nodes": names, "replicas": copies}
    found |= {"witnesses": names[options.nodes - options.witnesses :]}
    found |= {"seconds": options.seconds, "seed": options.seed, "stream": STREAM_FILTER, "partitions": PARTITIONS}
    return found | {"schedule": [str(fault) for fault in schedule]}


def plan(options: Options, rig: Rig, names: list[str], base_ns: int) -> dict[str, Any]:
    """What the clients need to know."""
    return {
        "base_ns": base_ns,
        "seed": options.seed,
        "mqtt": {name: rig.address(name, MQTT) for name in names},
        "admin": {name: rig.address(name, ADMIN) for name in names},
        "token": rig.token,
        "first": names,
        "partitions": PARTITIONS,
        "rate": options.rate,
    }
