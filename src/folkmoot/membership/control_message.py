"""The messages between members that are not of the configuration log: greetings, heartbeats, requests; and their bytes.

A *greeting* goes to a process when a link to it is made, and again when what it says has changed. Members send
*heartbeats* to the leader of the configuration log, which answers each: the answer is the lease. A *request* asks that
leader for a command. All of them may be lost or come late; each says enough to be judged by itself.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import BYTE, varint
from folkmoot.membership.cluster_member import take_id
from folkmoot.membership.configuration import ANCESTORS_MAX
from folkmoot.peer.cursor import Cursor, put_bytes, put_text

__all__ = [
    "BEAT",
    "BEAT_ANSWER",
    "Beat",
    "BeatAnswer",
    "EVICTED",
    "GRANTED",
    "GREETING",
    "Greeting",
    "NOT_LEADING",
    "NOT_UP",
    "OUTDATED",
    "REPLY",
    "REQUEST",
    "Reply",
    "Request",
    "STRANGER",
    "decode_beat",
    "decode_beat_answer",
    "decode_greeting",
    "decode_reply",
    "decode_request",
    "kind_of",
]

GREETING: Final = 1
BEAT: Final = 2
BEAT_ANSWER: Final = 3
REQUEST: Final = 4
REPLY: Final = 5

GRANTED: Final = 0  # the heartbeat extends the lease
NOT_UP: Final = 1  # the process is not up in the configuration, or is about to be taken for away
STRANGER: Final = 2  # no member has the disk
OUTDATED: Final = 3  # another process on the disk is known, with this number or a later one: the folder was set back
NOT_LEADING: Final = 4  # the receiver does not lead the log, or may not grant leases
EVICTED: Final = 5  # an operator has put this process out

_LINEAGES_MAX: Final = ANCESTORS_MAX
_DISKS_MAX: Final = 4096
_ADDRESSES_MAX: Final = 4096
_PARTITIONS_MAX: Final = 65_536
_LOAD_MAX: Final = 64

_LIVE: Final = 1
_WELCOME: Final = 2
_LISTED: Final = 4
_ASKS: Final = 8
_IN_DOUBT: Final = 16

_STALLED: Final = 1
_FULL: Final = 2
_SLOW: Final = 4
_UP: Final = 8
_LOAD: Final = 16
_FRESH: Final = 32
_LAPSED: Final = 64


class Greeting:
    """What a process says of itself to every other one.

    Args:
        cluster: The cluster to which it belongs; 0: none yet.
        lineage: The lineage of its configuration; 0: it has none yet.
    """

    def __init__(self, cluster: int, lineage: int) -> None:
        self.cluster = cluster
        self.lineage = lineage
        self.ancestors: list[int] = []  # the lineages from which this one descends, the first one first
        self.shared: list[int] = []  # the last counter of each of them that this lineage shares
        self.floor: int = 0  # the highest such counter of an ancestor that it has forgotten; 0: none
        self.strength: int = 0  # see `membership/fork`
        self.index: int = 0  # the last entry that it has applied
        self.term: int = 0  # of its log, and of the leader; 0: it has no log, or tells nothing of it
        self.end: tuple[int, int] = (0, 0)  # term and index of the last entry of its log, applied or not
        self.in_doubt: bool = False  # its disk may lack what it has confirmed (`membership/doubt`)
        self.leader: int = 0  # the disk of the leader of the log, as far as it knows; 0: it knows of none
        self.live: bool = False  # it has a lease
        self.welcome: bool = False  # it leads the log, and the receiver could be up in this lineage
        self.expect: int = 0  # how many nodes are to found the cluster; 0: it was not told
        self.partitions: int = 0
        self.founder: str = ""  # without a cluster: the address of the process that it takes for the founder
        self.listed: bool = False  # because that one is the first of a list with its own address
        self.linked: list[int] = []  # the disks of the processes to which it has links, ascending
        self.addresses: list[str] = []  # where it knows or expects processes
        self.asks: bool = False  # it has no greeting of the receiver, and waits for one

    def encoded(self) -> bytes:
        """Return the message."""
        flags = (_LIVE if self.live else 0) | (_WELCOME if self.welcome else 0) | (_LISTED if self.listed else 0)
        flags |= (_ASKS if self.asks else 0) | (_IN_DOUBT if self.in_doubt else 0)
        parts = [BYTE[GREETING], BYTE[flags], varint(self.cluster), varint(self.lineage), varint(self.strength)]
        parts += [varint(self.index), varint(self.leader), varint(self.expect), varint(self.partitions)]
        parts.append(_put_integers(self.ancestors))
        parts.append(_put_integers(self.shared))
        parts.append(_put_integers(self.linked))
        parts.append(varint(len(self.addresses)))
        parts.extend([put_text(address) for address in self.addresses])
        parts.append(put_text(self.founder))
        parts.append(varint(self.term) + varint(self.end[0]) + varint(self.end[1]) + varint(self.floor))
        return b"".join(parts)

    def __repr__(self) -> str:
        state = "live" if self.live else "silent"
        return f"greeting cluster {self.cluster} lineage {self.lineage}@{self.index} leader {self.leader} {state}"


class Beat:
    """A heartbeat of one process.

    Args:
        lineage: Of its configuration log.
        number: Of this heartbeat (`lease.Lease.beat`).
        applied: The last entry of the log whose configuration is installed here.
    """

    def __init__(self, lineage: int, number: int, applied: int) -> None:
        self.lineage = lineage
        self.number = number
        self.applied = applied
        self.returned: int = 0  # it gives back what was granted for heartbeats up to this one, and wants to be away
        self.up: bool = False  # in the configuration that is installed here, this process is up
        self.fresh: bool = False  # no heartbeat of this process has been judged yet, so it cannot have been let up
        # It had no lease at some moment since the heartbeat before. While it is not up: answers come too late for one.
        # Of an older build that is not known: False.
        self.lapsed: bool = False
        self.stalled: bool = False  # its disk or loop stands still: it must not lead
        self.full: bool = False  # its disk lacks room
        self.slow: bool = False  # its disk or loop is slow
        self.seen: int = 0  # the highest counter of a configuration that it knows; sent while it is not up
        self.branches: list[int] = []  # partitions of which it has changes of another lineage; sent while it is not up
        self.missing: list[int] = []  # disks of members that are up, and to which it has no link
        self.waiting: list[int] = []  # disks of members that are not up, with a link; sent while few are up
        self.ended: list[tuple[int, int]] = []  # (disk, incarnation) of processes that are proved to have ended
        self.load: dict[str, int] | None = None  # figures for the other members; None: unchanged

    def encoded(self) -> bytes:
        """Return the message."""
        flags = (_STALLED if self.stalled else 0) | (_FULL if self.full else 0) | (_SLOW if self.slow else 0)
        flags |= (_UP if self.up else 0) | (_LOAD if self.load is not None else 0) | (_FRESH if self.fresh else 0)
        flags |= _LAPSED if self.lapsed else 0
        parts = [BYTE[BEAT], BYTE[flags], varint(self.lineage), varint(self.number), varint(self.applied)]
        parts += [varint(self.returned), varint(self.seen), _put_integers(self.branches), _put_integers(self.missing)]
        parts.append(_put_integers(self.waiting))
        parts.append(varint(len(self.ended)))
        parts.extend([varint(disk) + varint(incarnation) for disk, incarnation in self.ended])
        if self.load is not None:
            parts.append(varint(len(self.load)))
            parts.extend([put_text(name) + varint(value) for name, value in self.load.items()])
        return b"".join(parts)

    def __repr__(self) -> str:
        return f"beat {self.number} lineage {self.lineage} applied {self.applied}"


class BeatAnswer:
    """The answer to a heartbeat.

    Args:
        lineage: Of the log that the sender leads, or takes part in.
        term: The term of the leader; 0 if it does not lead.
        number: Of the heartbeat.
        commit: The last entry that the leader knows to be committed; the lease counts when the member has applied it.
        verdict: GRANTED, or why not.
    """

    def __init__(self, lineage: int, term: int, number: int, commit: int, verdict: int) -> None:
        self.lineage = lineage
        self.term = term
        self.number = number
        self.commit = commit
        self.verdict = verdict
        self.loads: list[tuple[int, dict[str, int]]] = []  # (disk, figures) that have changed

    def encoded(self) -> bytes:
        """Return the message."""
        parts = [BYTE[BEAT_ANSWER], BYTE[self.verdict], varint(self.lineage), varint(self.term), varint(self.number)]
        parts += [varint(self.commit), varint(len(self.loads))]
        for disk, load in self.loads:
            parts += [varint(disk), varint(len(load))]
            parts.extend([put_text(name) + varint(value) for name, value in load.items()])
        return b"".join(parts)

    def __repr__(self) -> str:
        return f"answer to beat {self.number} term {self.term} commit {self.commit} verdict {self.verdict}"


class Request:
    """A request for a command; `number`: the sender's own, for the reply."""

    def __init__(self, lineage: int, number: int, command: bytes) -> None:
        self.lineage = lineage
        self.number = number
        self.command = command

    def encoded(self) -> bytes:
        """Return the message."""
        return BYTE[REQUEST] + varint(self.lineage) + varint(self.number) + put_bytes(self.command)


class Reply:
    """What became of a request.

    Args:
        number: Of the request.
        index: The entry, 0 if there is none.
        refused: `transition.ACCEPTED`, or why it was refused.
        lost: It was not judged: the leader has changed, or is too busy. To ask again does no harm.
    """

    def __init__(self, number: int, index: int, refused: int, lost: bool) -> None:
        self.number = number
        self.index = index
        self.refused = refused
        self.lost = lost

    def encoded(self) -> bytes:
        """Return the message."""
        return BYTE[REPLY] + varint(self.number) + varint(self.index) + BYTE[self.refused] + BYTE[self.lost]


def kind_of(body: bytes) -> int:
    """Return the kind of a message, 0 if it has none."""
    return body[0] if body else 0


def decode_greeting(body: bytes) -> Greeting:
    """Read a greeting; raises ValueError."""
    cursor = Cursor(body[1:], "a greeting")
    flags = cursor.byte()
    greeting = Greeting(take_id(cursor, 0, "identity of a cluster"), take_id(cursor, 0, "lineage"))
    greeting.live = flags & _LIVE != 0
    greeting.welcome = flags & _WELCOME != 0
    greeting.listed = flags & _LISTED != 0
    greeting.asks = flags & _ASKS != 0
    greeting.in_doubt = flags & _IN_DOUBT != 0
    greeting.strength = take_id(cursor, 0, "strength")
    greeting.index = take_id(cursor, 0, "index")
    greeting.leader = take_id(cursor, 0, "identity of a disk")
    greeting.expect = take_id(cursor, 0, "number of nodes")
    greeting.partitions = take_id(cursor, 0, "number of partitions")
    greeting.ancestors = _take_integers(cursor, _LINEAGES_MAX)
    greeting.shared = _take_integers(cursor, _LINEAGES_MAX)
    if len(greeting.shared) != len(greeting.ancestors):
        raise ValueError("a greeting has as many shared counters as ancestors")
    if len({greeting.lineage, *greeting.ancestors}) <= len(greeting.ancestors):
        raise ValueError(f"the lineage {greeting.lineage} descends from itself, or twice from another one")
    greeting.linked = _take_integers(cursor, _DISKS_MAX)
    greeting.addresses = [cursor.text() for _ in range(cursor.count(_ADDRESSES_MAX))]
    greeting.founder = cursor.text()
    greeting.term = take_id(cursor, 0, "term")
    last_term = take_id(cursor, 0, "term")
    greeting.end = (last_term, take_id(cursor, 0, "index"))
    if not cursor.done():
        greeting.floor = take_id(cursor, 0, "counter")
    return greeting


def decode_beat(body: bytes) -> Beat:
    """Read a heartbeat; raises ValueError."""
    cursor = Cursor(body[1:], "a heartbeat")
    flags = cursor.byte()
    lineage = take_id(cursor, 1, "lineage")
    number = take_id(cursor, 1, "number")
    beat = Beat(lineage, number, take_id(cursor, 0, "index"))
    beat.stalled = flags & _STALLED != 0
    beat.full = flags & _FULL != 0
    beat.slow = flags & _SLOW != 0
    beat.up = flags & _UP != 0
    beat.fresh = flags & _FRESH != 0
    beat.lapsed = flags & _LAPSED != 0
    beat.returned = take_id(cursor, 0, "number")
    beat.seen = take_id(cursor, 0, "counter")
    beat.branches = _take_integers(cursor, _PARTITIONS_MAX)
    beat.missing = _take_integers(cursor, _DISKS_MAX)
    beat.waiting = _take_integers(cursor, _DISKS_MAX)
    for _ in range(cursor.count(_DISKS_MAX)):
        disk = take_id(cursor, 1, "identity of a disk")
        beat.ended.append((disk, take_id(cursor, 1, "incarnation")))
    if flags & _LOAD:
        beat.load = _take_load(cursor)
    return beat


def decode_beat_answer(body: bytes) -> BeatAnswer:
    """Read an answer to a heartbeat; raises ValueError."""
    cursor = Cursor(body[1:], "an answer to a heartbeat")
    verdict = cursor.byte()
    if verdict > EVICTED:
        verdict = NOT_UP  # a reason of a later version: there is no lease in any case
    lineage = take_id(cursor, 1, "lineage")
    term = take_id(cursor, 0, "term")
    number = take_id(cursor, 1, "number")
    answer = BeatAnswer(lineage, term, number, take_id(cursor, 0, "index"), verdict)
    for _ in range(cursor.count(_DISKS_MAX)):
        disk = take_id(cursor, 1, "identity of a disk")
        answer.loads.append((disk, _take_load(cursor)))
    return answer


def decode_request(body: bytes) -> Request:
    """Read a request; raises ValueError."""
    cursor = Cursor(body[1:], "a request")
    lineage = take_id(cursor, 1, "lineage")
    number = take_id(cursor, 1, "number")
    return Request(lineage, number, cursor.bytes_())


def decode_reply(body: bytes) -> Reply:
    """Read a reply; raises ValueError."""
    cursor = Cursor(body[1:], "a reply")
    number = take_id(cursor, 1, "number")
    index = take_id(cursor, 0, "index")
    refused = cursor.byte()
    return Reply(number, index, refused, cursor.byte() != 0)


def _put_integers(values: list[int]) -> bytes:
    return varint(len(values)) + b"".join([varint(value) for value in values])


def _take_integers(cursor: Cursor, most: int) -> list[int]:
    return [take_id(cursor, 0, "number") for _ in range(cursor.count(most))]


def _take_load(cursor: Cursor) -> dict[str, int]:
    load: dict[str, int] = {}
    for _ in range(cursor.count(_LOAD_MAX)):
        name = cursor.text()
        load[name] = cursor.integer()
    return load
