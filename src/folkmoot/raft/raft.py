"""One member of a replicated log: messages, times and proposals go in, effects come out.

A turn is any number of inputs (`step`, `wake`, `propose`, `read_index`, ...) and one call of `ready`, whose effects the
caller carries out; when the write of a `Ready` is durable, `persisted` is an input of a later turn. Messages that may
not leave before a write is durable are kept back here and come with a later `Ready`: the order of effects is no duty of
the caller, except that writes are atomic and become durable in the order of their tokens.

Time is `now`, nanoseconds of the member's own monotonic clock. Inputs from other members never raise: what no correct
member sends is ignored. Wrong use is an assertion.
"""

from __future__ import annotations

from bisect import insort

from folkmoot.kernel.rng import Rng
from folkmoot.raft.configuration import PROMOTE
from folkmoot.raft.election import Election
from folkmoot.raft.entry import DATA, Entry, HardState, Snapshot, encode_snapshot
from folkmoot.raft.follower import Follower
from folkmoot.raft.leader import Leader
from folkmoot.raft.log import Log
from folkmoot.raft.member import Member
from folkmoot.raft.message import (
    APPEND,
    APPEND_RESPONSE,
    BEHIND,
    CHUNK,
    CHUNK_REQUEST,
    FETCH,
    FETCH_RESPONSE,
    GRANTED,
    HEARTBEAT,
    HEARTBEAT_RESPONSE,
    OFFER,
    PRE_VOTE,
    PRE_VOTE_RESPONSE,
    READ,
    READ_RESPONSE,
    REFUSED,
    STALE,
    TIMEOUT_NOW,
    VOTE,
    VOTE_RESPONSE,
    Message,
)
from folkmoot.raft.option import Options
from folkmoot.raft.planted import Planted
from folkmoot.raft.ready import (
    ACCEPTED,
    BUSY,
    COMMITTED,
    INVALID,
    LOST,
    NOT_LEADER,
    TRANSFERRING,
    UNKNOWN,
    Outcome,
    Proposal,
    ReadState,
    Ready,
    Write,
)
from folkmoot.raft.recovery import Persisted, recover
from folkmoot.raft.role import (
    CANDIDATE,
    DISK_STALLED,
    ELECTED,
    FOLLOWER,
    HANDOVER_FAILED,
    LEADER,
    LEADER_FOUND,
    NEWER_TERM,
    PRE_CANDIDATE,
    QUORUM_LOST,
    REMOVED,
    ROLES,
)

__all__ = ["Raft"]


class Raft:
    """One member.

    Args:
        me: The id of this member, positive; a disk that was lost or set back needs a new one.
        options: Times and limits.
        persisted: What is on the disk.
        applied: The last index that the state machine has applied durably; 0 if it begins with the snapshot.
        seed: Election timeouts are drawn from it; different at each member.
        now: The current time.
        planted: Bugs, for tests.

    Raises:
        DamagedState: The persisted state cannot have been written by a member.
    """

    def __init__(
        self, me: int, options: Options, persisted: Persisted, applied: int, seed: int, now: int, planted: list[str]
    ) -> None:
        options.check()
        log = recover(persisted, applied)
        member = Member(me, options, log, Rng(seed), Planted(planted))
        member.now = now
        member.term = persisted.hard_state.term
        member.vote = persisted.hard_state.vote
        member.recorded_ns = persisted.hard_state.promise_ns
        member.former_ns = 0 if member.planted.forgets_promise else member.recorded_ns
        member.began_ns = now
        self._member = member
        self._log = log
        self._options = options
        self._election = Election(member, member.term == 0)
        self._follower = Follower(member)
        self._leader: Leader | None = None
        self._written_commit: int = log.commit
        self._handle: int = 0
        self._pending: list[tuple[int, int, int]] = []  # (index, term, handle) of proposals, ascending
        self._outcomes: list[Outcome] = []
        self._reads: list[ReadState] = []
        self._asked: dict[int, int] = {}  # reads that the leader was asked: context -> deadline
        self._encoded: bytes = b""  # the snapshot at `_encoded_index`, for candidates that fetch
        self._encoded_index: int = 0
        if log.snapshot.index > applied:
            self._follower.restored = log.snapshot

    # What a caller may look at

    @property
    def me(self) -> int:
        """The id of this member."""
        return self._member.me

    @property
    def term(self) -> int:
        """The current term."""
        return self._member.term

    @property
    def vote(self) -> int:
        """The candidate that this member has voted for in the current term; 0: none."""
        return self._member.vote

    @property
    def role(self) -> int:
        """FOLLOWER, PRE_CANDIDATE, CANDIDATE or LEADER (`raft/role`)."""
        return self._member.role

    @property
    def leader(self) -> int:
        """The leader of the current term, as far as it is known; 0: none is."""
        return self._member.leader

    @property
    def log(self) -> Log:
        """The log, for reading."""
        return self._log

    @property
    def lost_suffix(self) -> bool:
        """Whether entries that this member has confirmed are gone: it is silent from now on, and needs a new id."""
        return self._follower.lost_suffix

    @property
    def outdated_leader(self) -> int:
        """A leader that lacks what is committed here: its disk was set back. 0: none was met."""
        return self._follower.outdated_leader

    @property
    def refused_snapshot_bytes(self) -> int:
        """The size of the last snapshot that exceeded `Options.snapshot_bytes`, without which this member is behind."""
        return self._follower.refused_bytes

    def is_removed(self) -> bool:
        """Tell whether the newest committed configuration is without this member."""
        log = self._log
        return not log.has_pending_change() and log.last_index() > 0 and self.me not in log.configuration().members

    def acknowledged(self, peer: int) -> int:
        """Return the index up to which `peer` has confirmed the log to this leader; 0 if that is not known.

        A member that comes back with a shorter log than it has ever confirmed has lost a suffix.
        """
        if self._leader is None or peer not in self._leader.progress:
            return 0
        match = self._leader.progress[peer].match
        assert match <= self._log.last_index(), "a match is within the log"
        return match

    def contact_ns(self, peer: int) -> int:
        """Return a time after which `peer` has followed this leader; 0 if this member does not lead it."""
        if self._leader is None or peer not in self._leader.progress:
            return 0
        return self._leader.progress[peer].contact_ns

    def term_start(self) -> int:
        """Return the index of the first entry of this leader's term; 0 if this member does not lead.

        A leader that has applied it has applied everything that earlier leaders have committed.
        """
        return 0 if self._leader is None else self._leader.term_start

    def lease_ns(self) -> int:
        """Return the time until which no other member can be elected, by this clock; 0 if there is none."""
        if self._leader is None:
            return 0
        return self._leader.lease_ns()

    def predecessor_ns(self) -> int:
        """Return for how long after the election of this leader its predecessor may have a lease; 0: it has none.

        It may if a voter has taken the predecessor for ended, which a firewall can make it believe, and has voted
        before what it had promised was over. The time is by the clock of that voter.
        """
        return 0 if self._leader is None else self._election.early_ns

    def deadline(self) -> int:
        """Return the time at which `wake` is due."""
        if self._leader is not None:
            due = self._leader.beat_ns
            if self._leader.transfer_to:
                due = min(due, self._leader.transfer_deadline)
        else:
            due = self._election.due_ns()
        for deadline in self._asked.values():
            due = min(due, deadline)
        return due

    def __repr__(self) -> str:
        log = self._log
        return (
            f"{self.me} {ROLES[self.role]} term {self.term} vote {self.vote} leader {self.leader} "
            f"log {log.first}-{log.last_index()}/{log.last_term()} commit {log.commit} applied {log.applied}"
        )

    # Requests of the caller

    def propose(self, data: bytes, now: int) -> Proposal:
        """Append `data` to the log of the cluster if this member leads; its fate comes as an `Outcome`.

        The outcome comes when its place in the log is decided: after a loss of leadership that can take as long as the
        member is cut off. A caller that does not wait so long does not know the fate, and must not take it for lost.
        """
        self._at(now)
        leader = self._leader
        if leader is None:
            return Proposal(0, 0, NOT_LEADER, self.leader)
        refused = leader.refusal(len(data))
        if refused != ACCEPTED:
            return Proposal(0, 0, refused, self.me)
        return self._proposed(leader.append(DATA, data))

    def propose_change(self, kind: int, peer: int, context: bytes, now: int) -> Proposal:
        """Change the configuration by one member, if this member leads (`raft/configuration` has the kinds)."""
        self._at(now)
        leader = self._leader
        if leader is None:
            return Proposal(0, 0, NOT_LEADER, self.leader)
        refused = _change_refusal(leader, kind, peer, len(context))
        if refused != ACCEPTED:
            return Proposal(0, 0, refused, self.me)
        return self._proposed(leader.change(kind, peer, context))

    def prepare_change(self, kind: int, peer: int, now: int) -> tuple[int, int]:
        """Ask a quorum of the configuration after a change to answer; return (why not, or ACCEPTED, and the round).

        `is_prepared` tells when it has.
        """
        self._at(now)
        leader = self._leader
        if leader is None:
            return NOT_LEADER, 0
        refused = _change_refusal(leader, kind, peer, 0)
        if refused != ACCEPTED:
            return refused, 0
        following = self._log.configuration().after(kind, peer)
        assert following is not None, "the change has been checked"
        return ACCEPTED, leader.ask([voter for voter in following.voters if voter != self.me])

    def is_prepared(self, kind: int, peer: int, of_round: int) -> bool:
        """Tell whether a quorum of the configuration after a change has answered since `prepare_change`."""
        following = self._log.configuration().after(kind, peer)
        return self._leader is not None and following is not None and self._leader.has_answers(following, of_round)

    def _proposed(self, entry: Entry) -> Proposal:
        assert entry.term == self.term, "an entry is of the term of its leader"
        self._handle += 1
        # Those of an earlier term of this leader may be behind it: their entries are gone, their places not decided.
        insort(self._pending, (entry.index, entry.term, self._handle))
        return Proposal(self._handle, entry.index, ACCEPTED, self.me)

    def read_index(self, context: int, now: int) -> int:
        """Ask for an index that has everything committed before now; the answer comes as a `ReadState`.

        Returns ACCEPTED, or why not: NOT_LEADER if no leader is known, BUSY if too many reads wait.
        """
        self._at(now)
        assert context >= 0, "a context is a number that the caller knows again"
        if self._leader is not None:
            return ACCEPTED if self._leader.read(self.me, context) else BUSY
        if self.leader == 0:
            return NOT_LEADER
        if len(self._asked) >= self._options.reads:
            return BUSY
        self._asked[context] = now + self._options.election_ns
        message = self._member.message(READ, self.leader)
        message.size = context
        self._member.send(message)
        return ACCEPTED

    def attend(self, peer: int, now: int) -> None:
        """A member is connected again: if this member leads, find out at once what it lacks."""
        self._at(now)
        if self._leader is not None:
            self._leader.attend(peer)

    def transfer(self, peer: int, now: int) -> int:
        """Hand leadership over to another voter; returns ACCEPTED, NOT_LEADER, TRANSFERRING or INVALID.

        Proposals are refused until the successor is elected, or until an election timeout has passed.
        """
        self._at(now)
        leader = self._leader
        if leader is None:
            return NOT_LEADER
        if leader.transfer_to:
            return TRANSFERRING
        if peer == self.me or not self._log.configuration().is_voter(peer):
            return INVALID
        leader.transfer(peer)
        return ACCEPTED

    def ended(self, peer: int, now: int) -> None:
        """The process of `peer` has ended, which is proved: if it leads, an election begins without waiting.

        A wrong proof can break a lease (`lease_ns`), and nothing else; and it comes from both sides: if this member
        leads, what `peer` has promised counts no more.
        """
        self._at(now)
        if self._leader is not None:
            self._leader.ended(peer)
        elif self.leader == peer or self.role != FOLLOWER:
            self._member.leader = 0
            self._election.forget_leader()

    def learn_commit(self, term: int, commit: int, now: int) -> None:
        """Another channel tells what the leader of `term` has committed.

        It counts as far as this log is known to match the log of that leader. If this log does not go so far, the
        leader is reminded, as by the answer to a heartbeat: what it has sent may be lost.
        """
        self._at(now)
        if term == self.term and self.leader and self.role == FOLLOWER and not self.lost_suffix:
            self._follower.learn_commit(commit)

    def compact(self, index: int, data: bytes, now: int) -> None:
        """Take the state machine's snapshot at `index` (applied, newer than the last); entries before it may go."""
        self._at(now)
        log = self._log
        assert len(data) < self._options.snapshot_bytes, "other members would not take the snapshot"
        snapshot = Snapshot(index, log.term_at(index), log.configuration_at(index), data)
        first = log.first_kept(index, self._options.kept_entries, self._options.kept_bytes)
        if self._leader is not None:
            first = min(first, self._leader.oldest_needed())
        log.compact(snapshot, first)
        self._member.outbox.log_dirty = True

    # Time and disk

    def wake(self, now: int) -> None:
        """Do what is due at `now`; early calls do nothing."""
        self._at(now)
        if self.lost_suffix:
            self._election.reset()
            return
        for context in list(self._asked):
            if self._asked[context] <= now:
                del self._asked[context]
                self._reads.append(ReadState(context, 0, False))
        leader = self._leader
        if leader is not None:
            if leader.has_lost_quorum():
                self._step_down(QUORUM_LOST)
            elif leader.expire_transfer():
                self._step_down(HANDOVER_FAILED)
                self._election.told()  # what was sent to the successor is of an earlier term then, and ignored
            elif leader.is_stalled():
                self._give_way(leader, DISK_STALLED)
            elif now >= leader.beat_ns:
                leader.beat()
        elif now >= self._election.due_ns():
            self._election.campaign()
            self._fail_asked()

    def persisted(self, token: int, now: int) -> None:
        """The write of a token, and all before it, are durable."""
        self._at(now)
        outbox = self._member.outbox
        was_durable = outbox.is_hard_durable()
        outbox.release(token)
        self._log.saved(token)
        assert self._log.applied <= max(self._log.durable, self._log.snapshot.index), "what is applied is durable"
        if outbox.is_hard_durable() and not was_durable:
            self._election.saved()
            self._conclude()

    def raise_term(self, term: int, now: int) -> None:
        """Enter a later term without a vote in it, if this one is earlier; the caller knows that it is a new one."""
        self._at(now)
        if term > self.term:
            self._newer_term(term)

    def _at(self, now: int) -> None:
        """Set the time; a clock that goes back stands still here."""
        self._member.now = max(self._member.now, now)

    # Messages

    def step(self, message: Message, now: int) -> None:
        """Take a message of another member."""
        self._at(now)
        if message.to != self.me or message.sender == self.me or self.lost_suffix:
            return
        kind = message.kind
        if kind == PRE_VOTE:
            self._check_quorum()
            self._election.pre_vote(message)
        elif kind == VOTE:
            self._vote(message)
        elif kind == PRE_VOTE_RESPONSE:
            self._pre_voted(message)
        elif message.term < self.term:
            self._stale(message)
        else:
            if message.term > self.term:
                if kind in (APPEND_RESPONSE, VOTE_RESPONSE) and message.verdict == STALE:
                    self._hand_on()
                self._newer_term(message.term)
            self._current(message)

    def _hand_on(self) -> None:
        """A candidate that was not elected has a later term, so this leader steps down: its followers need not wait."""
        leader = self._leader
        if leader is not None and leader.transfer_to == 0:
            heir = leader.heir()
            if heir:
                leader.tell(heir)

    def _check_quorum(self) -> None:
        """Step down if no quorum answers, before a candidate is refused because this member leads."""
        if self._leader is not None and self._leader.has_lost_quorum():
            self._step_down(QUORUM_LOST)

    def _vote(self, message: Message) -> None:
        """Handle a request for a vote."""
        self._check_quorum()
        if message.term < self.term:
            self._stale(message)
            return
        if message.verdict != GRANTED and self._election.hears_leader():
            return  # it may not even raise the term here (dissertation, 4.2.3)
        if message.term > self.term:
            self._newer_term(message.term)
        if self._leader is None:
            self._election.vote(message)

    def _pre_voted(self, message: Message) -> None:
        """Handle the answer to a pre-vote; it carries the term for which was asked, or a newer one that exists."""
        if self.role != PRE_CANDIDATE:
            return  # the campaign has ended
        if message.verdict == STALE and message.term > self.term:
            self._newer_term(message.term)
            self._election.soon()
        elif message.term == self.term + 1:
            self._election.count_pre_vote(message)

    def _stale(self, message: Message) -> None:
        """Tell a leader or candidate of an earlier term that its term has passed; ignore everything else of it."""
        assert message.term < self.term, "the term of the message has passed"
        if message.kind in (APPEND, HEARTBEAT, OFFER, VOTE):
            answer = self._member.message(VOTE_RESPONSE if message.kind == VOTE else APPEND_RESPONSE, message.sender)
            answer.verdict = STALE
            self._member.send(answer)

    def _newer_term(self, term: int) -> None:
        """Enter a newer term as a follower that knows no leader."""
        assert term > self.term, "terms grow"
        self._step_down(NEWER_TERM)
        self._member.set_term(term, 0)

    def _current(self, message: Message) -> None:
        """Handle a message of the current term."""
        assert message.term == self.term, "the message is of the current term"
        kind = message.kind
        leader = self._leader
        if kind in (APPEND, HEARTBEAT, OFFER, CHUNK):
            self._from_leader(message)
        elif kind == VOTE_RESPONSE:
            if self.role in (CANDIDATE, PRE_CANDIDATE):
                self._election.count_vote(message)
                self._conclude()
        elif kind == CHUNK_REQUEST:
            self._send_chunk(message)
        elif kind == FETCH:
            self._answer_fetch(message)
        elif kind == FETCH_RESPONSE:
            self._fetched(message)
        elif kind == TIMEOUT_NOW:
            if self.leader == message.sender and leader is None:
                self._election.told()
        elif kind == READ_RESPONSE:
            self._read_answered(message)
        elif leader is None:
            return
        elif kind == APPEND_RESPONSE:
            if message.verdict == GRANTED and message.index > self._log.last_index():
                # A follower confirms no more than its leader has sent, or than is committed: that is missing here.
                self._follower.lost_suffix = True
                return
            leader.appended(message)
        elif kind == HEARTBEAT_RESPONSE:
            leader.answered(message)
        elif kind == READ:
            leader.read(message.sender, message.size)

    def _from_leader(self, message: Message) -> None:
        """Handle what the leader of the current term has sent."""
        member = self._member
        if message.kind == CHUNK and self.role == CANDIDATE and message.sender == self._election.source:
            if self._follower.chunk(message):
                self._election.reset()
                self._election.fetch(self._log.commit)
            return
        if member.role == LEADER or (member.leader and member.leader != message.sender):
            return  # a term has one leader
        if message.kind == CHUNK and member.leader == 0:
            return  # for a campaign that has ended
        if member.role != FOLLOWER:
            member.change_role(LEADER_FOUND)
        if member.leader == 0:
            self._follower.new_leader()
        member.leader = message.sender
        self._election.heard()
        if message.kind == APPEND:
            self._follower.append(message)
        elif message.kind == HEARTBEAT:
            self._follower.heartbeat(message)
        elif message.kind == OFFER:
            self._follower.offer(message)
        elif self._follower.chunk(message):
            self._follower.installed()

    def _send_chunk(self, message: Message) -> None:
        """Send a part of the snapshot that was offered; if it is another one now, offer that."""
        assert message.term == self.term, "chunks are sent in the current term"
        if self._leader is not None:
            self._leader.send_chunk(message)
            return
        snapshot = self._log.snapshot
        if self.leader or snapshot.index != message.index or snapshot.term != message.log_term:
            return
        chunk = self._member.message(CHUNK, message.sender)
        chunk.index = message.index
        chunk.log_term = message.log_term
        chunk.size = message.size
        chunk.data = self._snapshot_bytes()[message.size : message.size + self._options.chunk_bytes]
        self._member.send(chunk)

    def _snapshot_bytes(self) -> bytes:
        if self._encoded_index != self._log.snapshot.index:
            self._encoded_index = self._log.snapshot.index
            self._encoded = encode_snapshot(self._log.snapshot)
        return self._encoded

    def _answer_fetch(self, message: Message) -> None:
        assert message.term == self.term, "a candidate fetches in its term"
        answer = self._election.answer_fetch(message)
        if answer is not None:
            if answer.verdict == BEHIND:
                answer.size = len(self._snapshot_bytes())
            self._member.send(answer)

    def _fetched(self, message: Message) -> None:
        """Handle what a candidate has fetched: entries, or the news that it has to read a snapshot first."""
        assert message.term == self.term, "a candidate fetches in its term"
        if self.role != CANDIDATE or message.sender != self._election.source:
            return
        if message.verdict == BEHIND:
            if message.index > self._log.commit:
                self._election.is_partial = True
                self._follower.begin(message.sender, message.index, message.log_term, message.size)
        elif message.verdict in (GRANTED, REFUSED):
            self._election.fetched(message)
        self._conclude()

    def _read_answered(self, message: Message) -> None:
        if message.size in self._asked:
            del self._asked[message.size]
            self._reads.append(ReadState(message.size, message.commit, True))

    # Roles

    def _conclude(self) -> None:
        """Lead, if a quorum has voted."""
        member = self._member
        if not self._election.is_won():
            return
        member.change_role(ELECTED)
        electors = self._election.won()
        assert self._leader is None, "a member leads once at a time"
        member.leader = member.me
        self._leader = Leader(member, electors)

    def _step_down(self, event: int) -> None:
        """Become a follower that knows no leader."""
        member = self._member
        member.change_role(event)
        member.leader = 0
        self._fail_asked()
        self._election.stop()
        if self._leader is not None:
            self._reads.extend(self._leader.abandon_reads())
            self._leader = None
            self._election.reset()
        assert member.role == FOLLOWER, "a member that steps down follows"

    def _fail_asked(self) -> None:
        """The leader that was asked leads no more, as far as this member knows."""
        assert len(self._asked) <= self._options.reads, "reads have a limit"
        for context in self._asked:
            self._reads.append(ReadState(context, 0, False))
        self._asked = {}

    # Effects

    def ready(self) -> Ready:
        """Return the effects of the turn."""
        assert (self._leader is not None) == (self.role == LEADER), "the leader's part lives as long as its role"
        ready = Ready()
        if self._leader is not None:
            self._lead(self._leader)
        ready.write = self._write()
        ready.messages = self._member.outbox.take()
        ready.restore = self._follower.restored
        self._follower.restored = None
        ready.apply = self._log.take_applicable(self._options.apply_bytes)
        ready.more = self._log.applied < min(self._log.commit, self._log.durable)
        self._decide()
        ready.outcomes = self._outcomes
        ready.reads = self._reads
        self._outcomes = []
        self._reads = []
        return ready

    def _lead(self, leader: Leader) -> None:
        """Commit, send, answer; step down when the configuration without this member is committed."""
        assert self._member.role == LEADER, "a leader knows that it leads"
        assert self._member.leader == self.me, "a leader knows that it leads"
        leader.advance()
        leader.flush()
        self._reads.extend(leader.reads)
        leader.reads = []
        if leader.is_leaving():
            self._give_way(leader, REMOVED)

    def _give_way(self, leader: Leader, event: int) -> None:
        """Step down, and have the best follower campaign at once (3.10)."""
        heir = leader.heir()
        if heir:
            leader.tell(heir)
        self._step_down(event)

    def _write(self) -> Write | None:
        """Return the write of everything that has changed; None if nothing has.

        A commit index is written no later than what the state machine writes because of the entries: no message waits
        for it, but after a restart the state machine must not have applied more than the log knows as committed.
        """
        member = self._member
        outbox = member.outbox
        log = self._log
        outbox.log_dirty = not log.is_saved()
        commit = min(log.commit, log.durable)
        if not outbox.hard_dirty and not outbox.log_dirty and commit <= self._written_commit:
            return None
        write = Write(outbox.begin_write())
        write.hard_state = HardState(member.term, member.vote, commit, member.record())
        self._written_commit = commit
        unsaved = log.hand_over(write.token)
        if unsaved.snapshot:
            write.snapshot = log.snapshot
        if unsaved.drop:
            write.drop_before = log.first
        write.truncate_from = unsaved.truncate
        if unsaved.first:
            write.entries = log.pages(unsaved.first, log.last_index(), 1 << 62)
        write.first = log.first
        write.last = log.last_index()
        write.snapshot_index = log.snapshot.index
        assert unsaved.snapshot or not 0 < write.truncate_from <= write.hard_state.commit, "what is committed stays"
        return write

    def _decide(self) -> None:
        """Tell what became of proposals whose place in the log is decided."""
        log = self._log
        while self._pending and self._pending[0][0] <= log.applied:
            index, term, handle = self._pending[0]
            del self._pending[0]
            found = log.term_at(index)
            result = COMMITTED if found == term else LOST
            if found < 0 or (index == log.snapshot.index and found != term):
                result = UNKNOWN
            self._outcomes.append(Outcome(handle, index, result))
        assert not self._pending or self._pending[0][0] > log.applied, "what is applied is decided"


def _change_refusal(leader: Leader, kind: int, peer: int, size: int) -> int:
    """Return why a leader refuses a change of the configuration with a context of `size` bytes, or ACCEPTED."""
    refused = leader.refusal(size)
    if refused == ACCEPTED:
        refused = leader.change_refusal(kind, peer)
    if refused != ACCEPTED and kind == PROMOTE:
        leader.attend(peer)  # it may only have been silent because it learns: the next attempt knows
    return refused
