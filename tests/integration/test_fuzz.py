"""Hostile clients on all listeners at once: nodes live, memory is bounded, and well-behaved clients are served.

FOLKMOOT_SEED chooses the first seed; `make soak` draws one, and a failure names it. The programs of a seed are always
the same; how they meet is not.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.soak import SOAK
from tests.integration.fuzz_attack import Attack
from tests.integration.fuzz_program import KINDS, draw
from tests.integration.fuzz_watch import Watch, quantile
from tests.integration.serving import Serving, await_true, tls_arguments

pytestmark = [pytest.mark.slow]

ANY = "127.0.0.1:0"
SECONDS = {1: 600.0, 3: 600.0} if SOAK else {1: 40.0, 3: 20.0}  # of attacks, by the number of nodes
SEED = int(os.environ.get("FOLKMOOT_SEED", "0")) or (random.SystemRandom().randrange(1 << 30) if SOAK else 1)
GROWTH_MAX = 192 << 20  # of a node's memory, under all attacks together
# Other tests use the cores and the disk as well, except in a soak.
P99_MAX_S = 0.25 if SOAK else 1.0
SILENCE = "2s" if SOAK else "5s"
SECRET = "a-secret-that-the-nodes-share"

CONFIG = """
[limits]
connect_timeout = "2s"
sys_interval = "1s"
[cluster]
secret_file = "{folder}/secret"
silence = "{silence}"
stall = "{silence}"
"""


@pytest.fixture(params=[1, 3], ids=["one-node", "three-nodes"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Serving]]:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    made: list[Serving] = []
    try:
        for number in range(1, request.param + 1):
            listeners = [
                word for name in ("mqtt", "mqtts", "ws", "wss", "admin", "peer") for word in (f"--{name}", ANY)
            ]
            seeds = [word for node in made for word in ("--seed", f"127.0.0.1:{node.port('peer')}")]
            arguments = ["--node-id", f"n{number}", *listeners, *seeds, *tls_arguments()]
            made.append(
                Serving(
                    tmp_path / f"n{number}", *arguments, config=CONFIG.format(folder=tmp_path, silence=SILENCE)
                ).start()
            )
        if len(made) > 1:
            await_true(lambda: all("view_installed" in node.log() for node in made))
        yield made
    finally:
        for node in made:
            if node.process is not None:
                node.kill()


def listeners(nodes: list[Serving]) -> list[tuple[str, tuple[str, int]]]:
    """What is attacked: every kind of listener of every node, plain MQTT twice as often."""
    return [(kind, node.places[kind]) for node in nodes for kind in [*KINDS, "mqtt"]]


def faults(nodes: list[Serving], watch: Watch) -> list[str]:
    """What a user would be upset about."""
    found = list(watch.faults)
    for node in nodes:
        log = node.log()
        if node.process is None or node.process.poll() is not None:
            found.append(f"the node has ended: {log[-2000:]}")
        found += re.findall(r"Traceback[^$]{0,3000}", log)[:1]
        found += [line for line in log.splitlines() if "peer_dead" in line or "peer_down" in line]
    late = quantile(watch.round_trips_s, 0.99) if watch.round_trips_s else float("inf")
    if late > P99_MAX_S:
        found.append(f"the 99th percentile of the round trips is {late:.3f} s")
    found += [f"a node took {grown >> 20} MiB more memory" for grown in watch.grown_bytes() if grown > GROWTH_MAX]
    return found


@pytest.mark.timeout(3 * 600)
def test_hostile_clients_hurt_nobody_else(nodes: list[Serving]) -> None:
    seconds = SECONDS[len(nodes)]
    with Attack(listeners(nodes), SEED, seconds) as attack, Watch(nodes) as watch:
        programs = attack.wait()
        watched = len(watch.round_trips_s)
    assert programs > 25, "the attack itself did not run"
    assert watched > seconds, "the watch itself did not run"
    assert faults(nodes, watch) == [], f"with seed {SEED}"
    for node in nodes:
        assert node.stop() == 0


# --- the watch sees what it must see


@pytest.mark.parametrize("nodes", [1], indirect=True)
def test_the_watch_sees_a_node_that_hangs(nodes: list[Serving]) -> None:
    with Watch(nodes) as watch:
        for _ in range(3):  # a tenth of the round trips at least
            time.sleep(0.1)
            os.kill(nodes[0].pid, signal.SIGSTOP)
            threading.Event().wait(P99_MAX_S + 0.5)
            os.kill(nodes[0].pid, signal.SIGCONT)
        time.sleep(0.1)
    assert any("99th percentile" in fault for fault in faults(nodes, watch))


@pytest.mark.parametrize("nodes", [1], indirect=True)
def test_the_watch_sees_a_node_that_ends(nodes: list[Serving]) -> None:
    with Watch(nodes) as watch:
        time.sleep(0.1)
        os.kill(nodes[0].pid, signal.SIGKILL)
        time.sleep(0.5)
    found = faults(nodes, watch)
    assert any("the node has ended" in fault for fault in found)
    assert watch.faults != []


@pytest.mark.parametrize("nodes", [1], indirect=True)
def test_the_watch_sees_memory_that_grows(nodes: list[Serving]) -> None:
    with Watch(nodes) as watch:
        watch.memory_before[0] -= GROWTH_MAX + 1
        time.sleep(0.5)
    assert any("more memory" in fault for fault in faults(nodes, watch))


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_is_a_program(kind: str) -> None:
    assert draw(kind, 7).chunks == draw(kind, 7).chunks
    assert len({draw(kind, seed).chunks[0] for seed in range(50)}) > 10
