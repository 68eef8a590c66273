"""Who votes on the configuration log: the next change of Raft's voters and learners, one member at a time.

Of fewer than three members one votes, of three or four three, from five on five, from fifty on seven; always an odd
number, because an even one needs a larger quorum and survives no more. Members count while they are neither joining
nor leaving. The number grows with members that are up, and shrinks with members that leave or are removed: a death
changes no number of voters, it is repaired by a replacement.

Nor does a stop in order. A voter that was stopped is a vote that comes back: without it, three nodes of which one is
restarted would hang on one of the other two. But a process that ends can still agree to what follows, and one that was
killed cannot. So when the voters that run on are no quorum without those that stop, votes end while these still run:
members that do not vote take them over, and else the number shrinks to the largest one of which those that run on are
a quorum. The voters that stopped first lose their votes first. So of members that are stopped one after the other the
last one is the only voter, and goes on alone. Where nobody with data would run on, votes stay: nobody would serve.

Two members have one voter. With two voters the cluster would stand still without either of them; with one it stands
still without that one alone, so that a second member never makes a cluster worse than the first one was by itself. The
price: what the voter has committed may be missing at the other member for the moments that a learner is behind, should
the disk of the voter be lost. A witness is the third member that takes both prices away.

Witnesses vote wherever three votes are: that is what they are for. Other voters are spread over zones, then over hosts.
A voter is replaced by promoting another first: if it leaves, if it is gone (away for so long that the caller counts no
longer on it, stopped or not), or if another one is in a zone or on a host that has no voter. Every replacement makes
the set of voters better by a measure that nothing else changes, so the same configuration ends with the same voters,
and stays there.
"""

from __future__ import annotations

from folkmoot.membership.cluster_member import DATA, WITNESS, ClusterMember
from folkmoot.membership.command import STOPPED
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.lifecycle import ACTIVE, AWAY, is_up
from folkmoot.raft.configuration import ADD_LEARNER, DEMOTE, PROMOTE, REMOVE

__all__ = ["next_change", "one_votes", "voters_wanted"]


def voters_wanted(members: int) -> int:
    """Return how many of so many members vote."""
    assert members >= 0, "a number of members"
    if members < 3:
        return 1
    if members < 5:
        return 3
    return 5 if members < 50 else 7


def one_votes(configuration: ClusterConfiguration, stops_cost: bool = False) -> bool:
    """Tell whether so few members count that one of them votes alone, and no witness."""
    return len([member for member in configuration.members.values() if _is_counted(member, stops_cost)]) < 3


def next_change(
    configuration: ClusterConfiguration,
    voters: list[int],
    learners: list[int],
    leader: int,
    gone: list[int],
    behind: list[int],
    stopping: list[int] | None = None,
    unheard: list[int] | None = None,
    stops_cost: bool = False,
) -> tuple[int, int] | None:
    """Return the next change as (kind, disk) with the kinds of `raft/configuration`, or None if all is as it should be.

    Args:
        configuration: The members.
        voters: Raft's voters.
        learners: Raft's learners.
        leader: The voter that leads the log; of equally good voters it is the last to be demoted.
        gone: Members that have been away for so long that they are to be replaced.
        stopping: Members whose processes are linked and about to end, in order or evicted, marked as away or not yet.
        unheard: Members that the caller is not linked to, or hears too late, as it knows better than the configuration.
            Members that are away and linked, because they were stopped and have not ended yet, can still agree to
            changes.
        behind: Learners that lack too much of the log to be promoted now: Raft would refuse them.
        stops_cost: A bug, for tests: who is stopped loses its vote (`planted`).
    """
    assert voters, "a log has a voter"
    assert leader == 0 or leader in voters, "a voter leads"
    for disk in learners:
        if disk not in configuration.members:
            return (REMOVE, disk)
    for disk in configuration.disks():
        if disk not in voters and disk not in learners:
            return (ADD_LEARNER, disk)
    able = [disk for disk in learners if disk not in behind]
    return _Voters(configuration, voters, able, leader, gone, stopping or [], unheard or [], stops_cost).change()


def _is_counted(member: ClusterMember, stops_cost: bool) -> bool:
    """Tell whether a member is up, or is to come back: one that leaves is not waited for."""
    if stops_cost and member.why == STOPPED:
        return member.state == ACTIVE
    return member.state in (ACTIVE, AWAY)


class _Voters:
    """The voters and those that could vote, for one decision."""

    def __init__(
        self,
        configuration: ClusterConfiguration,
        voters: list[int],
        able: list[int],
        leader: int,
        gone: list[int],
        stopping: list[int],
        unheard: list[int],
        stops_cost: bool,
    ) -> None:
        self.unheard = unheard
        self.stopping = stopping
        self.members: dict[int, ClusterMember] = configuration.members
        self.voters = voters
        self.leader = leader
        self.running: list[int] = []  # voters that run, and go on
        for disk in voters:
            if disk in self.members and disk not in stopping and disk not in unheard:
                self.running.append(disk)
        self.stops_cost = stops_cost
        ends = self._stops_end_votes()
        self.sound: list[int] = []  # voters that stay as far as their own state says
        for disk in voters:
            if disk in self.members and self._is_sound(disk, disk in gone, ends):
                self.sound.append(disk)
        up: list[ClusterMember] = []
        counted: list[ClusterMember] = []
        for disk in configuration.disks():
            member = self.members[disk]
            if member.state == ACTIVE:
                up.append(member)
            if _is_counted(member, stops_cost):
                counted.append(member)
        self.few: bool = one_votes(configuration, stops_cost)
        # Where one member votes alone, a witness is no candidate: it would be the cluster without having anything.
        self.candidates: list[int] = []
        for member in up:
            runs = member.disk not in stopping and not (ends and member.disk in unheard)
            if member.disk in able and runs and (member.kind == DATA or not self.few):
                self.candidates.append(member.disk)
        least = voters_wanted(len(up))
        most = voters_wanted(len(counted))
        assert least <= most, "members that are away are members"
        self.wanted: int = min(max((len(voters) - 1) | 1, least), most)
        witnesses = len([member for member in counted if member.kind == WITNESS])
        if not self.few and witnesses >= self.wanted:
            self.wanted = min((witnesses + 1) | 1, (len(counted) - 1) | 1)  # all of them, and one with data
        if ends:
            self.wanted = min(self.wanted, max(2 * (len(self.running) + len(self.candidates)) - 1, 1))
        assert self.wanted % 2 == 1, "an odd number votes"

    def _stops_end_votes(self) -> bool:
        """Tell whether voters stop without which those that run on are no quorum, and somebody could serve then."""
        if self.stops_cost or not [disk for disk in self.voters if disk in self.stopping]:
            return False
        if 2 * len(self.running) > len(self.voters):
            return False
        for member in self.members.values():
            if member.kind == DATA and is_up(member.state) and member.disk not in self.stopping:
                return True
        return False

    def _is_sound(self, disk: int, is_gone: bool, ends: bool) -> bool:
        """Tell whether a voter stays; ends: those that stop or are away do not, because too few run on."""
        state = self.members[disk].state
        if self.stops_cost and (disk in self.stopping or (state == AWAY and self.members[disk].why == STOPPED)):
            return False
        if ends and (disk in self.stopping or (state == AWAY and disk in self.unheard)):
            return False
        return state == ACTIVE or (state == AWAY and not is_gone)

    def change(self) -> tuple[int, int] | None:
        """Return the next promotion, demotion or removal of a voter."""
        if len(self.sound) < self.wanted and len(self.voters) <= self.wanted and self._is_worth_one_more():
            return (PROMOTE, self._best_candidate())
        change = self._fewer()
        if change is None and len(self.voters) == self.wanted:
            better = self._better_candidate()
            if better:
                return (PROMOTE, better)
        return change

    def _is_worth_one_more(self) -> bool:
        """Tell whether there is a candidate, and a further voter helps: it replaces one, or makes the number odd.

        From one voter to three the way leads over two, which are worse than one if the third does not follow.
        """
        helps = len(self.sound) < len(self.voters) or len(self.voters) % 2 == 0
        return len(self.candidates) >= (1 if helps else 2)

    def _best_candidate(self) -> int:
        """Return the candidate that makes the voters best; where all are needed, the one that is up for longest.

        Of two voters both have to live. The one that has just come up, perhaps with a new disk, is the third one.
        """
        if len(self.sound) + len(self.candidates) <= self.wanted:
            return min(self.candidates, key=self._started)
        best = self.candidates[0]
        best_rank = self._rank([*self.sound, best])
        for disk in self.candidates:
            rank = self._rank([*self.sound, disk])
            if rank > best_rank:
                best = disk
                best_rank = rank
        return best

    def _started(self, disk: int) -> int:
        return self.members[disk].started

    def _better_candidate(self) -> int:
        """Return the candidate that makes the voters better in place of the worst of them; 0: there is none."""
        best = 0
        best_rank = self._rank(self.sound)
        for disk in self.candidates:
            with_it = [*self.sound, disk]
            worst = self._worst_of(with_it)
            rank = self._rank([other for other in with_it if other != worst])
            if worst != disk and rank > best_rank:
                best = disk
                best_rank = rank
        return best

    def _rank(self, disks: list[int]) -> tuple[int, int, int]:
        """Return how good voters are: whether the right kinds vote, the number of their zones, and of their hosts."""
        witnesses = 0
        zones: list[str] = []
        hosts: list[tuple[str, str]] = []
        for disk in disks:
            member = self.members[disk]
            if member.kind == WITNESS:
                witnesses += 1
            zone = member.process.zone
            if zone not in zones:
                zones.append(zone)
            if (zone, member.process.host) not in hosts:
                hosts.append((zone, member.process.host))
        kinds = len(disks) - witnesses if self.few else min(witnesses, self.wanted - 1)
        return (kinds, len(zones), len(hosts))

    def _worst_of(self, disks: list[int]) -> int:
        """Return one that is away, or else the one without which the others are best, the leader last."""
        worst = 0
        worst_rank = (0, 0, 0, 0, 0)
        for disk in disks:
            kinds, zones, hosts = self._rank([other for other in disks if other != disk])
            away = 1 if self.members[disk].state == AWAY or disk in self.unheard else 0
            rank = (away, kinds, zones, hosts, 0 if disk == self.leader else 1)
            if worst == 0 or rank > worst_rank:
                worst = disk
                worst_rank = rank
        assert worst > 0, "one of the voters is the worst"
        return worst

    def _fewer(self) -> tuple[int, int] | None:
        """Return the change that ends a vote, or None.

        Voters that leave, or are members no more, stay until they are replaced, as long as anybody can replace them.
        One that is gone stays until it is replaced in any case: its vote may come back. Those that are not up go first,
        before others those that have ended, the leader last, and none goes without which members that are heard are no
        quorum. For the voters that are left have to agree: a voter that has just died would leave them without one for
        ever. So would one that is a member no more: it takes another identity when it is told so, perhaps before it
        has agreed. It does not matter whether members are up: of many that were stopped at once each can give its vote
        away while its process runs, and not later.
        """
        replaced = len(self.voters) > self.wanted
        ending: list[int] = []
        for disk in self.voters:
            is_gone = disk in self.members and self.members[disk].state == AWAY
            if disk not in self.sound and (replaced or (not is_gone and len(self.sound) > 0 and not self.candidates)):
                ending.append(disk)
        if len(self.sound) > self.wanted:
            ending.append(self._worst_of(self.sound))
        up = [disk for disk in ending if self._is_up(disk) and disk != self.leader]
        away = [disk for disk in ending if not self._is_up(disk)]
        ended = [disk for disk in away if disk in self.unheard]
        for disk in [*ended, *[disk for disk in away if disk not in ended], *up, self.leader]:
            if disk in ending and self._is_quorum_without(disk):
                return (DEMOTE if disk in self.members else REMOVE, disk)
        return None

    def _is_up(self, disk: int) -> bool:
        return disk in self.members and is_up(self.members[disk].state)

    def _is_quorum_without(self, disk: int) -> bool:
        rest = [other for other in self.voters if other != disk]
        return 2 * len([other for other in rest if other in self.members and other not in self.unheard]) > len(rest)
