"""Elections: when to campaign, which candidate to vote for, and the entries that a candidate lacks.

Three rules keep the leader in place that reaches a quorum, and no other (docs/adr/0013):

- A *pre-vote* asks every voter before a term is raised (dissertation, 9.6). A quorum of answers that come back proves
  that the candidate is connected to a quorum, in both directions.
- A voter that heard a leader within an election timeout votes for no other member (4.2.3), unless that leader hands
  over. A leader that no quorum answers steps down (check-quorum, 6.2).
- Raft's rule that a voter elects only a log as new as its own stays. But where the one candidate that reaches a quorum
  lacks entries, it *fetches* them from the voter with the newest log of a quorum, and asks again in the same term.

With slow disks nobody would win a vote, if an election had only the time that messages take. So the election timeout
stands still while a member writes its term or vote, and a candidate gives the voters as long as it took itself. Votes
that come late count as long as the term lasts, and a voter that writes a vote does not answer pre-votes.

A member with the proof that its leader has ended does not wait for an election timeout. It asks again soon. Several
may campaign at once. One that was not elected is in a later term, and its next answer deposes the leader; this has a
follower succeed it at once (3.10), whom the others need not refuse.

Why fetching is safe. A candidate that has raised its term has confirmed nothing in that term. What it removes
conflicts with a log whose last term L is at least its own last term. Suppose that an entry e of term t, which it has
confirmed, is removed. Then t < L (with t = L the logs would agree up to e), and the leader of L did not have e when it
was elected, so no quorum had confirmed e in term t, nor ever will: a quorum had a newer term. A later leader that
commits e after all (figure 3.7) counts copies of entries of its own term, which this candidate has not. Entries up to
the commit index are never removed: the fetched log has to match there.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER
from folkmoot.raft.member import Member
from folkmoot.raft.message import (
    BEHIND,
    FETCH,
    FETCH_RESPONSE,
    GRANTED,
    GRANTED_EARLY,
    PRE_VOTE,
    PRE_VOTE_RESPONSE,
    REFUSED,
    STALE,
    VOTE,
    VOTE_RESPONSE,
    Message,
)
from folkmoot.raft.role import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE, PRE_ELECTED, REMOVED, TIMEOUT, TOLD

__all__ = ["Election"]

_HURRIES: Final = 16  # how often a member asks again soon after a proof that the leader has ended


class Election:
    """The state of a member that concerns elections."""

    def __init__(self, member: Member, is_new: bool) -> None:
        self._member = member
        election_ns = member.options.election_ns
        # After a restart, a voter does not know which leader it answered: it waits as if it had just heard one, so that
        # no lease is broken.
        self.heard_ns: int = member.now - election_ns if is_new else member.now
        self.deadline_ns: int = 0
        self._pre_votes: list[int] = []  # of the present campaign
        self._votes: list[int] = []  # in the term in which this member stood last
        self._stood_term: int = 0  # that term; 0: it has led in it, or follows the leader that was elected
        self._behind: dict[int, tuple[int, int]] = {}  # (last term, last index) of voters whose logs are newer
        self._attempts: int = 0
        self._hurries: int = 0
        self._lease_end_ns: int = 0  # of a leader that was forgotten on a proof that it has ended
        self.early_ns: int = 0  # so much of what its voters had promised was left when they voted in the last campaign
        self._is_told = False
        self.source: int = 0  # the voter from which entries are fetched; 0: none
        self.is_partial = False  # only a part of its log is here: no election is won with that
        self.reset()
        if member.log.configuration().is_quorum([member.me]):
            self.deadline_ns = member.now

    # Time

    def reset(self) -> None:
        """Begin to wait for a new election timeout; a member that only learns hears its leader less often."""
        member = self._member
        election_ns = member.options.election_ns
        spread_ns = member.rng.below(election_ns)
        assert spread_ns < election_ns, "a timeout is less than twice the shortest"
        if not self.is_promotable():
            spread_ns += member.options.learner_heartbeat_ns
        self.deadline_ns = max(member.now + election_ns, member.former_until_ns()) + spread_ns

    def due_ns(self) -> int:
        """Return when to campaign if nothing happens before.

        Not while a term or a vote of this member is being written: nobody would hear of the campaign before that, and
        a vote that others may count on would be of an earlier term by then.
        """
        member = self._member
        if not member.outbox.is_hard_durable() and not member.planted.campaigns_unsaved:
            return NEVER
        return self.deadline_ns

    def heard(self) -> None:
        """Note a message of the leader of the current term."""
        self.heard_ns = self._member.now
        self._attempts = 0
        self._hurries = 0
        self._stood_term = 0
        self.stop()
        self.reset()

    def hears_leader(self) -> bool:
        """Tell whether this member leads, or has heard a leader within an election timeout."""
        member = self._member
        if member.planted.leader_moves:
            return False
        return member.role == LEADER or member.now < self.promised_until_ns()

    def promised_until_ns(self) -> int:
        """Return until when this member, or the process before it, has promised to vote for nobody else."""
        member = self._member
        return max(self.heard_ns + member.options.election_ns, member.former_until_ns())

    def soon(self) -> None:
        """Campaign within a heartbeat's time."""
        member = self._member
        soon = member.now + 1 + member.rng.below(member.options.heartbeat_ns)
        self.deadline_ns = min(self.deadline_ns, soon)

    def forget_leader(self) -> None:
        """The process of the leader has ended, which is proved: wait for nothing."""
        assert self._member.role != LEADER, "this member lives"
        member = self._member
        self._lease_end_ns = max(self._lease_end_ns, self.promised_until_ns())
        self.heard_ns = member.now - member.options.election_ns
        member.former_ns = 0
        self._hurries = _HURRIES
        self.deadline_ns = member.now + 1 + member.rng.below(member.options.hurry_ns // 4)

    def is_promotable(self) -> bool:
        """Tell whether this member may campaign.

        It may so as a voter of the newest configuration, and as one of the committed configuration while the newest is
        not committed: its log may be the only one that can win (4.2.2).
        """
        log = self._member.log
        if self._member.is_voter():
            return True
        return log.has_pending_change() and log.configuration_at(log.commit).is_voter(self._member.me)

    # Campaigns

    def stop(self) -> None:
        """End a campaign."""
        if self.is_partial or self._member.planted.drops_late_votes:
            self._stood_term = 0  # votes were given for the log that it had
        self._pre_votes = []
        self._behind = {}
        self.source = 0
        self.is_partial = False

    def won(self) -> list[int]:
        """End the campaign of this member, which leads from now on; return who has voted for it."""
        electors = self._votes
        self._votes = []
        self._stood_term = 0
        self._attempts = 0
        self._hurries = 0
        self.stop()
        return electors

    def campaign(self) -> None:
        """Ask the voters whether they would vote; raise the term at once if this voter is a quorum."""
        member = self._member
        assert member.role != LEADER, "a leader does not campaign"
        is_promotable = self.is_promotable()
        patience_ns = member.options.patience_ns()
        if not is_promotable and member.now < self.heard_ns + patience_ns and member.leader:
            self.deadline_ns = self.heard_ns + patience_ns  # when it heard the leader last, it was a voter
            return
        self.stop()
        self.reset()
        member.leader = 0
        if not is_promotable:
            if member.role != FOLLOWER:
                member.change_role(REMOVED)
            return
        if self._hurries:
            self._hurries -= 1
            self._hurry(0)
        member.change_role(TIMEOUT)
        self._attempts += 1
        self._pre_votes = [member.me]
        if member.log.configuration().is_quorum(self._pre_votes) or member.planted.no_pre_vote:
            self._stand(PRE_ELECTED)
            return
        self._ask(PRE_VOTE, member.term + 1)

    def _hurry(self, disk_ns: int) -> None:
        """Wait a short time for answers; disk_ns: they come after a write that may take so long."""
        half_ns = self._member.options.hurry_ns // 2
        spread_ns = max(half_ns, disk_ns)  # else those that save their votes at one time would ask at one time again
        self.deadline_ns = self._member.now + disk_ns + half_ns + self._member.rng.below(spread_ns)

    def told(self) -> None:
        """The leader hands leadership over: campaign without asking first (3.10)."""
        assert self._member.role != LEADER, "a leader is told nothing"
        if self.is_promotable():
            self.stop()
            self.reset()
            self._stand(TOLD)

    def _stand(self, event: int) -> None:
        """Raise the term and vote for oneself; the vote counts, and is asked for, when it is durable."""
        member = self._member
        self.stop()
        member.leader = 0
        member.change_role(event)
        self._is_told = event == TOLD
        self.early_ns = self._left_ns()
        member.set_term(member.term + 1, member.me)
        self._stood_term = member.term
        self._votes = []
        assert not member.outbox.is_hard_durable(), "the vote is asked for when it is durable"
        self._ask(VOTE, member.term)

    def _ask(self, kind: int, term: int) -> None:
        """Send a request for votes to the voters that have not voted for this candidate."""
        assert self._member.role in (PRE_CANDIDATE, CANDIDATE), "only candidates ask for votes"
        member = self._member
        given = self._votes if kind == VOTE else self._pre_votes
        for voter in member.log.configuration().voters:
            if voter == member.me or voter in given:
                continue
            message = Message(kind, member.me, voter, term)
            message.index = member.log.last_index()
            message.log_term = member.log.last_term()
            if kind == VOTE and self._is_told:
                message.verdict = GRANTED
            member.send(message)

    def saved(self) -> None:
        """Go on when the term and the vote are durable: what waited for them leaves now, and the own vote counts.

        The election timeout stood still meanwhile. Other disks are about as fast as this one, so a candidate gives the
        voters as long to save their votes.
        """
        member = self._member
        assert member.outbox.is_hard_durable(), "the write is done"
        took_ns = min(member.now - member.changed_ns, member.options.write_ns)
        self.deadline_ns += took_ns
        if member.role == CANDIDATE:
            assert member.vote == member.me, "a candidate has voted for itself"
            assert member.me not in self._votes, "it has voted once"
            self._votes.append(member.me)
            self.deadline_ns += took_ns
            if self._hurries:
                self._hurry(took_ns)

    def is_won(self) -> bool:
        """Tell whether a quorum has voted for this member in its term, in which nobody leads."""
        member = self._member
        if member.role not in (CANDIDATE, PRE_CANDIDATE) or self._stood_term != member.term or self.is_partial:
            return False
        return member.log.configuration().is_quorum(self._votes)

    def count_pre_vote(self, message: Message) -> None:
        """Count the answer of a voter to the present campaign."""
        member = self._member
        assert member.role == PRE_CANDIDATE, "pre-votes are for one that has asked"
        configuration = member.log.configuration()
        self._count(message, self._pre_votes)
        # A voter with a newer log goes first. If it has not won until the next timeout, it does not reach a quorum.
        reached = self._attempts > 1 and self._is_reached(self._pre_votes)
        if configuration.is_quorum(self._pre_votes) or reached:
            self._stand(PRE_ELECTED)

    def count_vote(self, message: Message) -> None:
        """Count the vote of a voter in the term in which this member stood, also if it comes late."""
        member = self._member
        if self._stood_term != member.term:
            return
        self._count(message, self._votes)
        if message.verdict == GRANTED_EARLY and not member.planted.trusts_voters:
            self.early_ns = max(self.early_ns, message.promise)
        if member.role == CANDIDATE and self._is_reached(self._votes) and self._behind and self.source == 0:
            if not self.is_won():
                self._fetch_newest()

    def _count(self, message: Message, given: list[int]) -> None:
        """Count the answer of a voter."""
        member = self._member
        voter = message.sender
        assert voter != member.me, "the own vote counts when it is durable"
        if not member.log.configuration().is_voter(voter) or voter in given:
            return
        if message.verdict in (GRANTED, GRANTED_EARLY):
            given.append(voter)
            self._behind.pop(voter, None)
        elif message.verdict == BEHIND:
            # An answer to an older request may be late: the candidate has fetched since, and is not behind this voter.
            if (message.log_term, message.index) > (member.log.last_term(), member.log.last_index()):
                self._behind[voter] = (message.log_term, message.index)

    def _is_reached(self, given: list[int]) -> bool:
        """Tell whether a quorum has answered that has voted, or would if the log were as new as theirs."""
        member = self._member
        reached = member.log.configuration().is_quorum([*given, *self._behind])
        return reached and not member.planted.no_fetch

    # Fetching

    def _fetch_newest(self) -> None:
        """Fetch from the voter with the newest log: of a quorum, one has everything that is committed."""
        assert self.source == 0, "there is one source at a time"
        assert self._behind, "there is one source at a time"
        best = 0
        for voter in sorted(self._behind):
            if best == 0 or self._behind[voter] > self._behind[best]:
                best = voter
        assert best > 0, "one voter has the newest log"
        self.source = best
        self.fetch(self._member.log.commit)

    def fetch(self, index: int) -> None:
        """Ask the source for the entries behind `index`, which match."""
        member = self._member
        assert member.role == CANDIDATE, "only candidates fetch"
        message = member.message(FETCH, self.source)
        message.index = index
        message.log_term = member.log.term_at(index)
        assert message.log_term >= 0, "the entry before those that are fetched is known"
        member.send(message)

    def answer_fetch(self, message: Message) -> Message | None:
        """Return the answer to a candidate of this term that fetches; None if this member has another leader."""
        member = self._member
        log = member.log
        if member.role == LEADER or member.leader:
            return None
        answer = member.message(FETCH_RESPONSE, message.sender)
        answer.verdict = GRANTED
        answer.index = message.index
        answer.log_term = message.log_term
        answer.commit = log.last_index()
        term = log.term_at(message.index)
        if message.index + 1 < log.first or term < 0:
            answer.verdict = BEHIND if message.index < log.snapshot.index else REFUSED
            answer.index = log.snapshot.index
            answer.log_term = log.snapshot.term
        elif term != message.log_term:
            answer.verdict = REFUSED
        else:
            answer.entries = log.pages(message.index + 1, log.last_index(), member.options.message_bytes)
        return answer

    def fetched(self, message: Message) -> None:
        """Take over entries of the source; with the last of them, ask for votes again."""
        member = self._member
        log = member.log
        if message.verdict == REFUSED:
            self._drop_source()
            return
        last = message.index + len(message.entries)
        if message.index < log.commit or log.term_at(message.index) != message.log_term:
            return
        if last > message.commit or (not message.entries and last < message.commit):
            return
        last_term = message.entries[-1].term if message.entries else message.log_term
        is_shorter = message.commit < self._behind.get(self.source, (0, 0))[1]
        if is_shorter or (last == message.commit and log.is_behind(last, last_term)):
            self._drop_source()  # it has not the log of which it spoke: nothing may be removed for that
            return
        self.reset()
        self.is_partial = last < message.commit
        log.merge(message.entries)
        member.outbox.log_dirty = not log.is_saved()
        if self.is_partial:
            self.fetch(last)
            return
        assert not log.is_behind(last, last_term), "the log ends with the source's"
        self.source = 0
        self._behind = {}
        self._ask(VOTE, member.term)

    def _drop_source(self) -> None:
        """Fetch no more from this voter; another one may answer."""
        self._behind.pop(self.source, None)
        self.source = 0

    # Votes for others

    def pre_vote(self, message: Message) -> None:
        """Answer whether this voter would vote for the sender in the term of the message; nothing changes by it.

        While it writes a term or a vote it does not answer: that would leave after the write, and say what was true
        before it. Several candidates would get their answers at one moment, and stand against each other every time.
        """
        member = self._member
        if not member.outbox.is_hard_durable() and not member.planted.answers_late:
            return
        if message.term <= member.term:
            self._answer(PRE_VOTE_RESPONSE, message.sender, member.term, STALE)
        elif self.hears_leader():
            self._answer(PRE_VOTE_RESPONSE, message.sender, message.term, REFUSED)
        else:
            self._answer(PRE_VOTE_RESPONSE, message.sender, message.term, self._judge(message))

    def vote(self, message: Message) -> None:
        """Vote for the sender, in the current term, or refuse."""
        member = self._member
        assert message.term == member.term, "votes are cast in the current term"
        verdict = REFUSED
        if (member.vote in (0, message.sender) and member.leader == 0) or member.planted.vote_twice:
            verdict = self._judge(message)
        if verdict == GRANTED:
            if member.vote != message.sender:
                member.set_term(member.term, message.sender)
            self.reset()
            if self._left_ns():
                verdict = GRANTED_EARLY
        self._answer(VOTE_RESPONSE, message.sender, member.term, verdict)

    def _judge(self, message: Message) -> int:
        """Return GRANTED for a log that is as new as this one, else BEHIND: then this member goes first, soon."""
        member = self._member
        if not member.log.is_behind(message.index, message.log_term) or member.planted.vote_against_log:
            return GRANTED
        if self.is_promotable() and member.role == FOLLOWER:
            self.soon()
        return BEHIND

    def _left_ns(self) -> int:
        """Return what is left of the promise that was broken on a proof."""
        return max(0, self._lease_end_ns - self._member.now)

    def _answer(self, kind: int, to: int, term: int, verdict: int) -> None:
        member = self._member
        answer = Message(kind, member.me, to, term)
        answer.verdict = verdict
        if verdict == GRANTED_EARLY:
            answer.promise = self._left_ns()
        answer.index = member.log.last_index()
        answer.log_term = member.log.last_term()
        if member.planted.vote_unsaved:
            member.outbox.send_now(answer)
        else:
            member.send(answer)
