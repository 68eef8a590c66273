from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from folkmoot.auth.login import UNIT_BYTES
from folkmoot.auth.remembered import Remembered
from folkmoot.config.password import PasswordFile
from folkmoot.kernel.limits import Limits
from folkmoot.runtime import password
from folkmoot.runtime.password import CheckListener, PasswordChecks, mark_keys
from folkmoot.session.connection import PeerInfo
from tests.runtime.fake import FakeLoop

KEYS = [b"k" * 32]


class Place:
    """A connection."""

    def __init__(self, host: str, size: int = 0) -> None:
        self.info = PeerInfo("tcp", f"{host}:7")
        self.size = size

    def connect_held(self) -> int:
        return self.size

    def waiting_bytes(self) -> int:
        return 0


class Check:
    def __init__(self, name: str | None, secret: bytes | None, host: str = "192.0.2.1", size: int = 0) -> None:
        self.connection = Place(host, size)
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
        self.real = PasswordFile()
        self.real.set("ann", b"secret")
        self.path = path
        self.loop = FakeLoop()
        self.answered = threading.Semaphore(0)
        self.loop.call_soon_threadsafe = self._threadsafe  # type: ignore[assignment, method-assign]
        self.answers: list[tuple[object, bool]] = []
        self.gone: list[object] = []
        self.cuts: list[object] = []
        self.crowds: list[object] = []
        self.refused: list[tuple[object, str]] = []
        self.remembered = Remembered()
        self.file = CountingFile({"ann": "secret"})
        self.checks = self.make(KEYS)

    def make(self, keys: list[bytes]) -> PasswordChecks:
        loop: Any = self.loop
        return PasswordChecks(self.file, loop, self, Limits(), self.remembered, keys)

    def limited(self, connection: object, why: str) -> None:
        self.refused.append((connection, why))

    def crowded(self, connection: object, why: str) -> None:
        assert "too many large CONNECT packets" in why
        self.crowds.append(connection)

    def checking(self) -> None:
        pass

    def remember(self, mark: bytes) -> None:
        self.remembered.add(mark)

    def authenticated(self, connection: object, accepted: bool) -> None:
        self.answers.append((connection, accepted))

    def is_open(self, connection: object) -> bool:
        return connection not in self.gone

    def cut(self, connection: object) -> None:
        self.cuts.append(connection)

    def _threadsafe(self, *call: Any) -> None:
        self.loop.ready.append((call[0], call[1:]))
        self.answered.release()

    def ask(self, name: str | None, secret: bytes | None, host: str = "192.0.2.1") -> bool:
        check: Any = Check(name, secret, host)
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
    bench.checks.replace(bench.real, KEYS)  # real hashes
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
    assert bench.checks._mark(KEYS[0], "ann", b"secret") != bench.checks._mark(KEYS[0], "anns", b"ecret")


def test_a_changed_password_ends_what_was_remembered(bench: Bench) -> None:
    assert bench.ask("ann", b"secret")
    bench.file.hashes = {"ann": "changed"}
    assert not bench.ask("ann", b"secret")


def test_another_file_forgets_those_only_whose_hash_has_changed(bench: Bench) -> None:
    bench.file.hashes["bob"] = "b"
    assert bench.ask("ann", b"secret")
    assert bench.ask("bob", b"b")
    newer = CountingFile({"ann": "secret", "bob": "newer"})
    bench.file = newer
    bench.checks.replace(newer, KEYS)
    assert bench.ask("ann", b"secret")
    assert newer.verified == 0
    assert not bench.ask("bob", b"b")
    assert newer.verified == 1


def test_what_other_nodes_have_found_right_needs_no_check(bench: Bench) -> None:
    """Their keys are derived from the same secret; those of another secret say nothing here."""
    keys = mark_keys("cluster", [b"a secret of the cluster"])
    assert keys == mark_keys("cluster", [b"a secret of the cluster"])
    assert keys[0] not in mark_keys("another cluster", [b"a secret of the cluster"]) + mark_keys("cluster", [b"x"])
    other = bench.make(keys)
    bench.remembered.add(other._mark(keys[0], "ann", b"secret"))
    other.close()
    assert bench.ask("ann", b"secret")
    assert bench.file.verified == 1
    bench.checks.replace(bench.file, keys)
    assert bench.ask("ann", b"secret")
    assert bench.file.verified == 1


def test_a_new_secret_forgets_nothing_while_the_former_is_accepted(bench: Bench) -> None:
    former, newer = mark_keys("c", [b"former", b"newer"])
    bench.checks.replace(bench.file, [former])
    assert bench.ask("ann", b"secret")
    for keys in ([former, newer], [newer, former], [newer]):
        bench.checks.replace(bench.file, keys)
        assert bench.ask("ann", b"secret")
    assert bench.file.verified == 1


def test_without_a_secret_the_key_is_of_the_process() -> None:
    assert mark_keys("c", []) != mark_keys("c", [])


def test_the_memory_is_bounded_and_the_least_recent_goes(bench: Bench) -> None:
    bench.remembered.marks_max = 2
    bench.file.hashes = {"a": "1", "b": "2", "c": "3"}
    assert all([bench.ask("a", b"1"), bench.ask("b", b"2"), bench.ask("a", b"1"), bench.ask("c", b"3")])
    assert bench.file.verified == 3
    assert bench.ask("a", b"1")
    assert bench.file.verified == 3
    assert bench.ask("b", b"2")
    assert bench.file.verified == 4


def test_wrong_passwords_are_refused_without_work_and_right_ones_are_not(bench: Bench) -> None:
    bench.file.hashes["bob"] = "b"
    assert bench.ask("ann", b"secret", "192.0.2.9")
    limit = Limits().login_failures_max
    for number in range(limit):
        assert not bench.ask("ann", b"wrong %d" % number)
    verified = bench.file.verified
    for number in range(1000):
        check: Any = Check("ann", b"again %d" % number)
        bench.checks.check(check)
        assert bench.refused == [], "an answer never comes within the turn that asks"
        bench.loop.iterate()
        assert bench.refused.pop()[0] is check.connection
    assert bench.file.verified == verified
    assert bench.ask("ann", b"secret", "192.0.2.9"), "where she was let in before"
    assert bench.ask("ann", b"secret"), "even from the address of the attacker: it is remembered"
    assert bench.file.verified == verified
    bench.file.hashes["ann"] = "changed"
    assert bench.ask("ann", b"changed", "192.0.2.9")
    assert bench.ask("ann", b"changed", "192.0.2.10")


def test_too_many_waiting_checks_are_cut_off_and_not_told_that_they_are_wrong(
    bench: Bench,
) -> None:
    bench.checks._logins.waiting_max = 0
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
    for _ in busy:
        assert bench.answered.acquire(timeout=60)
    bench.loop.iterate()
    assert slow.verified == len(busy)
    assert bench.checks._checks == {}
    late: Any = Check("bob", b"secret")
    bench.checks.check(late)
    slow.go.release()
    assert bench.answered.acquire(timeout=60)
    bench.loop.iterate()
    assert bench.answers[-1] == (late.connection, True)


def test_many_devices_with_one_password_wait_for_one_check(bench: Bench) -> None:
    slow = SlowFile()
    bench.checks._file = slow
    checks: list[Any] = [Check("ann", b"secret", f"192.0.2.{number}") for number in range(100)]
    for check in checks:
        bench.checks.check(check)
    slow.go.release(password.THREADS)
    for _ in range(password.THREADS):
        assert bench.answered.acquire(timeout=60)
    bench.loop.iterate()
    assert len(bench.answers) == 100
    assert slow.verified == password.THREADS


def test_a_password_that_is_checked_during_a_reload_is_checked_again(bench: Bench) -> None:
    slow = SlowFile()
    bench.checks._file = slow
    check: Any = Check("ann", b"secret")
    bench.checks.check(check)
    assert slow.begun.acquire(timeout=60)
    newer = CountingFile({"ann": "newer"})
    bench.checks.replace(newer, KEYS)
    slow.go.release()
    assert bench.answered.acquire(timeout=60)
    bench.loop.iterate()
    assert bench.answers == []
    assert bench.answered.acquire(timeout=60)
    bench.loop.iterate()
    assert bench.answers == [(check.connection, False)]
    assert newer.verified == 1


def test_a_large_packet_is_told_that_there_is_no_room_for_its_check(bench: Bench) -> None:
    bench.checks._logins.waiting_max = 0
    check: Any = Check("ann", b"secret", size=60_000)
    bench.checks.check(check)
    assert bench.crowds == [], "not within the turn that asks"
    bench.loop.iterate()
    assert bench.crowds == [check.connection]
    assert bench.cuts == []


def test_the_memory_of_those_that_wait_is_bounded(bench: Bench) -> None:
    """4,096 that wait would be 256 MiB if each might have as much as a CONNECT."""
    slow = SlowFile()
    bench.checks._file = slow
    for number in range(3 * password.WAITING_MAX):
        check: Any = Check("ann", b"%d" % number, f"192.0.{number // 250}.{number % 250}", 65_536)
        bench.checks.check(check)
    waiting = sum(len(one.waiting) for one in bench.checks._checks.values())
    held = waiting * 65_536
    assert 0.9 * password.WAITING_MAX * UNIT_BYTES <= held <= password.WAITING_MAX * UNIT_BYTES + 2 * 65_536
    bench.loop.iterate()
    assert len(bench.crowds) == 3 * password.WAITING_MAX - waiting
    slow.go.release(2 * password.WAITING_MAX)


def test_the_memory_of_those_that_wait_for_the_same_is_bounded_and_given_back(bench: Bench) -> None:
    slow = SlowFile()
    bench.checks._file = slow
    fits = password.JOINED_BYTES_MAX // 65_536
    for round_number in range(2):
        for _ in range(fits + 4):
            check: Any = Check("ann", b"%d" % round_number, size=65_536)
            bench.checks.check(check)
        bench.loop.iterate()
        assert len(bench.crowds) == 3
        slow.go.release()
        assert bench.answered.acquire(timeout=60)
        bench.loop.iterate()
        assert len(bench.answers) == fits + 1
        assert bench.checks._joined_bytes == 0
        bench.answers.clear()
        bench.crowds.clear()


def test_small_packets_that_wait_for_the_same_have_a_bound(bench: Bench) -> None:
    slow = SlowFile()
    bench.checks._file = slow
    check: Any = Check("ann", b"secret")
    for _ in range(password.JOINED_BYTES_MAX // password.JOINED_BYTES_MIN + 2):
        bench.checks.check(check)
    bench.loop.iterate()
    assert len(bench.cuts) == 1
    slow.go.release()
