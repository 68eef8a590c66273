"""`folkmoot bench` against a real node: every workload runs, ends by itself, and finds nothing wrong."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from folkmoot.client.load import run_load
from folkmoot.client.workload import TRANSIENT, Span, Target, Workload

SHORT = Span(0.2, 0, 0.05)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Target]]:
    """A node with an empty store: its pid and where it listens."""
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, "-m", "folkmoot", "serve", "--data", str(folder / "data")]
    command += ["--mqtt", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 60)[0], "the node does not start"
        words = process.stdout.readline().split()
        assert words[:1] == ["ready"], "a node says `ready` first"
        address = next(word for word in words if word.startswith("mqtt="))
        yield process.pid, Target("127.0.0.1", int(address.rpartition(":")[2]))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize(
    "load",
    [
        TRANSIENT[1],
        TRANSIENT[4],
        TRANSIENT[5],
        TRANSIENT[6],
        Workload("five", qos=2, version=5, publishers=5, subscribers=5, window=20),
        Workload("fan-in", shape="fan-in", qos=1, publishers=5, window=20),
        # On a busy machine a short run has too few messages of these to time one in 101.
        Workload("kept", qos=1, publishers=3, subscribers=3, window=10, persistent=True, version=5, sample_every=7),
        Workload("kept 3.1.1", qos=2, window=10, persistent=True, sample_every=7),
        Workload("at a rate", qos=1, rate=500.0, sample_every=1),
        Workload("large", qos=1, payload_bytes=200_000, window=3, sample_every=1),
    ],
    ids=lambda load: load.name,
)
def test_messages_arrive_once_and_in_order(node: tuple[int, Target], load: Workload) -> None:
    pid, target = node
    result = run_load(load, target, SHORT, pid=pid)
    assert (result.faults, result.texts) == ({}, [])
    assert result.operations > 0
    assert result.published > 0
    assert result.latency.samples > 0
    assert 0 < result.latency.p50_us <= result.latency.p99_us <= result.latency.max_us
    assert (result.ack_latency.samples > 0) == (load.qos > 0)
    assert result.broker_cpu_us is not None
    assert result.broker_cpu_us > 0


def test_a_run_by_number_delivers_that_many(node: tuple[int, Target]) -> None:
    load = Workload("counted", shape="fan-out", subscribers=3, qos=1, window=10)
    result = run_load(load, node[1], Span(messages=101))
    assert (result.faults, result.published, result.operations) == ({}, 101, 303)


@pytest.mark.parametrize("version", [4, 5])
def test_connections_come_and_go_and_stay(node: tuple[int, Target], version: int) -> None:
    pid, target = node
    calls = run_load(Workload("connect", shape="connect", connections=5, version=version), target, SHORT, pid=pid)
    assert calls.faults == {}
    assert calls.operations > 5
    assert calls.latency.samples == calls.operations
    stay = run_load(Workload("idle", shape="idle", connections=50, version=version), target, SHORT, pid=pid)
    assert (stay.faults, stay.operations) == ({}, 50)
    assert stay.extra["connects_per_second"] > 0
    assert "bytes_per_connection" in stay.extra


@pytest.mark.parametrize("qos", [0, 1])
def test_every_retained_message_comes(node: tuple[int, Target], qos: int) -> None:
    load = Workload("retained", shape="retained", qos=qos, rate=500.0, window=500, sample_every=1)
    result = run_load(load, node[1], Span(0.2, 1500))
    assert (result.faults, result.operations, result.extra["topics_missing"]) == ({}, 1500, 0)


def run_command(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "folkmoot", "bench", *words], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command_prints_json_and_a_table(node: tuple[int, Target]) -> None:
    pid, target = node
    where = ["--url", f"mqtt://{target.host}:{target.port}", "--seconds", "0.2", "--pid", str(pid)]
    status, output, errors = run_command(*where, "--pairs", "2", "--qos", "1", "--json")
    figures: dict[str, Any] = json.loads(output)
    assert (status, errors, figures["faults"], figures["workload"]["publishers"]) == (0, "", {}, 2)
    assert figures["operations"] > 0
    status, output, errors = run_command(*where, "--workload", "fan-out", "--subscribers", "2")
    assert (status, errors) == (0, "")
    assert "broker CPU" in output
    assert "per message" in output


def test_the_command_says_when_nobody_listens() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        status, output, _ = run_command("--port", str(sock.getsockname()[1]), "--seconds", "0.2")
    assert status == 1
    assert "refused" in output


def test_the_command_names_a_wrong_flag() -> None:
    status, _, errors = run_command("--workload", "pairs", "--subscribers", "3")
    assert status == 2
    assert "--subscribers" in errors


class Silent(threading.Thread):
    """A listener that accepts connections and closes them without a word."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])

    def run(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.close()


@pytest.mark.parametrize("shape", ["pairs", "connect", "idle", "retained"])
def test_a_server_that_hangs_up_ends_the_run(shape: str) -> None:
    silent = Silent()
    silent.start()
    try:
        load = Workload("hopeless", shape=shape, connections=3, rate=10.0 if shape == "retained" else 0.0)
        result = run_load(load, Target("127.0.0.1", silent.port), SHORT)
    finally:
        silent.listener.shutdown(socket.SHUT_RDWR)
        silent.listener.close()
        silent.join(5)
    assert not result.ok
    assert result.texts
    assert result.operations == 0


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Target]:
    """Mosquitto, the peer of the benchmarks; skips where it is not installed."""
    path = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if path is None:
        pytest.skip("Mosquitto is not installed (Debian, Ubuntu: apt install mosquitto)")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nlog_dest none\n", encoding="utf-8")
    process = subprocess.Popen([path, "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            except OSError:
                threading.Event().wait(0.05)
        yield Target("127.0.0.1", port)
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_flows_are_those_of_another_broker_too(mosquitto: Target, qos: int, version: int) -> None:
    load = Workload("peer", publishers=3, subscribers=3, qos=qos, version=version, window=10)
    result = run_load(load, mosquitto, SHORT)
    assert (result.faults, result.texts) == ({}, [])
    assert result.operations > 0
