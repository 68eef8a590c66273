"""The membership of a node by the configuration log: what the node needs of `control`, in its own terms and times.

Roles reach the node as views (`projection`), names of nodes become disks, and microseconds nanoseconds. Owns what
neither the node nor the control knows: which configuration has been handed over to be installed, and when a member that
was told to leave begins to, and may end.

A turn of the node is any number of inputs, `step` before its batch is taken, and after that the installation of what is
in `installs`.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.event import ERROR, INFO, WARNING, Event
from folkmoot.kernel.feature import lasting_bits
from folkmoot.kernel.rng import Rng
from folkmoot.membership.cluster_member import DATA, WITNESS
from folkmoot.membership.cluster_settings import ClusterSettings, SettingNews
from folkmoot.membership.command import AWAY_REASONS, ENDED, STOPPED
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.control import Control
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.holding import NONE, HoldingsSource
from folkmoot.membership.lifecycle import is_leaving, is_up
from folkmoot.membership.loss import Losses
from folkmoot.membership.phase import OUTSIDE
from folkmoot.membership.projection import HeldBranches, member_of, view_of
from folkmoot.membership.requests import SettingAnswer
from folkmoot.membership.room import Room
from folkmoot.membership.slowness import Slowness
from folkmoot.membership.transition import OTHER_NUMBER
from folkmoot.membership.view import View
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import CONFIGURATION_LOG, CONTROL
from folkmoot.peer.member import Member
from folkmoot.store.epoch import counter_of
from folkmoot.store.reader import Reader
from folkmoot.store.writer import Writer

__all__ = ["Membership"]

_US: Final = 1000  # nanoseconds
_LOOK_US: Final = 100_000  # between two looks at what changes slowly


class Membership:
    """One node's membership; `open` comes before everything else. No call raises for what others send.

    out: (node, kind, body) to be sent. installs: views to be installed, at most one in a turn. events: facts for the
    log. The caller empties these lists in place. view: the newest one that was handed over. wants: the addresses to
    keep connected; another list when they have changed.
    """

    def __init__(
        self, me: Member, config: ClusterConfig, partitions: int, rng: Rng, holdings: HoldingsSource, reader: Reader
    ) -> None:
        self.out: list[tuple[str, int, bytes]] = []
        self.installs: list[View] = []
        self.events: list[Event] = []
        self.view: View | None = None
        self.wants: list[str] = []
        self.departing = False
        self.held = HeldBranches(me.disk, holdings)
        self._me = me
        self._config = config
        self._partitions = partitions
        self._rng = rng
        self._holdings = holdings
        self._reader = reader
        self._room = Room(config.full_wait_us, config.full_hold_us)
        self._slowness = Slowness(config.slow_us, config.slow_wait_us, config.slow_hold_us)
        self._now_us: int = 0
        self._control: Control | None = None
        self._due_us: int = 0  # when to look at the latest: something has come, or is due
        self._view_before: View | None = None
        self._lineage: int = 0  # of the view
        self._changed: int = 0  # the counter of the configuration of the view
        self._roles: list[tuple[int, int]] = []  # by partition, the leader epoch and the version in the view
        self._starts: dict[str, tuple[int, int]] = {}  # by node in the view, its disk and when it came up
        self._is_up = False
        self._told = 0  # the lineage whose configuration tells this node to leave; 0: none does
        self._told_index = 0  # the newest entry of it with which that was so
        self._is_refused = False  # a leave, because nobody would be left
        self._waiting = 0  # the fork in which this node was told to leave, and waits until the sides have met
        self._stalled: dict[str, int] = {}  # what has stalled, and since when
        self._load: dict[str, int] = {}
        self._complained: dict[str, int] = {}
        self._reported = ""  # the fault that was told
        self._settings = ClusterSettings()  # those of the last configuration
        self._settings_lineage: int = 0
        self._looked_us: int = 0

    def open(self, now: int) -> None:
        """Read the log; raises CorruptStore."""
        features = lasting_bits(self._config.features)
        control = Control(self._me, features, self._options(), self._reader, self._rng.next64(), now * _US)
        control.branches = self.held
        control.is_held = True
        for holding in self._holdings.holdings():
            if holding.state != NONE:
                control.seen = max(control.seen, counter_of(holding.epoch))
        self._control = control
        configuration = control.configuration
        if configuration is not None:
            self._view_before = view_of(configuration)

    def _options(self) -> ControlOptions:
        config = self._config
        options = ControlOptions()
        options.heartbeat_ns = config.heartbeat_us * _US
        options.lease_ns = config.lease_us * _US
        options.fork_ns = 3 * options.lease_ns
        options.raft.heartbeat_ns = options.heartbeat_ns
        options.raft.learner_heartbeat_ns = 10 * options.heartbeat_ns
        options.raft.election_ns = 4 * options.heartbeat_ns
        options.raft.write_ns = config.stall_us * _US
        options.link_patience_ns = config.link_patience_us * _US
        options.found_ns = config.join_wait_us * _US
        options.gone_ns = config.gone_us * _US
        options.refusal_ns = config.refusal_us * _US
        options.incomplete = config.incomplete
        options.succeeds = config.succeeds
        options.forks = config.split_policy == "available"
        options.partitions = self._partitions
        options.copies = config.replicas
        options.min_in_sync = config.min_in_sync
        options.expect = config.expect
        return options

    @property
    def control(self) -> Control:
        """This node's part in the control of the cluster."""
        control = self._control
        assert control is not None, "it is open"
        return control

    # What is known

    @property
    def state(self) -> str:
        """Return "waiting" (for its first view), "member", "witness" (one without data) or "excluded".

        Excluded: the others go on without it.
        """
        if self.view is None:
            return "waiting"
        if self.is_excluded:
            return "excluded"
        return "witness" if self._me.witness else "member"

    @property
    def is_excluded(self) -> bool:
        """Whether the others have gone on without this node: its view is over, and there is none that it is in."""
        return self.view is not None and not self._is_up

    @property
    def renewal(self) -> str:
        """Why this folder must become another disk before the node can go on; "": it need not."""
        return self.control.renewal

    @property
    def may_write(self) -> bool:
        """Whether this node takes part; without a lease nothing that it does is seen (`node/withheld`)."""
        return self._is_up and not self._me.witness

    @property
    def speaks_until_ns(self) -> int:
        """When the lease of this node ends; 0: it has none."""
        return self.control.lease_until_ns if self._is_up else 0

    @property
    def controller(self) -> str:
        """The member that leads the configuration log, as far as this node knows; "": it knows none."""
        return self._name_of(self.control.leader())

    def voters(self) -> list[str]:
        """Return the members that vote on the configuration log, sorted."""
        log = self.control.log
        return [] if log is None else sorted([self._name_of(disk) for disk in log.voters if self._name_of(disk)])

    def _name_of(self, disk: int) -> str:
        configuration = self.control.configuration
        member = None if configuration is None else configuration.members.get(disk)
        return "" if member is None else member.node_id

    @property
    def lineage(self) -> int:
        """The lineage of the configuration; 0: this node has none."""
        return self.control.lineage

    @property
    def forks_left(self) -> int:
        """How often the lineage can fork before its oldest ancestors have to be forgotten; 0: a side cannot."""
        control = self.control
        configuration = control.configuration
        known = 0 if configuration is None else len(configuration.ancestors)
        return max(control.options.ancestors_max - known, 0)

    def why_out(self) -> str:
        """Return why this node, which was up, is up no more, as far as it knows."""
        control = self.control
        if control.fault or control.renewal:
            return control.fault or control.renewal
        return "its disk stands still" if control.stalled else self.why_away(self._me.node_id)

    def why_away(self, node_id: str) -> str:
        """Return why a member is away; "" if it is up, or no member."""
        configuration = self.control.configuration
        member = None if configuration is None else configuration.named(node_id)
        return "" if member is None or is_up(member.state) else AWAY_REASONS.get(member.why, "")

    @property
    def seeks(self) -> bool:
        """Whether this node needs to know the ids of its seeds."""
        return self.control.phase == OUTSIDE

    @property
    def drained(self) -> bool:
        """Whether this node leaves and keeps nothing: it may `depart` as soon as it has no clients."""
        return self._is_up and self.control.is_drained

    @property
    def departed(self) -> bool:
        """Whether the others go on without this node, which has asked them to, or there are none."""
        return self.departing and self.control.is_away

    @property
    def stays(self) -> bool:
        """Whether this node is a member that does not leave, or not any more."""
        member = self.control.member
        return member is not None and not is_leaving(member.state)

    @property
    def left(self) -> bool:
        """Whether this node has left its cluster for good."""
        return self.control.has_left

    @property
    def view_before(self) -> View | None:
        """The view of the configuration that the disk had when this process was started; None: it had none."""
        return self._view_before

    def is_gone(self, node_id: str) -> bool:
        """Whether a node certainly does not serve beside this one: it has ended, or was stopped in good order."""
        configuration = self.control.configuration
        member = None if configuration is None else configuration.named(node_id)
        if member is None:
            return False
        if is_up(member.state):
            return (member.disk, member.incarnation) in self.control.neighbours.ended
        return member.why in (ENDED, STOPPED)

    def expected(self) -> list[str]:
        """Return the members with data, away or not."""
        configuration = self.control.configuration
        if configuration is None:
            return []
        members = [configuration.members[disk] for disk in configuration.disks()]
        return sorted([member.node_id for member in members if member.kind == DATA])

    def take_doubt(self) -> bool:
        """Return whether this node takes part from now on though its disk may lack what it has acknowledged; once."""
        was_doubted = self.control.was_doubted
        self.control.was_doubted = False
        return was_doubted

    def is_live(self, now: int) -> bool:
        """Tell whether this node is up and has a lease."""
        return now * _US < self.speaks_until_ns

    def witnesses(self) -> list[Member]:
        """Return the members without data, away or not."""
        configuration = self.control.configuration
        if configuration is None:
            return []
        members = [configuration.members[disk] for disk in configuration.disks()]
        return [member_of(member) for member in members if member.kind == WITNESS]

    def is_up_there(self, node_id: str) -> bool:
        """Whether a member, with data or not, is up in the configuration that this node knows."""
        configuration = self.control.configuration
        member = None if configuration is None else configuration.named(node_id)
        return member is not None and is_up(member.state)

    def can_vote_without(self, node_id: str) -> bool:
        """Whether the voters that are up are a quorum without a node."""
        log = self.control.log
        if log is None:
            return False
        members = log.configuration.members
        up = 0
        for disk in log.voters:
            if disk in members and is_up(members[disk].state) and members[disk].node_id != node_id:
                up += 1
        return 2 * up > len(log.voters)

    def load_of(self, node_id: str) -> dict[str, int]:
        """Return the figures of a node, empty if it sent none."""
        if node_id == self._me.node_id:
            return self._load
        configuration = self.control.configuration
        member = None if configuration is None else configuration.named(node_id)
        return {} if member is None else self.control.loads.get(member.disk, {})

    # Links and messages

    def up(self, member: Member, features: list[str], now: int) -> None:
        """A node is connected, again or for the first time; `features`: what it has said that it can do."""
        self._due_us = min(self._due_us, now)
        self.control.up(member, lasting_bits(features), now * _US)

    def down(self, member: Member, refused: bool, now: int) -> None:
        """A connection has ended; refused: its host answers that nothing listens, so the process has ended."""
        self._due_us = min(self._due_us, now)
        self.control.down(member.node_id, member.incarnation, member.disk, refused, now * _US)

    def receive(self, node_id: str, kind: int, body: bytes, now: int) -> None:
        """Take a message; nonsense is reported and dropped."""
        if kind not in (CONTROL, CONFIGURATION_LOG):
            return
        self._due_us = min(self._due_us, now)
        try:
            self.control.receive(node_id, kind, body, now * _US)
        except ValueError as error:
            neighbour = self.control.neighbours.links.get(node_id)
            incarnation = 0 if neighbour is None else neighbour.incarnation
            if self._complained.get(node_id) != incarnation:
                self._complained[node_id] = incarnation
                fields: dict[str, object] = {"node": node_id, "why": f"sent what cannot be read: {error}"}
                self.events.append(Event(WARNING, "node_refused", fields))

    def know_refusals(self, refused_us: int, twin_us: int) -> None:
        """Learn when this node and another one last refused each other, and when because it has a twin; 0: never."""
        self.control.refused_ns = refused_us * _US
        self.control.twin_ns = twin_us * _US

    def know_seeds(self, residents: dict[str, str]) -> None:
        """Learn the ids of the nodes that answer at addresses."""
        self.control.residents = residents

    # What this node says of itself

    def stalled(self, what: str, since_us: int) -> None:
        """Something that this node needs, its disk, has stalled since then; 0 = it works again."""
        if since_us:
            self._stalled[what] = since_us
        else:
            self._stalled.pop(what, None)

    def set_full(self, full: bool, now: int) -> None:
        """The disk has room or not; without room for long, or when it comes up, it leads only what nobody else can."""
        self._room.full = full
        if self._room.look(now):
            self.control.full = self._room.lacks

    def durable(self, took_us: int) -> None:
        """A batch of this node has become durable, so long after it was given to the disk."""
        self._slowness.durable(took_us, self._now_us)

    def set_load(self, load: dict[str, int]) -> None:
        """Set the figures that others see of this node."""
        self._load = {**load, "replicas": self._config.replicas, "slow": int(self.control.slow)}
        self.control.set_load(self._load)

    def filled(self, partition: int, node_id: str) -> None:
        """A learner of a partition that this node leads has everything, by the view that was handed over."""
        start = self._starts.get(node_id)
        if start is not None:
            self._due_us = 0
            epoch, version = self._roles[partition]
            self.control.requests.filled(partition, start[0], epoch, start[1], version)

    def recovered(self, partition: int) -> None:
        """All replicas of a partition that this node leads are the same, by the view that was handed over."""
        self._due_us = 0
        epoch, version = self._roles[partition]
        self.control.requests.recovered(partition, epoch, version)

    def withdraw(self, partitions: list[int], damaged: list[int]) -> None:
        """Copies here are behind, or damaged: they are in sync no more, if there are others that are."""
        self._due_us = 0
        self.control.withdraw(sorted(dict.fromkeys(partitions)), sorted(dict.fromkeys(damaged)))

    def renew(self) -> None:
        """Have all members begin anew with each other: messages between them are lost."""
        self._due_us = 0
        self.control.requests.renew()

    # Settings of the whole cluster

    @property
    def settings(self) -> ClusterSettings:
        """The settings as this node knows them; none before it has a configuration.

        On its way from one lineage to another it knows those of the former one.
        """
        configuration = self.control.configuration
        return self._settings if configuration is None else configuration.settings

    def settings_since(self, news: SettingNews | None) -> SettingNews:
        """Return which settings have changed since these news. Numbers of another lineage say nothing here."""
        lineage = self.settings_lineage
        known = news is not None and news.lineage == lineage
        found = self.settings.since(news.number if news is not None and known else 0)
        found.lineage = lineage
        return found

    @property
    def settings_lineage(self) -> int:
        """The lineage of these settings, in which their numbers count."""
        return self._settings_lineage if self.control.configuration is None else self.control.lineage

    def put(self, key: str, value: bytes, expected: int, author: str, now: int, lineage: int = 0) -> int:
        """Ask for a setting; return the ticket of the answer. lineage: in which `expected` was read; 0: the present."""
        self._due_us = min(self._due_us, now)
        if lineage not in (0, self.settings_lineage):
            return self.control.requests.refuse(OTHER_NUMBER)
        return self.control.requests.put(key, value, expected, author)

    def delete(self, key: str, expected: int, author: str, now: int, lineage: int = 0) -> int:
        """Ask for the end of a setting; return the ticket of the answer."""
        self._due_us = min(self._due_us, now)
        if lineage not in (0, self.settings_lineage):
            return self.control.requests.refuse(OTHER_NUMBER)
        return self.control.requests.delete(key, expected, author)

    def take_answers(self) -> list[SettingAnswer]:
        """Return what became of requests since the last call."""
        answers = list(self.control.requests.answers)
        self.control.requests.answers.clear()
        return answers

    # Orders

    def leave(self, now: int) -> None:
        """Hand over what this node keeps, then leave for good: `drained`, then `depart`, then `left`."""
        self._due_us = min(self._due_us, now)
        self.control.leaving = True

    def dismiss(self, node_id: str, now: int) -> None:
        """Have a member leave."""
        self._due_us = min(self._due_us, now)
        if node_id == self._me.node_id:
            self.control.leaving = True
        else:
            self.control.leave(node_id)

    def stay(self, node_id: str, now: int) -> None:
        """Take the leave of a member back, also one that is no entry yet."""
        self._due_us = min(self._due_us, now)
        member = self.control.member
        if member is not None and member.node_id == node_id and not is_leaving(member.state):
            self.control.leaving = False
        self.control.stay(node_id)

    def is_told_to_leave(self, node_id: str) -> bool:
        """Whether a member leaves, or this node is about to have it leave."""
        configuration = self.control.configuration
        member = None if configuration is None else configuration.named(node_id)
        if member is None:
            return False
        asks = self.control.requests.asks_to_leave(member) or (node_id == self._me.node_id and self.control.leaving)
        return asks or is_leaving(member.state)

    def depart(self, now: int) -> None:
        """Have the others go on without this node, which is expected back unless it leaves; then `departed`."""
        self._due_us = min(self._due_us, now)
        self.departing = True
        self.control.stopping = True

    def resume(self, now: int) -> None:
        """Do not depart after all: the leave was taken back."""
        self._due_us = min(self._due_us, now)
        self.departing = False
        self.control.stopping = False

    @property
    def leaves(self) -> bool:
        """Whether this node is to leave for good, or has left."""
        return self.control.leaving

    def evict(self, node_id: str, now: int) -> None:
        """Put a node out until it is started again."""
        self._due_us = min(self._due_us, now)
        self.control.evict(node_id)

    def forget(self, node_id: str, now: int, force: bool = False) -> None:
        """Stop expecting a node that is away; force: with what only it has. Without a lease see `membership/splits`."""
        self._due_us = min(self._due_us, now)
        self.control.forget(node_id, now * _US, force)

    # Turns

    def next_wake(self) -> int:
        """Return when the next turn is due at the latest, in microseconds, or NEVER."""
        control = self.control
        if control.fault or control.renewal:
            return self._due_us
        return -(-control.deadline() // _US)

    def step(self, writer: Writer, now: int) -> None:
        """Do what is due, put rows into the batch of this turn, and hand over the configuration if it has changed."""
        control = self.control
        self._now_us = now
        now_ns = now * _US
        if now < self._due_us and now_ns < control.deadline():
            return
        self._due_us = NEVER
        if now - self._looked_us >= _LOOK_US:
            self._look(now)
        self._see_leave(control)
        control.step(now_ns)
        self.departing = self.departing and control.stopping  # not in another lineage, to which it may have gone over
        control.collect(writer, now_ns)
        self._hand_over(control)
        self._take(control, now_ns)

    def written(self, token: int, now: int) -> None:
        """The batch with this token, and all before it, are durable."""
        self.control.is_held = False  # the first batch has the number of this start
        self.control.written(token, now * _US)

    def _look(self, now: int) -> None:
        """Look at what changes slowly."""
        self._looked_us = now
        control = self.control
        control.seeds = self._config.seeds
        control.seeds_unknown = self._config.seeds_unknown
        stalled = False
        for since_us in self._stalled.values():
            stalled = stalled or now - since_us >= self._config.stall_us
        control.stalled = stalled
        if self._slowness.look(now):
            control.slow = self._slowness.is_slow
            if control.slow:
                late_ms = self._config.slow_us // 1000
                why = f"one in five batches, and more, takes longer than {late_ms} ms to become durable"
                self.events.append(Event(WARNING, "disk_slow", {"why": why}))
            else:
                self.events.append(Event(INFO, "disk_recovered", {}))

    def _hand_over(self, control: Control) -> None:
        """Make a view of the configuration, if this node is up in it and its roles have changed."""
        configuration = control.configuration
        if self._is_up and not control.is_up:
            self._tell_exclusion()
        self._is_up = control.is_up
        if control.log is not None:
            control.installed = control.log.index
        if configuration is not None:
            self._settings, self._settings_lineage = configuration.settings, configuration.lineage
        if configuration is None or not self._is_up:
            return
        if configuration.lineage == self._lineage and configuration.changed == self._changed:
            return
        self._lineage = configuration.lineage
        self._changed = configuration.changed
        self._roles = [(state.leader_epoch, state.version) for state in configuration.partitions]
        self._starts = {}
        for member in configuration.members.values():
            self._starts[member.node_id] = (member.disk, member.started)
        self._room.fresh = False
        before = self.view
        self.view = view = view_of(configuration)
        if not self._me.witness:
            self.installs.append(view)  # a witness only knows it
        self.events.extend(_news_of(before, view))
        if before is None or before.bases != view.bases:
            fields: dict[str, object] = {"view": counter_of(view.epoch), "epoch": view.epoch}
            fields["members"] = [member.node_id for member in view.members]
            self.events.append(Event(INFO, "view_installed", fields))

    def _tell_exclusion(self) -> None:
        """Report that this node is up no more."""
        view = self.view
        assert view is not None, "a node that was up has a view"
        fields: dict[str, object] = {"view": counter_of(view.epoch), "epoch": view.epoch}
        why = self.why_out()
        what = f"{self.controller or 'the others'} went on without this node"
        if self.controller == self._me.node_id:
            what = "it leads the configuration log, and is up no more"
        fields["why"] = f"{what}{f': {why}' if why else ''}"
        self.events.append(Event(INFO if self.departing else WARNING, "view_excluded", fields))

    def _see_leave(self, control: Control) -> None:
        """See whether this node was told to leave, or to stay, and whether it may."""
        member = control.member
        configuration = control.configuration
        if member is None or configuration is None:
            return
        leaves = is_leaving(member.state)
        # One that comes back to a lineage knows only an early configuration of it at first, from before the order.
        is_later = self._told == configuration.lineage and configuration.index > self._told_index
        if is_later and not leaves:  # the leave was taken back
            self._told = 0
            control.leaving = False
        if not self._is_up:
            return
        if (leaves or control.leaving) and not _may_leave(configuration, member.disk):
            control.leaving = False
            if leaves:
                control.stay(member.node_id)
            if not self._is_refused:
                self._is_refused = True
                self.events.append(Event(WARNING, "leave_refused", {"why": "nobody would be left"}))
            return
        self._is_refused = False
        if leaves:
            self._told = configuration.lineage
            self._told_index = configuration.index
            control.leaving = True
            if configuration.trunk != configuration.lineage and self._waiting != configuration.lineage:
                self._waiting = configuration.lineage
                self.events.append(Event(WARNING, "leave_waits", {"nodes": _away_from(configuration)}))

    def _take(self, control: Control, now_ns: int) -> None:
        """Take over what the control has to say."""
        if control.out:
            self.out.extend(control.out)
            control.out.clear()
        if control.events:
            self.events.extend(control.events)
            control.events.clear()
        if control.renewal and not self._reported:
            self._reported = control.renewal
            self._due_us = 0  # once more, to tell the others
        if control.fault and control.fault != self._reported:
            self._reported = control.fault
            self._due_us = 0
            self.events.append(Event(ERROR, "membership_ended", {"why": control.fault}))
        wants = control.wants(now_ns)
        if wants != self.wants:
            self.wants = wants


def _news_of(before: View | None, view: View) -> list[Event]:
    """Return what a view says about copies, for the log; before: the view that was handed over until now."""
    events: list[Event] = []
    old = Losses() if before is None else before.losses
    for nodes, partitions in view.losses.groups():
        new = [partition for partition in partitions if partition not in old.missing]
        if new:
            events.append(Event(WARNING, "copies_missing", {"partitions": len(new), "nodes": nodes}))
    for nodes, partitions in view.losses.damage():
        new = [partition for partition in partitions if partition not in old.damaged]
        if new:
            events.append(Event(ERROR, "copies_damaged", {"partitions": len(new), "nodes": nodes}))
    known = [loss.entry for loss in old.past]
    is_lost = False
    for loss in view.losses.past:
        if before is not None and loss.entry not in known:
            is_lost = True
            events.append(Event(ERROR, "copies_lost", {"partitions": loss.partitions, "nodes": loss.nodes}))
    if old.missing and not view.losses.missing and not is_lost:
        events.append(Event(INFO, "copies_back", {"partitions": len(old.missing)}))
    return events


def _away_from(configuration: ClusterConfiguration) -> list[str]:
    """Return the members with data that are away: in a fork these may have another side."""
    members = configuration.members.values()
    return sorted([member.node_id for member in members if member.kind == DATA and not is_up(member.state)])


def _may_leave(configuration: ClusterConfiguration, disk: int) -> bool:
    """Tell whether another member with data would be left: in a fork, one that knows of the leave when sides meet."""
    for other in configuration.disks():
        member = configuration.members[other]
        stays = not is_leaving(member.state) and member.incarnation > member.evicted
        if other != disk and member.kind == DATA and stays:
            if configuration.trunk == configuration.lineage or is_up(member.state):
                return True
    return False
