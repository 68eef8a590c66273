"""Floods of wrong passwords in virtual time: two threads, 40 ms for each check, as a node has them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import pytest

from folkmoot.auth.login import Login, Logins
from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.limits import Limits

THREADS = 2
CHECK_US = 40 * MILLISECOND
WAITING_MAX = 4096
LENGTH_S = 20


class Node:
    """The queue and its threads. waits: of each right password that was checked, from its CONNECT on."""

    def __init__(self) -> None:
        limits = Limits()
        self.logins = Logins(limits.login_failures_max, limits.login_failure_interval_us, WAITING_MAX)
        self.running: list[tuple[int, int, Login, bool]] = []
        self.came: dict[int, tuple[int, bool]] = {}
        self.waits: list[int] = []
        self.turned_away = 0
        self.checked = 0

    def run(self, arrivals: Iterator[tuple[int, str, str, bool]]) -> None:
        """Take arrivals in the order of their times: time, address, user, right."""
        for number, (now, address, username, right) in enumerate(arrivals):
            self._until(now)
            self.came[number] = (now, right)
            if self.logins.enter(Login(number, address, username), now):
                self.turned_away += right
            self._begin(now)
            self._drop()
        self._until(1 << 60)

    def _until(self, now: int) -> None:
        while self.running and self.running[0][0] <= now:
            done, number, login, right = heapq.heappop(self.running)
            self.checked += 1
            self.logins.checked(login, right, done)
            if right:
                self.waits.append(done - self.came[number][0])
            self._begin(done)
            self._drop()

    def _begin(self, now: int) -> None:
        while len(self.running) < THREADS and (login := self.logins.take(now)) is not None:
            heapq.heappush(self.running, (now + CHECK_US, login.number, login, self.came[login.number][1]))

    def _drop(self) -> None:
        for login in (*self.logins.refused, *self.logins.overflowed):
            self.turned_away += self.came[login.number][1]
        self.logins.refused.clear()
        self.logins.overflowed.clear()

    def worst(self) -> int:
        """The wait that 99 of 100 right passwords stay below, in microseconds."""
        return sorted(self.waits)[len(self.waits) * 99 // 100]


def flood(per_s: int, addresses: int, names: int) -> Iterator[tuple[int, str, str, bool]]:
    """Wrong passwords, and twice a second somebody with a right one whom no node remembers."""
    for count in range(per_s * LENGTH_S):
        now = 1_000 * SECOND + count * SECOND // per_s
        yield now, f"bad{count % addresses}", f"user{count % names}", False
        if count % (per_s // 2) == 0:
            yield now, f"good{count}", f"user{count % 1000}", True


@pytest.mark.parametrize("per_s", [150, 1500])
@pytest.mark.parametrize("names", [1, 1000])
def test_one_address_keeps_nobody_waiting(per_s: int, names: int) -> None:
    node = Node()
    node.run(flood(per_s, 1, names))
    assert node.turned_away == 0
    assert len(node.waits) == 2 * LENGTH_S
    assert node.worst() < 250 * MILLISECOND
    assert node.checked - len(node.waits) <= 2 * Limits().login_failures_max, "the others cost nothing"


@pytest.mark.parametrize("addresses", [10, 100])
def test_neither_do_many(addresses: int) -> None:
    """Each of them begins with a number of passwords that are checked; meanwhile the queue may be full."""
    node = Node()
    node.run(flood(1500, addresses, 1000))
    assert node.turned_away <= 0.05 * 2 * LENGTH_S, "these are cut off, and come again"
    assert node.worst() < SECOND * (1 + addresses // 20)


def test_a_failover_without_memory_takes_as_long_as_its_checks() -> None:
    """Why nodes tell each other what they have found right: 10,000 clients, each with a password of its own."""
    node = Node()

    def arrivals() -> Iterator[tuple[int, str, str, bool]]:
        for count in range(1000):
            yield 1_000 * SECOND + count, f"a{count}", f"u{count}", True

    node.run(arrivals())
    assert node.turned_away == 0
    assert max(node.waits) >= 1000 * CHECK_US // THREADS - SECOND
