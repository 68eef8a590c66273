"""One member's part in the control of the cluster: from no cluster at all to a lease under a configuration.

A process is outside at first, then inside; the table of its phases is in `phase`. What it asks of the controller is in
`requests`, and when it changes sides in a split in `splits`.

Time is `now`, nanoseconds of a monotonic clock that goes on while the machine is suspended. A turn of the node is any
number of inputs, `step`, and one call of `collect`, which puts rows into the batch of the turn. After it the node
installs the configuration if that is another one, and sends what is in `out`.

The lease is extended when this member has applied everything that the leader knew to be committed when it answered, so
that a member under a lease knows of every entry that could have taken something away from it before that.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR, INFO, WARNING, Event
from folkmoot.kernel.rng import Rng
from folkmoot.membership.addresses import Addresses
from folkmoot.membership.cluster_member import DATA, ID_MAX, KINDS, ClusterMember
from folkmoot.membership.cluster_settings import dropped_keys
from folkmoot.membership.command import FORGOTTEN, Found, Join, Leave, Prune, Remove, Stay, encode_command
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_log import ConfigurationLog, lineage_of
from folkmoot.membership.control_message import (
    BEAT,
    BEAT_ANSWER,
    EVICTED,
    GRANTED,
    GREETING,
    NOT_LEADING,
    OUTDATED,
    REPLY,
    REQUEST,
    STRANGER,
    Beat,
    BeatAnswer,
    Greeting,
    Reply,
    Request,
    decode_beat,
    decode_beat_answer,
    decode_greeting,
    decode_reply,
    decode_request,
    kind_of,
)
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.controller import Controller
from folkmoot.membership.doubt import Doubt
from folkmoot.membership.fork import fork_of
from folkmoot.membership.founding import Founding
from folkmoot.membership.lease import Lease
from folkmoot.membership.lifecycle import is_leaving, is_up
from folkmoot.membership.log_rows import (
    CurrentLineage,
    drop_doubt,
    is_in_doubt,
    is_retired,
    put_current,
    put_doubt,
    put_founding,
    put_left,
    put_removals,
    read_cluster,
    read_current,
    read_lineage,
    read_removals,
    retire_lineage,
    retire_lineages,
)
from folkmoot.membership.loss import cost_of
from folkmoot.membership.neighbours import Neighbour, Neighbours
from folkmoot.membership.phase import (
    ENTER,
    FAIL,
    FAILED,
    FOUND,
    GO_OVER,
    INSIDE,
    OPENING,
    OUTSIDE,
    PHASES,
    RENEWING,
    RETREAT,
    SET_BACK,
    next_phase,
)
from folkmoot.membership.planted import PlantedControl
from folkmoot.membership.projection import BranchSource
from folkmoot.membership.requests import Requests
from folkmoot.membership.splits import Splits
from folkmoot.membership.transition import ACCEPTED, NAME_TAKEN, REASONS, WAS_EVICTED, Result
from folkmoot.peer.kind import CONFIGURATION_LOG, CONTROL
from folkmoot.peer.member import Member
from folkmoot.raft.recovery import Persisted
from folkmoot.store.epoch import COUNTER_MAX
from folkmoot.store.key import META, plain_key
from folkmoot.store.reader import Reader
from folkmoot.store.writer import Writer

__all__ = ["Control"]

_BARRIER_KEY: Final = plain_key(0, META, b"barrier")  # of no row

# What a greeting says
_BRIEF: Final = 0  # this process has a lease
_FULL: Final = 1  # everything
_WELCOME: Final = 2  # everything, and that the receiver could be up in this lineage
_GREETINGS: Final = 3

_STRANGERS_MAX: Final = 64
_KEYS_TOLD: Final = 20

_PARENTS_KEPT: Final = 8  # the newest ancestors in which a disk keeps its vote: those who were removed may be there
_HELD_MAX: Final = 64  # answers to heartbeats that wait until entries are applied


class Control:
    """One member.

    Args:
        me: This process, as its links introduce it.
        features: What it can do, a bit for each feature.
        options: Times and limits.
        reader: The store of the node, opened; nothing is on its way to it.
        seed: Different at each start of each member.
        now: The current time.
        planted: Bugs, for tests (`membership/planted`).

    Raises:
        CorruptStore: The rows of the log are damaged.
    """

    def __init__(
        self,
        me: Member,
        features: int,
        options: ControlOptions,
        reader: Reader,
        seed: int,
        now: int,
        planted: list[str] | None = None,
    ) -> None:
        options.check()
        assert me.disk > 0, "a member has a disk"
        self.options = options
        self.me = Neighbour(me, features)
        self.neighbours = Neighbours(me.disk)
        self.phase: int = OUTSIDE
        self.cluster: int = 0
        self.log: ConfigurationLog | None = None
        self.controller: Controller | None = None
        # Taken by the owner, which clears them:
        self.out: list[tuple[str, int, bytes]] = []  # (node, kind, body)
        self.events: list[Event] = []
        # Set by the owner, and sent with the next heartbeat:
        self.stalled: bool = False
        self.full: bool = False
        self.slow: bool = False
        self.leaving: bool = False  # it wants to hand over what it holds, and leave
        self.stopping: bool = False  # it is about to end, and shall be away
        self.installed: int = 0  # the last entry whose configuration the node has installed
        self.seeds: list[str] = []
        self.seeds_unknown: bool = False
        self.residents: dict[str, str] = {}  # by address the node that answered there
        self.is_held: bool = False  # nobody may hear of this start: its number is not on the disk yet
        self.refused_ns: int = 0  # when this process and another one last refused each other; 0: never
        self.twin_ns: int = 0  # when that was last because of another process with the name of this one; 0: never
        # For the owner:
        self.verdict: int = NOT_LEADING  # of the controller, on the last heartbeat that it answered
        self.fault: str = ""  # why this process cannot go on
        self.renewal: str = ""  # why this disk needs another identity
        self.loads: dict[int, dict[str, int]] = {}  # figures of the members, by disk
        self.seen: int = 0  # the highest counter of a configuration that this disk knows; the owner may know more
        self.was_doubted: bool = False  # it takes part although its disk may lack what it has confirmed
        self.branches: BranchSource | None = None  # what it has changed in other lineages; None: nothing
        self.addresses = Addresses(options.address_ns)
        self.requests = Requests(me.disk, me.incarnation, options)
        self._reader = reader
        self._rng = Rng(seed)
        self._planted = PlantedControl([] if planted is None else planted)
        if self._planted.keeps_data:
            self.me.kind = DATA
        self._lease = Lease(options.lease_ns)
        self._founding = Founding(now, self._planted)
        self._splits = Splits(self.me, self.neighbours, options, self._planted)
        self._load: dict[str, int] = {}
        self._load_changed: bool = False
        self._held: list[BeatAnswer] = []
        self._beat_ns: int = 0  # when the next heartbeat is due
        self._has_lapsed: bool = False  # it had no lease at some moment since the last heartbeat
        self._is_late: bool = False  # the newest answer to a heartbeat came too late to give a lease until the next one
        self._yielded_ns: int = 0  # when this process handed over the log because its answers were late
        self._early_ns: int = 0  # when it may be sent together with something else
        self._beaten: int = 0  # the disk to which the last heartbeat went
        self._asked: int = 0  # the disk that was asked, in place of a heartbeat, to make this one a member
        self._told_term: int = 0  # in which the figures of this member were sent
        self._greet_ns: int = 0
        self._found: Persisted | None = None  # to be written
        self._opening: CurrentLineage | None = None  # to be written
        self._opening_token: int = 0  # of the batch that has it; 0: it is in none yet
        self._up_after: int = 0  # up to this counter, no START of this process in its lineage is one that it has lived
        self._named: int = 0  # the lineage that the disk names
        self._has_ended: bool = False  # it has told the others that it goes on no more
        self._is_refused: bool = False  # that it has been told
        self._is_dismissed: bool = False  # a newer configuration than this one's does not have this disk
        self._outdated: int = 0  # the disk of a leader that was told to be set back
        self._abstains: bool = False  # another process may be the member on this disk: this one does not vote
        self._is_fresh: bool = True  # no heartbeat of this process has been judged, so no START is its own
        self._fallback: int = 0  # the lineage that it names, while this process has no configuration of another one
        self._ended: int = 0  # the lineage from which it goes over, if nobody else votes there; 0: another may
        self._doubt: Doubt | None = None  # the disk may lack what it has confirmed in this lineage
        self._doubted: int = 0  # the lineage whose doubt is on the disk
        self._strangers: dict[int, bool] = {}  # other clusters that were told
        self._parted: ClusterConfiguration | None = None  # of the lineage that it has left for another one
        self._before: int = 0  # the lineage that the disk has named before
        self._has_come: bool = True  # the disk may have the rows of many lineages
        self._has_left: bool = True  # the disk may have rows of others than its own
        self._leave_version: int = 0  # of this member, when it asked for its leave
        self._is_told: bool = False  # what it asked for is an entry
        self._begin(now)

    def _begin(self, now: int) -> None:
        self.requests.removals = read_removals(self._reader)
        current = read_current(self._reader)
        if current is None:
            self.cluster = self._founding.belongs = read_cluster(self._reader)
            return
        self.cluster = current.cluster
        self._named = current.lineage
        self._enter(current, read_lineage(self._reader, current.lineage), now)
        if self.options.incomplete and self._doubt is None and self.configuration is not None:
            self._doubt = Doubt(self.neighbours, self.options, now)
        if self._doubt is not None:
            why = "what this disk has confirmed last may be missing: the node finds out whether others have it"
            self.events.append(Event(WARNING, "disk_in_doubt", {"why": why}))

    def _enter(self, current: CurrentLineage, persisted: Persisted, now: int) -> None:
        """Take part in a lineage, with what the disk has of it."""
        raft = self.options.raft
        seed = self._rng.next64()
        self.log = ConfigurationLog(self.me.disk, current.lineage, raft, persisted, seed, now)
        self.cluster = current.cluster
        self._move(ENTER)
        self.controller = None
        self.installed = 0
        self._up_after = 0
        self._leave_version = 0
        self._is_told = False
        self._held.clear()
        self.requests.begin()
        self._beat_ns = now
        self._splits.begin(now)
        self._doubted = current.lineage if is_in_doubt(self._reader, current.lineage) else 0
        self._doubt = Doubt(self.neighbours, self.options, now) if self._doubted else None
        for neighbour in self.neighbours.links.values():
            if neighbour.greeting is not None:
                self.log.connected(neighbour.disk, now)

    def _move(self, event: int) -> None:
        """Go on to the phase after an event."""
        self.phase = next_phase(event, self.phase)

    def _fail(self, why: str) -> None:
        """This process can not go on."""
        self.fault = why
        self._move(FAIL)

    @property
    def _renews(self) -> bool:
        """Whether this process takes no part any more, until it has another disk identity."""
        return self.phase == RENEWING

    # What is known

    @property
    def configuration(self) -> ClusterConfiguration | None:
        """The configuration, None before the first."""
        if self.log is None or not self.log.configuration.is_founded():
            return None
        return self.log.configuration

    @property
    def member(self) -> ClusterMember | None:
        """This member in the configuration, None if it is none."""
        configuration = self.configuration
        return None if configuration is None else configuration.members.get(self.me.disk)

    @property
    def lineage(self) -> int:
        """The lineage of the configuration; 0: there is none."""
        return 0 if self.log is None else self.log.lineage

    @property
    def is_up(self) -> bool:
        """Whether this process is up in the configuration, by a START of its own time in it.

        One that comes back from another lineage may find itself up as it was before: it is not, its copies may differ.
        """
        configuration = self.configuration
        if configuration is None or not self.is_up_in(configuration):
            return False
        return configuration.members[self.me.disk].started > self._up_after and not self._is_fresh and not self._renews

    def is_up_in(self, configuration: ClusterConfiguration) -> bool:
        """Whether a configuration says that this process is up."""
        member = configuration.members.get(self.me.disk)
        return member is not None and member.incarnation == self.me.incarnation and is_up(member.state)

    @property
    def lease_until_ns(self) -> int:
        """When the lease of this member ends; 0: it has none."""
        return self._lease.until_ns if self.is_up else 0

    def is_live(self, now: int) -> bool:
        """Tell whether this member has a lease."""
        return now < self.lease_until_ns

    @property
    def has_left(self) -> bool:
        """Whether this member was told to leave, and is a member no more.

        Not beside another lineage that lives: it may be a member there, whom nobody removes who has been up in a fork.
        It waits until that one is merged, or goes back to it if its own one ends after all.
        """
        is_stranger = self.verdict == STRANGER and not self.renewal
        is_none = self.leaving and is_stranger and (self._is_dismissed or not self.is_up)
        return is_none and not self._splits.meets_others(self.cluster, self.lineage)

    @property
    def is_drained(self) -> bool:
        """Whether this member, which leaves, holds nothing any more: it is removed when it has asked to be away.

        In a fork nobody is removed who has been up in it, and the fork becomes the trunk when all are up: were this
        member away meanwhile, its removal and the trunk would wait for each other.
        """
        configuration = self.configuration
        member = self.member
        if configuration is None or member is None or not self.is_up:
            return False
        if configuration.trunk != configuration.lineage:
            return False
        return is_leaving(member.state) and not configuration.holds(member.disk)

    @property
    def is_away(self) -> bool:
        """Whether this process, which has asked to be away, is so and its vote is not needed, or nobody else can serve.

        The controller ends its vote if the voters that run on are no quorum without it (`voters`).
        """
        if not self.stopping or self.phase == OPENING:
            return False
        configuration = self.configuration
        if self.log is None or configuration is None or self._renews:
            return True
        others = [disk for disk in configuration.disks() if disk != self.me.disk and configuration.can_lead(disk)]
        if not others:
            return True
        return not self.is_up and (not self.log.needs(self.me.disk) or self._is_spared(self.log, configuration))

    def _is_spared(self, log: ConfigurationLog, configuration: ClusterConfiguration) -> bool:
        """Tell whether this process, which is away, can end with its vote: voters that run are a quorum without it.

        It sees who is about to end, too: of two that stop at once the later one reads that the other one is away. Who
        is away does not count, though it may run, and vote: of one that was cut off before it stopped no entry says so.
        The controller knows, so this process waits as long as the driver lets it.
        """
        member = configuration.members.get(self.me.disk)
        if member is None or is_leaving(member.state) or log.leader in (0, self.me.disk):
            return False
        up = [disk for disk in configuration.disks() if is_up(configuration.members[disk].state)]
        running = [disk for disk in up if disk != self.me.disk and self.neighbours.is_linked(disk)]
        return log.is_quorum(running) and not self._planted.stops_cost_votes

    def wants(self, now: int) -> list[str]:
        """Return the addresses to which links should be kept: of seeds, members, and processes that others named."""
        wanted: dict[str, bool] = dict.fromkeys(self.seeds, True)
        configuration = self.configuration
        if configuration is not None:
            for disk in configuration.disks():
                wanted[configuration.members[disk].process.address] = True
        wanted.update(dict.fromkeys(self.addresses.tried(now), True))
        wanted.pop(self.me.process.address, None)
        wanted.pop("", None)
        return list(wanted)

    # Links

    def up(self, member: Member, features: int, now: int) -> None:
        """A link to a process was made."""
        neighbour = self.neighbours.up(member, features)
        if neighbour is None:
            return
        neighbour.since_ns = neighbour.asked_ns = now
        self._greet(neighbour, [b""] * _GREETINGS, now)
        self._hurry(now)

    def down(self, node_id: str, incarnation: int, disk: int, refused: bool, now: int) -> None:
        """A link has ended; refused: the host of the process answers that nothing listens, so it has ended."""
        self.neighbours.down(node_id, incarnation)
        if self.controller is not None:
            self.controller.held.forget(node_id)
        if refused and disk:
            self.neighbours.proved(disk, incarnation, now)
            self._doubt_lease(now)
            if self.controller is not None:
                self.controller.ended(disk, incarnation, now)
            if self.log is not None and not self.neighbours.is_linked(disk):
                if not self.log.is_leader or not self._planted.keeps_promises:
                    self.log.ended(disk, now)
                if self.me.disk in self.log.voters:  # a second witness for the controller, and not hundreds
                    self._beat_ns = min(self._beat_ns, now)

    def _doubt_lease(self, now: int) -> None:
        """Go on under the next lease only, when this process may be the one that is taken for ended.

        A firewall that answers with resets looks like the end of a process, from both of its sides. Two members prove
        an end, and its lease counts for nothing at once; so a process that sees two of them end may be their proof. If
        it leads the log, their promises count no more either (`Raft.ended`): else it would renew its own lease.
        """
        configuration = self.configuration
        if configuration is None or self._planted.keeps_lease:
            return
        ended: dict[int, bool] = {}
        for disk, _incarnation in self.neighbours.ended:
            member = configuration.members.get(disk)
            if member is not None and is_up(member.state) and not self.neighbours.is_linked(disk):
                ended[disk] = True
        if len(ended) >= 2 and self._lease.until_ns > now:
            self._lease.give_back()
            self._held.clear()
            self._beat_ns = min(self._beat_ns, now)

    def _hurry(self, now: int) -> None:
        """Send a heartbeat soon, if this process waits to be let up; others say what is new with the next one."""
        if not self.is_up:
            self._beat_ns = min(self._beat_ns, now)

    def set_load(self, load: dict[str, int]) -> None:
        """Set the figures that the other members see of this one: at most 64."""
        if load != self._load:
            self._load = load
            self._load_changed = True

    # Messages

    def receive(self, node_id: str, kind: int, body: bytes, now: int) -> None:
        """Take a message of kind CONTROL or CONFIGURATION_LOG; raises ValueError if no correct member sends it."""
        neighbour = self.neighbours.links.get(node_id)
        if neighbour is None or self._renews:
            return
        if kind == CONFIGURATION_LOG:
            self._take_log(neighbour, body, now)
            return
        what = kind_of(body)
        if what == GREETING:
            is_first = neighbour.greeting is None
            neighbour.greeting = decode_greeting(body)
            if neighbour.greeting.asks:
                neighbour.told = b""
                self._greet(neighbour, [b""] * _GREETINGS, now)
            self._see_cluster(neighbour, neighbour.greeting)
            self.addresses.note(neighbour.greeting.addresses, now)
            self._see_leader(neighbour.greeting)
            if is_first and self.log is not None:
                self.log.connected(neighbour.disk, now)
        elif what == BEAT:
            self._take_beat(neighbour, decode_beat(body), now)
        elif what == BEAT_ANSWER:
            self._answered(neighbour.disk, decode_beat_answer(body), now)
        elif what == REQUEST:
            self._take_request(neighbour, decode_request(body), now)
        elif what == REPLY:
            self._replied(decode_reply(body), now)

    def _see_cluster(self, neighbour: Neighbour, greeting: Greeting) -> None:
        """Tell once that another cluster answers; two clusters never become one."""
        if self.cluster and greeting.cluster not in (0, self.cluster) and greeting.cluster not in self._strangers:
            self._strangers[greeting.cluster] = True
            if len(self._strangers) > _STRANGERS_MAX:
                del self._strangers[next(iter(self._strangers))]
            why = "it is of another cluster than this node: neither takes part in the other"
            self.events.append(Event(ERROR, "two_clusters", {"node": neighbour.node_id, "why": why}))

    def _see_leader(self, greeting: Greeting) -> None:
        """See whether the lineage has gone on without this member, which by its log decides alone.

        Only by an entry that this disk has written can the others have a vote, and apply what is not here: this folder
        was set back. It must not lead, and tell the others its log, which lacks what is committed.

        A greeting may be late, and a member may not have heard of the newest leader. So another leader proves this only
        if it was elected after this member had become the only voter.
        """
        log = self.log
        if log is None or greeting.lineage != log.lineage or log.voters != [self.me.disk]:
            return
        if greeting.index > log.last_index:
            self._set_back("by the log here this member decides alone, and the others have more of it")
        elif greeting.live and greeting.leader not in (0, self.me.disk) and greeting.term > log.voters_term:
            self._set_back("by the log here this member decides alone, and the others have another leader")

    def _take_log(self, neighbour: Neighbour, body: bytes, now: int) -> None:
        log = self.log
        lineage = lineage_of(body)
        if log is None and self.phase == OUTSIDE and self._founding.joins == lineage:
            self._enter(CurrentLineage(self._founding.cluster, lineage), Persisted.nothing(), now)
            log = self.log
        doubt = self._doubt
        if doubt is not None and doubt.source not in (self.me.disk, neighbour.disk):
            return
        if log is not None and log.lineage == lineage and not self._has_twin(now):
            log.step(neighbour.disk, body, now)

    @property
    def _is_over(self) -> bool:
        """Whether this process does nothing any more until it is started again, or has another disk identity."""
        return self.phase in (FAILED, RENEWING)

    def _take_beat(self, neighbour: Neighbour, beat: Beat, now: int) -> None:
        controller = self.controller
        if controller is not None and not self._is_over:
            answer = controller.beat(neighbour, beat, now)
            if controller.held.holds(neighbour.node_id, beat, answer, now):
                return
        else:
            answer = BeatAnswer(beat.lineage, 0, beat.number, 0, NOT_LEADING)
        self.out.append((neighbour.node_id, CONTROL, answer.encoded()))

    def _answered(self, disk: int, answer: BeatAnswer, now: int) -> None:
        """Take the answer to a heartbeat of this member."""
        log = self.log
        if log is None or answer.lineage != log.lineage:
            return
        for other, load in answer.loads:
            self.loads[other] = load
        if answer.verdict == NOT_LEADING:
            if disk == log.leader:
                self._beat_ns = min(self._beat_ns, now + self.options.heartbeat_ns // 4)
            return
        self.verdict = answer.verdict
        sent_ns = self._lease.sent_ns(answer.number)
        if sent_ns:
            self._is_late = now - sent_ns >= self.options.lease_ns - self.options.heartbeat_ns * 5 // 4
        if self._is_fresh and answer.verdict != OUTDATED:
            self._is_fresh = False
            self._beat_ns = now
        log.learn_commit(answer.term, answer.commit, now)
        if answer.verdict == GRANTED and not self.stopping:
            self._held.append(answer)
            if len(self._held) > _HELD_MAX:
                del self._held[0]
        elif answer.verdict == OUTDATED and not self.fault:
            self._set_back(f"the members know start number {self.me.incarnation} of this disk already, or a later one")
        elif answer.verdict == EVICTED and not self.fault:
            self._fail("an operator has put this node out: start it again to have it back")
        elif answer.verdict == STRANGER and self.configuration is not None:
            # It was removed while it was cut off, and gets no entry any more that says so.
            self._is_dismissed = answer.commit > self.configuration.index
            if not self.leaving or self._has_branches(self.configuration):
                self._set_back("the members have removed this disk")

    def _has_branches(self, configuration: ClusterConfiguration) -> bool:
        """Tell whether this process has changes of another lineage, which nobody else may have: it cannot go yet."""
        return self.branches is not None and len(self.branches.branches(configuration)) > 0

    def _set_back(self, why: str) -> None:
        """This disk must not take part in the log any more: what it has confirmed is not what it has."""
        if not self.renewal and not self._planted.stays_set_back:
            self.renewal = why
            self._move(SET_BACK)
            self._lease.begin()
            self._held.clear()
            self.events.append(Event(WARNING, "disk_renewed", {"why": why}))

    def _take_request(self, neighbour: Neighbour, request: Request, now: int) -> None:
        if self.controller is not None and request.lineage == self.lineage:
            self.controller.request(neighbour.disk, request.number, request.command, now)
        else:
            self.out.append((neighbour.node_id, CONTROL, Reply(request.number, 0, ACCEPTED, True).encoded()))

    def _replied(self, reply: Reply, now: int) -> None:
        if self.configuration is None:  # it has asked to join
            if reply.refused == WAS_EVICTED and not reply.lost:
                self._set_back("the members have removed this disk")
            elif reply.refused == NAME_TAKEN and not reply.lost and not self._is_refused:
                self._is_refused = True
                why = "another process with the name of this node lives: give this one another name, or end that one"
                self.events.append(Event(ERROR, "name_taken", {"why": why}))
            return
        self.requests.replied(reply, now)
        for command, reason in self.requests.refusals:
            self._tell_refusal(self.configuration, command.disk, reason)
        self.requests.refusals.clear()

    def _tell_refusal(self, configuration: ClusterConfiguration, disk: int, why: int) -> None:
        """Tell that the log has refused to forget a member, and what would be lost with it, as far as is known here."""
        member = configuration.members.get(disk)
        if member is None:
            return
        cost = cost_of(configuration, disk)
        lost = f": {cost.text()} would be lost" if cost.text() else ""
        fields: dict[str, object] = {"node": member.node_id, "partitions": len(cost.copies)}
        fields["unmerged"] = len(cost.branches)
        fields["why"] = f"{REASONS[why]}{lost}"
        self.events.append(Event(WARNING, "forget_refused", fields))

    # Requests

    def leave(self, node_id: str) -> None:
        """Have a member hand over what it holds, and leave."""
        self.requests.leave(self.configuration, node_id)

    def stay(self, node_id: str) -> None:
        """Take the leave of a member back."""
        self.requests.stay(self.configuration, node_id)

    def evict(self, node_id: str) -> None:
        """Put the process of a member out until it is started again."""
        self.requests.evict(self.configuration, node_id)

    def forget(self, node_id: str, now: int, force: bool = False) -> None:
        """Remove a member that is away; only by force if something is lost with it, as the log finds.

        Without a lease this process cannot know who is away: it remembers an order by force, and may fork by it.
        """
        configuration = self.configuration
        member = None if configuration is None else configuration.named(node_id)
        if member is None or configuration is None or member.disk == self.me.disk:
            return
        if force and not self.is_live(now) and self.log is not None:
            if self.me.kind != DATA and not self._planted.orders_witness:
                why = "this node is a witness: it has no data, and founds no fork"
                fields: dict[str, object] = {"node": node_id, "partitions": 0, "unmerged": 0, "why": why}
                self.events.append(Event(WARNING, "forget_refused", fields))
                return
            if member.disk not in self._splits.forgotten:
                self._splits.forgotten.append(member.disk)
            waits = self._splits.missing(configuration, self.log.voters, self.log.index)
            names = [configuration.members[disk].node_id for disk in waits if disk in configuration.members]
            self.events.append(Event(WARNING, "forget_ordered", {"node": node_id, "for": sorted(set(names))}))
        self.requests.forget(configuration, member.disk, force)

    def withdraw(self, partitions: list[int], damaged: list[int]) -> None:
        """Say that copies here are behind, or damaged; see `Requests.withdraw`."""
        self.requests.withdraw(self.configuration, partitions, damaged)

    # Time

    def deadline(self) -> int:
        """Return when `step` and `collect` are due at the latest."""
        log = self.log
        if log is None or self._abstains or self._is_over:  # it does little but greet
            due = self._greet_ns if self._greet_ns else self._beat_ns
            return min(due, self._founding.due_ns) if self.phase == OUTSIDE else due
        due = min(self._beat_ns, log.deadline())
        if self.controller is not None:
            due = min(due, self.controller.deadline(), self.controller.held.due_ns)
        return due

    def step(self, now: int) -> None:
        """Do what is due."""
        self.neighbours.prune(now)
        self.requests.expire(now, self._is_over)
        if self._is_over:
            self._lease.begin()  # the others hear that it has none: they need not wait for it
            if not self._has_ended:
                self._has_ended = True
                self._greet_ns = 0
            self._greet_all(now)
            return
        if self.phase == OUTSIDE:
            self._step_outside(now)
        elif self.phase == INSIDE:
            self._step_inside(now)
        self._greet_all(now)

    def _step_outside(self, now: int) -> None:
        """Found a cluster, or ask to join one."""
        founding = self._founding
        self._beat_ns = now + self.options.heartbeat_ns
        founding.look(self.neighbours, self.seeds, self.seeds_unknown, self.residents, self.me, self.options, now)
        self.events.extend(founding.events)
        founding.events.clear()
        if founding.founds and not self._is_refused_by_others(now):
            self._found_cluster()
        elif founding.asks:
            self._ask_to_join(founding.asks, founding.joins)

    def _ask_to_join(self, leader: int, lineage: int) -> None:
        """Ask the leader of a log to make this disk a member; if it is one already, that does no harm."""
        to = self.neighbours.of(leader)
        if to is not None:
            member = ClusterMember(self.me.disk, self.me.node_id, self.me.kind, self.me.process)
            request = Request(lineage, self.requests.next_number(), encode_command(Join(member)))
            self.out.append((to.node_id, CONTROL, request.encoded()))

    def _found_cluster(self) -> None:
        """Found a cluster with this process as the first member."""
        cluster = 1 + self._rng.below(ID_MAX - 1)
        lineage = 1 + self._rng.below(ID_MAX - 1)
        first = ClusterMember(self.me.disk, self.me.node_id, self.me.kind, self.me.process)
        command = Found(cluster, lineage, 0, 0, [first], self.options.partitions, self.options.copies)
        self._found = ConfigurationLog.found(command, self.me.disk)
        self._opening = CurrentLineage(cluster, lineage)
        self._opening_token = 0
        self._is_fresh = False  # the configuration begins with this process
        self._move(FOUND)
        self.cluster = cluster  # greetings say so from now on: who comes meanwhile founds no other one
        self.events.append(Event(INFO, "cluster_founded", {"cluster": cluster}))

    def _step_inside(self, now: int) -> None:
        log = self.log
        assert log is not None, "who is inside has a log"
        member = self.member
        if member is not None and member.kind != self.me.kind:
            known, given = KINDS[member.kind], KINDS[self.me.kind]
            self._fail(f"the cluster knows this disk as a member of the kind {known!r}, and it is started as {given!r}")
            return
        self._splits.look(self.is_live(now), log.leader > 0 and not self._abstains, now)
        if self._doubt is not None:
            self._look_in_doubt(self._doubt, log, now)
            if self._is_over:
                return
        self._splits.in_doubt = self._doubt is not None
        if self._goes_over(log, now):
            return
        doubt = self._doubt
        self._abstains = self._has_twin(now) or (doubt is not None and doubt.source != self.me.disk)
        if self._abstains:
            self.controller = None  # it begins anew, and waits for those that it does not answer now
            return
        log.wake(now)
        self._lead(log, now)
        beaten = self._beaten if self.configuration is not None else self._asked
        beats = now >= min(self._beat_ns, self._early_ns) or (log.leader > 0 and log.leader != beaten)
        if beats:
            self._beat(log, now)
        if self.controller is not None:
            self.controller.step(now, beats)
            if self.controller.successor:
                log.transfer(self.controller.successor, now)
                if self.controller.is_late:
                    self._yielded_ns = now
        self._send_requests(log, now)

    def _look_in_doubt(self, doubt: Doubt, log: ConfigurationLog, now: int) -> None:
        """See whether this process may take part with what it has, or the disk must become another one."""
        doubt.look(self.cluster, log.configuration, log, now)
        if doubt.renews:
            self._set_back("this disk may lack what it has confirmed, and the members have gone on without it")
        if doubt.is_over or self._planted.stays_set_back or self._planted.votes_in_doubt:
            self._doubt = None
            self.was_doubted = True

    def _goes_over(self, log: ConfigurationLog, now: int) -> bool:
        """Go over to another lineage, or fork, if it is time; tell whether this process has left its lineage."""
        configuration = self.configuration
        if (self.stopping and not self.leaving) or self._opening is not None:
            return False
        is_led = log.leader > 0
        alone = False
        if self._doubt is None:
            leads = log.is_leader and log.may_grant(now)
            lineage = self._splits.better(self.cluster, log.lineage, configuration, leads, is_led, now)
            if lineage and is_retired(self._reader, lineage):
                self._set_back("this disk has given up its vote in the lineage that goes on")
                return True
            if lineage:
                self._prepare_to_go(log, lineage)
                self._leave_lineage(CurrentLineage(self.cluster, lineage))
                return True
        elif log.voters == [self.me.disk]:
            alone = self._doubt.forks
            if not alone:
                return False  # it goes on soon
        if configuration is None:
            return self._splits.waited(now) and self._go_back()
        if self._is_refused_by_others(now) or (log.is_leader and not alone) or self.stopping:
            return False
        awaits = is_led and not self._abstains  # one that abstains does not notice that its leader is gone
        if alone:
            if not self._splits.forks_alone(configuration, now):
                return False
        elif not self._splits.forks(configuration, log.voters, log.index, awaits, now):
            return False
        lineage = 1 + self._rng.below(ID_MAX - 1)
        self._found = self._fork(configuration, lineage)
        self._leave_lineage(CurrentLineage(self.cluster, lineage))
        return True

    def _prepare_to_go(self, log: ConfigurationLog, lineage: int) -> None:
        """Remember what holds in another lineage, too."""
        self.events.append(Event(WARNING, "lineage_left", {"before": log.lineage, "lineage": lineage}))
        member = self.member
        if member is not None and is_leaving(member.state):
            self.leaving = True  # the members of the other lineage may not have heard of the order
        self.stopping = False  # in the other lineage it has to hand over again
        if self._fallback == 0 and self.configuration is not None:
            self._fallback = log.lineage
            self._parted = self.configuration
        if self._named == log.lineage:
            self._ended = log.lineage if log.voters == [self.me.disk] and not log.is_changing else 0

    def _go_back(self) -> bool:
        """Go back to where this process comes from: no other sends the configuration of the lineage that it went to."""
        if self._fallback:
            self._leave_lineage(CurrentLineage(self.cluster, self._fallback))
        else:
            self.log = None  # it was to join
            self._move(RETREAT)
        return True

    def _fork(self, configuration: ClusterConfiguration, lineage: int) -> Persisted:
        """Return what a fork begins with that this process founds."""
        absent = self._splits.absent(configuration)
        # One that comes back to a lineage does not know any more how much of it was committed.
        anew = self.is_up_in(configuration) and configuration.counter() < self.seen
        lost = [disk for disk in self._splits.forgotten if self.neighbours.of(disk) is None]
        lost = [disk for disk in lost if disk in configuration.members]
        in_doubt = self._doubt is not None and not self._planted.fork_in_doubt
        forked = fork_of(configuration, lineage, absent, self.me.disk, lost, anew=anew, in_doubt=in_doubt)
        gone = [disk for disk, _incarnation in absent]
        up = [disk for disk in configuration.disks() if is_up(configuration.members[disk].state)]
        fields: dict[str, object] = {"before": configuration.lineage, "lineage": lineage}
        fields["members"] = [configuration.members[disk].node_id for disk in up if disk not in gone]
        fields["partitions"] = forked.strength
        fields["forgotten"] = [configuration.members[disk].node_id for disk in lost]
        fields["lost"] = len([index for index in forked.lost.values() if index == forked.index])
        self.events.append(Event(WARNING, "cluster_forked", fields))
        return ConfigurationLog.fork(forked, self.me.disk)

    def _is_refused_by_others(self, now: int) -> bool:
        """Tell whether there are others that do not let this process in, so that it must not go on beside them.

        They have another process with its name, or other settings: whoever mends that has one cluster, and not two.
        """
        return self.refused_ns > 0 and now - self.refused_ns < self.options.refusal_ns

    def _has_twin(self, now: int) -> bool:
        """Tell whether another process on this disk may be the member, so that this one must not vote in its place.

        Of two processes on one disk others see at least one at a time; the first one that a quorum lets up stays.
        """
        return self.twin_ns > 0 and now - self.twin_ns < self.options.twin_ns and not self.is_up

    def _leave_lineage(self, to: CurrentLineage) -> None:
        """End to take part in the lineage; the rows of it stay, with the vote, at least until the disk names another.

        The disk names the other lineage when its configuration is here, not before: a process that is started again
        must not be without one.
        """
        assert self.log is not None, "who leaves a lineage is in one"
        self.requests.keep_removals(self.log.configuration.removed)
        self._lease.begin()
        self._held.clear()
        self.log = None
        self._doubt = None
        self.controller = None
        self.installed = 0
        self.verdict = NOT_LEADING
        self._is_dismissed = False
        self._move(GO_OVER)
        self._opening = to
        self._opening_token = 0

    def _lead(self, log: ConfigurationLog, now: int) -> None:
        """Begin or end to be the controller, as Raft says."""
        controller = self.controller
        if controller is not None and (not log.is_leader or log.term != controller.term):
            self.controller = controller = None
        if controller is None and log.is_leader:
            self.controller = controller = Controller(
                log, self.neighbours, self.me, self.options, self._planted, now, self._yielded_ns
            )
            controller.note()
            for disk, incarnation in self.neighbours.ended:
                controller.ended(disk, incarnation, now)
            member = log.configuration.members.get(self.me.disk)
            if member is not None and member.incarnation < self.me.incarnation and self._is_successor(log):
                controller.ended(self.me.disk, member.incarnation, now)
            self._beat_ns = now

    def _is_successor(self, log: ConfigurationLog) -> bool:
        """Tell whether the process that was up on this disk, as the log has it, is the one before, and has ended.

        With other voters another process on a copy of this folder may have come up under the same number: they tell.
        """
        alone = len(log.configuration.members) == 1  # this process has the folder
        return alone or (self.options.succeeds and log.voters == [self.me.disk])

    def _beat(self, log: ConfigurationLog, now: int) -> None:
        """Send a heartbeat to the leader of the log, if there is one.

        It leaves with the answer to a message of that leader, which comes as often. So one waits up to a quarter longer
        than a heartbeat, and is sent up to as much earlier when something else is to be done.
        """
        self._beat_ns = now + self.options.heartbeat_ns * 5 // 4
        self._early_ns = self._beat_ns
        leader = self.leader()
        configuration = self.configuration
        if leader == 0 or self.is_held:
            return
        if configuration is None:  # it may have become a member in another lineage
            self._beat_ns = self._early_ns = now + self.options.reply_ns // 2
            self._asked = leader
            self._ask_to_join(leader, log.lineage)
            return
        if self._beaten != leader or self._told_term != log.term:
            self._beaten = leader
            self._told_term = log.term
            self._load_changed = True  # what a controller knows beside the log is of its term
        self._early_ns = now + self.options.heartbeat_ns * 3 // 4
        number = self._lease.beat(now)
        beat = Beat(log.lineage, number, self.installed)
        beat.up = self.is_up
        beat.fresh = self._is_fresh
        beat.lapsed = self._lapses(log, now)
        if not beat.up:
            beat.seen = self.seen
            # Asked now: a copy of the answer could be that of the lineage from which this process has come.
            beat.branches = [] if self.branches is None else self.branches.branches(configuration)
        if self.stopping:
            beat.returned = self._lease.give_back()
        beat.stalled = self.stalled
        beat.full = self.full
        beat.slow = self.slow
        self._add_links(beat, configuration)
        beat.ended = list(self.neighbours.ended)
        if self._load_changed:
            beat.load = self._load
            self._load_changed = False
        if self.controller is not None:
            self._answered(self.me.disk, self.controller.beat(self.me, beat, now), now)
            return
        to = self.neighbours.of(leader)
        if to is not None:
            self.out.append((to.node_id, CONTROL, beat.encoded()))

    def _lapses(self, log: ConfigurationLog, now: int) -> bool:
        """Tell whether this process was without a lease since the last heartbeat, or could have none, and look anew.

        A leader whose folder was set back is not the one that grants: that it should not lead is not to be told to it.
        """
        lapsed = self._has_lapsed or now >= self._lease.until_ns
        self._has_lapsed = False
        is_outdated = log.outdated_leader != 0 and log.outdated_leader == log.leader
        return (lapsed if self.is_up else self._is_late) and not self.stopping and not is_outdated

    def _add_links(self, beat: Beat, configuration: ClusterConfiguration) -> None:
        """Tell the controller by whom this member can take part, see `controller`."""
        few = configuration.has_few_up()
        for disk in configuration.disks():
            if is_up(configuration.members[disk].state):
                if not self.neighbours.is_linked(disk):
                    beat.missing.append(disk)
            elif few and disk != self.me.disk:
                neighbour = self.neighbours.of(disk)
                greeting = None if neighbour is None else neighbour.greeting
                if greeting is not None and greeting.lineage == beat.lineage:
                    beat.waiting.append(disk)

    def leader(self) -> int:
        """Return the disk of the leader of the log; 0: this process can not know it.

        One that the leader does not reach, or does not know any more, hears of it from others.
        """
        log = self.log
        if log is None:
            return 0
        if log.leader:
            return log.leader
        for neighbour in self.neighbours.links.values():
            greeting = neighbour.greeting
            if greeting is not None and greeting.live and greeting.lineage == log.lineage and greeting.leader:
                return greeting.leader
        return 0

    def _send_requests(self, log: ConfigurationLog, now: int) -> None:
        """Send requests to the leader of the log, again if there was no reply."""
        requests = self.requests
        if self.is_up:
            member = self.member
            if self.leaving and member is not None and not is_leaving(member.state):
                self._leave_version = member.version
                self.leave(self.me.node_id)
            requests.repeat(log.configuration, now)
            if requests.removals:
                requests.tell_removals(log.configuration, self._live_in(log.lineage))
        due = requests.due(log.lineage, now)
        if not due:
            return
        to = self.neighbours.of(log.leader) if log.leader else None
        if self.controller is not None:
            requests.sent(due, now)
            for request in due:
                self.controller.request(self.me.disk, request.number, request.command, now)
        elif to is not None:
            requests.sent(due, now)
            for request in due:
                self.out.append((to.node_id, CONTROL, request.encoded()))

    def _live_in(self, lineage: int) -> list[int]:
        """Return the disks of the other processes with a lease in a lineage, as they say."""
        live: list[int] = []
        for neighbour in self.neighbours.links.values():
            greeting = neighbour.greeting
            if greeting is not None and greeting.live and greeting.lineage == lineage:
                live.append(neighbour.disk)
        return live

    # Greetings

    def _greet_all(self, now: int) -> None:
        """Tell other processes what has changed, not more often than they need it."""
        if now < self._greet_ns:
            return
        self._greet_ns = now + self.options.greet_ns
        bodies: list[bytes] = [b""] * _GREETINGS
        for node_id in self.neighbours.named():
            neighbour = self.neighbours.links[node_id]
            self._greet(neighbour, bodies, now)
            if neighbour.greeting is None and now - neighbour.asked_ns >= self.options.greet_ns:
                self._ask_for_greeting(neighbour, now)

    def _ask_for_greeting(self, neighbour: Neighbour, now: int) -> None:
        """Ask a process for the greeting that is not here.

        If only this side has seen the link end and come back, the other side takes its greeting for told.
        """
        neighbour.asked_ns = now
        greeting = self._greeting(self._greeting_for(neighbour, now), now)
        greeting.asks = True
        self.out.append((neighbour.node_id, CONTROL, greeting.encoded()))

    def _greet(self, neighbour: Neighbour, bodies: list[bytes], now: int) -> None:
        """Tell a process what has changed; bodies: by kind of greeting, those that others were told just now."""
        kind = self._greeting_for(neighbour, now)
        if not bodies[kind]:
            bodies[kind] = self._greeting(kind, now).encoded()
        if bodies[kind] != neighbour.told:
            neighbour.told = bodies[kind]
            self.out.append((neighbour.node_id, CONTROL, bodies[kind]))

    def _greeting_for(self, neighbour: Neighbour, now: int) -> int:
        """Return what a process is to know of this one: members under a lease tell each other little."""
        log = self.log
        theirs = neighbour.greeting
        if log is None or theirs is None or not self.is_live(now):
            return _FULL
        if theirs.live and theirs.lineage == log.lineage:
            return _BRIEF
        if self.controller is not None and self.controller.would_let_up(neighbour, theirs.linked):
            return _WELCOME
        return _FULL

    def _greeting(self, kind: int, now: int) -> Greeting:
        """Return a greeting; but for who is welcome, all processes of a kind are told the same."""
        configuration = self.configuration
        greeting = Greeting(self.cluster, 0 if configuration is None else self.lineage)
        greeting.expect = self.options.expect
        greeting.partitions = self.options.partitions
        greeting.live = self.is_live(now)
        if kind == _BRIEF:
            return greeting
        log = self.log
        if log is not None and configuration is not None:
            greeting.leader = 0 if self._is_over and log.is_leader else log.leader
            greeting.term = log.term
            greeting.ancestors = [lineage for lineage, _counter in configuration.ancestors]
            greeting.shared = [counter for _lineage, counter in configuration.ancestors]
            greeting.floor = 0 if self._planted.follows_the_old else configuration.floor
            greeting.strength = configuration.strength
            if not greeting.live:
                greeting.index = log.index
                greeting.end = (log.last_term, log.last_index)
                greeting.in_doubt = self._doubt is not None
            for disk in configuration.disks():
                greeting.addresses.append(configuration.members[disk].process.address)
            greeting.welcome = kind == _WELCOME
        else:
            greeting.founder = self._founding.founder
            greeting.listed = self._founding.listed
            for node_id in self.neighbours.named():
                greeting.addresses.append(self.neighbours.links[node_id].process.address)
        greeting.linked = sorted([one.disk for one in self.neighbours.speaking(now, self.options.refusal_ns)])
        return greeting

    # The end of a turn

    def collect(self, writer: Writer, now: int) -> None:
        """Put the rows of this turn into its batch, and take what has been committed."""
        if self._opening is not None and self._opening_token == 0:
            assert self.log is None, "who opens a lineage is in none"
            if self._found is not None:
                put_founding(writer, self._opening.lineage, self._found)
                self._name(writer, self._opening)
            else:
                writer.private_delete(_BARRIER_KEY)  # a batch, behind which all rows of the lineage are durable
            self._opening_token = writer.token
        if self.requests.are_removals_changed:
            self.requests.are_removals_changed = False
            put_removals(writer, self.requests.removals)
        log = self.log
        if log is None:
            return
        self._note_doubt(writer, log.lineage)
        if self._renews or self._has_twin(now):
            return
        log.collect(writer, now)
        if self._named != log.lineage and log.configuration.is_founded():
            self._arrive(writer, log.lineage)
        if log.fault:
            self._fail(log.fault)
        if log.lost_suffix:
            self._set_back("the log here is older than what this disk has confirmed")
        self._lead(log, now)
        controller = self.controller
        changed = log.restored
        for result in log.results:
            changed = self._is_change(result) or changed
            self._see_stay(result)
            self._see_removal(log.configuration, result)
        if changed:
            self._forget_loads(log.configuration)
        self._see_lineages(writer, log, changed)
        if controller is not None:
            if controller.applied(now):
                self._beat_ns = now
            controller.decided(log.fates, now)
            if changed:
                controller.changed(log.index, now)
            controller.voters_changed(now)
            for disk, reply in controller.out:
                self._send_reply(disk, reply, now)
            controller.out.clear()
            self.events.extend(controller.events)
            controller.events.clear()
        log.fates.clear()
        log.results.clear()
        log.restored = False
        self.seen = max(self.seen, log.configuration.counter())
        self._send(log, now)
        self._extend_lease(log, now)

    def _tell_dropped(self, before: ClusterConfiguration, now: ClusterConfiguration) -> None:
        """Name the settings that were changed in the lineage from which this process has come, and not in this one."""
        known = 0
        for lineage, shared in [(now.lineage, COUNTER_MAX), *now.ancestors]:
            if lineage == before.lineage and before.counter() <= shared:
                return  # this lineage goes on from there
            if before.ancestors and before.ancestors[-1][0] == lineage and before.ancestors[-1][1] <= shared:
                known = before.parent_index
        keys = dropped_keys(before.settings, now.settings, known)
        if keys:
            fields: dict[str, object] = {"before": before.lineage, "lineage": now.lineage, "total": len(keys)}
            fields["keys"] = keys[:_KEYS_TOLD]
            self.events.append(Event(WARNING, "settings_dropped", fields))

    def _send(self, log: ConfigurationLog, now: int) -> None:
        """Send the messages of the log, and the answers to heartbeats that leave with them."""
        for disk, data in log.out:
            to = self.neighbours.of(disk)
            if to is not None and to.greeting is not None:  # it may have to say that this folder was set back
                self.out.append((to.node_id, CONFIGURATION_LOG, data))
        log.out.clear()
        if self.controller is not None:
            others = [node_id for node_id, _kind, _body in self.out]
            answers = self.controller.held.release(others, now)
            self.out.extend([(node_id, CONTROL, body) for node_id, body in answers])

    def _note_doubt(self, writer: Writer, lineage: int) -> None:
        """Let the disk say whether it may lack rows of its lineage."""
        if self._doubt is not None and self._doubted != lineage:
            self._doubted = lineage
            put_doubt(writer, lineage)
        elif self._doubt is None and self._doubted == lineage:
            self._doubted = 0
            drop_doubt(writer, lineage)

    def _arrive(self, writer: Writer, lineage: int) -> None:
        """End to go over: there is a configuration of the lineage, and no need to go back to the former one."""
        self._fallback = 0
        if self._ended and self._ended == self._named:
            retire_lineage(writer, self._ended, self.seen)
            self._named = self._ended = 0
        self._name(writer, CurrentLineage(self.cluster, lineage))

    def _name(self, writer: Writer, current: CurrentLineage) -> None:
        """Let the disk name its lineage."""
        if self._named and self._named != current.lineage:
            put_left(writer, self._named, self.seen)
            self._before = self._named
        self._named = current.lineage
        self._has_come = self._has_left = True
        put_current(writer, current)

    def _see_lineages(self, writer: Writer, log: ConfigurationLog, changed: bool) -> None:
        """Retire lineages when this disk has come to another one, when its own one is whole, and when it was pruned.

        When this process is up in another lineage, say which settings have not come with it.
        """
        if self._parted is not None and self.is_up:
            self._tell_dropped(self._parted, log.configuration)
            self._parted = None
        for result in log.results:
            if isinstance(result.command, Prune):
                changed = self._has_left = True  # the votes in ancestors were kept
        if self._has_come or (self._has_left and changed):
            self._retire(writer, log)

    def _retire(self, writer: Writer, log: ConfigurationLog) -> None:
        """Remove the rows of lineages that are over, or so old that nobody is expected there any more."""
        configuration = log.configuration
        if self._named != log.lineage or self._opening is not None or not configuration.is_founded():
            return
        is_over = configuration.is_whole() and self.is_up
        if not self._has_come and not is_over:
            return
        self._has_come = False
        self._has_left = not is_over
        kept = [lineage for lineage, _counter in configuration.ancestors[-_PARENTS_KEPT:]]
        if not is_over:
            kept.append(self._before)  # its row may be on its way to the disk
        retire_lineages(writer, self._reader, [log.lineage, *kept], self.seen, is_over)

    def _see_stay(self, result: Result) -> None:
        """See whether the leave for which this process has asked was taken back: both may be applied in one turn.

        Other leaves that were taken back, of which it reads when it comes back to a lineage, were before that.
        """
        command = result.command
        if isinstance(command, Leave) and command.disk == self.me.disk and result.is_accepted():
            self._is_told = command.version == self._leave_version
        elif isinstance(command, Stay) and command.disk == self.me.disk and result.is_accepted() and self._is_told:
            self._is_told = False
            self.leaving = False

    def _see_removal(self, configuration: ClusterConfiguration, result: Result) -> None:
        """Tell, as the controller, what was given up with a member that was forgotten by force."""
        command = result.command
        cost = result.cost
        if self.controller is None or cost is None or not isinstance(command, Remove) or not result.is_accepted():
            return
        if command.why == FORGOTTEN and cost.text():
            names = [removal.node_id for removal in configuration.removed if removal.disk == command.disk]
            fields: dict[str, object] = {"node": names[-1] if names else ""}
            fields["partitions"] = len(cost.copies)
            fields["unmerged"] = len(cost.branches)
            fields["why"] = f"it was forgotten by force, with {cost.text()}"
            self.events.append(Event(ERROR, "given_up", fields))

    def _forget_loads(self, configuration: ClusterConfiguration) -> None:
        """Forget the figures of disks that were removed; one that is no member may be one whose entry is on its way."""
        for disk in [disk for disk in self.loads if disk not in configuration.members]:
            if configuration.removed_incarnation(disk):
                del self.loads[disk]

    def _is_change(self, result: Result) -> bool:
        return len(result.disks) > 0 or len(result.partitions) > 0

    def _send_reply(self, disk: int, reply: Reply, now: int) -> None:
        if disk == self.me.disk:
            self._replied(reply, now)
            return
        to = self.neighbours.of(disk)
        if to is not None:
            self.out.append((to.node_id, CONTROL, reply.encoded()))

    def _extend_lease(self, log: ConfigurationLog, now: int) -> None:
        """Take the answers to heartbeats whose entries are applied by now."""
        if log.outdated_leader and log.outdated_leader == log.leader:
            self._held.clear()  # what it grants counts for nothing: its configuration is not the one here
            if self._outdated != log.leader:
                self._outdated = log.leader
                member = log.configuration.members.get(log.leader)
                node = "" if member is None else member.node_id
                why = "its folder was set back: it leads a configuration log that lacks what is committed here"
                self.events.append(Event(ERROR, "log_diverged", {"node": node, "why": why}))
            return
        held: list[BeatAnswer] = []
        for answer in self._held:
            if log.index < answer.commit:
                held.append(answer)
            elif self.is_up and not self.stopping:
                self._has_lapsed = self._has_lapsed or now >= self._lease.until_ns
                self._lease.answered(answer.term, answer.number)
        self._held = held

    def written(self, token: int, now: int) -> None:
        """The batch with this token, and all before it, are durable."""
        log = self.log
        if log is not None:
            log.written(token, now)
        opening = self._opening
        if opening is None or self._opening_token == 0 or token < self._opening_token:
            return
        found = self._found
        self._opening = None
        self._opening_token = 0
        self._found = None
        if self.phase == OPENING:
            try:
                persisted = found if found is not None else read_lineage(self._reader, opening.lineage)
                self._enter(opening, persisted, now)
                if found is None:
                    self._up_after = self.seen
            except CorruptStore as fault:
                self._fail(str(fault))
                self.events.append(Event(ERROR, "log_damaged", {"why": str(fault)}))

    def __repr__(self) -> str:
        return f"{self.me.node_id} {PHASES[self.phase]} {self.log!r} {self.member!r}"
