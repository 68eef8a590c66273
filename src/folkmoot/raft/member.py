"""What the parts of one member share: its identity, term, vote, role, log and outbox.

Owns the rule that a role changes only as the table in `raft/role` says, and that a term or vote that has changed is
written before anything is sent.
"""

from __future__ import annotations

from folkmoot.kernel.rng import Rng
from folkmoot.raft.log import Log
from folkmoot.raft.message import Message
from folkmoot.raft.option import Options
from folkmoot.raft.outbox import Outbox
from folkmoot.raft.planted import Planted
from folkmoot.raft.role import FOLLOWER, ROLES, TRANSITIONS

__all__ = ["Member"]


class Member:
    """The state of one member that is not of one role only."""

    def __init__(self, me: int, options: Options, log: Log, rng: Rng, planted: Planted) -> None:
        assert me > 0, "ids are positive"
        self.me = me
        self.options = options
        self.planted = planted
        self.rng = rng
        self.log = log
        self.outbox = Outbox()
        self.now: int = 0
        self.term: int = 0
        self.vote: int = 0
        self.role: int = FOLLOWER
        self.leader: int = 0  # of the current term, as far as it is known; 0: none
        self.changed_ns: int = 0  # when the term or the vote changed last
        self.recorded_ns: int = 0  # the promise in the newest hard state that was given out to be written
        self.former_ns: int = 0  # the promise of the process before this one; 0: it has made none
        self.began_ns: int = 0  # when this process began

    def change_role(self, event: int) -> None:
        """Enter the role that follows from an event."""
        role = TRANSITIONS[event][self.role]
        assert role >= 0, f"event {event} cannot happen to a {ROLES[self.role]}"
        self.role = role

    def set_term(self, term: int, vote: int) -> None:
        """Enter a newer term, or vote in the current one."""
        assert term > self.term or (term == self.term and (self.vote in (0, vote) or self.planted.vote_twice)), (
            "terms grow, and one vote is cast in each"
        )
        self.term = term
        self.vote = vote
        self.changed_ns = self.now
        self.outbox.hard_dirty = True

    def message(self, kind: int, to: int) -> Message:
        """Return a message of the current term."""
        return Message(kind, self.me, to, self.term)

    def send(self, message: Message) -> None:
        """Send a message as soon as the term is durable."""
        assert message.sender == self.me, "a member speaks for itself"
        self.outbox.send(message, False)

    def promise(self) -> int:
        """Return for how long after it has heard a leader this member votes for nobody else, to tell that leader.

        What is told has to be on the disk: a process that is started again with other settings keeps it.
        """
        promise_ns = self.options.election_ns
        if self.recorded_ns < promise_ns and not self.planted.forgets_promise:
            self.outbox.hard_dirty = True
        return promise_ns

    def former_until_ns(self) -> int:
        """Return until when a promise of the process before this one may hold."""
        return self.began_ns + self.former_ns

    def record(self) -> int:
        """Return the promise for a hard state that is written now: the longest that may hold, or be made."""
        former_ns = self.former_ns if self.now < self.former_until_ns() else 0
        self.recorded_ns = max(self.options.election_ns, former_ns)
        return self.recorded_ns

    def is_voter(self) -> bool:
        """Tell whether this member votes in the newest configuration that it knows."""
        return self.log.configuration().is_voter(self.me)
