"""What a checker asks before it accuses: whether something excuses what it has seen. Two answers, one switch.

`folkmoot.sim.causes` names a cause of this message, session or link, of a fixed table, and counts it; it judges the
family `--topologies`. `folkmoot.sim.windows` excuses by times of trouble in the whole cluster; it judges the other
family until the core no longer needs it. `Swarm.causal` decides. Owns the counts.

Every question is asked for every case, whether something looks wrong or not: only so can the counts tell which share of
the cases of a promise was judged at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from folkmoot.sim.fact import Life, Message, SessionRecord, Sub
from folkmoot.sim.network import Link

__all__ = ["Judge"]


class Judge(ABC):
    """The questions. `judged`: cases by promise. `excused`: cases by (promise, condition)."""

    def __init__(self) -> None:
        self.judged: dict[str, int] = {}
        self.excused: dict[tuple[str, str], int] = {}

    def judge(self, promise: str) -> None:
        """Count a case that nothing can excuse."""
        self.judged[promise] = self.judged.get(promise, 0) + 1

    # Deliveries

    @abstractmethod
    def sent_before(self, message: Message) -> bool:
        """Whether a message may come with DUP although the client sees it for the first time."""

    @abstractmethod
    def matched_otherwise(self, record: SessionRecord, message: Message) -> bool:
        """Whether a message may have been matched with other subscriptions than the client's present ones."""

    @abstractmethod
    def expires_late(self, message: Message) -> bool:
        """Whether a message may be delivered after its expiry."""

    @abstractmethod
    def out_of_order(self, record: SessionRecord | None, message: Message, later: Message) -> bool:
        """Whether `message` may come after `later`, of the same lane; record None: in a stream."""

    @abstractmethod
    def delivered_twice(self, record: SessionRecord, message: Message, *, shared: bool) -> bool:
        """Whether a session may get a message more often than it was applied."""

    @abstractmethod
    def repeats_qos0(self, message: Message) -> int:
        """Return how many more copies with QoS 0 a session may get; -1: as many as were sent."""

    @abstractmethod
    def repeats_scan(self, record: SessionRecord) -> int:
        """Return how often a scan of retained messages may have begun again."""

    @abstractmethod
    def lost_on_its_way(self, record: SessionRecord, message: Message, publisher: SessionRecord | None) -> bool:
        """Whether a message for a transient session may be lost with what was under way."""

    @abstractmethod
    def unknown_there(self, record: SessionRecord, sub: Sub, message: Message) -> bool:
        """Whether the node that took an acknowledged message may not have known the subscription."""

    @abstractmethod
    def comes_after_heal(self, record: SessionRecord, message: Message, later: Message, link: Link) -> bool:
        """Whether a message may still be on the other side of a split, and come after a later one."""

    @abstractmethod
    def gap_of_qos0(self, earlier: Message) -> bool:
        """Whether a QoS 0 message may be missing between others of the same connections."""

    @abstractmethod
    def group_twice(self, message: Message, records: list[SessionRecord]) -> bool:
        """Whether two members of a shared subscription may get one QoS 2 message."""

    @abstractmethod
    def group_missed(self, message: Message, members: list[tuple[SessionRecord, Sub]]) -> bool:
        """Whether no member of a shared subscription may have been known where the message was taken."""

    @abstractmethod
    def sent_after_unsubscribe(self, record: SessionRecord, message: Message) -> bool:
        """Whether a message that was published after UNSUBACK may still come."""

    @abstractmethod
    def of_earlier_session(self, record: SessionRecord, message: Message, earlier: list[SessionRecord]) -> bool:
        """Whether a message may come to a session for the subscription of an earlier one, which a heal has merged.

        earlier: sessions of the same client that would get it.
        """

    # Sessions

    @abstractmethod
    def began_elsewhere(self, record: SessionRecord, life: Life) -> bool:
        """Whether the client's session may have gone on, or ended, where this client was not."""

    @abstractmethod
    def without_copy(self, record: SessionRecord, life: Life) -> bool:
        """Whether the node of this connection may have had no copy of the session."""

    @abstractmethod
    def expires_elsewhere(self, record: SessionRecord) -> bool:
        """Whether a session may have expired where its client was not seen."""

    @abstractmethod
    def is_unknown_there(self, lives: list[Life], life: Life, slack_us: int) -> bool:
        """Whether a session that never expires now may not exist where its last connections, or all, were not seen.

        lives: the connections of the session, in their order, the last of which made it one that never expires.
        """

    @abstractmethod
    def lost_at(self, record: SessionRecord) -> int:
        """Return the earliest moment from which the client of a session may have counted as absent."""

    @abstractmethod
    def outlives_expiry(self, record: SessionRecord) -> bool:
        """Whether a session may live longer than its expiry."""

    @abstractmethod
    def unfenced(self, older: Link, newer: Link | None) -> bool:
        """Whether a node could not learn that the client of its connection is elsewhere now."""

    @abstractmethod
    def shares_ids(self, record: SessionRecord) -> bool:
        """Whether two nodes may have given out the same packet ids for a session."""

    # Streams

    @abstractmethod
    def stored_twice(self, message: Message) -> bool:
        """Whether a stream may have a message more often than it was applied."""

    @abstractmethod
    def replayed_elsewhere(self, record: SessionRecord, *, dup: bool) -> bool:
        """Whether a client may get records again because it has used two sides of a split."""

    @abstractmethod
    def repeats_replay(self, received_us: int) -> bool:
        """Whether a QoS 0 record of a replay that was received then may come again."""

    @abstractmethod
    def trimmed_elsewhere(self, message: Message) -> bool:
        """Whether the retention of another side may have removed a record."""

    # Retained messages

    @abstractmethod
    def retained_elsewhere(self, record: SessionRecord, message: Message, others: list[Message]) -> bool:
        """Whether a subscriber may get a retained message although it is overwritten, by one of the others.

        others: those to its topic that were acknowledged before the subscriber asked.
        """

    @abstractmethod
    def unordered(self, message: Message, other: Message) -> bool:
        """Whether the order of two writes to one topic was left to the clocks of two sides."""

    @abstractmethod
    def pending(self, message: Message, ended_us: int) -> bool:
        """Whether a write without an acknowledgement may be applied after its connection has ended."""

    # Wills

    @abstractmethod
    def will_twice(self, life: Life) -> bool:
        """Whether a will may be published twice."""

    @abstractmethod
    def will_unsure(self, life: Life, until_us: int) -> bool:
        """Whether other nodes may have taken the client of a connection for dead, or alive."""

    @abstractmethod
    def client_given_up(self, life: Life, until_us: int) -> bool:
        """Whether the others gave up the client of a connection before `until_us`, when that ended."""

    @abstractmethod
    def joined_later(self, life: Life, follower: Life) -> bool:
        """Whether the session of the later connection began on a side that did not know that of the earlier one."""

    @abstractmethod
    def withdrawal_unknown(self, life: Life, since_us: int, until_us: int) -> bool:
        """Whether a side may have gone on without anybody who knows that the will was withdrawn in this time."""

    @abstractmethod
    def will_early(self, life: Life, until_us: int) -> bool:
        """Whether a will may be published before its delay is over."""

    @abstractmethod
    def goodbye_lost(self, life: Life, until_us: int) -> bool:
        """Whether a DISCONNECT that was read may have been forgotten."""

    @abstractmethod
    def put_out(self, life: Life) -> bool:
        """Whether the node has ended a connection by itself, before it read the client's DISCONNECT."""

    @abstractmethod
    def due_until(self, life: Life, due_us: int, delay_us: int, slack_us: int) -> int:
        """Return the latest moment at which a delay is over that would be over at `due_us`."""

    # Others

    @abstractmethod
    def staged_lost(self) -> bool:
        """Whether the staged part of a transaction may be gone."""

    @abstractmethod
    def unserved(self, since_us: int) -> bool:
        """Whether the cluster may have been unable to handle a connection since then."""
