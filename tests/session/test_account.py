"""Accounts: the counts of users, and which limits apply to whom."""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.limits import Limits
from folkmoot.session.account import CONNECTION_BYTES, SESSION_BYTES, Account, Accounts, Quota
from folkmoot.session.session import Session
from folkmoot.session.subscription import SUBSCRIPTION_BYTES

NOW = 1_600_000_000 * SECOND


def limits(**values: int | bool) -> Limits:
    made = Limits()
    for name, value in values.items():
        assert hasattr(made, name), name
        setattr(made, name, value)
    return made


def session_of(username: str, client_id: str = "c") -> Session:
    session = Session(client_id, 0, True)
    session.username = username
    session.proved = True
    return session


def test_a_user_has_a_share_of_what_the_node_has_and_no_other_limit_by_default() -> None:
    quota = Accounts(limits(), True).of("ann").quota
    assert quota.sessions_max == quota.connections_max == 900_000
    assert quota.retained_messages_max == 9_000_000
    assert quota.producers_max == 90_000
    unlimited = (quota.subscriptions_max, quota.retained_bytes_max, quota.queue_bytes_max)
    assert unlimited == (NEVER, NEVER, NEVER)
    assert not quota.paces


def test_no_user_fills_the_memory() -> None:
    """Of a budget of 1 GiB, 70 percent are for all users, and nine tenths of that for one."""
    made = limits(memory_bytes_max=1 << 30)
    account = Accounts(made, True).of("ann")
    assert account.quota.memory_bytes_max >> 20 == 645
    assert account.fits_memory(account.quota.memory_bytes_max)
    account.subscriptions = account.sessions = account.connections = account.kept_bytes = 1000
    taken = 1000 * (SUBSCRIPTION_BYTES + SESSION_BYTES + CONNECTION_BYTES + 1)
    assert account.fits_memory(account.quota.memory_bytes_max - taken)
    assert not account.fits_memory(account.quota.memory_bytes_max - taken + 1)
    made.user_subscriptions_max = 50
    assert Accounts(made, True).of("ann").quota.subscriptions_max == 50


def test_names_that_are_checked_from_now_on_have_accounts_from_now_on() -> None:
    accounts = Accounts(limits(user_sessions_max=3), False)
    session = session_of("ann")
    accounts.enter(session)
    accounts.check_names(True)
    assert accounts.of("ann").quota.sessions_max == 3
    accounts.leave(session, NOW)
    assert accounts.anonymous.sessions == 0
    accounts.check_names(False)
    assert accounts.of("ann") is accounts.anonymous


def test_the_lower_limit_counts() -> None:
    made = limits(user_sessions_max=5, user_connections_max=10_000_000, user_share_max=50)
    quota = Accounts(made, True).of("ann").quota
    assert quota.sessions_max == 5
    assert quota.connections_max == 500_000


def test_a_share_of_little_is_at_least_one() -> None:
    assert Accounts(limits(sessions_max=1), True).of("ann").quota.sessions_max == 1


def test_where_names_prove_nothing_there_is_one_account_without_limits() -> None:
    accounts = Accounts(limits(user_sessions_max=1, user_publish_rate_max=1), False)
    assert accounts.of("ann") is accounts.of("") is accounts.anonymous
    assert accounts.anonymous.quota.sessions_max == NEVER
    assert not accounts.anonymous.quota.paces


def test_the_anonymous_have_a_share_beside_users_and_a_quota_if_wanted() -> None:
    assert Accounts(limits(user_sessions_max=7), True).of("").quota.sessions_max == 900_000
    assert Accounts(limits(user_sessions_max=7, user_anonymous_as_one=True), True).of("").quota.sessions_max == 7


def test_an_account_is_there_as_long_as_something_counts() -> None:
    accounts = Accounts(limits(), True)
    first, second = session_of("ann", "a"), session_of("ann", "b")
    second.queue_bytes = 7
    accounts.enter(first)
    accounts.enter(second)
    assert (accounts.of("ann").sessions, accounts.of("ann").queue_bytes) == (2, 7)
    accounts.leave(first, NOW)
    accounts.leave(first, NOW)  # again: it counts once
    assert accounts.of("ann").sessions == 1
    accounts.leave(second, NOW)
    assert len(accounts) == 0


def test_a_session_can_get_another_user() -> None:
    accounts = Accounts(limits(), True)
    session = session_of("ann")
    session.queue_bytes = 9
    accounts.enter(session)
    accounts.hand_over(session, "bob", True, NOW)
    assert len(accounts) == 1
    assert (accounts.of("bob").sessions, accounts.of("bob").queue_bytes) == (1, 9)


def rated(messages: int, size: int) -> Account:
    quota = Quota()
    quota.publish_rate_max = messages
    quota.publish_bytes_max = size
    return Account("ann", quota)


def test_a_rate_holds_on_average_and_a_second_is_free() -> None:
    account = rated(100, 0)
    assert account.publish(99, 0, NOW) == 0
    assert account.publish(1, 0, NOW) == NOW + SECOND
    assert account.publish(100, 0, NOW) == NOW + 2 * SECOND
    assert account.publish(0, 0, NOW + 2 * SECOND) == 0
    assert account.publish(50, 0, NOW + 2 * SECOND) == 0
    assert account.publish(1000, 0, NOW + 60 * SECOND) == NOW + 70 * SECOND, "what was not used is not saved up"


def test_the_stricter_of_both_rates_holds() -> None:
    account = rated(1000, 1000)
    assert account.publish(1, 3000, NOW) == NOW + 3 * SECOND
    assert account.publish(5000, 1, NOW) == NOW + 5 * SECOND + 1000


def test_a_user_that_is_ahead_of_its_rate_is_not_forgotten() -> None:
    """Else it could connect anew and go on."""
    account = rated(1, 0)
    account.publish(10, 0, NOW)
    assert not account.is_idle(NOW + 9 * SECOND)
    assert account.is_idle(NOW + 10 * SECOND)
