"""What the parts of a broker share: settings, time, rows, sessions, subscriptions, what the turn has collected so far.

Data only. The parts (queue, delivery, publishing, retained, ...) stand on it and on those listed before them in
`broker.py`; none of them reaches back.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.auth.policy import Policy
from folkmoot.kernel.event import Event
from folkmoot.kernel.hash import hash64
from folkmoot.kernel.limits import Limits
from folkmoot.kernel.rng import Rng
from folkmoot.kernel.timers import Timers
from folkmoot.metrics.counters import Counters
from folkmoot.session.connection import Authenticate, Connection
from folkmoot.session.session import Session
from folkmoot.store.reader import Reader
from folkmoot.store.writer import Writer
from folkmoot.topics.tree import Tree
from folkmoot.turn.latency import Meter

__all__ = [
    "NEWS_MAX",
    "TIMER_CONNECT",
    "TIMER_EVENTS",
    "TIMER_KEEP_ALIVE",
    "TIMER_LEVEL",
    "TIMER_OVERLOAD",
    "TIMER_RATE",
    "TIMER_RETENTION",
    "TIMER_SESSION",
    "TIMER_STAGED",
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

NEWS_MAX: Final = 16_384  # events that wait to be published


class Identity:
    """Who this node is and what it demands of clients; see node.config for the meaning of each."""

    def __init__(self) -> None:
        self.node_id: str = "node1"
        self.version: str = "0"
        self.allow_anonymous: bool = True
        self.check_passwords: bool = False
        self.user_from_certificate: bool = False
        self.response_information: str = ""
        self.server_reference: str = ""
        self.incarnation = 0


class News:
    """Something that happened, to be published as an event; see `event_publisher`."""

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
        policy: Policy,
        partitions: int,
        reader: Reader,
        writer: Writer,
        rng: Rng,
    ) -> None:
        self.identity = identity
        self.limits = limits
        self.policy = policy
        self.partitions = partitions
        self.reader = reader
        self.writer = writer
        self.rng = rng
        self.now = 0
        self.started_us = 0
        self.counters = Counters()
        self.timers = Timers()
        self.sessions: dict[str, Session] = {}
        self.connections: dict[int, Connection] = {}
        self.tree = Tree()
        self.alone = True  # no cluster is configured
        self.routes_known = True  # all that others have subscribed to is known: nothing is published before
        self.routes_whole = True  # also what the other side of a split had, which has just healed
        self.leads: list[bool] = [False] * partitions  # partitions whose rows this node changes
        self.minority_side = False  # in this view the node goes on as the smaller side of a split
        # Rows that go when this node finds itself in a minority before they are committed: what a client has sent and
        # was not told of, as (token, partition, key)
        self.revocable: deque[tuple[int, int, bytes]] = deque()
        self.storage_full = False
        self.overload = 0  # 0 to 10: the highest level of all members; publishers are slowed by it
        self.overload_own = 0  # the level of this node
        self.overload_why = ""  # the pressure that made it
        self.stopping = False
        # Collected during a turn
        self.outputs: list[Connection] = []
        self.outputs_gone = False  # one of them has been lost since
        self.closes: list[Connection] = []
        self.pauses: list[Connection] = []
        self.resumes: list[Connection] = []
        self.unstash: deque[Connection] = deque()  # what they have sent meanwhile may be taken now
        self.checks: list[Authenticate] = []
        self.events: list[Event] = []
        # What the outside world may want to know
        self.listening = False  # somebody takes events
        self.news: deque[News] = deque()
        self.meter = Meter(limits)

    def partition_of(self, key: bytes) -> int:
        """Return the partition to which a client id, a retained topic or a stream partition belongs."""
        return hash64(key) % self.partitions

    def tell(self, kind: str, fields: dict[str, object]) -> None:
        """Note what is to be published as an event, if anybody listens; beyond a bound it is dropped and counted."""
        if not self.listening:
            return
        if len(self.news) < NEWS_MAX:
            self.news.append(News(kind, self.now, fields))
        else:
            self.counters.events_dropped += 1

    def event(self, level: str, kind: str, fields: dict[str, object]) -> None:
        """Note a fact for the log."""
        self.events.append(Event(level, kind, fields))
