"""config, passwd and serve as a user runs them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from folkmoot.cli import main
from folkmoot.cli.error import Refusal
from folkmoot.cli.serve import overrides
from folkmoot.config import PasswordFile

NO_LISTENERS: dict[str, list[str]] = {"mqtt": [], "mqtts": [], "ws": [], "wss": []}


def test_a_valid_file_is_said_to_be_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "folkmoot.toml"
    file.write_text('[node]\nid = "n7"\n', encoding="utf-8")
    assert main(["config", "check", str(file)]) == 0
    found = capsys.readouterr().out
    assert "n7" in found
    assert found.endswith("no cluster\n")
    file.write_text('[cluster]\nlisten = "127.0.0.1:7883"\nname = "prod"\nreplicas = 2\n', encoding="utf-8")
    assert main(["config", "check", str(file)]) == 0
    assert capsys.readouterr().out.endswith("cluster 'prod' at 127.0.0.1:7883 with 2 replicas\n")


def test_a_wrong_file_is_refused_with_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "folkmoot.toml"
    file.write_text("[limits]\nqos_max = 3\nqueue = 1\n", encoding="utf-8")
    assert main(["config", "check", str(file)]) == 2
    text = capsys.readouterr().err
    assert text.startswith(f"error: {file}")
    assert "limits.qos_max" in text
    assert "limits.queue" in text


def test_the_files_that_a_configuration_names_are_looked_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in (("users", "ann:secret\n"), ("token", "short\n"), ("pem", "no certificate\n")):
        (tmp_path / name).write_text(content, encoding="utf-8")
    file = tmp_path / "folkmoot.toml"
    file.write_text(
        f"""
        listeners = [{{ protocol = "mqtts", address = "127.0.0.1:8883" }}]
        tls = {{ certificate = "{tmp_path}/pem", key = "{tmp_path}/pem" }}
        auth = {{ password_file = "{tmp_path}/users" }}
        admin = {{ token_file = "{tmp_path}/token" }}
        """,
        encoding="utf-8",
    )
    assert main(["config", "check", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["auth.password_file:", "admin.token_file:", "listeners[0]"]
    assert "line 1" in lines[1]
    assert "16 characters" in lines[2]
    assert "PEM" in lines[3]


def test_a_field_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "explain", "node.durability"]) == 0
    assert '"fsync", "os"' in capsys.readouterr().out
    assert main(["config", "explain", "node.durabilty"]) == 2
    assert "node.durability" in capsys.readouterr().err


def test_users_are_added_changed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "users"
    for password in ("first", "second"):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\nrest\n"))
        assert main(["passwd", str(file), "ann"]) == 0
    users = PasswordFile.read(file)
    assert users.verify("ann", b"second")
    assert not users.verify("ann", b"first")
    assert main(["passwd", str(file), "ann", "--delete"]) == 0
    assert PasswordFile.read(file).hashes == {}
    assert main(["passwd", str(file), "ann", "--delete"]) == 2


def test_a_password_that_cannot_be_stored_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "users"
    for arguments, password in (
        ([str(file), "ann"], ""),
        ([str(file), "a:b"], "x"),
        ([str(tmp_path / "x/y"), "a"], "x"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(password + "\n"))
        assert main(["passwd", *arguments]) == 2
    assert list(tmp_path.iterdir()) == []


def test_only_flags_that_were_given_override() -> None:
    sections: dict[str, dict[str, object]] = {"node": {"id": None, "data": "d"}, "auth": {"allow_anonymous": False}}
    tables = overrides(
        {**sections, "log": {"level": None}}, {**NO_LISTENERS, "ws": ["127.0.0.1:1", "127.0.0.1:2"]}, ["a=b/#=c"]
    )
    assert tables == {
        "node": {"data": "d"},
        "auth": {"allow_anonymous": False},
        "listeners": [
            {"protocol": "ws", "address": "127.0.0.1:1"},
            {"protocol": "ws", "address": "127.0.0.1:2"},
        ],
        "streams": {"a": {"filter": "b/#=c"}},
    }


@pytest.mark.parametrize("text", ["a", "a=", "=b"])
def test_a_stream_flag_names_stream_and_filter(text: str) -> None:
    with pytest.raises(Refusal, match="NAME=FILTER"):
        overrides({}, NO_LISTENERS, [text])


def test_serve_refuses_an_open_broker_before_it_starts_anything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--mqtt", "0.0.0.0:0"]) == 2
    assert "auth.allow_anonymous = true" in capsys.readouterr().err
