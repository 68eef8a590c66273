"""The controller: what the leader of the configuration log does in one term.

It answers heartbeats, which are leases; finds members that are dead, cut off or stopped; lets processes come up; and
proposes what follows: copies, leaderships, voters. All that it remembers is evidence of this term. A successor begins
without it, and waits a lease before it takes anything from a member that has not spoken to it.

Evidence
- *silence*: the lease of a process is certainly over (`lease.GrantedLeases`).
- *ended*: its host refuses connections, as two members have seen, or the only other one. That counts only while the
  controller has no link to the process itself. So a firewall between two members that answers with resets proves
  nothing; one before all of them looks like the end of the process. A heartbeat that the controller grants refutes
  those who have told of the end before. Nor is a witness believed of which that process has told the same: both live.
  By one of the two, all leases count that the process got after it had seen the firewalls (`Control._doubt_lease`).
- *links*: two members that are up report that they are not linked, for longer than the patience. As each of them may
  have to keep what the other leads, one has to go: the one with most such links, of equal ones that with the higher
  disk. A link to the controller is no such evidence: without it there are no heartbeats.
- *lapses*: a member is heard, and says for a whole lease in most of its heartbeats that it was without one: answers
  reach it too late, behind other bytes or on a bad way. It keeps leaderships, and serves nobody. If most members say
  so, this one is on the bad side: it takes nothing from them, and hands over the log. If that comes back soon, the
  voters that a quorum hears in time are all on that side: then this one keeps the log, and those who say so go.

Whoever is to go is answered no more, and is marked as away when its lease is over. It comes back by itself: a process
that is not up is let up (START) when its links to all that are up have held for a while.

Where all copies of a partition go together (a rack loses power, a switch fails), their leases end one after the other.
To mark them as away one by one would leave the partition to the last one, which has been dead as long as the others:
if its disk is lost, the copies that come back count for nothing. So a member waits if it would leave a partition to
members of which none shows that it is alive. They show it soon, or their leases end, too; then one entry marks all of
them as away, and each is in sync until one comes back. Who shows it and is to go itself (it is cut off, its disk stands
still, an operator puts it out) is no better. And an entry of which one member has changed meanwhile marks nobody.

When few are up
No majority is up while most members are linked to each other, if a single link leads from those to the leader of the
log: whoever was up first keeps the others waiting. So members tell then which of those that wait they reach, too. The
log goes to a voter that reaches more members than this one, and those that are up give way to a larger group of linked
members. Both numbers only grow while the links stay as they are.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.event import ERROR, INFO, WARNING, Event
from folkmoot.membership.cluster_member import DATA, ClusterMember
from folkmoot.membership.command import (
    CUT_OFF,
    ENDED,
    EVICT,
    FORGOTTEN,
    JOIN,
    MARK_AWAY,
    REMOVE,
    REPLACED,
    SILENT,
    START,
    STOPPED,
    STRAIN,
    Activate,
    AlterIsr,
    Command,
    Delete,
    Evict,
    Features,
    Join,
    Leave,
    MarkAway,
    Prune,
    Put,
    Remove,
    Renew,
    Stay,
    Strain,
    Withdraw,
    decode_command,
)
from folkmoot.membership.command import EVICTED as PUT_OUT
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_log import ConfigurationLog, Fate
from folkmoot.membership.control_message import (
    EVICTED,
    GRANTED,
    NOT_LEADING,
    NOT_UP,
    OUTDATED,
    STRANGER,
    Beat,
    BeatAnswer,
    Reply,
)
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.held_answers import HeldAnswers
from folkmoot.membership.lease import GrantedLeases
from folkmoot.membership.lifecycle import JOINING, is_leaving, is_up
from folkmoot.membership.loss import cost_of
from folkmoot.membership.neighbours import Neighbour, Neighbours
from folkmoot.membership.placement import PlacementMemo
from folkmoot.membership.placement_plan import plan
from folkmoot.membership.planted import PlantedControl
from folkmoot.membership.transition import INVALID, KNOWN_DISK, NAME_TAKEN, NO_NUMBERS, RUNS, UNCHANGED, Result
from folkmoot.membership.voters import next_change, one_votes
from folkmoot.raft.ready import COMMITTED
from folkmoot.store.epoch import COUNTER_MAX

__all__ = ["SETTINGS_COUNTER_MAX", "Controller"]

SETTINGS_COUNTER_MAX: Final = COUNTER_MAX // 2
"""From this number of changes on settings are refused: what is left is for changes of roles, a hundred times rarer."""

_SECOND: Final = 1_000_000_000
_PRUNE_AT: Final = 8  # old ancestors are forgotten when there is the eighth part of those that there may be
_KEEP: Final = 16  # and the sixteenth part stays: what is known of them is exact
_FEW_LEFT: Final = 10  # the last tenth are few
_BEHIND: Final = 200  # entries that a learner may lack and still be promoted
_CALM_MAX_NS: Final = 16 * _SECOND
_LAPSES_MIN: Final = 4  # fewer heartbeats say little, whatever their length of time
_FORGIVE_NS: Final = 30 * _SECOND
_CLAIM_NS: Final = _SECOND  # the claim that a process has ended, while there is a link to it


class _Report:
    """The newest heartbeat of a process."""

    def __init__(self, process: Neighbour, beat: Beat, now: int) -> None:
        self.process = process
        self.incarnation = process.incarnation
        self.beat = beat
        self.at_ns = now


class _Claim:
    """What one member tells of the end of a process: since when it does so without a pause, and when it did last."""

    def __init__(self, now: int) -> None:
        self.since_ns = now
        self.told_ns = now


class _Lapses:
    """What the heartbeats of a process that is up tell of its lease, since it was without one."""

    def __init__(self, incarnation: int, now: int) -> None:
        self.incarnation = incarnation
        self.since_ns = now
        self.lapsed: int = 0  # heartbeats since then before which it had no lease for a moment
        self.kept: int = 0  # and others
        self.newest: bool = True  # whether the newest is of the former
        self.counted_ns: int = 0  # when the last of them came; what comes together tells of one moment
        self.goes: bool = False  # it is answered no more for that


class _Trouble:
    """How often a member was cut off lately, and since when its links are good."""

    def __init__(self) -> None:
        self.count: int = 0
        self.since_ns: int = 0  # its links are good since then; 0: they are not
        self.last_ns: int = 0


class Controller:
    """One term of leadership.

    Args:
        log: The log that this member leads.
        neighbours: The links of this member.
        me: This process, as others know it.
        options: Times and limits.
        planted: Bugs, for tests.
        now: The current time, at or after the election.
        yielded_ns: When this process last handed over the log because its answers were late (`is_late`); 0: never.
    """

    def __init__(
        self,
        log: ConfigurationLog,
        neighbours: Neighbours,
        me: Neighbour,
        options: ControlOptions,
        planted: PlantedControl,
        now: int,
        yielded_ns: int = 0,
    ) -> None:
        assert log.is_leader, "the controller leads the log"
        self.log = log
        self.term = log.term
        self.out: list[tuple[int, Reply]] = []  # replies, and the disks to which they go
        self.events: list[Event] = []
        self.held = HeldAnswers(options.heartbeat_ns)
        self.successor: int = 0  # the disk to which the leadership of the log is to go; 0: none
        self.is_late: bool = False  # that is because its answers reach most members too late
        self._neighbours = neighbours
        self._me = me
        self._options = options
        self._planted = planted
        self._leases = GrantedLeases(options.lease_ns, now, 0 if planted.trusts_proofs else log.predecessor_ns())
        self._began_ns = now
        self._grants: bool = False  # it may answer heartbeats, or could before
        self._reports: dict[int, _Report] = {}  # by disk
        self._claims: dict[tuple[int, int], dict[int, _Claim]] = {}  # processes -> who has seen them end
        self._denied: dict[int, int] = {}  # disks that are answered no more, and why (MarkAway)
        self._evictions: dict[int, int] = {}  # disks and incarnations that an operator wants out
        self._joins: dict[int, tuple[Join, list[int]]] = {}  # by disk, with the numbers of its requests
        self._pending: dict[int, list[tuple[int, int, int]]] = {}  # handle -> (kind, disk, incarnation) of each process
        self._open: dict[tuple[int, int, int], bool] = {}  # commands that are proposed and not decided
        self._asked: dict[int, tuple[int, int]] = {}  # handle -> (disk, number) of the request
        self._asked_roles: dict[int, bool] = {}  # those of them that may change roles
        self._bad: dict[tuple[int, int], int] = {}  # pairs of members without a link, and since when
        self._wider_ns: int = 0  # since when another voter reaches more members than this one; 0: none does
        self._trouble: dict[int, _Trouble] = {}
        self._lapses: dict[int, _Lapses] = {}
        self._has_yielded: bool = yielded_ns > 0 and now - yielded_ns < _FORGIVE_NS  # nobody else is answered sooner
        self._refused: dict[tuple[int, int], int] = {}  # processes whose START was refused, and when to try again
        self._away: dict[int, int] = {}  # members that are away, and since when as far as this controller knows
        self._memo = PlacementMemo()
        self._gone: list[int] = []
        self._roles: int = log.index  # the last entry that changed members or partitions
        self._changes_voters: bool = False  # a change of voters or learners is on its way
        self._is_short: bool = False  # that has been told
        self._is_crowded: bool = False  # that the lineage has few forks left has been told
        self._is_dirty: bool = True  # something has changed that plans depend on
        self._waits_ns: int = 0  # since when the plan waits for commands that are on their way; 0: it does not
        self._retry_ns: int = 0  # when to propose again what the log refused for the moment
        self._due_ns: int = now
        self._loads: dict[int, dict[str, int]] = {}
        self._loads_told: dict[int, dict[int, dict[str, int]]] = {}

    # What comes

    def beat(self, process: Neighbour, beat: Beat, now: int) -> BeatAnswer:
        """Take a heartbeat and return the answer."""
        verdict = self._judge(process, beat, now)
        answer = BeatAnswer(self.log.lineage, self.term, beat.number, self.log.commit, verdict)
        if beat.load is not None and verdict != STRANGER:
            wanted = self._loads.get(process.disk, {}).get("replicas", 0)
            self._loads[process.disk] = beat.load
            if beat.load.get("replicas", 0) != wanted:
                self._is_dirty = True
        if verdict == GRANTED:
            self._tell_loads(process.disk, answer)
        return answer

    def _judge(self, process: Neighbour, beat: Beat, now: int) -> int:
        log = self.log
        disk = process.disk
        if beat.lineage != log.lineage:
            return NOT_LEADING
        for claim in beat.ended:
            self._claim(claim, disk, now)
        if not log.may_grant(now) and not (self._planted.grant_alone and log.is_leader):
            return NOT_LEADING
        member = log.configuration.members.get(disk)
        if member is None:
            return STRANGER
        if process.incarnation < member.incarnation or self._is_taken(process, beat, member):
            return OUTDATED
        if process.incarnation <= member.evicted:
            return EVICTED
        self._note(process, beat, now)
        if beat.returned:
            if self._leases.given_back(disk, process.incarnation, beat.returned, now):
                self._due_ns = now
            return NOT_UP
        if process.incarnation != member.incarnation or not is_up(member.state) or disk in self._denied:
            return NOT_UP
        if not beat.up and beat.applied >= member.version:
            self._denied[disk] = CUT_OFF  # it was in another lineage: it comes up anew
        if self._is_over(disk, process.incarnation, beat):
            return NOT_UP
        self._note_lapse(disk, process.incarnation, beat, now)
        return GRANTED if self._leases.heard(disk, process.incarnation, beat.number, now) else NOT_UP

    def _note_lapse(self, disk: int, incarnation: int, beat: Beat, now: int) -> None:
        """Count heartbeats of a process that is answered, from one before which it had no lease for a moment.

        They are forgotten when most of them tell of a lease: a member that has just come up, stood still or has found
        a new controller has one again soon.
        """
        known = self._lapses.get(disk)
        if known is not None and known.incarnation != incarnation:
            del self._lapses[disk]
            known = None
        if known is None:
            if not beat.lapsed:
                return
            known = self._lapses[disk] = _Lapses(incarnation, now)
        known.newest = beat.lapsed
        if now - known.counted_ns < self._options.heartbeat_ns // 2:
            return  # the way was closed, and is open again
        known.counted_ns = now
        if beat.lapsed:
            known.lapsed += 1
        else:
            known.kept += 1
            if known.kept > known.lapsed and not known.goes:
                del self._lapses[disk]

    def _is_over(self, disk: int, incarnation: int, beat: Beat) -> bool:
        """Tell whether a process that is up gets no further lease, by its newest heartbeat: it will be away."""
        return self._evictions.get(disk, 0) >= incarnation or beat.stalled or disk in self._denied

    def _is_taken(self, process: Neighbour, beat: Beat, member: ClusterMember) -> bool:
        """Tell whether another process had the number of this start.

        A process is let up after it was answered at least once. So one that was not, and is known to have been up, has
        the number of another: both began with the same copy of the folder.
        """
        is_known = process.incarnation == member.incarnation and member.started > 0
        return beat.fresh and is_known and not self._planted.trusts_numbers

    def _note(self, process: Neighbour, beat: Beat, now: int) -> None:
        """Remember a heartbeat, and look soon if it says something new."""
        former = self._reports.get(process.disk)
        if former is not None and former.incarnation > process.incarnation:
            return
        self._reports[process.disk] = _Report(process, beat, now)
        if former is not None and former.incarnation != process.incarnation:
            self._loads_told.pop(process.disk, None)  # the process before it knew them
        before = None if former is None else former.beat
        if beat.returned and (before is None or before.returned == 0):
            self._is_dirty = True  # its vote may have to end before its process
        if before is None or not beat.up or before.applied != beat.applied or before.missing != beat.missing:
            self._due_ns = now
        elif before.stalled != beat.stalled or before.returned != beat.returned:
            self._due_ns = now
            self._is_dirty = True

    def _tell_loads(self, disk: int, answer: BeatAnswer) -> None:
        """Add the figures of other members that have changed since this one was told."""
        told = self._loads_told.setdefault(disk, {})
        for other, load in self._loads.items():
            if other != disk and told.get(other) is not load:
                told[other] = load
                answer.loads.append((other, load))

    def ended(self, disk: int, incarnation: int, now: int) -> None:
        """This member has seen the proof that a process has ended."""
        self._claim((disk, incarnation), self._me.disk, now)

    def _claim(self, process: tuple[int, int], witness: int, now: int) -> None:
        """Note that a member has seen the proof that a process has ended, or tells it again."""
        claim = self._claims.setdefault(process, {}).setdefault(witness, _Claim(now))
        claim.told_ns = now
        self._due_ns = now

    def request(self, disk: int, number: int, data: bytes, now: int) -> None:
        """Take a request of the process on `disk`; the reply comes in `out`."""
        try:
            command = decode_command(data)
        except ValueError:
            self.out.append((disk, Reply(number, 0, INVALID, False)))
            return
        if not self.log.may_grant(now):
            self.out.append((disk, Reply(number, 0, 0, True)))
        elif isinstance(command, (Put, Delete)) and self.log.configuration.counter() >= SETTINGS_COUNTER_MAX:
            self._refuse_setting(disk, number)
        elif isinstance(command, Join):
            self._take_join(disk, number, command, now)
        elif isinstance(command, Evict):
            self._take_eviction(disk, number, command, now)
        elif isinstance(command, Remove) and not command.force and self._neighbours.is_linked(command.disk):
            self.out.append((disk, Reply(number, 0, RUNS, False)))
        elif self._may_ask(disk, number, command):
            proposal = self.log.propose(command, now)
            if proposal.handle:
                self._asked[proposal.handle] = (disk, number)
                if not isinstance(command, (Put, Delete)):
                    self._asked_roles[proposal.handle] = True
            else:
                self.out.append((disk, Reply(number, 0, 0, True)))
        else:
            self.out.append((disk, Reply(number, 0, INVALID, False)))

    def _refuse_setting(self, disk: int, number: int) -> None:
        """Refuse a setting: each takes one of the numbers that changes of roles need, too."""
        self.out.append((disk, Reply(number, 0, NO_NUMBERS, False)))
        if not self._is_short:
            self._is_short = True
            why = f"changes have taken {SETTINGS_COUNTER_MAX} of {COUNTER_MAX} numbers: move to another cluster"
            self.events.append(Event(ERROR, "configuration_numbers_short", {"why": why}))

    def _may_ask(self, disk: int, number: int, command: Command) -> bool:
        """Tell whether a member may ask for a command: for itself, or what operators ask of any member."""
        if isinstance(command, (Put, Delete)):
            named = command.request
            return named is None or (named.disk == disk and named.number == number)
        if isinstance(command, AlterIsr):
            return command.leader == disk
        if isinstance(command, (Withdraw, Renew)):
            return command.disk == disk
        if isinstance(command, Remove):
            return command.why == FORGOTTEN
        return isinstance(command, (Leave, Stay))

    def _take_join(self, disk: int, number: int, command: Join, now: int) -> None:
        if command.member.disk != disk:
            self.out.append((disk, Reply(number, 0, INVALID, False)))
            return
        known = self._joins.get(disk)
        self._joins[disk] = (command, [number] if known is None else [*known[1][-8:], number])
        self._due_ns = now

    def _take_eviction(self, disk: int, number: int, command: Evict, now: int) -> None:
        """Note an eviction: the process is answered no more, and put out when its lease is over."""
        member = self.log.configuration.members.get(command.disk)
        if member is None or command.incarnation != member.incarnation or command.incarnation <= member.evicted:
            self.out.append((disk, Reply(number, 0, UNCHANGED, False)))
            return
        self._evictions[command.disk] = command.incarnation
        self._is_dirty = True
        self._due_ns = now
        self.out.append((disk, Reply(number, 0, 0, True)))  # to be asked again until it is so

    # What is decided

    def decided(self, fates: list[Fate], now: int) -> None:
        """Learn what became of proposals."""
        for fate in fates:
            asked = self._asked.pop(fate.handle, None)
            self._asked_roles.pop(fate.handle, None)
            if asked is not None:
                index, refused = fate.index, 0 if fate.result is None else fate.result.refused
                if fate.result is not None and fate.result.first is not None:
                    index, refused = fate.result.first
                judged = fate.outcome == COMMITTED and fate.result is not None
                self.out.append((asked[0], Reply(asked[1], index, refused, not judged)))
            for key in self._pending.pop(fate.handle, []):
                self._decided(key, fate, now)
            self._is_dirty = True
            self._due_ns = now

    def _decided(self, key: tuple[int, int, int], fate: Fate, now: int) -> None:
        del self._open[key]
        kind, disk, incarnation = key
        if kind == JOIN:
            _command, numbers = self._joins.pop(disk)
            refused = 0 if fate.result is None else fate.result.refused
            for number in numbers:
                self.out.append((disk, Reply(number, fate.index, refused, fate.result is None)))
        elif kind == MARK_AWAY and fate.result is not None and disk not in fate.result.disks:
            self._leases.restore(disk, incarnation)  # others of that entry may have been marked
        elif kind in (MARK_AWAY, EVICT, START) and not fate.is_accepted():
            self._leases.restore(disk, incarnation)
            if kind == START and fate.result is not None:
                self._note_refusal(disk, fate.result, now)
        elif fate.result is not None and isinstance(fate.result.command, Activate):
            self._leases.started(disk, fate.result.command.process.incarnation, now)

    def _note_refusal(self, disk: int, result: Result, now: int) -> None:
        """Wait before a process is tried to be let up again, and say why once."""
        command = result.command
        assert isinstance(command, Activate), "a START was refused"
        process = (disk, command.process.incarnation)
        if process not in self._refused:
            node_id = self.log.configuration.members[disk].node_id if disk in self.log.configuration.members else ""
            self.events.append(Event(WARNING, "start_refused", {"node": node_id, "why": result.text()}))
        self._refused[process] = now + self._options.reply_ns

    def changed(self, index: int, now: int) -> None:
        """Entries up to `index` have changed members or partitions."""
        self._roles = max(index, self._roles)
        self._is_dirty = True
        self._due_ns = now

    def applied(self, now: int) -> bool:
        """Entries may have been applied; True, once, when this leader may begin to answer heartbeats and to act."""
        if self._grants or not self.log.may_grant(now):
            return False
        self._grants = True
        self._due_ns = now
        return True

    def voters_changed(self, now: int) -> None:
        """Make the next change of voters and learners as soon as the last one is done.

        Hundreds of learners may come at once. And of an even number of voters the two halves can be cut apart, so that
        neither elects a leader: such a number must not last.
        """
        if self._changes_voters and not self.log.is_changing:
            self._changes_voters = False
            self._is_dirty = True
            self._retry_ns = 0
            self._due_ns = now

    # What is proposed

    def deadline(self) -> int:
        """Return when `step` is due."""
        return self._due_ns

    def step(self, now: int, beats: bool = True) -> None:
        """Look at the evidence, and propose what follows; beats: this process is awake to send a heartbeat."""
        if now < self._due_ns - (self._options.heartbeat_ns // 2 if beats else 0):
            return
        self._due_ns = now + self._options.heartbeat_ns * 5 // 4
        if not self.log.may_grant(now):
            self.successor = 0
            return
        self._see_links(now)
        self._weigh_claims(now)
        self._prune_evictions()
        self._find_lost(now, False)  # first: whoever comes up need not reach a process that is over
        self._let_up(now)
        self._find_lost(now, True)
        self._put_out(now)
        self._admit(now)
        self._see_disks(now)
        self._see_gone(now)
        self._hand_over(now)
        if self._is_dirty and now >= self._retry_ns:
            self._is_dirty = False
            self._forget_former_members()
            self._see_ancestors()
            self._plan(now)
            self._change_voters(now)

    def _propose(self, disk: int, incarnation: int, command: Command, now: int) -> bool:
        """Propose a command about a process; tell whether the log has taken it."""
        return self._propose_all([(command.kind, disk, incarnation)], command, now)

    def _propose_all(self, keys: list[tuple[int, int, int]], command: Command, now: int) -> bool:
        """Propose a command about processes, with a key for each."""
        assert not any(key in self._open for key in keys), "a command is on its way once"
        proposal = self.log.propose(command, now)
        if proposal.handle == 0:
            self._retry(now)
            return False
        self._pending[proposal.handle] = keys
        for key in keys:
            self._open[key] = True
        return True

    def _is_open(self, kind: int, disk: int, incarnation: int) -> bool:
        """Tell whether a command about a process is proposed and not decided."""
        return (kind, disk, incarnation) in self._open

    def _retry(self, now: int) -> None:
        self._is_dirty = True
        self._retry_ns = now + self._options.heartbeat_ns

    def _up(self) -> list[ClusterMember]:
        """Return the members that are up, by disk."""
        members = self.log.configuration.members
        return [members[disk] for disk in self.log.configuration.disks() if is_up(members[disk].state)]

    def _has_successor(self) -> bool:
        """Tell whether another member may lead the log soon: it votes, or is linked here and may be given a vote.

        Who leaves, or is to be put out, gets none, nor does a witness where one member votes alone (`voters`).
        """
        me = self._me.disk
        if self.log.voters != [me]:
            return True
        few = one_votes(self.log.configuration, self._planted.stops_cost_votes)
        for member in self._up():
            stays = member.disk not in self._evictions and not is_leaving(member.state)
            stays = stays and (member.kind == DATA or not few)
            if member.disk != me and stays and self._neighbours.is_linked(member.disk):
                return True
        return False

    def _report(self, member: ClusterMember) -> _Report | None:
        """Return the newest heartbeat of the process that is up."""
        report = self._reports.get(member.disk)
        return report if report is not None and report.incarnation == member.incarnation else None

    # Who goes

    def _see_links(self, now: int) -> None:
        """Find pairs of members without a link, and choose who has to go."""
        up = [member.disk for member in self._up()]
        waiting = self._waiting(now) if self.log.configuration.has_few_up() else []
        pairs: dict[tuple[int, int], bool] = {}
        for disk in [*up, *waiting]:
            for other in self._unlinked(disk, up, waiting, now):
                pairs[(min(disk, other), max(disk, other))] = True
        self._bad = {pair: self._bad.get(pair, now) for pair in pairs}
        lasting: list[tuple[int, int]] = []
        for pair, since_ns in self._bad.items():
            if now - since_ns >= self._options.link_patience_ns:
                lasting.append(pair)
            else:
                self._due_ns = min(self._due_ns, since_ns + self._options.link_patience_ns)
        chosen = [] if self._planted.ignores_links else self._choose(lasting, up, waiting)
        chosen += [disk for disk in self._unleased(now) if disk not in chosen]
        for disk in list(self._denied):
            if disk not in chosen and not [key for key in self._open if key[0] == MARK_AWAY and key[1] == disk]:
                del self._denied[disk]
        for disk in chosen:
            if disk not in self._denied:
                self._denied[disk] = CUT_OFF
                trouble = self._trouble.setdefault(disk, _Trouble())
                trouble.count = trouble.count + 1 if now - trouble.last_ns < _FORGIVE_NS else 1
                trouble.last_ns = now
                trouble.since_ns = 0

    def _unleased(self, now: int) -> list[int]:
        """Return who is up and goes, because it is heard and has no lease for as long as one lasts."""
        up = self._up()
        late: list[int] = []
        for member in up:
            lapses = self._lapses.get(member.disk)
            if lapses is None or lapses.incarnation != member.incarnation or member.disk == self._me.disk:
                continue
            lasts = now - lapses.since_ns >= self._options.lease_ns and lapses.lapsed >= _LAPSES_MIN
            if lapses.goes or (lasts and lapses.newest and self._is_heard(member.disk, now)):
                late.append(member.disk)
        disks = [member.disk for member in up]
        for disk in [disk for disk in self._lapses if disk not in disks]:
            del self._lapses[disk]
        if self._planted.keeps_unleased:
            return []
        waiting = len([disk for disk in self._waiting(now) if self._reports[disk].beat.lapsed])
        most = len(late) > 0 and 2 * (len(late) + waiting) > len(up) + waiting
        self.is_late = most and not self._has_yielded
        if not self.is_late:
            for disk in late:
                self._lapses[disk].goes = True
        return [disk for disk in late if self._lapses[disk].goes]

    def _waiting(self, now: int) -> list[int]:
        """Return who is not up, and could be if its links allowed it."""
        members = self.log.configuration.members
        found: list[int] = []
        for disk in sorted(self._reports):
            member = members.get(disk)
            report = self._reports[disk]
            beat = report.beat
            if member is None or is_up(member.state) or report.incarnation <= member.evicted:
                continue
            if self._is_heard(disk, now) and not (beat.stalled or beat.returned or beat.fresh):
                found.append(disk)
        return found

    def _unlinked(self, disk: int, up: list[int], waiting: list[int], now: int) -> list[int]:
        """Return to whom a member has no link, of those that report, too."""
        report = self._reports.get(disk)
        if report is None or not self._is_heard(disk, now):
            return []
        if disk in up and report.incarnation != self.log.configuration.members[disk].incarnation:
            return []
        missing = [other for other in report.beat.missing if other in up and self._is_heard(other, now)]
        return missing + [other for other in waiting if other != disk and other not in report.beat.waiting]

    def _choose(self, pairs: list[tuple[int, int]], up: list[int], waiting: list[int]) -> list[int]:
        """Return who of those that are up has to go, so that no two without a link are."""
        configuration = self.log.configuration
        among = [pair for pair in pairs if pair[0] in up and pair[1] in up]
        chosen = _worst(among, self._me.disk, configuration)
        if waiting and not self._planted.keeps_few:
            others = _worst(pairs, self._me.disk, configuration)
            if len(waiting) - len(others) > -len(chosen):
                return [disk for disk in others if disk in up]
        return chosen

    def _is_heard(self, disk: int, now: int) -> bool:
        """Tell whether a member reports to this controller."""
        report = self._reports.get(disk)
        return disk == self._me.disk or (report is not None and now - report.at_ns < self._options.lease_ns)

    def _prune_evictions(self) -> None:
        """Forget the evictions that are done."""
        for disk in list(self._evictions):
            member = self.log.configuration.members.get(disk)
            if member is None or member.incarnation != self._evictions[disk] or member.evicted >= member.incarnation:
                del self._evictions[disk]

    def _forget_former_members(self) -> None:
        members = self.log.configuration.members
        for disk in [disk for disk in self._reports if disk not in members]:
            del self._reports[disk]
        for disk in [disk for disk in self._trouble if disk not in members]:
            del self._trouble[disk]
        for process in [process for process in self._refused if process[0] not in members]:
            del self._refused[process]
        for disk in [disk for disk in self._loads if disk not in members]:
            del self._loads[disk]
            for told in self._loads_told.values():
                told.pop(disk, None)
        for disk in [disk for disk in self._loads_told if disk not in members]:
            del self._loads_told[disk]

    def _find_lost(self, now: int, succeeded: bool) -> None:
        """Mark members as away whose lease is certainly over; `_put_out` goes on with those that an operator named.

        succeeded: of those whose next process reports, which a START may have replaced before; else of the others.
        """
        lost: list[MarkAway] = []
        for member in self._up():
            disk = member.disk
            incarnation = member.incarnation
            report = self._reports.get(disk)
            if disk == self._me.disk and incarnation == self._me.incarnation and not self._stops(member):
                # If it stops, it has given its lease back, and need not leave this to a successor. If it has come back
                # from another lineage, it comes up anew, like all others. If it was evicted, and nobody else votes, no
                # successor will put it out.
                alone = disk in self._evictions and not self._has_successor()
                if (report is None or report.beat.up) and not alone:
                    continue
            next_reports = report is not None and report.incarnation > incarnation and self._is_heard(disk, now)
            if next_reports != succeeded:
                continue
            if self._is_open(MARK_AWAY, disk, incarnation) or self._is_open(EVICT, disk, incarnation):
                continue
            if self._is_open(START, disk, incarnation):
                continue
            over_ns = self._leases.over_ns(disk, incarnation)
            early = self._planted.away_early and now >= over_ns - self._options.lease_ns // 2
            if now < over_ns and not early:
                self._due_ns = min(self._due_ns, over_ns)
                continue
            lost.append(MarkAway(disk, incarnation, member.version, self._reason(member, over_ns == 0)))
        if lost:
            self._mark_away(lost, now)

    def _mark_away(self, lost: list[MarkAway], now: int) -> None:
        """Propose that processes whose leases are over are away, but for those that have to wait for others.

        They are one entry as soon as all members can read that; before, each is one, and nobody waits.
        """
        if not self.log.configuration.goes_together():
            for one in lost:
                self._propose_away([one], now)
            return
        gone = [one.disk for one in lost]
        silent = [member.disk for member in self._up() if member.disk not in gone and self._is_silent(member, now)]
        waiting = [] if self._planted.leaves_to_silent else self._left_to(silent, gone)
        if waiting:
            self._due_ns = min(self._due_ns, now + self._options.heartbeat_ns // 4)
            lost = [one for one in lost if one.disk not in waiting]
        if lost:
            self._propose_away(lost, now)

    def _put_out(self, now: int) -> None:
        """Put out the processes that an operator named, and that are away: they went together with others."""
        members = self.log.configuration.members
        for disk, incarnation in list(self._evictions.items()):
            if disk in members and is_up(members[disk].state):
                continue
            if not (self._is_open(EVICT, disk, incarnation) or self._is_open(START, disk, incarnation)):
                self._propose(disk, incarnation, Evict(disk, incarnation), now)

    def _propose_away(self, lost: list[MarkAway], now: int) -> None:
        """Propose one entry that marks processes as away; one that an operator has named, and goes alone, is put out.

        Others that go with it would be left with its partitions if it were put out before.
        """
        for one in lost:
            if self._leases.certainly_over(one.disk, one.incarnation, now):
                self._leases.revoke(one.disk, one.incarnation, now)
        command: Command = MarkAway(lost[0].disk, lost[0].incarnation, lost[0].version, lost[0].why, lost[1:])
        keys = [(MARK_AWAY, one.disk, one.incarnation) for one in lost]
        if len(lost) == 1 and self._evictions.get(lost[0].disk, 0) == lost[0].incarnation:
            command = Evict(lost[0].disk, lost[0].incarnation)
            keys = [(EVICT, lost[0].disk, lost[0].incarnation)]
        if not self._propose_all(keys, command, now):
            for one in lost:
                self._leases.restore(one.disk, one.incarnation)

    def _is_silent(self, member: ClusterMember, now: int) -> bool:
        """Tell whether a member has not shown just now that it is alive; that ends with its lease at the latest.

        Nor does one that shows it, and gets no further lease. The next process on its disk shows it, too: a START
        leaves ISRs as they are.
        """
        disk = member.disk
        if disk == self._me.disk:
            return False
        report = self._reports.get(disk)
        if report is not None and now - report.at_ns <= 2 * self._options.heartbeat_ns:
            is_next = report.incarnation != member.incarnation
            stays = is_next or not self._is_over(disk, member.incarnation, report.beat)
            if stays and self._neighbours.is_linked(disk):
                return False
        leaves = self._is_open(MARK_AWAY, disk, member.incarnation) or self._is_open(EVICT, disk, member.incarnation)
        return leaves or not self._leases.certainly_over(disk, member.incarnation, now)

    def _left_to(self, silent: list[int], gone: list[int]) -> list[int]:
        """Return those of lost members that would leave a partition to silent ones alone, if they went now."""
        waiting: list[int] = []
        grows = bool(silent)
        while grows:
            grows = False
            for number, state in enumerate(self.log.configuration.partitions):
                if number in self.log.configuration.recovering:
                    continue  # all stay in sync
                leaving = [disk for disk in state.isr if disk in gone and disk not in waiting]
                left = [disk for disk in self.log.configuration.able(state.isr) if disk not in leaving]
                if leaving and left and all(disk in silent or disk in waiting for disk in left):
                    waiting += leaving
                    grows = True
        return waiting

    def _weigh_claims(self, now: int) -> None:
        """Take processes for ended that enough members have seen end."""
        up = [member.disk for member in self._up()]
        for process in list(self._claims):
            claims = self._claims[process]
            for witness in list(claims):
                if now - claims[witness].told_ns >= _CLAIM_NS:
                    del claims[witness]
            if not claims:
                del self._claims[process]
        for process in list(self._claims):
            believed = [witness for witness in self._claims[process] if self._is_believed(process, witness)]
            needed = max(1, min(2, len([disk for disk in up if disk != process[0]])))
            proved = len(believed) >= needed and not self._neighbours.is_linked(process[0])
            if proved or self._is_newer(process) or self._planted.believes_claims:
                self._leases.ended(process[0], process[1], now)
                del self._claims[process]

    def _is_believed(self, process: tuple[int, int], witness: int) -> bool:
        """Tell whether a member may be right that a process has ended.

        Not if that was granted a heartbeat since the member has begun to tell it, nor if each of the two tells it of
        the other: then there is a firewall between them.
        """
        if self._planted.keeps_claims:
            return True
        if self._claims[process][witness].since_ns < self._leases.heard_ns(process[0], process[1]):
            return False
        report = self._reports.get(witness)
        return report is None or process[0] not in self._claims.get((witness, report.incarnation), {})

    def _reason(self, member: ClusterMember, is_proved: bool) -> int:
        """Return why a member is away; is_proved: its end is proved, or it gave its lease back."""
        if self._evictions.get(member.disk, 0) == member.incarnation:
            return PUT_OUT
        if self._stops(member):
            return STOPPED
        if is_proved:
            return ENDED
        return self._denied.get(member.disk, SILENT)

    def _is_newer(self, claim: tuple[int, int]) -> bool:
        """Tell whether a later process on the same disk is linked here, or is this one."""
        linked = self._me if claim[0] == self._me.disk else self._neighbours.of(claim[0])
        return linked is not None and linked.incarnation > claim[1]

    # Who comes

    def _let_up(self, now: int) -> None:
        """Let processes come up that are well connected, and whose predecessors have certainly ended.

        A START leaves ISRs as they are, and being marked as away does not. When all have lost power and are back, their
        leases are over at one moment: marked as away one by one, they would leave each ISR to whoever comes up first.
        """
        members = self.log.configuration.members
        up = [member.disk for member in self._up() if not self._is_open(MARK_AWAY, member.disk, member.incarnation)]
        for disk in sorted(self._reports):
            report = self._reports[disk]
            member = members.get(disk)
            if member is None or report.incarnation <= member.evicted or report.incarnation < member.incarnation:
                continue
            if report.incarnation <= self._evictions.get(disk, 0):
                continue
            if is_up(member.state) and report.incarnation == member.incarnation:
                continue
            self._denied.pop(disk, None)
            beat = report.beat
            incarnation = member.incarnation
            if self._is_open(START, disk, incarnation) or self._is_open(MARK_AWAY, disk, incarnation):
                continue
            if now < self._refused.get((disk, report.incarnation), 0):
                continue
            if beat.stalled or beat.returned or beat.applied < member.version or not self._is_heard(disk, now):
                continue
            if beat.fresh:
                continue  # it may have the number of another process, and does not know it yet
            if beat.lapsed and not is_up(member.state):
                continue  # it would have no lease
            if not self._is_calm(disk, up, now):
                continue
            if is_up(member.state):
                over_ns = self._leases.over_ns(disk, incarnation)
                if now < over_ns:
                    self._due_ns = min(self._due_ns, over_ns)
                    continue
                self._leases.revoke(disk, incarnation, now)
            started = Activate(disk, member.version, report.process.process, beat.seen, beat.branches)
            if not self._propose(disk, incarnation, started, now) and is_up(member.state):
                self._leases.restore(disk, incarnation)

    def _is_calm(self, disk: int, up: list[int], now: int) -> bool:
        """Tell whether the links of a process to all members that are up are good, and have been for long enough."""
        good = self._neighbours.is_linked(disk)
        for other in self._reports[disk].beat.missing:
            good = good and other not in up
        for other in up:
            report = self._reports.get(other)
            if report is not None and other != disk and disk in report.beat.missing:
                good = False
        trouble = self._trouble.get(disk)
        if trouble is None:
            return good
        if not good:
            trouble.since_ns = 0
            return False
        if trouble.since_ns == 0:
            trouble.since_ns = now
        if now - trouble.last_ns >= _FORGIVE_NS:
            del self._trouble[disk]
            return True
        wait_ns = min(self._options.calm_ns << min(trouble.count, 10), _CALM_MAX_NS)
        if now - trouble.since_ns < wait_ns:
            self._due_ns = min(self._due_ns, trouble.since_ns + wait_ns)
            return False
        return True

    def _admit(self, now: int) -> None:
        """Make processes members, in place of the disk that had their name before."""
        configuration = self.log.configuration
        for disk in sorted(self._joins):
            command, numbers = self._joins[disk]
            if self._is_open(JOIN, disk, 0):
                continue
            if disk in configuration.members:
                del self._joins[disk]
                for number in numbers:
                    self.out.append((disk, Reply(number, 0, KNOWN_DISK, False)))
                continue
            former = configuration.named(command.member.node_id)
            if former is None:
                self._propose(disk, 0, command, now)
            elif not self._replace(former, now):
                del self._joins[disk]
                for number in numbers:
                    self.out.append((disk, Reply(number, 0, NAME_TAKEN, False)))

    def _replace(self, former: ClusterMember, now: int) -> bool:
        """Remove a member whose name is used by another disk; False: its process lives."""
        disk = former.disk
        if self._is_open(MARK_AWAY, disk, former.incarnation) or self._is_open(REMOVE, disk, 0):
            return True
        if is_up(former.state):
            return not (self._neighbours.is_linked(disk) or self._is_heard(disk, now))  # else it is marked as away soon
        if disk == self._me.disk:
            return False
        if former.state == JOINING:
            away = MarkAway(disk, former.incarnation, former.version, ENDED)
            self._propose(disk, former.incarnation, away, now)
            return True
        cost = cost_of(self.log.configuration, disk)
        alone = sorted([*cost.copies, *cost.branches])
        fields: dict[str, object] = {"node": former.node_id, "partitions": len(alone)}
        if alone:
            fields["why"] = "the node came back with another disk, and nothing else had what was on the former one"
        self.events.append(Event(ERROR if alone else WARNING, "disk_replaced", fields))
        self._propose(disk, 0, Remove(disk, former.version, REPLACED, True), now)
        return True

    # What they have

    def _see_disks(self, now: int) -> None:
        """Bring to the configuration which disks lack room, or are slow."""
        for member in self._up():
            report = self._report(member)
            if report is None or self._is_open(STRAIN, member.disk, 0):
                continue
            full, slow = report.beat.full, report.beat.slow
            if full != member.full or slow != member.slow:
                command = Strain(member.disk, member.incarnation, member.version, full, slow)
                self._propose(member.disk, 0, command, now)

    def _see_gone(self, now: int) -> None:
        """Find members that have been away for so long that their copies are made anew elsewhere."""
        members = self.log.configuration.members
        away: dict[int, int] = {}
        gone: list[int] = []
        for disk in self.log.configuration.disks():
            if is_up(members[disk].state) or members[disk].version == 0:
                continue
            since_ns = self._away.get(disk, now)
            away[disk] = since_ns
            if now - since_ns >= self._options.gone_ns:
                gone.append(disk)
            else:
                self._due_ns = min(self._due_ns, since_ns + self._options.gone_ns)
        self._away = away
        if gone != self._gone:
            self._gone = gone
            self._is_dirty = True

    def _plan(self, now: int) -> None:
        """Propose what brings copies and leaderships to where they should be, when all have installed the last."""
        if self._waits_for_first(now) or not self._all_follow(now):
            self._retry(now)
            return
        if self._open:
            self._retry(now)
            return
        if self._asked_roles:
            self._waits_ns = self._waits_ns or now
            if now - self._waits_ns < self._options.reply_ns:  # what is planned beside them is refused at the worst
                self._retry(now)
                return
        self._waits_ns = 0
        configuration = self.log.configuration
        shared = _features_of(configuration)
        commands: list[Command] = [] if shared == configuration.features else [Features(shared)]
        self._options.limits.copies = self._copies()
        commands.extend(plan(configuration, self._options.limits, self.log.voters, self._gone, self._memo))
        upto = self._prunable(configuration)
        if not commands and upto:
            commands.append(Prune(upto))
        for number, command in enumerate(commands):
            if not self._propose(0, number, command, now):
                return

    def _prunable(self, configuration: ClusterConfiguration) -> int:
        """Return the counter up to which ancestors are to be forgotten; 0: none are."""
        most = self._options.ancestors_max
        if len(configuration.ancestors) * _PRUNE_AT < most or not configuration.is_whole():
            return 0
        return configuration.prunable(max(most // _KEEP, 1))

    def _see_ancestors(self) -> None:
        """Say once that the lineage can have few forks more, if it is so: nobody but an operator can change that."""
        configuration = self.log.configuration
        left = self._options.ancestors_max - len(configuration.ancestors)
        if left * _FEW_LEFT > self._options.ancestors_max:
            self._is_crowded = False
        elif not self._is_crowded:
            self._is_crowded = True
            why = "members that are away may come from former lineages: bring them back, or forget those that are lost"
            self.events.append(Event(WARNING, "forks_short", {"left": left, "why": why}))

    def _copies(self) -> int:
        """Return how many copies there should be: the most that a member with data wants; 0: nobody has said."""
        most = 0
        for member in self._up():
            if member.kind == DATA:
                most = max(most, self._loads.get(member.disk, {}).get("replicas", 0))
        return most

    def _all_follow(self, now: int) -> bool:
        """Tell whether everybody has installed the last change of roles.

        A former leader that has is known to have stopped: only then is its copy dropped (`placement_plan`).
        """
        for member in self._up():
            if member.disk == self._me.disk or self._planted.drops_early:
                continue
            report = self._report(member)
            if report is None or report.beat.applied < self._roles:
                return False
        return now >= self._retry_ns

    def _waits_for_first(self, now: int) -> bool:
        """Tell whether nothing is placed yet, and processes are about to become members."""
        configuration = self.log.configuration
        for partition in configuration.partitions:
            if partition.replicas:
                return False
        if now - self._began_ns > self._options.found_ns:
            return False
        up = [member.disk for member in self._up()]
        for disk in self._neighbours.disks():
            if disk not in up:
                return True
        return False

    def _change_voters(self, now: int) -> None:
        """Propose the next change of voters and learners."""
        log = self.log
        if log.is_changing:
            self._retry(now)
            return
        behind = [disk for disk in log.learners if log.acknowledged(disk) + _BEHIND < log.commit]
        me = self._me.disk
        mine = log.configuration.members.get(me)
        if mine is not None and self._stops(mine) and not self._is_marked(mine):
            self._retry(now)
            return
        stopping = [member.disk for member in log.configuration.members.values() if self._is_ending(member)]
        unheard = [disk for disk in [*log.voters, *log.learners] if disk != me and not self._answers_in_time(disk)]
        cost = self._planted.stops_cost_votes
        change = next_change(
            log.configuration, log.voters, log.learners, me, self._gone, behind, stopping, unheard, cost
        )
        if change is None:
            if behind or [disk for disk in stopping if disk in log.voters]:
                self._retry(now)
            return
        log.propose_change(change[0], change[1], now)
        self._changes_voters = log.is_changing
        self._retry(now)

    def _answers_in_time(self, disk: int) -> bool:
        """Tell whether another member can make a quorum with this one: it is linked, and not so late that it goes.

        Who has no lease because of the way to it confirms what this leader sends as late as it is answered.
        """
        lapses = self._lapses.get(disk)
        member = self.log.configuration.members.get(disk)
        report = self._reports.get(disk)
        is_late = lapses is not None and lapses.goes
        if report is not None and member is not None and not is_up(member.state):
            is_late = report.beat.lapsed
        return self._neighbours.is_linked(disk) and not is_late

    def _is_ending(self, member: ClusterMember) -> bool:
        """Tell whether the process of a member still runs, and is about to end, in order or evicted.

        That its next process has come is no end: that one votes, up or not.
        """
        disk = member.disk
        linked = self._me if disk == self._me.disk else self._neighbours.of(disk)
        if linked is None or linked.incarnation > member.incarnation:
            return False
        is_out = linked.incarnation <= max(member.evicted, self._evictions.get(disk, 0))
        return is_out or self._stops(member)

    def _stops(self, member: ClusterMember) -> bool:
        """Tell whether the process of a member has asked to be away."""
        report = self._report(member)
        return report is not None and report.beat.returned > 0

    def _hand_over(self, now: int) -> None:
        """Choose a successor if this member should not lead the log any more."""
        self.successor = 0
        configuration = self.log.configuration
        mine = configuration.members.get(self._me.disk)
        report = self._reports.get(self._me.disk)
        ends = mine is None or is_leaving(mine.state)
        if report is not None:
            ends = ends or report.beat.stalled or (report.beat.returned > 0 and self._is_marked(mine))
        ends = ends or self._evictions.get(self._me.disk, 0) > 0 or self.is_late
        heirs = self._heirs()
        if ends:
            best = 0
            for disk in heirs:
                if best == 0 or self.log.acknowledged(disk) > self.log.acknowledged(best):
                    best = disk
            self.successor = best
            return
        widest = self._me.disk
        if configuration.has_few_up() and not self._planted.keeps_few:
            for disk in heirs:
                if self._reach(disk, now) > self._reach(widest, now) and self._reaches_quorum(disk):
                    widest = disk
        if widest == self._me.disk:
            self._wider_ns = 0
            return
        self._wider_ns = self._wider_ns or now
        if now - self._wider_ns >= self._options.link_patience_ns:
            self.successor = widest

    def _is_marked(self, mine: ClusterMember | None) -> bool:
        """Tell whether this process, which stops, is marked as away, or about to be.

        It may wait for a member that is silent (`_mark_away`). Until then it neither hands over nor gives its vote
        away: a successor knows no leases, and would let it wait longer.
        """
        if mine is None or not is_up(mine.state):
            return True
        return self._is_open(MARK_AWAY, mine.disk, mine.incarnation)

    def _heirs(self) -> list[int]:
        """Return the other voters that may lead the log.

        Not those that are to be put out, too: two of them would hand it over to each other for ever.
        """
        members = self.log.configuration.members
        found: list[int] = []
        for disk in self.log.voters:
            member = members.get(disk)
            report = self._reports.get(disk)
            if member is None or disk == self._me.disk or not is_up(member.state) or is_leaving(member.state):
                continue
            if report is None or report.beat.stalled or report.beat.returned or not self._neighbours.is_linked(disk):
                continue
            if disk in self._evictions:
                continue
            found.append(disk)
        return found

    def _reach(self, disk: int, now: int) -> int:
        """Return to how many members a member that is up has links, itself included, as it says."""
        report = self._reports.get(disk)
        if report is None or not self._is_heard(disk, now):
            return 0
        return len(self._up()) - len(report.beat.missing) + len(report.beat.waiting)

    def _reaches_quorum(self, disk: int) -> bool:
        """Tell whether a member that is up has links to a quorum of the voters, as it says: without, it cannot win."""
        report = self._reports.get(disk)
        if report is None:
            return False
        linked = [one.disk for one in self._up() if one.disk not in report.beat.missing] + report.beat.waiting
        return self.log.is_quorum(list(dict.fromkeys(linked)))  # its configuration may be another one: some stand twice

    # What is known

    def would_let_up(self, process: Neighbour, linked: list[int]) -> bool:
        """Tell whether a process of another lineage could be up here: it is linked to all members that are up."""
        for member in self._up():
            if member.disk not in linked and member.disk != process.disk:
                return False
        return True

    def note(self) -> None:
        """Put into the log of events that this member leads now."""
        self.events.append(Event(INFO, "controller", {"term": self.term, "lineage": self.log.lineage}))


def _features_of(configuration: ClusterConfiguration) -> int:
    """Return the features that are on or that every member has: the latter can be switched on, for ever."""
    shared = -1
    for member in configuration.members.values():
        shared &= member.process.features
    return configuration.features | max(shared, 0)


def _worst(pairs: list[tuple[int, int]], me: int, configuration: ClusterConfiguration) -> list[int]:
    """Return who has to go so that no pair is left, one after another, never `me`.

    Each time the one in most pairs; of several the one without which the fewest partitions have no copy in sync. Its
    time grows with the pairs, and with the square of the members.
    """
    others: dict[int, dict[int, None]] = {}
    for one, other in pairs:
        others.setdefault(one, {})[other] = None
        others.setdefault(other, {})[one] = None
    able = [configuration.able(state.isr) for state in configuration.partitions] if pairs else []
    copies: dict[int, list[int]] = {}  # the partitions in which a member is in sync
    last: dict[int, int] = {}  # in how many of them nobody else is left
    for number, disks in enumerate(able):
        for disk in disks:
            copies.setdefault(disk, []).append(number)
        if len(disks) == 1:
            last[disks[0]] = last.get(disks[0], 0) + 1
    chosen: list[int] = []
    while others:
        most = max([len(others[disk]) for disk in others if disk != me])
        ties = [disk for disk in others if disk != me and len(others[disk]) == most]
        least = min([last.get(disk, 0) for disk in ties])
        worst = max([disk for disk in ties if last.get(disk, 0) == least])
        chosen.append(worst)
        for other in others.pop(worst):
            others[other].pop(worst)
            if not others[other]:
                del others[other]
        for number in copies.get(worst, []):
            able[number] = [disk for disk in able[number] if disk != worst]
            if len(able[number]) == 1:
                left = able[number][0]
                last[left] = last.get(left, 0) + 1
    return chosen
