"""Retained messages: the newest per topic, as rows of the topic's partition (MQTT 5 section 3.3.1.3).

Writes them; `retained_feed` sends them to new subscriptions, page by page.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.partition.backlog import rows_per_page
from folkmoot.partition.partition import Led, Partition, Share
from folkmoot.session.account import Account
from folkmoot.store.key import RETAINED, end_of, plain_key
from folkmoot.store.message import Message, decode_message, encode_message
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.topics.name import filter_prefix, has_wildcard
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import TIMER_SWEEP, State

__all__ = ["SWEEP_SLOTS", "TO_TRANSIENT", "Retained", "earlier"]

SWEEP_SLOTS: Final = 16
"""`retained_sweep` visits this part of the partitions at a time, this often in an interval."""

_VISIT_US_MIN: Final = 1_000

TO_TRANSIENT: Final = -1  # in place of a partition: to the transient sessions of this node

_SMALL_BYTES: Final = 4096  # a message of its own that a user can replace by one of this size whatever its quota
_LIVE_MAX: Final = 16_384  # topics; beyond it, the oldest may come once more as retained
_ROWS_ELSEWHERE: Final = 32  # at once, where their size is unknown


def earlier(expires_us: int, other_us: int) -> int:
    """Return the earlier one of two times of expiry, of which 0 means never."""
    if not expires_us or not other_us:
        return expires_us or other_us
    return min(expires_us, other_us)


class _Change:
    """What a batch that is not durable yet has done to a topic: bytes and user of its message; -1: it has none now."""

    def __init__(self, topic: bytes, token: int, size: int, owner: str) -> None:
        self.topic = topic
        self.token = token
        self.size = size
        self.owner = owner


class _Kept:
    """What a topic has retained now: the bytes of the message, -1 if there is none, and its user."""

    def __init__(self, size: int, owner: str) -> None:
        self.size = size
        self.owner = owner


class Retained:
    """The retained messages of the partitions that this node leads.

    After a live message, a new subscriber must get neither the message that it replaced nor itself once more. The row
    and the live message come from different nodes, so no number orders them. Therefore live messages are remembered
    while feeds run: `came` notes one, a feed asks `has_come`.
    """

    def __init__(self, state: State, led: Led, fabric: Fabric) -> None:
        self.state = state
        self.led = led
        self.fabric = fabric
        self.sweeping = False  # the deadline is set
        # Changes of batches that the store does not show yet: newest per topic, and all in order
        self._fresh: dict[bytes, _Change] = {}
        self._changes: deque[_Change] = deque()
        self._feeds = 0  # that run
        self._live: dict[tuple[int, bytes], int] = {}  # by sessions and topic: messages that came live while feeds run
        self._live_count = 0
        self.news: list[tuple[int, bytes]] = []  # live messages of this turn, for the feeds

    def set(self, message: Message) -> bool:
        """Set or clear the message of its topic; False when a limit or the quota of its user refuses it."""
        topic = message.topic
        partition = self.state.partition_of(topic)
        memory = self.led[partition]
        before = self._look(memory, topic)
        if not message.payload:  # [MQTT-3.3.1-6] [MQTT-3.3.1-7] an empty payload clears
            if before.size >= 0 or self.fabric.away:  # those who are away may have a message: the clear gets its time
                self.state.writer.delete(partition, plain_key(partition, RETAINED, topic))
            if before.size >= 0:
                self._note(topic, -1, "")
                self._count(memory, before.owner, -1, -before.size)
            return True
        if not self._fits(message, before):
            return False
        if before.size >= 0:
            self._count(memory, before.owner, -1, -before.size)
        self.state.writer.put(partition, plain_key(partition, RETAINED, topic), encode_message(message))
        self._note(topic, message.size, message.owner)
        self._count(memory, message.owner, 1, message.size)
        self._watch(memory, message.expires_us)
        return True

    def has_later(self, message: Message) -> bool:
        """Whether the message that its topic has now was published later; raises CorruptStore."""
        row = self.state.reader.get(plain_key(self.state.partition_of(message.topic), RETAINED, message.topic))
        return row is not None and decode_message(row, VERSION_BYTES).created_us > message.created_us

    def _fits(self, message: Message, before: _Kept) -> bool:
        """Whether a message may be retained; before: what its topic has now."""
        state = self.state
        account = state.accounts.of(message.owner)
        if before.size >= 0 and state.accounts.of(before.owner) is account:
            more = message.size - before.size
            fits = more <= 0 or message.size <= _SMALL_BYTES
            fits = fits or (
                account.retained_bytes + more <= account.quota.retained_bytes_max and self._fits_disk(account, more)
            )
        else:
            if before.size < 0 and state.counters.retained_messages >= state.limits.retained_messages_max:
                return False
            fits = account.retained_messages < account.quota.retained_messages_max
            fits = fits and account.retained_bytes + message.size <= account.quota.retained_bytes_max
            if fits and not self._fits_disk(account, message.size):
                state.counters.quota_refused_retained += 1
                state.refuse(account, "disk")
                return False
        if not fits:
            state.counters.quota_refused_retained += 1
            state.refuse(account, "retained")
        return fits

    def _fits_disk(self, account: Account, size: int) -> bool:
        counters = self.state.counters
        return self.state.accounts.fits_disk(account, size, counters.queue_bytes + counters.retained_bytes)

    def _count(self, memory: Partition, owner: str, count: int, size: int) -> None:
        """Count messages of a user in a partition that this node leads, or no more."""
        state = self.state
        memory.retained += count
        memory.retained_bytes += size
        state.counters.retained_messages += count
        state.counters.retained_bytes += size
        if not memory.retained:
            memory.retained_expires_us = 0
        shares = memory.retained_of
        share = shares.get(owner)
        if share is None:
            share = Share(state.accounts.of(owner))
            shares[owner] = share
        share.count += count
        share.size += size
        account = share.account  # as long as it has some, also when names are not checked any more
        assert account is not None, "a share of a partition that this node leads counts"
        account.retained_messages += count
        account.retained_bytes += size
        if not share.count:
            if share.size:  # a row could not be read, and its size was guessed
                account.retained_bytes -= share.size
                memory.retained_bytes -= share.size
                state.counters.retained_bytes -= share.size
            del shares[owner]
            state.accounts.settle(account, state.now)

    def _look(self, memory: Partition, topic: bytes) -> _Kept:
        """Return what a topic has now, by the newest change or else in the store."""
        fresh = self._fresh.get(topic)
        if fresh is not None:
            return _Kept(fresh.size, fresh.owner)
        found = _Kept(-1, "")
        if memory.retained:
            try:
                value = self.state.reader.get(plain_key(memory.number, RETAINED, topic))
                if value is not None:
                    message = decode_message(value, VERSION_BYTES)
                    found.size = message.size
                    found.owner = message.owner
            except CorruptStore as fault:  # it is replaced, so nobody has to repair it first
                self.state.event(ERROR, "corrupt_store", {"what": str(fault)})
                self._guess(memory, found)
        return found

    def _guess(self, memory: Partition, found: _Kept) -> None:
        """Guess what a row was that cannot be read: an average message of the user that has most of the partition."""
        most = 0
        for owner, share in memory.retained_of.items():
            if share.count > most:
                most = share.count
                found.size = share.size // share.count
                found.owner = owner

    def _note(self, topic: bytes, size: int, owner: str) -> None:
        change = _Change(topic, self.state.writer.token, size, owner)
        self._fresh[topic] = change
        self._changes.append(change)

    def written(self, durable_token: int) -> None:
        """The batches up to this one are durable: the store shows their changes."""
        changes = self._changes
        while changes and changes[0].token <= durable_token:
            change = changes.popleft()
            if self._fresh.get(change.topic) is change:
                del self._fresh[change.topic]

    def has_room(self, message: Message) -> bool:
        """Whether the limits and the quota of its user allow this retained message."""
        if not message.payload:
            return True
        account = self.state.accounts.of(message.owner)
        if (
            self.state.counters.retained_messages < self.state.limits.retained_messages_max
            and account.retained_messages < account.quota.retained_messages_max
            and account.retained_bytes + message.size <= account.quota.retained_bytes_max
            and self._fits_disk(account, message.size)
        ):
            return True
        return self._fits(message, self._look(self.led[self.state.partition_of(message.topic)], message.topic))

    def _watch(self, memory: Partition, expires_us: int) -> None:
        """A row of the partition expires at this time, 0: never."""
        if expires_us:
            memory.retained_expires_us = earlier(memory.retained_expires_us, expires_us)
            if not self.sweeping:
                self.plan_sweep()

    def plan_sweep(self) -> None:
        """Set the deadline for the next visit of the sweep, if there is one."""
        interval_us = self.state.limits.retained_sweep_interval_us
        if interval_us:
            self.sweeping = True
            self.state.timers.set(self.state.now + max(interval_us // SWEEP_SLOTS, _VISIT_US_MIN), TIMER_SWEEP, 0)

    def expire(self, message: Message) -> None:
        """Remove an expired retained message, if it is still the one that was read (section 3.3.1.3)."""
        if message.topic in self._fresh:
            return
        partition = self.state.partition_of(message.topic)
        memory = self.led.get(partition)
        if memory is None:
            return  # its leader removes it
        key = plain_key(partition, RETAINED, message.topic)
        if self.fabric.away:  # only then is it dated; else this is the cheaper way
            self.state.writer.expire(partition, key)
        else:
            self.state.writer.delete(partition, key)
        self._note(message.topic, -1, "")
        self._count(memory, message.owner, -1, -message.size)
        self.state.counters.retained_expired += 1

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, partition: int, topic_filter: bytes, key: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        """Return the next rows of a partition that may match, from `key` on: at most `rows_max` and about a page."""
        start = plain_key(partition, RETAINED, filter_prefix(topic_filter))
        end = end_of(start) if has_wildcard(topic_filter) else start + b"\0"
        return self.state.reader.scan(max(start, key), end, rows_max)

    def rows_at_once(self, partition: int) -> int:
        """Return how many rows of a partition make about a page."""
        page_rows = self.state.limits.page_rows
        memory = self.led.get(partition)
        if memory is None:
            return min(page_rows, _ROWS_ELSEWHERE)
        return rows_per_page(page_rows, memory.retained, memory.retained_bytes)

    def begin(self) -> int:
        """Begin a feed: return the number of live messages until now."""
        self._feeds += 1
        return self._live_count

    def end(self) -> None:
        """End a feed."""
        self._feeds -= 1
        if not self._feeds:
            self._live.clear()

    def came(self, sessions: int, topic: bytes) -> None:
        """Note that a retained message was delivered: to the sessions of a partition led here, or TO_TRANSIENT."""
        if self._feeds:
            self._live_count += 1
            key = (sessions, topic)
            self._live.pop(key, None)
            if len(self._live) >= _LIVE_MAX:
                del self._live[next(iter(self._live))]
            self._live[key] = self._live_count
            if sessions >= 0:
                self.news.append(key)

    def has_come(self, sessions: int, topic: bytes, since: int) -> bool:
        """Whether a message on this topic was delivered to these sessions since the number `since`."""
        return self._live.get((sessions, topic), 0) > since

    # -- partitions move ----------------------------------------------------------------------------------------------

    def take(self, memory: Partition, shares: dict[str, Share], expires_us: int) -> None:
        """Begin to lead a partition: what each user has there, and when the first row expires (0: none does)."""
        for owner, share in shares.items():
            self._count(memory, owner, share.count, share.size)
        self._watch(memory, expires_us)

    def forget(self, memory: Partition) -> None:
        """End the leadership of a partition."""
        for owner, share in list(memory.retained_of.items()):
            self._count(memory, owner, -share.count, -share.size)
        for topic in [topic for topic in self._fresh if self.state.partition_of(topic) == memory.number]:
            del self._fresh[topic]

    def may_have(self, partition: int) -> bool:
        """Whether a partition may have retained messages; nothing is known of those that other nodes lead."""
        memory = self.led.get(partition)
        return memory is None or memory.retained > 0
