from __future__ import annotations

import errno
import io
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from folkmoot.config.load import load
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.errors import FolkmootError
from folkmoot.kernel.event import INFO, Event
from folkmoot.runtime import audit
from folkmoot.runtime.audit import ADDRESSES_MAX, AUDITED, KIND_LINES_MAX, LINES_MAX, Audit, Frequency, SettingFiles
from folkmoot.runtime.log import Log

NOW = 1_700_000_000_000_000


def said(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def test_what_is_audited_is_written_and_nothing_else(path: Path) -> None:
    log = Audit(path, "n1", print)
    log.take([Event(INFO, "opened", {}), Event(INFO, "connect_refused", {"user": "ann", "address": "10.0.0.1:5"})], NOW)
    log.record("order", NOW + 1500, {"path": "/api/v1/leave", "node": "forged", "time": 0})
    log.close(NOW)
    assert said(path) == [
        {
            "time": "2023-11-14T22:13:20.000Z",
            "node": "n1",
            "event": "connect_refused",
            "user": "ann",
            "address": "10.0.0.1:5",
        },
        {"time": "2023-11-14T22:13:20.001Z", "node": "n1", "event": "order", "path": "/api/v1/leave"},
    ]
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_text_of_a_client_is_obeyed_by_what_shows_or_splits_the_log(path: Path) -> None:
    """Not the controls of a terminal, nor what many programs take for the end of a line."""
    forged = '{"event":"connected","user":"ops"}'
    names = [f"a{character}{forged}" for character in "\n\r\x1b\x7f\x85\x9b\u2028\u2029\u202e\ufeff\U000e0001"]
    log = Audit(path, "n1", print)
    for name in names:
        log.record("connect_refused", NOW, {"user": name, "client": name})
    log.close(NOW)
    text = path.read_text()
    assert text.replace("\n", "").isprintable()
    assert [json.loads(line)["user"] for line in text.splitlines()] == names
    stream = io.StringIO()
    for form in ("json", "text"):
        Log("info", form, stream).say("info", "connected", NOW, user="".join(names), address="1.2.3.4:5")
    assert stream.getvalue().replace("\n", "").isprintable()
    assert len(stream.getvalue().splitlines()) == 2


def test_it_is_appended_to(path: Path) -> None:
    path.write_text('{"event":"earlier"}\n')
    log = Audit(path, "n1", print)
    log.record("order", NOW, {})
    log.close(NOW)
    assert [line["event"] for line in said(path)] == ["earlier", "order"]


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for wrong in (tmp_path / "no" / "audit", tmp_path):
        with pytest.raises(FolkmootError, match="audit"):
            Audit(wrong, "n1", print)


def test_a_file_that_was_renamed_is_left_after_a_reload(path: Path) -> None:
    log = Audit(path, "n1", print)
    log.record("order", NOW, {"number": 1})
    waits(lambda: path.read_text() != "")
    path.rename(path.with_suffix(".1"))
    log.record("order", NOW, {"number": 2})
    waits(lambda: len(said(path.with_suffix(".1"))) == 2)
    log.reopen()
    log.record("order", NOW, {"number": 3})
    log.close(NOW)
    assert [line["number"] for line in said(path)] == [3]


def test_a_file_that_is_renamed_while_it_is_opened_is_opened_once_more(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two reloads soon after each other: the second one must not be lost, or lines would go where nobody looks."""
    log = Audit(path, "n1", print)
    opened = [0]
    really = os.open

    def open_and_rename(name: Any, *arguments: int) -> int:
        descriptor = really(name, *arguments)
        opened[0] += 1
        if opened[0] == 1:
            path.rename(path.with_suffix(".1"))
            log.reopen()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_rename)
    log.reopen()
    waits(lambda: opened[0] == 2)
    log.record("order", NOW, {"number": 1})
    log.close(NOW)
    assert [line["number"] for line in said(path)] == [1]


def waits(condition: Callable[[], bool]) -> None:
    """Wait for the thread that writes."""
    assert any(condition() or threading.Event().wait(0.01) for _ in range(2000))


def test_a_full_disk_is_said_and_nothing_is_lost_while_memory_lasts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [True]
    write = os.write

    def write_some(descriptor: int, data: bytes) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:7])  # a file system may take a part

    monkeypatch.setattr(os, "write", write_some)
    monkeypatch.setattr(audit, "RETRY_S", 0.01)
    heard: list[tuple[object, ...]] = []
    log = Audit(path, "n1", lambda level, kind, **fields: heard.append((level, kind, fields.get("lost"))))
    log.run_in(lambda call: call())
    for number in range(3):
        log.record("order", NOW, {"number": number})
    waits(lambda: heard == [("error", "audit_failed", None)])
    monkeypatch.setattr(audit, "WAITING_BYTES_MAX", 0)
    log.record("order", NOW, {"number": "lost"})
    monkeypatch.undo()
    full[0] = False
    monkeypatch.setattr(os, "write", write_some)
    waits(lambda: len(heard) > 1)
    log.close(NOW)
    assert heard[1:] == [("warning", "audit_works", 1)]
    assert [line.get("number", line.get("lines")) for line in said(path)] == [0, 1, 2, 1]
    assert log.lost == 1


def test_each_event_has_a_line_until_its_address_sends_too_many() -> None:
    frequency = Frequency()
    for second in range(3):
        now = NOW + second * SECOND
        counted = frequency.ended(now)
        assert counted == ([("refused", "a", 950, NOW // SECOND + second - 1)] if second else [])
        assert sum(frequency.take("refused", "a", now) for _ in range(1000)) == LINES_MAX == 50
        assert frequency.take("refused", "b", now)
        assert frequency.take("order", "a", now)


def test_every_event_of_an_attack_from_everywhere_is_counted() -> None:
    frequency = Frequency()
    addresses = 3 * ADDRESSES_MAX
    written = sum(frequency.take("refused", f"{number}", NOW) for _ in range(2) for number in range(addresses))
    counted = frequency.ended(NOW + SECOND)
    assert written == KIND_LINES_MAX
    assert sum(count for _, _, count, _ in counted) == 2 * addresses - written
    assert len(counted) <= ADDRESSES_MAX + 1


def test_counts_are_lines_of_their_own(path: Path) -> None:
    log = Audit(path, "n1", print)
    for number in range(1000):
        log.record("refused", NOW, {"address": f"10.0.0.1:{number}"})
    log.tick(NOW + SECOND)
    log.close(NOW + SECOND)
    lines = said(path)
    assert len(lines) == LINES_MAX + 1
    last = lines[-1]
    assert (last["address"], last["count"], last["aggregated"]) == ("10.0.0.1", 1000 - LINES_MAX, True)


def test_a_reload_names_what_changed_and_shows_no_secret(tmp_path: Path) -> None:
    token, users = tmp_path / "token", tmp_path / "users"
    token.write_text("0123456789abcdef")
    users.write_text("a file\n")
    settings = load(None, {}, {"admin": {"token_file": str(token)}, "auth": {"password_file": str(users)}})
    files = SettingFiles(settings, {"ann": "hash1", "bob": "hash2"})
    assert files.replace(files.read(settings, {"ann": "hash1", "bob": "hash2"})) == {"changed": []}
    token.write_text("fedcba9876543210")
    users.write_text("another\n")
    now = {"ann": "hash3", "eve": "hash4"}
    files.read(settings, now)  # a reload that failed
    assert files.replace(files.read(settings, now)) == {
        "changed": ["auth.password_file", "admin.token_file"],
        "users_added": ["eve"],
        "users_removed": ["bob"],
        "users_changed": ["ann"],
    }
    assert files.replace(files.read(settings, now)) == {"changed": []}


def test_a_reload_names_the_settings_that_changed(tmp_path: Path) -> None:
    """The rules, and a password file of another name, are what matters most."""
    (tmp_path / "users").write_text("")
    (tmp_path / "users").chmod(0o600)
    before = load(None, {}, {})
    files = SettingFiles(before, {})
    rule = {"topics": ["a/#"]}
    auth = {"password_file": str(tmp_path / "users"), "rules": [rule], "client_ids": ["%u"]}
    listener = {"protocol": "ws", "address": "127.0.0.1:0", "origins": ["https://a.example"]}
    after = load(None, {}, {"auth": auth, "listeners": [listener], "limits": {"receive_max": 10}})
    assert files.replace(files.read(after, {"ann": "hash"})) == {
        "changed": ["auth.password_file", "auth.client_ids", "auth.rules", "listeners[0].origins"],
        "users_added": ["ann"],
    }


def test_every_audited_kind_is_an_event_of_the_program() -> None:
    source = Path(__file__).parents[2] / "src"
    text = "".join(path.read_text() for path in sorted(source.rglob("*.py")) if path.name != "audit.py")
    assert [kind for kind in sorted(AUDITED) if f'"{kind}"' not in text] == []
