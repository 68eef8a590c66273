"""The leader's part: sending entries and heartbeats, counting answers, commits, reads, the handover of leadership.

A *round* numbers what a leader sends: every message to a follower carries the newest one, the answer echoes it, and so
proves that the follower followed this leader at some time after the round began. Check-quorum, reads (dissertation,
6.4) and the lease (6.4.1) need nothing else.
"""

from __future__ import annotations

from typing import Final

from folkmoot.raft.configuration import PROMOTE, Change, Configuration, encode_change
from folkmoot.raft.entry import CHANGE, NOOP, Entry, encode_snapshot
from folkmoot.raft.member import Member
from folkmoot.raft.message import (
    APPEND,
    CHUNK,
    GRANTED,
    HEARTBEAT,
    OFFER,
    READ_RESPONSE,
    REFUSED,
    TIMEOUT_NOW,
    Message,
)
from folkmoot.raft.progress import PROBE, REPLICATE, SNAPSHOT, Progress
from folkmoot.raft.ready import (
    ACCEPTED,
    BUSY,
    EARLY,
    INVALID,
    NO_QUORUM,
    NOT_CAUGHT_UP,
    PENDING,
    TOO_LARGE,
    TRANSFERRING,
    ReadState,
)
from folkmoot.raft.role import LEADER

__all__ = ["Leader"]

_CAUGHT_UP: Final = 100  # a learner that lacks more entries than this is not made a voter


class _Batch:
    """Reads that wait for a quorum's answers to one round."""

    def __init__(self, of_round: int, index: int, reads: list[tuple[int, int]]) -> None:
        self.round = of_round
        self.index = index
        self.reads = reads


class Leader:
    """The state of a leader; it ends with the leadership.

    Args:
        electors: The voters that have elected it.
    """

    def __init__(self, member: Member, electors: list[int]) -> None:
        self._member = member
        self._electors = electors
        self.progress: dict[int, Progress] = {}
        self.reads: list[ReadState] = []  # answers to reads of this member
        self.transfer_to: int = 0
        self.transfer_deadline: int = 0
        self.beat_ns: int = member.now + member.options.heartbeat_ns
        self._lease_void = False  # leadership was handed over in this term: another member may campaign at any time
        self._told = False
        self._encoded: bytes = b""  # the snapshot at `_encoded_index`, shared by all followers that read it
        self._encoded_index: int = 0
        self._beat = False
        self._asked: list[int] = []  # members that are to answer in this turn's round
        self._round: int = 0
        self._first_round: int = 1
        self._round_ns: list[int] = []
        self._queued: list[tuple[int, int]] = []  # (member, context) of reads without a round
        self._batches: list[_Batch] = []
        self._departing: dict[int, int] = {}  # members that were removed, and the index of the change
        self._uncommitted: int = 0  # bytes of entries that are not committed
        self._began_ns: int = 0  # when the first entry of the term was committed; 0: it is not
        assert member.role == LEADER, "a leader has voted for itself"
        assert member.vote == member.me, "a leader has voted for itself"
        self.term_start: int = member.log.last_index() + 1
        for peer in member.log.configuration().members:
            if peer != member.me:
                self.progress[peer] = Progress(peer, member.log.last_index(), member.now)
        self.append(NOOP, b"")

    # Entries

    def append(self, kind: int, data: bytes) -> Entry:
        """Append an entry of this term; it is sent at the end of the turn."""
        member = self._member
        entry = Entry(member.log.last_index() + 1, member.term, kind, data)
        member.log.append([entry])
        member.outbox.log_dirty = True
        self._uncommitted += entry.cost()
        return entry

    def refusal(self, size: int) -> int:
        """Return why a proposal of `size` bytes is refused, or ACCEPTED."""
        assert self._uncommitted >= 0, "no entry is committed twice"
        options = self._member.options
        if size > options.proposal_bytes:
            return TOO_LARGE
        if self.transfer_to:
            return TRANSFERRING
        if self._uncommitted + size > options.uncommitted_bytes:
            return BUSY
        return ACCEPTED

    def change_refusal(self, kind: int, peer: int) -> int:
        """Return why a change of the configuration is refused, or ACCEPTED."""
        member = self._member
        log = member.log
        planted = member.planted
        # Without this, a change of an earlier leader and this one could be decided by quorums that share no member
        # (Ongaro, "bug in single-server membership changes", raft-dev, 2015).
        if log.commit < self.term_start and not planted.change_early:
            return EARLY
        if log.has_pending_change() and not planted.changes_overlap:
            return PENDING
        following = log.configuration().after(kind, peer)
        if following is None:
            return INVALID
        if kind == PROMOTE:
            progress = self.progress[peer]
            if progress.state != REPLICATE or log.last_index() - progress.match > _CAUGHT_UP:
                return NOT_CAUGHT_UP
        if not self._has_contact(following) and not planted.change_early:
            return NO_QUORUM
        return ACCEPTED

    def change(self, kind: int, peer: int, context: bytes) -> Entry:
        """Append a change that is not refused; it counts from now on (dissertation, 4.1)."""
        member = self._member
        configuration = member.log.configuration().after(kind, peer)
        assert configuration is not None, "the change has been checked"
        entry = self.append(CHANGE, encode_change(Change(kind, peer, configuration, context)))
        for other in configuration.members:
            if other != member.me and other not in self.progress:
                self.progress[other] = Progress(other, member.log.last_index() - 1, member.now)
        for other in self.progress:
            if other not in configuration.members:
                self._departing[other] = entry.index
        if self.transfer_to and not configuration.is_voter(self.transfer_to):
            self.transfer_to = 0
        return entry

    def _has_contact(self, configuration: Configuration) -> bool:
        """Tell whether a quorum of a configuration has answered lately."""
        member = self._member
        since = member.now - member.options.election_ns
        active = [p.peer for p in self.progress.values() if p.contact_ns > since and p.acked_round]
        return configuration.is_quorum([member.me, *active])

    def advance(self) -> bool:
        """Commit what a quorum has on its disks; True if the commit index has moved."""
        member = self._member
        log = member.log
        configuration = log.configuration()
        if member.planted.learner_counts:
            configuration = Configuration(configuration.members, [])
        matches: list[int] = []
        for voter in configuration.voters:
            if voter == member.me:
                # The leader counts itself when its own write is durable, not before.
                matches.append(log.last_index() if member.planted.count_unsaved else log.durable)
            else:
                matches.append(self.progress[voter].match)
        index = configuration.agreed(matches)
        # Only entries of the own term are committed by counting; they commit those before them (3.6.2, figure 3.7).
        if index <= log.commit or (log.term_at(index) != member.term and not member.planted.commit_old_term):
            return False
        for entry in log.pages(log.commit + 1, index, 1 << 62):
            if entry.index >= self.term_start:
                self._uncommitted -= entry.cost()
        assert self._uncommitted >= 0, "no entry is committed twice"
        if self._began_ns == 0 and index >= self.term_start:
            self._began_ns = member.now
        return log.commit_to(index)

    def is_leaving(self) -> bool:
        """Tell whether the configuration without this leader is committed: it has to step down (4.2.2)."""
        log = self._member.log
        return not self._member.is_voter() and not log.has_pending_change()

    def is_stalled(self) -> bool:
        """Tell whether a quorum has long had the first entry of this term, and this disk has not.

        What is committed is applied when it is durable here. So this leader has applied nothing of its term, and is of
        no use to anybody; but it answers, and check-quorum does not end it. It cannot be elected again before its disk
        goes on: its vote would have to be durable. Where all disks are so slow, no other one would do better.
        """
        member = self._member
        log = member.log
        if self._began_ns == 0 or log.durable >= self.term_start or member.planted.keeps_stalled:
            return False
        return self.transfer_to == 0 and member.now - self._began_ns >= member.options.write_ns

    # Answers of followers

    def heard(self, message: Message) -> Progress | None:
        """Note a follower's answer; None if it follows no more, or if no leader can have sent that round."""
        progress = self.progress.get(message.sender)
        of_round = message.round
        if progress is None or of_round > self._round:
            return None
        if of_round >= self._first_round:
            sent_ns = self._round_ns[of_round - self._first_round]
            progress.contact_ns = max(progress.contact_ns, sent_ns)
            if sent_ns > progress.void_ns:
                progress.promised_ns = max(progress.promised_ns, sent_ns + self._certain_ns(message.promise))
            progress.acked_round = max(progress.acked_round, of_round)
        assert progress.contact_ns <= self._member.now, "contact is in the past"
        return progress

    def appended(self, message: Message) -> None:
        """Handle the answer to an append."""
        log = self._member.log
        progress = self.heard(message)
        if progress is None or message.index > log.last_index():
            return
        if message.verdict == GRANTED:
            self._matched(progress, progress.next - 1 if self._member.planted.stale_match else message.index)
        elif message.verdict == REFUSED:
            # The follower's entry at the hint has a term that this log may not have at that index, nor shortly before.
            hint = message.index
            if message.log_term:
                hint = log.hint(message.index, message.log_term)
            progress.rejected(message.commit, hint)

    def _matched(self, progress: Progress, index: int) -> None:
        progress.matched(index)
        snapshot = progress.snapshot
        # If the log has been compacted beyond this snapshot in the meantime, the next one is offered.
        if snapshot is not None and progress.match >= min(snapshot.index, self._member.log.first - 1):
            progress.replicate()
        assert progress.match <= self._member.log.last_index(), "a match is within the log"
        self._hand_over()

    def answered(self, message: Message) -> None:
        """Handle the answer to a heartbeat."""
        progress = self.heard(message)
        if progress is None:
            return
        if progress.state == PROBE:
            progress.paused = False
        elif progress.state == SNAPSHOT:
            if progress.asked_ns <= self._member.now - self._member.options.heartbeat_ns:
                self._offer(progress)
        elif progress.match < progress.next - 1 and not self._needs_snapshot(progress):
            self._send_append(progress, [])  # were the messages in between lost, then it will be refused

    # Sending

    def _next_round(self) -> None:
        now = self._member.now
        self._round += 1
        self._round_ns.append(now)
        old = now - 2 * self._member.options.election_ns
        while self._round_ns[0] < old:
            del self._round_ns[0]
            self._first_round += 1
        assert self._first_round + len(self._round_ns) == self._round + 1, "rounds are numbered without gaps"

    def beat(self) -> None:
        """Note that heartbeats are due."""
        assert self._member.now >= self.beat_ns, "heartbeats are not early"
        self._beat = True
        self.beat_ns = self._member.now + self._member.options.heartbeat_ns

    def flush(self) -> None:
        """Send what is due: entries, commit indexes, heartbeats; a message carries as much of it as it can."""
        assert self._member.role == LEADER, "only a leader sends entries"
        member = self._member
        reads = self._is_read_due()
        if self._beat or reads or self._asked or self._has_news():
            self._next_round()
            if reads:
                self._batches.append(_Batch(self._round, member.log.commit, self._queued))
                self._queued = []
            voters = member.log.configuration().voters
            for progress in list(self.progress.values()):
                votes = progress.peer in voters
                if self._flush_entries(progress) and not (self._beat and votes and self._is_overdue(progress)):
                    continue
                asked = (reads and votes) or progress.peer in self._asked
                if asked or (self._beat and self._is_beat_due(progress, votes)):
                    self._send_heartbeat(progress)
            self._beat = False
            self._asked = []
            self._forget_departed()
        self.answer_reads()

    def _is_beat_due(self, progress: Progress, votes: bool) -> bool:
        """Tell whether a follower to which nothing else is sent needs a heartbeat.

        A learner needs few. While something is under way to it that may be lost, it gets as many as a voter, unless it
        does not answer any more.
        """
        member = self._member
        options = member.options
        pause_ns = options.heartbeat_ns // 2
        if not votes and progress.attended_ns <= member.now:
            is_idle = progress.state == REPLICATE and progress.match == progress.next - 1
            if is_idle or progress.contact_ns < member.now - self._member.options.patience_ns():
                pause_ns = options.learner_heartbeat_ns - pause_ns
        return progress.sent_ns <= member.now - pause_ns or (votes and self._is_overdue(progress))

    def _is_overdue(self, progress: Progress) -> bool:
        """Tell whether a follower has not answered for two heartbeats.

        It confirms entries when its disk has them, which may take longer than an election timeout; it answers a
        heartbeat at once.
        """
        member = self._member
        is_late = progress.contact_ns <= member.now - 2 * member.options.heartbeat_ns
        return is_late and not member.planted.quiet_while_sending

    def ask(self, peers: list[int]) -> int:
        """Ask members to answer at once; return the round in which they do."""
        self._asked = peers
        return self._round + 1

    def has_answers(self, configuration: Configuration, of_round: int) -> bool:
        """Tell whether a quorum of a configuration has answered in this round, or a later one."""
        answered = [progress.peer for progress in self.progress.values() if progress.acked_round >= of_round]
        return configuration.is_quorum([self._member.me, *answered])

    def attend(self, peer: int) -> None:
        """Send a follower heartbeats as to a voter for the time of an election timeout, beginning at once."""
        progress = self.progress.get(peer)
        if progress is not None:
            progress.attended_ns = self._member.now + self._member.options.election_ns
            self.beat_ns = min(self.beat_ns, self._member.now)

    def _has_news(self) -> bool:
        """Tell whether a follower lacks something that may be sent to it."""
        member = self._member
        last = member.log.last_index()
        for progress in self.progress.values():
            if not progress.is_full(member.options.inflight_messages, member.options.inflight_bytes):
                if progress.next <= last or progress.state == PROBE:
                    return True
            if self._lacks_commit(progress) or self._needs_snapshot(progress):
                return True
        return False

    def _needs_snapshot(self, progress: Progress) -> bool:
        """Tell whether what a follower lacks is compacted, and no snapshot is offered to it yet."""
        return progress.state != SNAPSHOT and self._member.log.term_at(progress.next - 1) < 0

    def _lacks_commit(self, progress: Progress) -> bool:
        """Tell whether a follower can commit more than it knows; a learner is told when it has confirmed it."""
        log = self._member.log
        assert progress.match <= log.last_index(), "a match is within the log"
        votes = log.configuration().is_voter(progress.peer)
        possible = min(log.commit, progress.next - 1 if votes else progress.match)
        return progress.state == REPLICATE and progress.sent_commit < possible

    def _flush_entries(self, progress: Progress) -> bool:
        """Send entries and the commit index to one follower; False if nothing was sent."""
        member = self._member
        options = member.options
        log = member.log
        if self._needs_snapshot(progress):
            if self._encoded_index != log.snapshot.index:
                self._encoded_index = log.snapshot.index
                self._encoded = encode_snapshot(log.snapshot)
            progress.offer(log.snapshot, self._encoded)
            self._offer(progress)
            return True
        sent = False
        while not progress.is_full(options.inflight_messages, options.inflight_bytes):
            if progress.next > log.last_index() and progress.state != PROBE:
                break
            self._send_append(progress, log.pages(progress.next, log.last_index(), options.message_bytes))
            sent = True
        if not sent and self._lacks_commit(progress):
            # A learner that has confirmed everything would tell nothing new.
            votes = log.configuration().is_voter(progress.peer)
            self._send_append(progress, [], votes or progress.match < progress.next - 1)
            sent = True
        return sent

    def _send_append(self, progress: Progress, entries: list[Entry], answered: bool = True) -> None:
        """Send entries, and the commit index; answered: the follower is to confirm what it has."""
        member = self._member
        message = member.message(APPEND, progress.peer)
        message.index = progress.next - 1
        message.log_term = member.log.term_at(message.index)
        assert message.log_term >= 0, "the entry before those that are sent is known"
        message.commit = member.log.commit
        message.round = self._round if answered else 0
        message.entries = entries
        if entries or progress.state == PROBE:
            size = 0
            for entry in entries:
                size += entry.cost()
            progress.sent(entries[-1].index if entries else message.index, size)
        progress.sent_commit = max(progress.sent_commit, min(message.commit, message.index + len(entries)))
        self._send(progress, message)

    def _send_heartbeat(self, progress: Progress) -> None:
        assert progress.match <= self._member.log.last_index(), "a match is within the log"
        message = self._member.message(HEARTBEAT, progress.peer)
        # Beyond its match, the follower's log may differ from this one.
        message.commit = min(self._member.log.commit, progress.match)
        message.round = self._round
        self._send(progress, message)

    def _offer(self, progress: Progress) -> None:
        snapshot = progress.snapshot
        assert snapshot is not None, "a snapshot is offered in state SNAPSHOT"
        message = self._member.message(OFFER, progress.peer)
        message.index = snapshot.index
        message.log_term = snapshot.term
        message.size = len(progress.encoded)
        message.round = self._round
        self._send(progress, message)

    def _send(self, progress: Progress, message: Message) -> None:
        assert message.to == progress.peer, "a message goes where its sending is noted"
        progress.sent_ns = self._member.now
        self._member.send(message)

    def send_chunk(self, message: Message) -> bool:
        """Answer a follower that asks for a part of a snapshot; False if it is not the one that it was offered."""
        progress = self.progress.get(message.sender)
        if progress is None or progress.snapshot is None:
            return False
        if progress.snapshot.index != message.index or progress.snapshot.term != message.log_term:
            return False
        progress.asked_ns = self._member.now
        chunk = self._member.message(CHUNK, message.sender)
        chunk.index = message.index
        chunk.log_term = message.log_term
        chunk.size = message.size
        chunk.data = progress.encoded[message.size : message.size + self._member.options.chunk_bytes]
        self._member.send(chunk)
        return True

    def oldest_needed(self) -> int:
        """Return the first entry that followers will need after the snapshots that they are reading."""
        first = self._member.log.last_index() + 1
        since = self._member.now - self._member.options.election_ns
        for progress in self.progress.values():
            if progress.snapshot is not None and progress.contact_ns > since:
                first = min(first, progress.snapshot.index + 1)
        return first

    def _forget_departed(self) -> None:
        """Removed members get the commit of their removal, if they are reached, and then nothing more."""
        for peer in list(self._departing):
            index = self._departing[peer]
            if peer in self._member.log.configuration().members:
                del self._departing[peer]
                continue
            if self._member.log.commit < index:
                continue
            progress = self.progress[peer]
            lost = progress.contact_ns < self._member.now - self._member.options.patience_ns()
            if lost or (progress.match >= index and progress.sent_commit >= index):
                del self._departing[peer]
                del self.progress[peer]

    # Contact

    def quorum_ns(self) -> int:
        """Return the newest time after which a quorum, this leader included, has followed this leader."""
        member = self._member
        configuration = member.log.configuration()
        times = [
            member.now if voter == member.me else self.progress[voter].contact_ns for voter in configuration.voters
        ]
        quorum_ns = configuration.agreed(times)
        assert quorum_ns <= member.now, "contact is in the past"
        return quorum_ns

    def has_lost_quorum(self) -> bool:
        """Tell whether no quorum has answered for an election timeout (6.2)."""
        if self._member.planted.check_quorum_off:
            return False
        return self._member.now - self.quorum_ns() >= self._member.options.election_ns

    def lease_ns(self) -> int:
        """Return the time until which no other leader can be elected; 0: there is no such time.

        A voter that has answered votes for nobody else for as long as its answer says, by its own clock, from a moment
        after this leader has sent what was answered; a restart does not shorten that. The lease ends for the term when
        leadership is handed over: the member that was told to campaign may do so at any later time. If it has not,
        this leader goes on in a new term.

        A voter whose process was taken for ended may take this one for ended as well, and then it does not wait. So
        only answers count to what was sent to it since.
        """
        member = self._member
        void = (self._lease_void or self.transfer_to) and not member.planted.lease_after_transfer
        if void or member.log.commit < self.term_start:
            return 0
        configuration = member.log.configuration()
        return configuration.agreed([self._promised_ns(voter) for voter in configuration.voters])

    def _certain_ns(self, promise_ns: int) -> int:
        """Return for how long a voter certainly keeps a promise, by this clock; no longer than this leader waits."""
        options = self._member.options
        if self._member.planted.own_promise:
            promise_ns = options.election_ns
        shorter_ns = min(promise_ns, options.election_ns)
        return shorter_ns - shorter_ns * options.drift_percent // 100

    def _promised_ns(self, voter: int) -> int:
        """Return until when a voter votes for nobody else; 0: it may do so at any time."""
        member = self._member
        if voter == member.me:
            return member.now + self._certain_ns(member.options.election_ns)
        return self.progress[voter].promised_ns

    def ended(self, peer: int) -> None:
        """A follower is taken for ended: what it has promised counts no more."""
        progress = self.progress.get(peer)
        if progress is not None:
            progress.void_ns = self._member.now
            progress.promised_ns = 0

    # Reads

    def read(self, peer: int, context: int) -> bool:
        """Queue a read of a member; False if too many wait."""
        assert context >= 0, "a context is a number"
        member = self._member
        if member.planted.read_alone:
            self._answer(peer, context, member.log.commit)
            return True
        if len(self._queued) >= member.options.reads:
            return False
        self._queued.append((peer, context))
        return True

    def _is_read_due(self) -> bool:
        """Tell whether queued reads may have a round: one at a time, and one more with each heartbeat.

        A new leader does not know what is committed until an entry of its own term is (6.4).
        """
        if not self._queued or (self._batches and not self._beat):
            return False
        return self._member.log.commit >= self.term_start or self._member.planted.read_before_noop

    def answer_reads(self) -> None:
        """Answer the reads whose round a quorum has answered."""
        member = self._member
        while self._batches:
            configuration = member.log.configuration()
            rounds = [
                self._round if voter == member.me else self.progress[voter].acked_round
                for voter in configuration.voters
            ]
            batch = self._batches[0]
            if configuration.agreed(rounds) < batch.round:
                return
            del self._batches[0]
            assert batch.index <= member.log.commit, "a read index is committed"
            for peer, context in batch.reads:
                self._answer(peer, context, batch.index)

    def _answer(self, peer: int, context: int, index: int) -> None:
        if peer == self._member.me:
            self.reads.append(ReadState(context, index, True))
            return
        message = self._member.message(READ_RESPONSE, peer)
        message.verdict = GRANTED
        message.commit = index
        message.size = context
        self._member.send(message)

    def abandon_reads(self) -> list[ReadState]:
        """Return the failures of the reads of this member; those of others time out there."""
        failed = self.reads
        waiting = list(self._queued)
        for batch in self._batches:
            waiting.extend(batch.reads)
        for peer, context in waiting:
            if peer == self._member.me:
                failed.append(ReadState(context, 0, False))
        return failed

    # Handing over

    def transfer(self, peer: int) -> None:
        """Hand leadership over to a voter as soon as it has the whole log; proposals are refused until then (3.10)."""
        assert peer in self.progress, "leadership goes to another member"
        self.transfer_to = peer
        self._told = False
        self.transfer_deadline = self._member.now + self._member.options.election_ns
        self._hand_over()

    def _hand_over(self) -> None:
        assert self.transfer_to == 0 or self.transfer_to in self.progress, "leadership goes to a follower"
        peer = self.transfer_to
        if peer and not self._told and self.progress[peer].match == self._member.log.last_index():
            self._told = True  # proposals stay refused until the deadline: the successor may be about to be elected
            self.tell(peer)

    def tell(self, peer: int) -> None:
        """Tell a member to campaign at once."""
        assert peer != self._member.me, "leadership goes to another member"
        self._lease_void = True
        self._member.send(self._member.message(TIMEOUT_NOW, peer))

    def heir(self) -> int:
        """Return the voter in contact with the longest log, 0 without one."""
        best = 0
        since = self._member.now - self._member.options.election_ns
        for voter in self._member.log.configuration().voters:
            progress = self.progress.get(voter)
            if progress is None or progress.contact_ns <= since:
                continue
            if progress.acked_round == 0 and voter not in self._electors:
                continue  # it has not been heard in this term
            if best == 0 or progress.match > self.progress[best].match:
                best = voter
        return best

    def expire_transfer(self) -> bool:
        """Give a handover up that has not happened within an election timeout (3.10).

        Returns whether the successor was told to campaign: this leader can have no lease in this term any more.
        """
        if self.transfer_to == 0 or self._member.now < self.transfer_deadline:
            return False
        self.transfer_to = 0
        return self._lease_void and not self._member.planted.void_term
