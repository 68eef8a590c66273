"""The order of password checks, and which of them are not done."""

from __future__ import annotations

import pytest

from folkmoot.auth.login import ENTRIES_MAX, OVERFLOW, UNIT_BYTES, WAITS, Login, Logins, address_key, told
from folkmoot.kernel.clock import SECOND

MAX = 4


class Bench:
    """Checks that take no time; `wrong` are the names with wrong passwords."""

    def __init__(self, failures_max: int = MAX, waiting_max: int = 100) -> None:
        self.logins = Logins(failures_max, SECOND, waiting_max)
        self.now = 1_000 * SECOND
        self.count = 0

    def enter(self, address: str, username: str, size: int = 0) -> int:
        self.count += 1
        return self.logins.enter(Login(self.count, address, username, size), self.now)

    def take(self) -> Login | None:
        return self.logins.take(self.now)

    def attempt(self, address: str, username: str, right: bool) -> bool:
        """One login at a time; whether it was checked."""
        if self.enter(address, username):
            return False
        login = self.take()
        assert login is not None
        self.logins.checked(login, right, self.now)
        return True

    def all(self) -> list[str]:
        """The addresses of all that wait, in the order of their checks."""
        taken = []
        while (login := self.take()) is not None:
            taken.append(login.address)
        return taken


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_address_has_a_number_of_failures_and_then_waits_twice_as_long_each_time(bench: Bench) -> None:
    assert [bench.attempt("a", f"u{number}", False) for number in range(MAX + 3)] == [True] * MAX + [False] * 3
    waits = []
    for number in range(9):
        waited = bench.logins.wait_us("a", bench.now)
        waits.append(waited // SECOND)
        bench.now += waited - 1
        assert not bench.attempt("a", f"v{number}", False)
        bench.now += 1
        assert bench.attempt("a", f"w{number}", False)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 64, 64]


def test_an_address_that_is_silent_has_all_of_them_again(bench: Bench) -> None:
    while bench.attempt("a", "u", False):
        pass
    bench.now += MAX * SECOND
    assert [bench.attempt("a", "u", False) for _ in range(MAX + 1)] == [True] * MAX + [False]


def test_other_addresses_are_not_concerned(bench: Bench) -> None:
    while bench.attempt("a", "u", False):
        pass
    assert bench.attempt("b", "other", True)


def test_nobody_can_lock_out_a_user_from_elsewhere(bench: Bench) -> None:
    """Neither where the user was let in before, nor at a new address: there the checks wait longer."""
    assert bench.attempt("home", "ann", True)
    for number in range(50):
        for _ in range(2 * MAX):
            bench.attempt(f"x{number}", "ann", False)
    assert bench.attempt("home", "ann", True)
    assert bench.attempt("new", "ann", True)


def test_a_neighbour_at_the_same_address_locks_out_nobody_that_was_let_in(bench: Bench) -> None:
    assert bench.attempt("nat", "ann", True)
    for _ in range(10 * MAX):
        bench.attempt("nat", "bob", False)
    assert not bench.attempt("nat", "bob", False)
    assert not bench.attempt("nat", "carl", True), "one who was never seen here must wait"
    assert bench.attempt("nat", "ann", True)


def test_failures_of_a_known_pair_are_its_own_until_they_are_too_many(bench: Bench) -> None:
    assert bench.attempt("nat", "ann", True)
    for _ in range(MAX):
        assert bench.attempt("nat", "ann", False)
    assert bench.attempt("nat", "bob", True)
    checked = sum([bench.attempt("nat", "ann", False) for _ in range(100)])
    assert checked <= MAX + 1
    assert not bench.attempt("nat", "ann", True)


def test_a_success_of_somebody_new_pays_for_a_failure(bench: Bench) -> None:
    """One device with a wrong password among many behind one address."""
    for number in range(100):
        assert bench.attempt("nat", f"device{number}", True)
        assert bench.attempt("nat", "broken", False)


def test_the_own_success_of_an_attacker_pays_for_one_guess_only(bench: Bench) -> None:
    guesses = 0
    for _ in range(100):
        bench.attempt("x", "attacker", True)
        guesses += bench.attempt("x", "ann", False)
    assert guesses <= MAX + 1


def test_the_better_known_go_first_and_none_waits_for_ever(bench: Bench) -> None:
    bench.attempt("known", "ann", True)
    bench.attempt("bad", "bob", False)
    for address, name in (("bad", "bob"), ("new", "u"), ("known", "other"), ("known", "ann")):
        assert bench.enter(address, name) == WAITS
    order = []
    while (login := bench.take()) is not None:
        order.append((login.address, login.username))
    assert order.index(("known", "ann")) < order.index(("known", "other"))
    bench.logins._turn = 0
    for _ in range(20):
        bench.enter("known", "ann")
    bench.enter("bad", "bob")
    assert "bad" in bench.all()[:4]


def test_addresses_take_turns(bench: Bench) -> None:
    for _ in range(10):
        bench.enter("many", "u")
    bench.enter("one", "u")
    assert "one" in bench.all()[:2]


def test_what_waits_is_refused_when_its_address_has_failed_too_often(bench: Bench) -> None:
    for number in range(50):
        assert bench.enter("a", f"u{number}") == WAITS
    checked = 0
    while (login := bench.take()) is not None:
        bench.logins.checked(login, False, bench.now)
        checked += 1
    assert checked == MAX
    assert len(bench.logins.refused) == 50 - MAX
    assert bench.logins.waiting == 0


def test_the_queue_has_an_end_and_makes_room_for_the_better_known() -> None:
    bench = Bench(waiting_max=5)
    bench.attempt("known", "ann", True)
    for _ in range(5):
        assert bench.enter("flood", "u") == WAITS
    assert bench.enter("flood", "u") == OVERFLOW
    assert bench.enter("other", "u") == WAITS
    assert bench.enter("known", "ann") == WAITS
    assert [login.address for login in bench.logins.overflowed] == ["flood", "flood"]
    assert bench.logins.waiting == 5


def test_a_login_that_keeps_much_in_memory_counts_as_several() -> None:
    bench = Bench(waiting_max=10)
    size = 4 * UNIT_BYTES
    assert [bench.enter("a", "u", size) for _ in range(3)] == [WAITS, WAITS, OVERFLOW]
    assert bench.logins.waiting == 8
    assert bench.enter("b", "u", UNIT_BYTES + 1) == WAITS
    assert bench.logins.waiting == 10
    assert bench.enter("b", "u", UNIT_BYTES) == WAITS, "a has more"
    assert [login.address for login in bench.logins.overflowed] == ["a"]
    assert bench.logins.waiting == 7
    assert bench.enter("c", "u", 20 * UNIT_BYTES) == OVERFLOW, "it is more than all"
    assert bench.all() == ["a", "b", "b"]
    assert bench.logins.waiting == 0


def test_the_units_of_logins_that_are_refused_are_given_back(bench: Bench) -> None:
    for number in range(MAX + 5):
        assert bench.enter("bad", f"u{number}", 3 * UNIT_BYTES) == WAITS
    while (login := bench.take()) is not None:
        bench.logins.checked(login, False, bench.now)
    assert len(bench.logins.refused) == 5
    assert bench.logins.waiting == 0


def test_without_a_limit_nobody_waits() -> None:
    bench = Bench(failures_max=0)
    assert all(bench.attempt("a", "u", False) for _ in range(200))


def test_the_tables_are_bounded(bench: Bench) -> None:
    for number in range(ENTRIES_MAX + 10):
        bench.attempt(f"x{number}", f"u{number}", number % 2 == 0)
    logins = bench.logins
    assert max(len(logins._addresses), len(logins._users), len(logins._pairs), len(logins._good)) <= ENTRIES_MAX


def test_a_long_name_of_a_user_takes_no_memory_and_is_counted_all_the_same(bench: Bench) -> None:
    """Whoever sends a CONNECT chooses the name, of up to 64 KiB."""
    first, second = "u" * 60_000, "u" * 60_000 + "2"
    for number in range(MAX):
        bench.attempt(f"x{number}", first, False)
    assert bench.enter("a", first) == bench.enter("b", second) == 0
    assert bench.all() == ["b", "a"], "failures of one name are not those of another with the same beginning"
    assert sum(len(name) for name in bench.logins._users) < 200


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.7:1883", "192.0.2.7"),
        ("[2001:db8:1:2:3:4:5:6]:1883", "2001:db8:1:2::"),
        ("[2001:db8:1:2:ffff::1]:7", "2001:db8:1:2::"),
        ("[::ffff:192.0.2.7]:1883", "192.0.2.7"),
        ("[fe80::1%eth0]:9", "fe80::"),
        ("unknown", ""),
    ],
)
def test_an_address_is_one_machine_or_one_network(address: str, key: str) -> None:
    assert address_key(address) == key


def test_a_client_is_told_when_to_come_again() -> None:
    assert told(1) == told(SECOND) == "too many wrong passwords from this address: try again in 1 s"
