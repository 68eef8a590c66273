"""The account of a user: what it has at this node, and how much it may have.

Owns the counts. Each is changed where the thing itself begins or ends, so that no check walks over rows. A user is a
user name that was proved by a password or a certificate. All other clients share the account of the anonymous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.limits import Limits
from folkmoot.session.subscription import SUBSCRIPTION_BYTES

if TYPE_CHECKING:
    from folkmoot.session.session import Session, Will

__all__ = ["ANONYMOUS", "CONNECTION_BYTES", "PATTERNS_FREE", "SESSION_BYTES", "Account", "Accounts", "Quota"]

ANONYMOUS: Final = ""  # in place of a user name

# What each takes in memory, in bytes, measured with compiled code on 64 bits; what it refers to is counted besides
SESSION_BYTES: Final = 1_500
CONNECTION_BYTES: Final = 5_000

PATTERNS_FREE: Final = 8
"""Patterns of each session that are not counted for its user: see `Session.count_pattern`."""

_UNLIMITED: Final = NEVER
_STORED_PARTS: Final = 10  # of what all users have stored: who has more than one stores no more on a disk that is low
_STORED_BYTES_MIN: Final = 16 << 20  # that each user may have stored in any case
_ANNOUNCED_PARTS: Final = 3  # one of them is for what a user's subscriptions take at all nodes together
_MEMORY_PERCENT: Final = 70  # of the budget of memory: what may stay there before publishers are slowed


class Quota:
    """How much a user may have at this node; `NEVER`: as much as there is room for."""

    def __init__(self) -> None:
        self.sessions_max: int = _UNLIMITED
        self.connections_max: int = _UNLIMITED
        self.subscriptions_max: int = _UNLIMITED
        self.patterns_max: int = _UNLIMITED
        self.memory_bytes_max: int = _UNLIMITED
        self.retained_messages_max: int = _UNLIMITED
        self.retained_bytes_max: int = _UNLIMITED
        self.queue_bytes_max: int = _UNLIMITED
        self.producers_max: int = _UNLIMITED  # per partition
        self.publish_rate_max: int = 0  # messages per second; 0 = no limit
        self.publish_bytes_max: int = 0  # bytes per second; 0 = no limit

    @property
    def paces(self) -> bool:
        """Whether publishing has a rate."""
        return self.publish_rate_max > 0 or self.publish_bytes_max > 0


class Account:
    """What one user has at this node.

    connections: of clients that are connected to this node, or are being let in; all other counts are about partitions
    that this node leads, and about the transient sessions of its connections.
    """

    def __init__(self, name: str, quota: Quota) -> None:
        self.name = name
        self.quota = quota
        self.connections = 0
        self.sessions = 0
        self.subscriptions = 0
        self.patterns = 0  # of its sessions, beyond those that are free
        self.filter_bytes = 0  # of unusual filters
        self.kept_bytes = 0  # of these, and of wills
        self.retained_messages = 0
        self.retained_bytes = 0
        self.queue_bytes = 0
        self.messages_us = 0  # when what was published would have ended at the highest allowed rate, by messages
        self.bytes_us = 0  # and by bytes
        self.told_us: dict[str, int] | None = None  # when a full quota was last logged, by what it limits

    def fits_memory(self, size: int) -> bool:
        """Whether so many bytes more may stay in memory for the user: sessions, connections, subscriptions, wills."""
        used = self.sessions * SESSION_BYTES + self.connections * CONNECTION_BYTES
        used += self.subscriptions * SUBSCRIPTION_BYTES + self.kept_bytes
        return used + size <= self.quota.memory_bytes_max

    def fits_announced(self, size: int, members: int) -> bool:
        """Whether a subscription that takes so many bytes may be announced to the other members of the cluster.

        Each of them keeps its filter, and cannot know whose it is. So that a user with subscriptions at all nodes fills
        none, they count here once for each member, and for all of it a user has a third of what it has at one node.
        """
        if members <= 1:
            return True
        here = self.subscriptions * SUBSCRIPTION_BYTES + self.filter_bytes + size
        return here * members <= self.quota.memory_bytes_max // _ANNOUNCED_PARTS

    def fits_queue(self, size: int) -> bool:
        """Whether so many bytes more may wait for the sessions of the user."""
        return self.queue_bytes + size <= self.quota.queue_bytes_max

    def publish(self, messages: int, size: int, now: int) -> int:
        """Count published messages and their bytes; return when the user may go on publishing, 0: at once.

        A user may be a second ahead of its rate.
        """
        quota = self.quota
        if quota.publish_rate_max:
            self.messages_us = max(self.messages_us, now) + messages * SECOND // quota.publish_rate_max
        if quota.publish_bytes_max:
            self.bytes_us = max(self.bytes_us, now) + size * SECOND // quota.publish_bytes_max
        until_us = max(self.messages_us, self.bytes_us)
        return until_us if until_us >= now + SECOND else 0

    def is_idle(self, now: int) -> bool:
        """Whether nothing is left of the user."""
        return not (
            self.connections
            or self.sessions
            or self.subscriptions
            or self.retained_messages
            or self.queue_bytes
            or self.messages_us > now
            or self.bytes_us > now
        )

    def __repr__(self) -> str:
        return (
            f"Account({self.name!r} sessions={self.sessions} connections={self.connections} "
            f"subscriptions={self.subscriptions} retained={self.retained_messages} queue={self.queue_bytes})"
        )


class Accounts:
    """The accounts of all users, and of the anonymous clients together.

    named: whether user names are proved, so that something can belong to a user; producers_max: of each owner, in a
    partition.
    """

    def __init__(self, limits: Limits, named: bool) -> None:
        self.limits = limits
        self.named = named
        self._users: dict[str, Account] = {}
        self.connections = 0  # of all
        self.kept_bytes = 0  # of all
        self.disk_low = False  # the last room on the disk is for users that have stored little
        self._quota = _quota_of(limits, True)
        self.producers_max = self._quota.producers_max
        self.anonymous = Account(ANONYMOUS, Quota())
        self.check_names(named)

    def check_names(self, named: bool) -> None:
        """From now on user names are proved, or not; what has an account keeps it until it ends."""
        self.named = named
        if named:
            self.anonymous.quota = _quota_of(self.limits, self.limits.user_anonymous_as_one)
        else:
            self.anonymous.quota = Quota()
            self.anonymous.quota.patterns_max = _patterns_max(self.limits)

    def of(self, username: str) -> Account:
        """Return the account of a user; that of the anonymous for an empty name, and where names prove nothing."""
        if not username or not self.named:
            return self.anonymous
        account = self._users.get(username)
        if account is None:
            account = Account(username, self._quota)
            self._users[username] = account
        return account

    def fits_disk(self, account: Account, size: int, stored: int) -> bool:
        """Whether a user may store so many bytes more; stored: what all have in queues and as retained messages.

        Near its end the disk is for the others: else one user could take all of it, and nobody could store anything.
        """
        if not self.disk_low or not self.named or len(self._users) == (1 if account.name else 0):
            return True
        own = account.queue_bytes + account.retained_bytes + size
        return own <= max(stored // _STORED_PARTS, _STORED_BYTES_MIN)

    def enter(self, session: Session) -> None:
        """Count a session, with what it has."""
        account = self.of(session.owner)
        session.account = account
        account.sessions += 1
        account.subscriptions += len(session.subscriptions)
        account.queue_bytes += session.queue_bytes if session.persistent else session.ready_bytes
        account.patterns += session.counted_patterns
        session.counted_bytes = session.kept_bytes()
        account.filter_bytes += session.filter_bytes
        account.kept_bytes += session.counted_bytes
        self.kept_bytes += session.counted_bytes

    def set_will(self, session: Session, will: Will | None) -> None:
        """Give the session a will, or take it away, and count what that changes."""
        session.will = will
        self.recount(session)

    def add_filter(self, session: Session, excess: int) -> None:
        """Count what a filter of the session takes beyond the usual, or (negative) no more."""
        session.filter_bytes += excess
        if session.account is not None:
            session.account.filter_bytes += excess
        self.recount(session)

    def recount(self, session: Session) -> None:
        """Count what the session takes in memory anew: a filter or its will has changed."""
        account = session.account
        if account is not None:
            change = session.kept_bytes() - session.counted_bytes
            session.counted_bytes += change
            account.kept_bytes += change
            self.kept_bytes += change

    def leave(self, session: Session, now: int) -> None:
        """Count a session no more; `now` in microseconds."""
        account = session.account
        if account is None:
            return
        session.account = None
        account.sessions -= 1
        account.subscriptions -= len(session.subscriptions)
        account.queue_bytes -= session.queue_bytes if session.persistent else session.ready_bytes
        account.patterns -= session.counted_patterns
        account.filter_bytes -= session.filter_bytes
        account.kept_bytes -= session.counted_bytes
        self.kept_bytes -= session.counted_bytes
        session.counted_bytes = 0
        self.settle(account, now)

    def hand_over(self, session: Session, username: str, proved: bool, now: int) -> None:
        """The session belongs to this user from now on, if the name is proved; `now` in microseconds."""
        known = session.account is not None
        if known:
            self.leave(session, now)
        session.username = username
        session.proved = proved
        if known:
            self.enter(session)

    def settle(self, account: Account, now: int) -> None:
        """Forget an account that has nothing."""
        if account.name and account.is_idle(now) and self._users.get(account.name) is account:
            del self._users[account.name]

    def __len__(self) -> int:
        return len(self._users)

    def __repr__(self) -> str:
        return f"Accounts({len(self._users)} users, {self.anonymous!r})"


def _share_of(limit: int, percent: int) -> int:
    """Return what one user may have of a limit of the node: at least one, and all of it for 100 percent."""
    return max(limit * percent // 100, 1)


def _patterns_max(limits: Limits) -> int:
    return limits.user_filter_patterns_max or _UNLIMITED


def _lower(own: int, common: int) -> int:
    """Return the lower limit; `own` 0: there is none."""
    return min(own, common) if own else common


def _quota_of(limits: Limits, own: bool) -> Quota:
    """Return the quota of a user; own: its limits apply, besides its share of those of the node."""
    quota = Quota()
    share = limits.user_share_max
    quota.sessions_max = _share_of(limits.sessions_max, share)
    quota.connections_max = _share_of(limits.connections_max, share)
    quota.retained_messages_max = _share_of(limits.retained_messages_max, share)
    quota.producers_max = _share_of(limits.producers_max, share)
    if limits.memory_bytes_max > 0:
        memory = limits.memory_bytes_max * _MEMORY_PERCENT // 100
        quota.memory_bytes_max = _share_of(memory, share)
    quota.patterns_max = _patterns_max(limits)
    if own:
        quota.sessions_max = _lower(limits.user_sessions_max, quota.sessions_max)
        quota.connections_max = _lower(limits.user_connections_max, quota.connections_max)
        quota.retained_messages_max = _lower(limits.user_retained_messages_max, quota.retained_messages_max)
        quota.producers_max = _lower(limits.user_producers_max, quota.producers_max)
        quota.subscriptions_max = _lower(limits.user_subscriptions_max, quota.subscriptions_max)
        quota.retained_bytes_max = _lower(limits.user_retained_bytes_max, quota.retained_bytes_max)
        quota.queue_bytes_max = _lower(limits.user_queue_bytes_max, quota.queue_bytes_max)
        quota.publish_rate_max = limits.user_publish_rate_max
        quota.publish_bytes_max = limits.user_publish_bytes_max
    return quota
