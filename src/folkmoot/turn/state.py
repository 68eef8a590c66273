"""What the parts of a broker share: settings, time, rows, sessions, subscriptions, what the turn has collected so far.

Data only. Each part uses it and the parts that are made before it in `folkmoot.broker.parts`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.auth.access import Access
from folkmoot.kernel.clock import HOUR, NEVER
from folkmoot.kernel.event import WARNING, Event
from folkmoot.kernel.hash import hash64
from folkmoot.kernel.limits import Limits
from folkmoot.kernel.node_clock import NodeClock
from folkmoot.kernel.rng import Rng
from folkmoot.kernel.timers import Timers
from folkmoot.metrics.counters import Counters
from folkmoot.session.account import Account, Accounts
from folkmoot.session.connection import Authenticate, Connection
from folkmoot.session.session import Session
from folkmoot.session.sessions import Sessions
from folkmoot.store.reader import Reader
from folkmoot.store.writer import Writer
from folkmoot.topics.tree import Tree
from folkmoot.turn.latency import Meter
from folkmoot.turn.lazy import LAZY_US, LazyRemovals
from folkmoot.turn.memory import Memory
from folkmoot.turn.work import Work

__all__ = [
    "NEWS_MAX",
    "TIMER_ABSENT",
    "TIMER_CONNECT",
    "TIMER_DRAIN",
    "TIMER_EVENTS",
    "TIMER_KEEP_ALIVE",
    "TIMER_LAZY",
    "TIMER_LEVEL",
    "TIMER_OVERLOAD",
    "TIMER_QUOTA",
    "TIMER_RATE",
    "TIMER_REMOVED",
    "TIMER_RETENTION",
    "TIMER_SESSION",
    "TIMER_STAGED",
    "TIMER_SWEEP",
    "TIMER_SYS",
    "TIMER_TABLES",
    "TIMER_WILL",
    "Identity",
    "News",
    "State",
]

TIMER_CONNECT: Final = 1
TIMER_KEEP_ALIVE: Final = 2
TIMER_SESSION: Final = 3
TIMER_WILL: Final = 4
TIMER_SYS: Final = 5
TIMER_RETENTION: Final = 6
TIMER_RATE: Final = 7
TIMER_OVERLOAD: Final = 8
TIMER_LEVEL: Final = 9
TIMER_STAGED: Final = 10
TIMER_TABLES: Final = 11
TIMER_EVENTS: Final = 12
TIMER_QUOTA: Final = 13
TIMER_REMOVED: Final = 14
TIMER_SWEEP: Final = 15
TIMER_LAZY: Final = 16
TIMER_ABSENT: Final = 17
TIMER_DRAIN: Final = 18

NEWS_MAX: Final = 16_384  # events that wait to be published


class Identity:
    """The identity of this node, and what it tells clients; `node.config` explains each."""

    def __init__(self) -> None:
        self.node_id: str = "node1"
        self.version: str = "0"
        self.response_information: str = ""
        self.server_reference: str = ""
        self.incarnation = 0


class News:
    """A fact to be published as an event; see `event_publisher`."""

    def __init__(self, kind: str, time_us: int, fields: dict[str, object]) -> None:
        self.kind = kind
        self.time_us = time_us
        self.fields = fields

    def __repr__(self) -> str:
        return f"News({self.kind} {self.fields})"


class State:
    """Shared by the parts of one broker."""

    def __init__(
        self,
        identity: Identity,
        limits: Limits,
        access: Access,
        partitions: int,
        reader: Reader,
        writer: Writer,
        rng: Rng,
    ) -> None:
        self.identity = identity
        self.limits = limits
        self.access = access  # a reload replaces both
        self.policy = access.policy
        self.partitions = partitions
        self.reader = reader
        self.writer = writer
        self.rng = rng
        self.now = 0  # monotonic, for deadlines and durations; what is stored has a time of `clock`
        self.clock = NodeClock()
        self.work = Work(writer, limits.turn_steps_max)
        self.started_us = 0
        self.counters = Counters()
        self.timers = Timers()
        self.excused_us = 0  # when silence was last excused, because this server stood still and read nothing
        # Without a check of passwords and certificates a user name proves nothing.
        self.accounts = Accounts(limits, access.has_users)
        self.memory = Memory(limits, self.counters)
        self.sessions = Sessions(partitions)
        self.connections: dict[int, Connection] = {}
        self.tree = Tree()
        self.alone = True  # no cluster is configured
        self.routes_known = True  # what all others have subscribed is known: nothing is published before
        self.unheard = -1  # a partition whose subscriptions are not known, as it has had no leader; -1: there is none
        # Those of such partitions, and of the other side of a split that has just healed, are known as well
        self.routes_whole = True
        self.leads: list[bool] = [False] * partitions  # partitions whose rows this node changes
        self.ids_ahead = 0  # by how many packet ids sessions go further on when this node begins to lead them in a fork
        self.lazy = LazyRemovals(writer)
        self.storage_full = False
        self.overload = 0  # 0 to 10: the highest level of all members; publishers are slowed by it
        self.overload_own = 0  # the level of this node
        self.overload_why = ""  # the pressure that made it
        self.stopping = False
        # The lease of this node, on the monotonic clock of the driver, in nanoseconds: see `node.withheld`
        self.speaks_until_ns: int = NEVER
        self.silent = ""  # why this node has disconnected its clients, and refuses others: it has no lease
        # Collected during a turn
        self.outputs: list[Connection] = []
        self.outputs_gone = False  # one of them has been lost since
        self.closes: list[Connection] = []
        self.drops: list[Connection] = []  # whose output was dropped, because this node serves them no more
        self.pauses: list[Connection] = []
        self.resumes: list[Connection] = []
        self.checks: list[Authenticate] = []
        self.events: list[Event] = []
        # For operators and programs
        self.listening = False  # events have a subscriber
        self.news: deque[News] = deque()
        self.meter = Meter(limits)

    def remove_later(self, partition: int, key: bytes, session: Session) -> None:
        """Remove a row of a session with the next batch, or soon (`turn/lazy`)."""
        if self.lazy.remove(partition, key, session, self.now):
            self.timers.set(self.now + LAZY_US, TIMER_LAZY, 0)

    def partition_of(self, key: bytes) -> int:
        """Return the partition to which a client id, a retained topic or a stream partition belongs."""
        return hash64(key) % self.partitions

    def has_expired(self, expires_us: int) -> bool:
        """Whether a message that expires at this time is not to be delivered any more; 0: it never expires."""
        return 0 < expires_us <= self.clock.expiry_time

    def tell(self, kind: str, fields: dict[str, object]) -> None:
        """Keep a fact to be published as an event, if there is a subscriber; beyond a bound, drop and count it."""
        if not self.listening:
            return
        if len(self.news) < NEWS_MAX:
            self.news.append(News(kind, self.clock.time, fields))
        else:
            self.counters.events_dropped += 1

    def refuse(self, account: Account, what: str) -> None:
        """Log that a quota of a user is used up, at most once in an hour for each; what: of which thing."""
        told = account.told_us
        if told is None:
            told = {}
            account.told_us = told
        if what in told and self.now - told[what] < HOUR:
            return
        told[what] = self.now
        self.event(WARNING, "quota_exceeded", {"user": account.name, "what": what})

    def event(self, level: str, kind: str, fields: dict[str, object]) -> None:
        """Add an event for the log."""
        self.events.append(Event(level, kind, fields))

    @property
    def speaks(self) -> bool:
        """Whether this node has a lease, by the time of the last call of the driver."""
        return self.now * 1000 < self.speaks_until_ns

    @property
    def leased(self) -> bool:
        """Whether this node serves only while it has a lease; otherwise that never ends."""
        return self.speaks_until_ns < NEVER
