"""Leases: a member serves only while it has one (Gray, Cheriton: Leases, SOSP 1989).

A member sends numbered heartbeats to the leader of the configuration log. An answer extends the lease of the member to
the *sending* of that heartbeat plus the length. The leader of the log gives the leaderships of a member to others only
when the lease is certainly over. Both sides use nothing but their own monotonic clocks, in nanoseconds, which go on
while a machine is suspended. Over any span the clock of one runs at most `DRIFT_PERCENT` faster than that of the other.

The proof that no lease is valid that is certainly over. Let a lease be valid because of a heartbeat h.

1. *The leader that answered h says it is over.* h was sent before the leader took it, at `now`, and noted that time. On
   the member's clock the lease ends a length after the sending. The leader waits a length and the drift from what it
   noted, on a clock that is at most so much faster, so it waits until later.
2. *A later leader says so.* The earlier one took h while no other leader could be elected (`may_grant`: Raft's leader
   lease), so h was sent before the election of the later one, which waits a length and the drift from its election.
   A voter that takes the earlier leader for ended does not wait for Raft's leader lease. If that is wrong (a firewall
   that answers with resets), h may be sent until that lease is over: the later leader adds it (`predecessor_ns`).
   The earlier leader has no such lease any more as soon as it sees enough voters refuse, as they do.
3. *An earlier leader says so, and has not answered h.* What counts is the entry of the log that takes the leaderships
   away. It was proposed before the later leader was elected. That leader answers nothing before it has applied
   everything that earlier leaders proposed (`may_grant`), and nothing to a member that is away. A leader that has
   proposed such an entry itself answers that member no more (`revoke`), until the entry is known to be lost, or the
   member has started again.
4. *The member gave the lease back.* It forgets all heartbeats that it has sent, so that no answer to them counts, and
   names the newest. The leader that takes the return answers none up to that one, and ignores a return that is older
   than a heartbeat that it has taken. A return may also arrive late, at a leader that was elected since, while an
   earlier leader has answered newer heartbeats. So it takes back what this leader has granted, and nothing else: in
   the first length of a term the leader waits as for everybody.
5. *The process has ended.* Its lease was in its memory. The process after it on its folder knows that from the lock on
   the folder, which the system releases when a process has ended (`runtime/directory`).

It does not matter when an answer arrives, how often, or whether the leader stood still before it sent it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DRIFT_PERCENT", "GrantedLeases", "Lease", "certain_ns"]

DRIFT_PERCENT: Final = 1
"""How much faster than another member's clock a clock may run."""

_OUTSTANDING_MAX: Final = 64  # heartbeats without an answer that are remembered; the lease has ended long before


def certain_ns(length_ns: int) -> int:
    """Return how long one waits until a lease of this length is over at another member."""
    assert length_ns > 0, "a lease has a length"
    return -(-length_ns * (100 + DRIFT_PERCENT) // 100)


class Lease:
    """The lease of this member; `length_ns` is the same at all members."""

    def __init__(self, length_ns: int) -> None:
        assert length_ns > 0, "a lease has a length"
        self._length_ns = length_ns
        self._until_ns: int = 0
        self._term: int = 0
        self._number: int = 0
        self._sent: dict[int, int] = {}  # heartbeat -> when it was sent, oldest first
        self._now: int = 0

    @property
    def until_ns(self) -> int:
        """The time at which the lease ends or has ended; 0: there was none."""
        return self._until_ns

    def beat(self, now: int) -> int:
        """Return the number of a heartbeat that is sent at `now` or later."""
        assert now >= self._now, "the clock is monotonic"
        self._now = now
        self._number += 1
        self._sent[self._number] = now
        if len(self._sent) > _OUTSTANDING_MAX:
            del self._sent[min(self._sent)]
        return self._number

    def sent_ns(self, number: int) -> int:
        """Return when a heartbeat was sent that is not answered, given back or forgotten; 0: it is."""
        return self._sent.get(number, 0)

    def answered(self, term: int, number: int) -> bool:
        """Take the answer of the leader of `term` to a heartbeat; False if it does not count.

        It does not if a leader of a later term has answered before, or if the heartbeat is answered, given back or
        forgotten.
        """
        if term < self._term or number not in self._sent:
            return False
        self._term = term
        until_ns = self._sent.pop(number) + self._length_ns
        assert until_ns <= self._now + self._length_ns, "a lease counts from the sending of a heartbeat"
        self._until_ns = max(self._until_ns, until_ns)
        return True

    def give_back(self) -> int:
        """End the lease; return the number of the newest heartbeat, for the leader.

        The caller has ended everything that needs the lease, and sends the number once no effect is under way.
        """
        self._until_ns = 0
        self._sent = {}
        return self._number

    def begin(self) -> None:
        """End the lease, and begin anew with the leaders of another log, whose terms are others."""
        self.give_back()
        self._term = 0


class _Grant:
    """What the leader knows of the lease of one process."""

    def __init__(self) -> None:
        self.heard_ns: int = 0  # when the last heartbeat was taken that may be answered
        self.newest: int = 0  # the number of the newest heartbeat that was taken
        self.returned: int = 0  # heartbeats up to this number are given back
        self.ended: bool = False
        self.revoked: bool = False


class GrantedLeases:
    """What the leader of the configuration log knows of the leases of all processes, in one term.

    A process is a disk and an incarnation: of two processes on copies of one disk each may have a lease.

    Args:
        length_ns: The length of a lease.
        elected_ns: When this leader was elected, by its own clock, or later.
        predecessor_ns: For so long after that its predecessor may have answered heartbeats.
    """

    def __init__(self, length_ns: int, elected_ns: int, predecessor_ns: int = 0) -> None:
        self._wait_ns: int = certain_ns(length_ns)
        self._elected_ns = elected_ns
        self._predecessor_ns = predecessor_ns
        self._grants: dict[tuple[int, int], _Grant] = {}

    def heard(self, disk: int, incarnation: int, number: int, now: int) -> bool:
        """Take a heartbeat; True if it is to be answered.

        The caller (`Controller._judge`) has seen that at `now` Raft's leader lease is valid, everything that earlier
        leaders have proposed is applied (`ConfigurationLog.may_grant`), and the member is up in the configuration with
        this incarnation.
        """
        assert now >= self._elected_ns, "the clock is monotonic"
        grant = self._grant(disk, incarnation, now)
        if grant.revoked or number <= grant.returned:
            return False
        grant.heard_ns = max(now, grant.heard_ns)
        grant.newest = max(number, grant.newest)
        grant.ended = False  # the heartbeat may have come late, but nothing tells
        return True

    def given_back(self, disk: int, incarnation: int, number: int, now: int) -> bool:
        """Take back what this leader has granted for heartbeats up to `number`; False if there were newer ones."""
        grant = self._grant(disk, incarnation, now)
        if number < grant.newest:
            return False
        grant.returned = max(number, grant.returned)
        grant.heard_ns = 0
        return True

    def ended(self, disk: int, incarnation: int, now: int) -> None:
        """Note the proof that a process has ended."""
        self._grant(disk, incarnation, now).ended = True

    def heard_ns(self, disk: int, incarnation: int) -> int:
        """Return when this leader took the last heartbeat of a process that may be answered; 0: it knows of none."""
        grant = self._grants.get((disk, incarnation))
        return 0 if grant is None else grant.heard_ns

    def over_ns(self, disk: int, incarnation: int) -> int:
        """Return the time from which the lease of a process is certainly over; 0: it is over."""
        since_ns = self._elected_ns + self._predecessor_ns
        grant = self._grants.get((disk, incarnation))
        if grant is not None:
            if grant.ended:
                return 0
            since_ns = max(since_ns, grant.heard_ns)
        return since_ns + self._wait_ns

    def certainly_over(self, disk: int, incarnation: int, now: int) -> bool:
        """Tell whether no lease of a process is valid, nor will be without a further answer."""
        return now >= self.over_ns(disk, incarnation)

    def revoke(self, disk: int, incarnation: int, now: int) -> None:
        """Answer a process no more: an entry that takes its leaderships away is proposed."""
        assert self.certainly_over(disk, incarnation, now), "leaderships are taken away when the lease is over"
        self._grant(disk, incarnation, now).revoked = True

    def restore(self, disk: int, incarnation: int) -> None:
        """Answer a process again: that entry is known to be lost or refused, or the process has started again since."""
        grant = self._grants.get((disk, incarnation))
        if grant is not None:
            grant.revoked = False

    def started(self, disk: int, incarnation: int, now: int) -> None:
        """Give a process that has just come up the time to send a heartbeat."""
        grant = self._grant(disk, incarnation, now)
        grant.heard_ns = max(now, grant.heard_ns)
        grant.ended = False
        grant.revoked = False

    def _grant(self, disk: int, incarnation: int, now: int) -> _Grant:
        """Return what is known of a process; with a new one, forget what is over anyway."""
        found = self._grants.get((disk, incarnation))
        if found is not None:
            return found
        if now >= self._elected_ns + self._predecessor_ns + self._wait_ns:
            for known in list(self._grants):
                if not self._grants[known].revoked and now >= self.over_ns(known[0], known[1]):
                    del self._grants[known]
        grant = _Grant()
        self._grants[(disk, incarnation)] = grant
        return grant
