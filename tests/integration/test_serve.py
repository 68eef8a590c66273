"""`folkmoot serve` as a process: what it says, how it ends, what it refuses, and the admin server."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from folkmoot.mqtt.packet import PUBACK, Connack, Connect, Disconnect, Publish
from tests.integration.serving import CERTIFICATES, RawClient, Serving, await_true, tls_arguments
from tests.jepsen.rig import FAKETIME, faked

ANY = "127.0.0.1:0"


def fetch(serving: Serving, path: str, token: str = "") -> tuple[int, str]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{serving.port('admin')}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def refusal(serving: Serving, status: int = 1) -> str:
    """Start a node that cannot start; what it says."""
    result = subprocess.run(serving.command(), timeout=30, capture_output=True, text=True, check=False)
    assert result.returncode == status, result
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    if status == 2:  # settings: a line for each that is wrong
        return result.stderr
    (line,) = result.stderr.splitlines()
    return line.removeprefix("error: ")


# How it ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_clients_are_told(tmp_path: Path, number: int) -> None:
    with Serving(tmp_path / "data", "--mqtt", ANY, "--ws", ANY, "--admin", ANY) as node:
        five, three = RawClient(node), RawClient(node, version=4)
        five.connect("five")
        three.connect("three", clean=True)
        five.send(Publish(b"a", b"kept", 1, True, False, 1))
        five.expect_ack(PUBACK)
        assert node.stop(number) == 0
        goodbye = five.receive()
        assert isinstance(goodbye, Disconnect)
        assert goodbye.code == 0x8B
        assert five.closed()
        assert three.closed()
        five.socket.close()
        three.socket.close()
        assert "stopped" in node.log()
        node.start()
        with RawClient(node) as client:
            assert client.connect("five").session_present
            client.subscribe(b"a")
            assert client.expect_publish().payload == b"kept"


def test_a_client_that_does_not_leave_cannot_hold_the_node(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", "--mqtt", ANY) as node, RawClient(node) as lazy, RawClient(node) as publisher:
        lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect("lazy", clean=True, session_s=0)
        lazy.subscribe(b"flood", 0)
        publisher.connect("publisher", clean=True, session_s=0)
        for _ in range(100):
            publisher.send(Publish(b"flood", bytes(60_000)))
        publisher.send(Publish(b"flood", b"", 1, False, False, 1))
        publisher.expect_ack(PUBACK)
        begun = time.monotonic()
        assert node.stop() == 0
        assert time.monotonic() - begun < 12


# What it refuses


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = refusal(Serving(tmp_path / "data", "--mqtt", f"127.0.0.1:{port}"))
    assert text == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; "
        "stop the process that uses it, or choose another port (0 picks a free one)"
    )
    assert not (tmp_path / "data").exists(), "nothing is made before the addresses are known to be free"


def test_an_address_of_another_machine_is_named(tmp_path: Path) -> None:
    text = refusal(Serving(tmp_path / "data", "--mqtt", "203.0.113.7:0", "--allow-anonymous"))
    assert "cannot listen on 203.0.113.7:0" in text
    assert "use an address of this machine" in text


@pytest.mark.parametrize("flag", ["--secret-file", "--password-file"])
def test_a_file_that_holds_something_else_is_told_before_anything_is_made(tmp_path: Path, flag: str) -> None:
    (tmp_path / "short").write_text("hush\n", encoding="utf-8")
    words = ["--mqtt", ANY, "--peer", ANY, flag, str(tmp_path / "short"), "--data", str(tmp_path / "data")]
    found = subprocess.run(
        [sys.executable, "-m", "folkmoot", "serve", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == 2
    assert {"--secret-file": "cluster.secret_file:", "--password-file": "auth.password_file:"}[flag] in found.stderr
    assert "hush" not in found.stderr
    assert not (tmp_path / "data").exists()


def test_a_certificate_that_does_not_fit_is_named(tmp_path: Path) -> None:
    flags = ["--tls-certificate", str(CERTIFICATES / "server.pem"), "--tls-key", str(CERTIFICATES / "other.key")]
    text = refusal(Serving(tmp_path / "data", "--mqtts", ANY, *flags), 2)
    assert "server.pem" in text
    assert "other.key" in text
    assert "belong together" in text


def test_a_data_folder_in_use_is_named(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", "--mqtt", ANY) as node:
        other = Serving(tmp_path / "data", "--mqtt", ANY)
        assert f"in use by process {node.pid}; stop that node first" in refusal(other)


def test_the_data_of_another_node_is_named(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", "--mqtt", ANY) as node:
        node.stop()
    text = refusal(Serving(tmp_path / "data", "--mqtt", ANY, "--node-id", "other"))
    assert "belongs to the node 'node1'" in text


def test_a_damaged_store_is_named_and_salvage_goes_on_with_the_rest(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", "--mqtt", ANY) as node:
        with RawClient(node) as client:
            client.connect("c")
            for number in range(1, 4):
                client.send(Publish(b"r/%d" % number, b"kept" * 50, 1, True, False, number))
                client.expect_ack(PUBACK)
            client.send(Publish(b"after", b"it was written", 1, True, False, 4))
            client.expect_ack(PUBACK)
        node.kill()
        log = max((tmp_path / "data" / "store" / "log").glob("*.seg"), key=lambda path: path.stat().st_size)
        data = bytearray(log.read_bytes())
        data[data.rindex(b"keptkept")] ^= 1
        log.write_bytes(data)
        text = refusal(node)
        assert f"{log} is damaged at byte" in text
        assert "--salvage" in text
        assert log.read_bytes() == data
        node.arguments.append("--salvage")
        node.start()
        with RawClient(node) as client:
            client.connect("other", clean=True, session_s=0)
            client.subscribe(b"r/#")
            assert sorted(client.expect_publish().topic for _ in range(2)) == [b"r/1", b"r/2"]


def test_damage_that_is_met_later_ends_the_node_by_name(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", "--mqtt", ANY) as node:
        with RawClient(node) as client:
            client.connect("c")
            client.subscribe(b"q", 1)
        with RawClient(node) as client:
            client.connect("p")
            for number in range(1, 401):  # more than may wait in the log for the rows
                client.send(Publish(b"q", b"%d" % number * 300, 1, False, False, number))
                client.expect_ack(PUBACK)
        assert node.stop() == 0  # turns the rows into a table
        table = max((tmp_path / "data" / "store").glob("*.sst"), key=lambda path: path.stat().st_size)
        data = bytearray(table.read_bytes())
        data[len(data) // 2] ^= 1
        table.write_bytes(data)
        saved = tmp_path / "saved"
        shutil.copytree(tmp_path / "data", saved)
        result: Any = None
        try:
            node.start()
            with RawClient(node) as client:
                client.send(Connect(5, "c", False, 0))
                while client.receive(5) is not None:
                    pass
            assert node.process is not None
            result = node.process.wait(60)
        except AssertionError:
            result = 1  # met already while opening
        assert result == 1
        assert f"{table.name}" in node.log()
        assert "backup" in node.log()


# The admin server


def test_health_metrics_and_status(serving: Serving) -> None:
    assert fetch(serving, "/health/live") == (200, "live\n")
    assert fetch(serving, "/health/ready") == (200, "ready\n")
    with RawClient(serving) as client:
        client.connect("counted", clean=True, session_s=0)
        client.send(Publish(b"kept/x", b"12345", 1, False, False, 1))
        client.expect_ack(PUBACK)
        status, text = fetch(serving, "/metrics")
        assert status == 200
        figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert int(figures["folkmoot_connections"]) >= 1
        assert int(figures["folkmoot_commit_seconds_count"]) >= 1
        assert int(figures["folkmoot_turn_seconds_count"]) >= 1
        status, text = fetch(serving, "/api/v1/status")
        content = json.loads(text)
        assert content["node"] == "node1"
        assert content["state"] == "alone"
        assert content["stopping"] is False
        assert content["clients_connected"] >= 1
        assert content["storage"]["full"] is False
    assert fetch(serving, "/nowhere")[0] == 404


def test_a_reader_that_waits_at_the_end_of_a_stream_is_woken(serving: Serving) -> None:
    place = f"http://127.0.0.1:{serving.port('admin')}/api/v1/streams/kept"
    with urllib.request.urlopen(place, timeout=60) as response:
        ends = {entry["partition"]: entry["next"] for entry in json.load(response)["ranges"]}
    readers = [
        subprocess.Popen(
            ["curl", "-sS", "-D", "-", "-o", "/dev/null", f"{place}/partitions/{p}/records?from={end}&wait_ms=15000"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for p, end in ends.items()
    ]
    begun = time.monotonic()
    time.sleep(0.3)
    with RawClient(serving) as client:
        client.connect("writer", clean=True, session_s=0)
        for number in range(1, 65):
            client.send(Publish(b"kept/%d" % number, b"x", 1, False, False, number))
        for _ in range(64):
            client.expect_ack(PUBACK)
    for reader, end in zip(readers, ends.values(), strict=True):
        text = reader.communicate(timeout=20)[0]
        assert f"folkmoot-next-offset: {end}\n" not in text.replace("\r", ""), text
        assert "folkmoot-next-offset" in text
    assert time.monotonic() - begun < 12


def test_a_token_is_demanded_where_one_is_set(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-long-random-token\n")
    config = f'[admin]\ntoken_file = "{token}"\n'
    with Serving(tmp_path / "data", "--mqtt", ANY, "--admin", ANY, config=config) as node:
        for path in ("/metrics", "/api/v1/status", "/api/v1/streams"):
            assert fetch(node, path)[0] == 401
            assert fetch(node, path, "wrong")[0] == 403
            assert fetch(node, path, "a-long-random-token")[0] == 200
        assert fetch(node, "/health/live")[0] == 200
        token.write_text("short")
    assert "at least 16 characters" in refusal(node, 2)


def test_without_an_address_there_is_no_admin_server(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", "--mqtt", ANY) as node:
        assert set(node.places) == {"node", "mqtt"} or set(node.places) == {"mqtt"}


def test_passwords_are_checked_and_remembered(tmp_path: Path) -> None:
    from folkmoot.config.password import PasswordFile

    users = PasswordFile()
    users.set("ann", b"secret")
    users.write(tmp_path / "users")
    with Serving(tmp_path / "data", "--mqtt", ANY, "--password-file", str(tmp_path / "users")) as node:

        def code(name: str | None, password: bytes | None) -> int:
            with RawClient(node) as client:
                client.send(Connect(5, "c", True, 0, name, password))
                answer = client.receive()
                assert isinstance(answer, Connack)
                return answer.code

        assert code("ann", b"secret") == 0
        assert code("ann", b"wrong") in (0x86, 0x87)
        assert code("bob", b"secret") in (0x86, 0x87)
        assert code(None, None) in (0x86, 0x87)
        before = node.cpu_s()
        for _ in range(50):
            assert code("ann", b"secret") == 0
        assert node.cpu_s() - before < 1.0, "fifty hashes would have taken two seconds"
        assert "secret" not in node.log()
        users.set("ann", b"changed")
        users.write(tmp_path / "users")
        assert node.process is not None
        node.process.send_signal(signal.SIGHUP)
        await_true(lambda: code("ann", b"changed") == 0)
        assert code("ann", b"secret") != 0


def test_many_listeners_of_one_kind(tmp_path: Path) -> None:
    listeners = ["--mqtt", ANY, "--mqtts", ANY, *tls_arguments(), "--ws", ANY]
    with Serving(tmp_path / "data", *listeners) as node:
        assert {"mqtt", "mqtts", "ws"} <= set(node.places)


@pytest.mark.skipif(not FAKETIME, reason="libfaketime is missing (Debian and Ubuntu: the package faketime)")
def test_a_node_alone_follows_the_clock_of_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = tmp_path / "clock"
    clock.write_text("+0s\n")
    for name, value in faked(FAKETIME_TIMESTAMP_FILE=str(clock)).items():
        monkeypatch.setenv(name, value)
    with Serving(tmp_path / "data", "--mqtt", ANY) as node:
        (tmp_path / "new").write_text("+3600s\n")
        (tmp_path / "new").replace(clock)
        await_true(lambda: "time_set" in node.log())
        assert 3_599 <= int(node.log().partition("by_us=")[2].split()[0]) / 1e6 <= 3_601
