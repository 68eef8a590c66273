"""Which password checks are done, which wait, and which are refused: a check costs 40 ms of a CPU, a CONNECT little.

A function of time; drivers do the checks. Wrong passwords are counted for each address and for each user, in a bucket
that takes `failures_max` at once and gets one back per interval; a failure of an empty bucket costs twice as much as
the one before, up to 64 intervals. An address with an empty bucket is refused. A user is not: whoever sends wrong
passwords for a name could lock its owner out. Checks for such a user only wait behind all others.

A pair of address and user that has succeeded is never refused for failures of others. Its own failures are counted in a
bucket of its own. A password that is remembered needs no check, and does not come here at all.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from itertools import islice
from typing import Final

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64

__all__ = ["OVERFLOW", "UNIT_BYTES", "WAITS", "Login", "Logins", "address_key", "told"]

WAITS: Final = 0
OVERFLOW: Final = -1
"""Answers of `Logins.enter`; any other is the time in microseconds after which the client may try again."""

UNIT_BYTES: Final = 8_192
"""A login that keeps more in memory counts as several that wait."""

ENTRIES_MAX: Final = 65_536  # of each table; the least recent go
_NAME_CHARACTERS_MAX: Final = 64
_BACKOFF_MAX: Final = 6
_LOOKED_AT: Final = 16  # addresses, to find one with many logins that wait
_TURN: Final = 4  # every fourth check is one of the last class that waits, so that none waits for ever

# Classes, the first first
_KNOWN: Final = 0  # this user has succeeded from this address
_GOOD: Final = 1  # somebody has succeeded from this address, and nothing is held against it or the user
_NEW: Final = 2  # nothing is known
_DOUBTFUL: Final = 3  # the address or the user has failed lately
_CLASSES: Final = 4


def address_key(address: str) -> str:
    """Return what counts as one address of "HOST:PORT": an IPv4 address, or the first 64 bits of one of IPv6."""
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)


class _Bucket:
    """Failures of an address, a user or a pair, as one instant: `clear_us`, from which on nothing is held against it.

    Each failure puts it off by an interval, or by more if there were many. What is left of that time, counted in
    intervals, is what the bucket lacks: it is full from `clear_us` on, and empty while more than `failures_max` - 1
    intervals are left. This is the virtual scheduling form of a leaky bucket (GCRA, ITU-T I.371), which needs no timer.

    failures: since it was last full.
    """

    def __init__(self) -> None:
        self.clear_us = 0
        self.failures = 0


class Login:
    """A check that waits; `number` is the driver's, `size` what it keeps in memory in bytes."""

    def __init__(self, number: int, address: str, username: str, size: int = 0) -> None:
        self.number = number
        self.address = address  # an `address_key`
        self.username = username
        self.units = max(-(-size // UNIT_BYTES), 1)

    def __repr__(self) -> str:
        return f"Login({self.number} {self.username!r} from {self.address})"


class _Queue:
    """The logins of one address in a class, and how many units they are together."""

    def __init__(self) -> None:
        self.logins: deque[Login] = deque()
        self.units = 0


class Logins:
    """The queue of checks, and the memory of failures and successes.

    waiting: how many wait, in units of up to `UNIT_BYTES`, so that `waiting_max` bounds their memory, too.
    refused, overflowed: logins that have waited and will not be checked, because their address has failed too often
    meanwhile, or because better ones need the room; the driver takes them out.
    """

    def __init__(self, failures_max: int, interval_us: int, waiting_max: int) -> None:
        self.failures_max = failures_max  # 0: no limit
        self.interval_us = interval_us
        self.waiting_max = waiting_max
        self.waiting = 0
        self.refused: list[Login] = []
        self.overflowed: list[Login] = []
        self._queues: list[OrderedDict[str, _Queue]] = [OrderedDict() for _ in range(_CLASSES)]
        self._addresses: OrderedDict[str, _Bucket] = OrderedDict()  # that have failed
        self._users: OrderedDict[str, _Bucket] = OrderedDict()
        self._pairs: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()  # that have succeeded
        self._good: OrderedDict[str, None] = OrderedDict()  # addresses from which somebody has succeeded
        self._turn = 0

    def enter(self, login: Login, now: int) -> int:
        """Put a login into the queue; return WAITS, OVERFLOW, or how long its client must wait, in microseconds."""
        rank = self._rank(login, now)
        if rank != _KNOWN:
            wait_us = self.wait_us(login.address, now)
            if wait_us:
                return wait_us
        while self.waiting + login.units > self.waiting_max:
            if not self._make_room(rank, login):
                return OVERFLOW
        queues = self._queues[rank]
        queue = queues.get(login.address)
        if queue is None:
            queue = _Queue()
            queues[login.address] = queue
        queue.logins.append(login)
        queue.units += login.units
        self.waiting += login.units
        return WAITS

    def take(self, now: int) -> Login | None:
        """Take the next login to check out of the queue. Addresses take turns."""
        self._turn += 1
        order = list(range(_CLASSES))
        if self._turn % _TURN == 0:
            order.reverse()
        for rank in order:
            queues = self._queues[rank]
            while queues:
                address, queue = queues.popitem(last=False)
                if rank != _KNOWN and self.wait_us(address, now):
                    self.refused.extend(queue.logins)
                    self.waiting -= queue.units
                    continue
                login = queue.logins.popleft()
                queue.units -= login.units
                self.waiting -= login.units
                if queue.logins:
                    queues[address] = queue
                return login
        return None

    def succeeded(self, address: str, username: str) -> None:
        """A password was right, or is remembered."""
        pair = (address, username)
        if pair in self._pairs:
            self._pairs.move_to_end(pair)
        else:
            self._pairs[pair] = _Bucket()
            if len(self._pairs) > ENTRIES_MAX:
                self._pairs.popitem(last=False)
        self._good[address] = None
        self._good.move_to_end(address)
        if len(self._good) > ENTRIES_MAX:
            self._good.popitem(last=False)

    def checked(self, login: Login, accepted: bool, now: int) -> None:
        """A check has ended."""
        pair = self._pairs.get((login.address, login.username))
        if accepted:
            # Many clients may share an address, and each pays for one failure there.
            if pair is None:  # a second success of the same pair shows nothing new, and would pay for guessing
                bucket = self._addresses.get(login.address)
                if bucket is not None:
                    bucket.clear_us = max(bucket.clear_us - self.interval_us, now)
                    bucket.failures = max(bucket.failures - 1, 0)
            self.succeeded(login.address, login.username)
        elif pair is not None and not self._wait_us(pair, now):
            self._fail(pair, now)
        else:
            self._fail(_bucket_of(self._addresses, login.address), now)
            self._fail(_bucket_of(self._users, _user_key(login.username)), now)

    def wait_us(self, address: str, now: int) -> int:
        """Return how long an address must wait before the next password from it is checked, in microseconds."""
        bucket = self._addresses.get(address)
        return 0 if bucket is None else self._wait_us(bucket, now)

    def _wait_us(self, bucket: _Bucket, now: int) -> int:
        """Return how long the bucket is empty: until only `failures_max` - 1 intervals are left."""
        if not self.failures_max:
            return 0
        return max(bucket.clear_us + self.interval_us - self.failures_max * self.interval_us - now, 0)

    def _fail(self, bucket: _Bucket, now: int) -> None:
        if bucket.clear_us <= now:
            bucket.clear_us = now
            bucket.failures = 0
        bucket.failures += 1
        excess = bucket.failures - self.failures_max
        bucket.clear_us += self.interval_us << min(max(excess, 0), _BACKOFF_MAX)

    def _rank(self, login: Login, now: int) -> int:
        pair = self._pairs.get((login.address, login.username))
        if pair is not None and not self._wait_us(pair, now):
            return _KNOWN
        for bucket in (self._addresses.get(login.address), self._users.get(_user_key(login.username))):
            if bucket is not None and bucket.clear_us > now:
                return _DOUBTFUL
        return _GOOD if login.address in self._good else _NEW

    def _make_room(self, rank: int, login: Login) -> bool:
        """Drop a login of a later class, or of an address that has more in the same class; False if there is none."""
        own = self._queues[rank].get(login.address)
        for worse in range(_CLASSES - 1, rank, -1):
            if self._drop_of_longest(self._queues[worse], 0):
                return True
        return self._drop_of_longest(self._queues[rank], login.units + (0 if own is None else own.units))

    def _drop_of_longest(self, queues: OrderedDict[str, _Queue], most: int) -> bool:
        """Drop the newest login of an address with more than `most` units; False if there is none."""
        longest = ""
        for address in islice(reversed(queues), _LOOKED_AT):
            if queues[address].units > most:
                most = queues[address].units
                longest = address
        if not longest:
            return False
        queue = queues[longest]
        login = queue.logins.pop()
        queue.units -= login.units
        self.overflowed.append(login)
        self.waiting -= login.units
        if not queue.logins:
            del queues[longest]
        return True

    def __repr__(self) -> str:
        waiting = [sum([queue.units for queue in queues.values()]) for queues in self._queues]
        return f"Logins(waiting={waiting} failing={len(self._addresses)} known={len(self._pairs)})"


def _user_key(username: str) -> str:
    """Return what stands for a user in a table: of a long name, which anybody may make up, its beginning and a hash."""
    if len(username) <= _NAME_CHARACTERS_MAX:
        return username
    return f"{username[:_NAME_CHARACTERS_MAX]} {hash64(username.encode())}"


def _bucket_of(table: OrderedDict[str, _Bucket], name: str) -> _Bucket:
    bucket = table.get(name)
    if bucket is None:
        bucket = _Bucket()
        table[name] = bucket
        if len(table) > ENTRIES_MAX:
            table.popitem(last=False)
    else:
        table.move_to_end(name)
    return bucket


def told(wait_us: int) -> str:
    """Return what a client is told that must wait."""
    return f"too many wrong passwords from this address: try again in {max(-(-wait_us // SECOND), 1)} s"
