"""A session: the state of a client that outlives one network connection (MQTT 5 section 4.1).

A persistent session has rows in a partition; a transient one (session expiry 0) ends with its connection.
"""

from __future__ import annotations

from typing import Final

from folkmoot.session.account import PATTERNS_FREE, Account
from folkmoot.session.connection import Connection
from folkmoot.session.entry import Entry
from folkmoot.session.subscription import Subscription
from folkmoot.store.key import QUEUE, name_prefix
from folkmoot.store.message import Message
from folkmoot.topics.name import pattern_of, split_share

__all__ = ["FITS", "PACKET_IDS", "SESSION_FULL", "UNKNOWN_US", "USER_FULL", "Session", "Will"]

PACKET_IDS = 65_535

UNKNOWN_US: Final = 1
"""When a message expires of which that is not known: long ago, so that whoever asks looks at the message."""

# Answers of `Session.count_pattern`
FITS = 0
SESSION_FULL = 1
USER_FULL = 2


class Will:
    """A will: its message, its delay, and when it is due (0 = the client is connected). MQTT 5 section 3.1.2.5."""

    def __init__(self, message: Message, delay_s: int) -> None:
        self.message = message
        self.delay_s = delay_s
        self.username: str | None = None  # of the client that has set it; None: not known
        self.token = 0  # of the connection that has set it, if that is at another node
        self.due_us = 0


class Session:
    """State of one client id.

    The stored queue of a persistent session is a sequence of rows. A message's packet id is a function of its sequence
    (`packet_id_of`), so that a flow continues with the same id after a restart and at any node.

        queue_floor        rows below belong to an ended session of the same client id
        queue_head         rows below are done; reading begins here for the next connection
        sent_below         rows below may have been sent already: they are sent again with DUP
        started_below      rows below were sent by this leader, or to a client that it has taken over: none expires
        sent_stored        what the row SENT says of it: it never goes back, and runs ahead for a page that is read
        given_below        stored: the next leader gives out no sequence below, although nothing may be left of it
        ready[ready_head:] rows in memory, in order, up to ready_end
        ready_end          the next row to read from the store
        kept_below         rows below that are left stay in a full queue: their flows may have begun
        oldest_expires_us  when the first message that a full queue may drop expires, 0: never; or UNKNOWN_US
        drop_from, drop_below  rows from here to there were dropped, but may still be in the store
        committed_next     rows below are committed, and may be sent
        queue_next         the sequence of the next message

    persistent: it outlives its connection, and is stored.
    """

    def __init__(self, client_id: str, partition: int, persistent: bool) -> None:
        self.client_id = client_id
        self.key = client_id.encode()
        self.partition = partition
        # Flags stand together: compiled, they share a word
        self.persistent = persistent
        self.proved = False  # whether its client has proved its user name; nothing belongs to a name that it has not
        self.begun = False  # whether the session began with the connection that the token names
        self.registration_only = False  # a transient session at another node: only its client's registration is here
        self.proxy = False  # represents a session at another node for a connection at this one
        self.ended = False
        self.version = 4
        self.username = ""
        self.account: Account | None = None  # None: it does not count, because the node does not have it
        self.expiry_s = 0
        self.ends_us = 0  # 0 = connected
        self.removed_us = 0  # since when this node knows that its user was removed; 0 = that is not so
        self.connection: Connection | None = None
        self.token = 0  # of its current or last connection; for a persistent session, 0 = not known
        self.will: Will | None = None
        self.subscriptions: dict[bytes, Subscription] = {}
        self._patterns: dict[bytes, int] | None = None  # of filters with `+` or a group, counted when it has another
        self.filter_bytes = 0  # that its filters take beyond the usual
        # As counted in its account: patterns beyond PATTERNS_FREE, and `kept_bytes`
        self.counted_patterns = 0
        self.counted_bytes = 0
        # Outbound flow
        self.window = PACKET_IDS
        self.inflight: dict[int, Entry] = {}
        self.next_packet_id = 1
        self.ready: list[Entry] = []
        self.ready_head = 0
        self.ready_bytes = 0
        # Stored queue
        self.queue_prefix = b""
        self.queue_floor = 1
        self.queue_head = 1
        self.queue_next = 1
        self.committed_next = 1
        self.ready_end = 1
        self.sent_below = 1
        self.started_below = 1
        self.sent_stored = 1
        self.given_below = 1
        self.kept_below = 1
        self.oldest_expires_us = UNKNOWN_US
        self.drop_from = 1
        self.drop_below = 1
        self.queue_count = 0
        self.queue_bytes = 0
        self.full_told_us = 0  # when a full queue was last logged
        self.special_rows = 0  # queue rows with a body or a group: they need more than deletion when the session ends
        self.touched_token = 0
        self.released: dict[int, int] | None = None  # packet id -> sequence: PUBREC received, PUBCOMP not yet
        # Packet id -> token: of these, flows that expiry has ended. PUBREL goes out when that is committed, or TOLD
        self.expired_flows: dict[int, int] | None = None
        # Packet id -> token: of flows that have ended, while a later message waits for the id and this is not committed
        self.ended_ids: dict[int, int] | None = None
        # Acknowledgements whose changes were not committed when last checked: token, first byte, rest, sequence
        self.taken: list[tuple[int, int, bytes, int]] | None = None
        # Inbound flow: QoS 2 packet ids whose PUBREL has not been received, with the reason code of their PUBREC
        self.received: dict[int, int] | None = None
        # Of the newest turn whose messages must not be overtaken by later ones: by any, and by those with QoS 0 and 1
        self.ordered_token = 0
        self.ordered_qos0_token = 0
        self.ordered_qos1_token = 0
        self.flights: set[int] | None = None  # queue sequences that the client has received from an earlier leader
        self.feeds = 0  # retained scans and replays that still fill this session's queue
        if persistent:
            self.queue_prefix = name_prefix(partition, QUEUE, self.key)

    @property
    def owner(self) -> str:
        """The user to whom the session belongs, and by whose rights it is judged; "" for nobody."""
        return self.username if self.proved else ""

    @property
    def waiting(self) -> int:
        """Messages in memory that are not sent yet."""
        return len(self.ready) - self.ready_head

    def kept_bytes(self) -> int:
        """Return the memory that it takes beyond what every session and subscription does: filters, and the will."""
        return self.filter_bytes + (0 if self.will is None else self.will.message.size)

    def count_pattern(self, subscription: bytes, change: int, most: int = 1 << 60) -> int:
        """Count a filter, as the client wrote it, that is added (1) or removed (-1).

        Return FITS, or why nothing was counted: it has a new pattern, and there are `most` of them (SESSION_FULL), or
        the user has too many (USER_FULL).

        A pattern is the set of levels with `+`, and where the filter ends; those of each group count for themselves. Of
        the filters with one pattern at most one matches a topic, so the number of patterns bounds how many branches of
        the subscription tree a topic leads to, and in how many groups the session gets the same message.
        """
        pattern = _pattern(subscription)
        if not pattern:
            return FITS
        patterns = self._patterns
        if patterns is None:
            if change < 0:
                return FITS
            patterns = {}
            for name in self.subscriptions:
                known = _pattern(name)
                if known:
                    patterns[known] = patterns.get(known, 0) + 1
            self._patterns = patterns
            self._count_patterns()
        count = patterns.get(pattern, 0) + change
        if change > 0 and count == 1:
            if len(patterns) >= most:
                return SESSION_FULL
            account = self.account
            beyond = len(patterns) >= PATTERNS_FREE
            if beyond and account is not None and account.patterns >= account.quota.patterns_max:
                return USER_FULL
        if count > 0:
            patterns[pattern] = count
        else:
            patterns.pop(pattern, None)
        self._count_patterns()
        return FITS

    def _count_patterns(self) -> None:
        """Tell the account how many patterns there are beyond those that are free."""
        account = self.account
        patterns = self._patterns
        if account is not None and patterns is not None:
            beyond = max(len(patterns) - PATTERNS_FREE, 0)
            account.patterns += beyond - self.counted_patterns
            self.counted_patterns = beyond

    def had_by(self, token: int) -> bool:
        """Whether no later connection than this one has had the session; True if that is not known."""
        return not self.token or self.token == token

    def is_ordered_after(self, token: int, qos: int) -> bool:
        """Whether a message must not overtake those of a turn after this one."""
        newest = self.ordered_qos1_token if qos == 1 else self.ordered_qos0_token if qos == 0 else 0
        return max(self.ordered_token, newest) > token

    def order_after(self, token: int, qos: int) -> None:
        """Let no later message with this QoS, 0 or 1, overtake those of a turn."""
        if qos == 1:
            self.ordered_qos1_token = token
        else:
            self.ordered_qos0_token = token

    def packet_id_of(self, sequence: int) -> int:
        """Return the packet id of the queued message `sequence`: 1 to 65535, repeated only 65535 messages later."""
        return sequence % PACKET_IDS + 1

    def take_packet_id(self) -> int:
        """Return a packet id that is not in use [MQTT-2.2.1-4]; the window leaves some unused."""
        packet_id = self.next_packet_id
        while packet_id in self.inflight:
            packet_id = packet_id + 1 if packet_id < PACKET_IDS else 1
        self.next_packet_id = packet_id + 1 if packet_id < PACKET_IDS else 1
        return packet_id

    def push_ready(self, entry: Entry) -> None:
        """Append an entry to the queue in memory."""
        self.ready.append(entry)
        self.ready_bytes += entry.size

    def pop_ready(self) -> Entry:
        """Take the first entry of the queue in memory; the list is compacted from time to time."""
        entry = self.ready[self.ready_head]
        self.ready_head += 1
        self.ready_bytes -= entry.size
        if self.ready_head == len(self.ready):
            self.ready.clear()
            self.ready_head = 0
        elif self.ready_head >= 1024:
            del self.ready[: self.ready_head]
            self.ready_head = 0
        return entry

    def clear_ready(self) -> None:
        """Drop the entries in memory."""
        self.ready.clear()
        self.ready_head = 0
        self.ready_bytes = 0

    def __repr__(self) -> str:
        kind = "persistent" if self.persistent else "transient"
        online = "online" if self.connection is not None else "offline"
        return f"Session({self.client_id!r} {kind} {online} queue={self.queue_count} inflight={len(self.inflight)})"


def _pattern(subscription: bytes) -> bytes:
    """Return what `Session.count_pattern` counts; empty for a filter without `+` that is not shared."""
    split = split_share(subscription)
    topic_filter = subscription if split is None else split[1]
    pattern = pattern_of(topic_filter) if b"+" in topic_filter else b""
    return pattern if split is None else split[0] + b"/" + pattern
