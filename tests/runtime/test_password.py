from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from folkmoot.config.fault import ConfigError
from folkmoot.config.password import PasswordFile
from folkmoot.runtime import password
from folkmoot.runtime.password import CheckListener, PasswordChecks
from tests.runtime.fake import FakeLoop


class Check:
    def __init__(self, name: str | None, secret: bytes | None) -> None:
        self.connection = object()
        self.username = name
        self.password = secret
        self.client_id = "c"


class CountingFile(PasswordFile):
    """Counts verifications instead of being slow."""

    def __init__(self, hashes: dict[str, str] | None = None) -> None:
        super().__init__(hashes)
        self.verified = 0

    def verify(self, user: str, password: bytes) -> bool:
        self.verified += 1
        return self.hashes.get(user) == password.decode()


class Bench(CheckListener):
    def __init__(self, path: Path) -> None:
        users = PasswordFile()
        users.set("ann", b"secret")
        users.write(path)
        self.loop = FakeLoop()
        self.answered = threading.Semaphore(0)
        self.loop.call_soon_threadsafe = self._threadsafe  # type: ignore[assignment, method-assign]
        self.answers: list[tuple[object, bool]] = []
        self.gone: list[object] = []
        self.cuts: list[object] = []
        loop: Any = self.loop
        self.checks = PasswordChecks(path, loop, self)
        self.file = CountingFile({"ann": "secret"})
        self.checks._file = self.file

    def authenticated(self, connection: object, accepted: bool) -> None:
        self.answers.append((connection, accepted))

    def is_open(self, connection: object) -> bool:
        return connection not in self.gone

    def cut(self, connection: object) -> None:
        self.cuts.append(connection)

    def _threadsafe(self, *call: Any) -> None:
        self.loop.ready.append((call[0], call[1:]))
        self.answered.release()

    def ask(self, name: str | None, secret: bytes | None) -> bool:
        check: Any = Check(name, secret)
        before = self.file.verified
        self.checks.check(check)
        assert self.answers == [], "an answer never comes within the turn that asks"
        if not self.loop.ready or self.file.verified > before:
            assert self.answered.acquire(timeout=60)
        self.loop.iterate()
        ((connection, ok),) = self.answers
        assert connection is check.connection
        self.answers.clear()
        return ok


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = Bench(tmp_path / "users")
    yield made
    made.checks.close()


def test_the_file_decides(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "users")
    bench.checks.reload()  # the real file, with real hashes
    for name, secret, ok in (("ann", b"secret", True), ("ann", b"Secret", False), ("bob", b"secret", False)):
        check: Any = Check(name, secret)
        bench.checks.check(check)
        assert bench.answered.acquire(timeout=60)
        bench.loop.iterate()
        assert bench.answers.pop() == (check.connection, ok)
    bench.checks.close()


def test_who_gives_no_name_or_password_is_refused_without_work(bench: Bench) -> None:
    assert not bench.ask(None, b"secret")
    assert not bench.ask("ann", None)
    assert bench.file.verified == 0


def test_a_success_is_remembered_and_a_failure_is_not(bench: Bench) -> None:
    for _ in range(5):
        assert bench.ask("ann", b"secret")
    assert bench.file.verified == 1
    for _ in range(2):
        assert not bench.ask("ann", b"wrong")
    assert bench.file.verified == 3


def test_names_and_passwords_cannot_be_shifted_into_each_other(bench: Bench) -> None:
    bench.file.hashes = {"ann": "secret", "anns": "ecret"}
    assert bench.ask("ann", b"secret")
    assert bench.checks._mark("ann", b"secret") != bench.checks._mark("anns", b"ecret")


def test_a_changed_password_ends_what_was_remembered(bench: Bench) -> None:
    assert bench.ask("ann", b"secret")
    bench.file.hashes = {"ann": "changed"}
    assert not bench.ask("ann", b"secret")


def test_reading_the_file_again_forgets_and_a_wrong_file_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    assert bench.ask("ann", b"secret")
    (tmp_path / "users").write_text("ann:nonsense\n")
    with pytest.raises(ConfigError, match="line 1"):
        bench.checks.reload()
    assert bench.ask("ann", b"secret")
    assert bench.file.verified == 1
    (tmp_path / "users").write_text("")
    bench.checks.reload()
    bench.checks._file = bench.file
    assert bench.ask("ann", b"secret")
    assert bench.file.verified == 2


def test_the_memory_is_bounded_and_the_least_recent_goes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password, "REMEMBERED_MAX", 2)
    bench.file.hashes = {"a": "1", "b": "2", "c": "3"}
    assert all([bench.ask("a", b"1"), bench.ask("b", b"2"), bench.ask("a", b"1"), bench.ask("c", b"3")])
    assert bench.file.verified == 3
    assert bench.ask("a", b"1")
    assert bench.file.verified == 3
    assert bench.ask("b", b"2")
    assert bench.file.verified == 4


def test_too_many_waiting_checks_are_cut_off_and_not_told_that_they_are_wrong(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password, "WAITING_MAX", 0)
    check: Any = Check("ann", b"secret")
    bench.checks.check(check)
    assert bench.cuts == [], "not within the turn that asks"
    bench.loop.iterate()
    assert bench.cuts == [check.connection]
    assert bench.answers == []
    assert bench.file.verified == 0


class SlowFile(CountingFile):
    """Verifies when it is told to."""

    def __init__(self) -> None:
        super().__init__({"ann": "secret", "bob": "secret"})
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def verify(self, user: str, password: bytes) -> bool:
        self.begun.release()
        assert self.go.acquire(timeout=60)
        return super().verify(user, password)


def test_who_asks_the_same_waits_for_the_same_answer(bench: Bench) -> None:
    """A client that comes again before it was answered costs nothing more."""
    slow = SlowFile()
    bench.checks._file = slow
    checks: list[Any] = [Check("ann", b"secret") for _ in range(3)]
    for check in checks:
        bench.checks.check(check)
    assert slow.begun.acquire(timeout=60)
    slow.go.release()
    assert bench.answered.acquire(timeout=60)
    bench.loop.iterate()
    assert bench.answers == [(check.connection, True) for check in checks]
    assert slow.verified == 1


def test_no_work_is_done_for_those_who_have_gone(bench: Bench) -> None:
    slow = SlowFile()
    bench.checks._file = slow
    busy: list[Any] = [Check("ann", b"%d" % number) for number in range(password.THREADS)]
    for check in busy:
        bench.checks.check(check)
        assert slow.begun.acquire(timeout=60)
    gone: Any = Check("bob", b"secret")
    bench.checks.check(gone)
    bench.gone.append(gone.connection)
    slow.go.release(len(busy))
    for _ in range(len(busy) + 1):
        assert bench.answered.acquire(timeout=60)
    late: Any = Check("bob", b"secret")
    bench.checks.check(late)
    bench.loop.iterate()
    assert slow.verified == len(busy)
    assert sorted(map(id, bench.cuts)) == sorted([id(gone.connection), id(late.connection)]), "they ask again"
