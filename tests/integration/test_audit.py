"""The audit log of a real node, the permissions of what it writes, and secrets that others can read."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from folkmoot.config.password import PasswordFile
from folkmoot.mqtt.packet import Connack, Connect, Pingreq, Pingresp, Properties, Publish, Suback, Subscribe
from tests.integration.serving import RawClient, Serving, await_true

ANY = "127.0.0.1:0"
TOKEN = "a-token-of-sixteen-or-more"


def lines(path: Path, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in found if line["event"] == event]


def order(serving: Serving, path: str, **headers: str) -> int:
    place = f"http://127.0.0.1:{serving.port('admin')}{path}"
    fields = {"content-type": "application/json", **headers}
    try:
        with urllib.request.urlopen(urllib.request.Request(place, b"{}", fields), timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def connect(serving: Serving, user: str, password: bytes) -> int:
    with RawClient(serving) as client:
        client.send(Connect(5, f"c-{user}", True, 0, user, password, None, Properties()))
        answer = client.receive()
        assert isinstance(answer, Connack)
        return answer.code


def test_logins_refusals_orders_and_reloads_are_audited(tmp_path: Path) -> None:
    audit, users, token = tmp_path / "audit.jsonl", tmp_path / "users", tmp_path / "token"
    token.write_text(TOKEN + "\n")
    file = PasswordFile()
    file.set("ann", b"the password of ann")
    file.write(users)
    config = f"""
        log = {{ audit = "{audit}" }}
        admin = {{ token_file = "{token}" }}
        auth = {{ password_file = "{users}" }}
        """
    with Serving(tmp_path / "data", "--mqtt", ANY, "--admin", ANY, config=config) as node:
        assert connect(node, "ann", b"the password of ann") == 0
        assert connect(node, "ann", b"a wrong password") != 0
        bearer = f"Bearer {TOKEN}"
        assert order(node, "/api/v1/nodes/gone/evict", Authorization=bearer) in (404, 409, 503)
        assert order(node, "/api/v1/nodes/gone/evict", Authorization="Bearer wrong") == 403
        assert order(node, "/api/v1/leave", Authorization=bearer, Origin="https://evil.example") == 403
        await_true(lambda: len(lines(audit, "admin_refused")) == 2)
        audit.rename(audit.with_suffix(".1"))
        file.set("bob", b"x")
        file.write(users)
        assert node.process is not None
        token.write_text("short")
        node.process.send_signal(signal.SIGHUP)
        await_true(lambda: audit.exists() and lines(audit, "reload_failed") != [])
        token.write_text(TOKEN + "\n")
        node.process.send_signal(signal.SIGHUP)
        await_true(lambda: audit.exists() and lines(audit, "reloaded") != [])
        assert node.stop() == 0, node.log()
    first = audit.with_suffix(".1")
    (login,) = lines(first, "connected")
    assert (login["user"], login["client"], login["node"]) == ("ann", "c-ann", "node1")
    assert login["address"].startswith("127.0.0.1:")
    (refused,) = lines(first, "connect_refused")
    assert (refused["user"], refused["code"][:4]) == ("ann", "0x86")
    (ordered,) = lines(first, "order")
    assert (ordered["method"], ordered["path"], ordered["token"]) == ("POST", "/api/v1/nodes/gone/evict", True)
    assert {line["status"] for line in lines(first, "admin_refused")} == {403}
    (failed,) = lines(audit, "reload_failed")
    assert "16 characters" in failed["why"]
    assert "users_added" not in failed
    (reloaded,) = lines(audit, "reloaded")
    assert (reloaded["changed"], reloaded["users_added"]) == (["auth.password_file"], ["bob"]), "it is in force now"
    assert len(lines(audit, "stopped")) == 1
    for secret in (TOKEN, "the password of ann", "a wrong password", "scrypt"):
        assert secret not in first.read_text() + audit.read_text() + node.log()
    assert audit.stat().st_mode & 0o777 == 0o600
    written = list((tmp_path / "data").rglob("*"))
    assert len(written) > 5
    assert [path for path in [tmp_path / "data", *written] if path.stat().st_mode & 0o077] == []


def test_a_token_that_others_can_read_is_refused_with_the_command_that_mends_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o644)
    config = f'admin = {{ token_file = "{token}" }}\n'
    node = Serving(tmp_path / "data", "--mqtt", ANY, "--admin", ANY, config=config)
    with pytest.raises(AssertionError, match="chmod 600"):
        node.start()
    command = node.log().partition("`")[2].partition("`")[0]
    subprocess.run(command, shell=True, check=True)
    with node:
        assert node.stop() == 0


def test_a_password_file_that_others_can_read_is_refused_at_a_reload(tmp_path: Path) -> None:
    users = tmp_path / "users"
    file = PasswordFile()
    file.set("ann", b"pw")
    file.write(users)
    with Serving(tmp_path / "data", "--mqtt", ANY, "--password-file", str(users)) as node:
        file.set("ann", b"another")
        file.write(users)
        users.chmod(0o666)
        assert node.process is not None
        node.process.send_signal(signal.SIGHUP)
        await_true(lambda: "reload_failed" in node.log())
        assert "chmod 600" in node.log()
        assert connect(node, "ann", b"pw") == 0, "the previous users stay"


def test_what_the_rules_deny_is_audited_and_a_flood_of_it_hides_nothing(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    config = f'log = {{ audit = "{audit}" }}\n[auth]\ndefault = "deny"\n'
    with Serving(tmp_path / "data", "--mqtt", ANY, config=config) as node:
        with RawClient(node, version=4) as flood, RawClient(node) as probe:
            flood.connect("flood", clean=True)
            probe.connect("probe", clean=True, session_s=0)
            flood.send(*[Publish(b"secret/%d" % number, b"", 0, False, False, 0) for number in range(20_000)])
            flood.send(Pingreq())
            assert isinstance(flood.receive(), Pingresp)
            probe.send(Publish(b"secret/x", b"", 0, False, False, 0), Subscribe(1, [(b"secret/#", 0)]))
            answer = probe.receive()
            assert isinstance(answer, Suback)
            assert answer.codes == [0x87]
        await_true(lambda: len(lines(audit, "publish_denied")) >= 12)
        assert node.stop() == 0, node.log()
    told = lines(audit, "publish_denied")
    of_probe = [line["topic"] for line in told if line["client"] == "probe"]
    of_flood = [line for line in told if line["client"] == "flood"]
    assert of_probe == ["secret/x"]
    assert len(of_flood) <= 2 * 10 + 1, "the test may take longer than a minute"
    assert sum("topic" in line for line in of_flood) + sum(line.get("untold", 0) for line in of_flood) == 20_000
    (denied,) = lines(audit, "subscribe_denied")
    assert (denied["filter"], denied["client"]) == ("secret/#", "probe")
    assert denied["address"].startswith("127.0.0.1:")
