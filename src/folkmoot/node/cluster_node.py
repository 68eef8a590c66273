"""Connects the broker and the cluster half: carries views, changes and messages from one to the other, turn by turn.

Decides no roles. The order matters: messages of peers are handled as they come, those of the control at once and all
others within the steps of a turn; a view is installed only between two turns, after the rows of the last turn were
handed over; the messages of a turn to a peer leave together at its end, with the changes that they are about.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.auth.remembered import Remembered
from folkmoot.broker.broker import Broker
from folkmoot.kernel.clock import MILLISECOND
from folkmoot.kernel.event import Event
from folkmoot.kernel.feature import DEFERS, features_on
from folkmoot.membership.holding import DAMAGED
from folkmoot.membership.membership import Membership
from folkmoot.membership.view import View
from folkmoot.node.birth import Birth
from folkmoot.node.clock_sharing import ClockSharing
from folkmoot.node.congestion import Congestion
from folkmoot.node.effect import Effects
from folkmoot.node.heal_log import HealLog
from folkmoot.node.load import is_full, level_of, own_load
from folkmoot.node.logins import LoginSharing
from folkmoot.node.meter import Meter
from folkmoot.node.opening import Opening
from folkmoot.node.pace import Pace
from folkmoot.node.replica_holdings import ReplicaHoldings
from folkmoot.node.scarcity import Scarcity
from folkmoot.node.shutdown import Shutdown
from folkmoot.node.waits import TurnWaits
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.handshake import WIRE_MAX, WIRE_MIN
from folkmoot.peer.kind import BROKER_FIRST, CLOCK, CONTROL_KINDS, HEALS, LOGINS, REPLICATION_FIRST
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.peer.peer import PeerChange
from folkmoot.peer.peers import Peers
from folkmoot.replica.replica import Replica
from folkmoot.replica.replication import Replication
from folkmoot.session.fork_ids import distance_in_fork
from folkmoot.store.batch import Batch
from folkmoot.store.overlay import Overlay
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.receipt import Evidence
from folkmoot.turn.state import State

__all__ = ["ClusterNode"]

_INBOX_BYTES_MAX: Final = 1 << 20  # of messages that wait; beyond it no more frames of their node are read
# An idle node takes the turns of its heartbeats for what is due in the background; without turns, it waits no longer.
_BACKGROUND_US: Final = 100 * MILLISECOND
_MESSAGE_BYTES: Final = 64  # approximate overhead of a message


class _Disks(Evidence):
    """The acknowledgements of the followers' disks."""

    def __init__(self, replication: Replication) -> None:
        self.replication = replication

    def copies(self, partition: int, sequence: int) -> int:
        return self.replication.replicas[partition].copies_of(sequence)


class Inbox:
    """The messages of one node that are not handled yet, in order, and the steps that it may spend in this turn.

    Without those of the control (`folkmoot.peer.link`), which wait for nothing: a heartbeat that is behind the data of
    a node that sends too much would be too late for its lease.
    """

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.messages: deque[tuple[int, bytes]] = deque()
        self.bytes = 0
        self.unfinished = False  # the newest message that was taken is not handled as a whole
        self.turn = 0
        self.left = 0

    def put(self, kind: int, body: bytes) -> None:
        """Add a message."""
        self.messages.append((kind, body))
        self.bytes += len(body) + _MESSAGE_BYTES

    def is_empty(self) -> bool:
        """Whether everything is handled."""
        return not self.messages and not self.unfinished


class ClusterNode:
    """The cluster half of one node."""

    def __init__(
        self,
        config: ClusterConfig,
        state: State,
        fabric: Fabric,
        broker: Broker,
        rows: Overlay,
        birth: Birth,
        version: str,
        remembered: Remembered,
    ) -> None:
        self.config = config
        self.state = state
        self.fabric = fabric
        self.broker = broker
        self._rows = rows
        self.features = config.features
        zone = config.zone if config.zone else fabric.node_id
        self.me = Member(
            fabric.node_id, birth.incarnation, config.peer_address, zone, ACTIVE, WIRE_MIN, WIRE_MAX, version
        )
        self.me.disk = birth.disk
        self.me.witness = config.witness
        self.peers = Peers(self.me, config, state.rng.fork())
        self.congestion = Congestion(config, fabric, broker, self.peers)
        self.replication = Replication(fabric.node_id, state.partitions, config, state.reader, state.writer)
        broker.turn.receipts.evidence = _Disks(self.replication)
        broker.turn.overload.waits = TurnWaits(broker, self.replication)
        holdings = ReplicaHoldings(self.replication)
        rng = state.rng.fork()
        self.membership = Membership(self.me, config, state.partitions, rng, holdings, state.reader)
        self.membership.held.former = birth.former
        state.speaks_until_ns = 0
        clock = state.clock
        clock.bound_us = config.clock_offset_max_us
        clock.start_us = config.join_wait_us
        seeds = [seed for seed in config.seeds if seed != config.peer_address]
        clock.alone = not (seeds or config.seeds_unknown)  # or knows others, see `open`
        clock.follow_all = fabric.planted.unbounded_time
        clock.follow_own = fabric.planted.own_time
        self.clock_sharing = ClockSharing(config, fabric.node_id, clock, self.peers)
        least = 1 if fabric.planted.serves_scarce else config.min_in_sync
        self.scarcity = Scarcity(state, fabric, self.replication, least)
        self.pace = Pace(self.replication.copies)
        self.opening = Opening(state, broker, self.replication)
        self.meter = Meter(state.counters, self.peers, self.membership, self.replication)
        self.shutdown = Shutdown(state, broker, self.membership)
        self.logins = LoginSharing(self.peers, remembered, bool(config.secret))
        self.heal_log = HealLog(fabric.node_id, state, self.peers, self.replication)
        self._forks = self.fabric.may_fork = config.split_policy == "available"
        self._members: dict[str, int] = {}  # the others of the view: their incarnations
        self._wanted: dict[str, None] = {}
        self._wants: list[str] = []  # as the membership has them
        self._serving = False
        self._epoch = 0  # of the view
        self._again: list[int] = []  # partitions that begin anew here, each when all of it is committed
        self._past: dict[str, int] = {}  # all former members: their newest incarnations
        self._to_reset: dict[str, None] = {}  # members that were at another side: the view begins anew with them
        self._unopened: list[int] = []  # partitions that their leader has not opened yet
        self._unsynced: deque[tuple[int, int]] = deque()  # batches that are not durable: token, and since when
        self._inboxes: dict[str, Inbox] = {}  # by node
        self._outgoing: list[tuple[str, int, bytes]] = []  # the messages of this turn: node, kind, body

    @property
    def view(self) -> View | None:
        """The installed view."""
        return self.membership.view

    def open(self) -> None:
        """Read the positions of this node's copies; raises CorruptStore or StoreError."""
        self.replication.open(self.state.now)
        self.heal_log.open()
        self.membership.open(self.state.now)
        self.replication.context.lived = self.membership.view_before
        if len(self.membership.expected()) > 1:
            self.state.clock.alone = False
        self.step()

    # -- what comes ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Handle what peers have sent, and let every part continue with it."""
        now = self.state.now
        peers = self.peers
        while True:
            changes = list(peers.changes)
            peers.changes.clear()
            inbox = list(peers.inbox)
            peers.inbox.clear()
            for change in changes:
                self._empty_inbox(change.node_id)  # what came before it
                self._change(change, now)
            for node_id, kind, body in inbox:
                if kind in CONTROL_KINDS:
                    self._message(node_id, kind, body, now)
                    continue
                waiting = self._inboxes.get(node_id)
                if waiting is None:
                    waiting = self._inboxes[node_id] = Inbox(node_id)
                waiting.put(kind, body)
            for waiting in self._inboxes.values():
                if not waiting.is_empty():
                    self._handle(waiting)
            if not peers.changes and not peers.inbox:
                break
        self._progress()

    def _handle(self, inbox: Inbox) -> None:
        """Handle messages of a node, as far as its steps of this turn reach; the rest waits."""
        work = self.state.work
        if inbox.turn != work.turn:
            inbox.turn = work.turn
            inbox.left = max(work.turn_steps // 2 // max(len(self._members), 1), 1)
        if inbox.left > 0:
            work.begin_part(inbox.left)
            self._take(inbox)
            inbox.left -= work.end_part()
        if inbox.bytes > _INBOX_BYTES_MAX:
            self.peers.set_full(inbox.node_id, True)
        elif inbox.bytes <= _INBOX_BYTES_MAX // 2:
            self.peers.set_full(inbox.node_id, False)

    def _take(self, inbox: Inbox) -> None:
        work = self.state.work
        messages = inbox.messages
        while not work.is_spent():
            if inbox.unfinished:
                if not self.broker.dispatch.go_on(inbox.node_id):
                    return
                inbox.unfinished = False
            if not messages:
                return
            kind, body = messages.popleft()
            inbox.bytes -= len(body) + _MESSAGE_BYTES
            self._message(inbox.node_id, kind, body, self.state.now)
            inbox.unfinished = self.broker.dispatch.is_unfinished(inbox.node_id)

    def _empty_inbox(self, node_id: str) -> None:
        """Handle all messages of a node, because something changes that concerns its messages."""
        inbox = self._inboxes.get(node_id)
        if inbox is not None and not inbox.is_empty():
            work = self.state.work
            stop = work.begin_all()
            self._take(inbox)
            work.end_all(stop)
            self.peers.set_full(node_id, False)

    def _change(self, change: PeerChange, now: int) -> None:
        if change.up:
            self.state.counters.peer_connects += 1
            self.membership.up(change.member, change.features, now)
            self._see_features()
            self.clock_sharing.up(change.node_id)
            if change.resumed:
                self.broker.dispatch.resumed(change.node_id)
            else:
                self.heal_log.greet(change.node_id)
                self.logins.up(change.node_id)
                self.broker.dispatch.renewed(change.node_id, change.incarnation)
                if self._members.get(change.node_id, -1) == change.incarnation:
                    self.fabric.lose_sync(change.node_id)  # RENEW: all begin anew with each other
                    self.membership.renew()
        else:
            self.logins.down(change.node_id)
            self.clock_sharing.down(change.node_id)
            if change.refused:
                self.broker.dispatch.ended(change.node_id, change.incarnation)
            else:  # the end of a process is reported after the loss of its connections
                self.state.counters.peer_losses += 1
            self.membership.down(change.member, change.refused, now)

    def _message(self, node_id: str, kind: int, body: bytes, now: int) -> None:
        if kind == HEALS:
            self.heal_log.learn(node_id, body)
        elif kind == LOGINS:
            self.logins.receive(node_id, body)
        elif kind == CLOCK:
            self.clock_sharing.receive(node_id, body)
        elif kind < REPLICATION_FIRST:
            self.membership.receive(node_id, kind, body, now)
        elif kind < BROKER_FIRST:
            self.replication.receive(node_id, kind, body, now, self.membership.is_excluded)
        else:
            self._fail_abandoned()
            self.broker.dispatch.receive(node_id, kind, body)

    def _fail_abandoned(self) -> None:
        """Disconnect clients whose packets were lost with a change of leaders, before the next leader answers them."""
        for token, partition in self.replication.abandoned:
            self.broker.fail(token, partition)
        self.replication.abandoned.clear()

    def _progress(self) -> None:
        """Pass on to each part what the others have decided."""
        self._tell_membership()
        if self._unopened:
            self._look_for_leaders()
        self._open_partitions()
        if not self.state.routes_whole:
            self.broker.know()
        self._fail_abandoned()
        # Turns without rows, and answers of other nodes, complete turns too.
        self.broker.committed(self.replication.committed_token)

    def _tell_membership(self) -> None:
        """Ask for changes of the configuration: copies are filled, the same or unfit, or all have to begin anew."""
        replication = self.replication
        for partition, node_id in replication.filled:
            self.membership.filled(partition, node_id)
        replication.filled.clear()
        view = self.view
        for partition in [] if view is None else view.recovering:
            if replication.has_recovered(partition):
                self.membership.recovered(partition)
        if replication.unfit:
            replicas = replication.replicas
            damaged = [partition for partition in replication.unfit if replicas[partition].state == DAMAGED]
            behind = [partition for partition in replication.unfit if replicas[partition].state != DAMAGED]
            self.membership.withdraw(behind, damaged)
            replication.unfit.clear()
        if replication.renew or self.broker.dispatch.renew:
            replication.renew = self.broker.dispatch.renew = False
            self.membership.renew()

    def _open_partitions(self) -> None:
        """Have the broker open partitions that this node leads."""
        replication = self.replication
        again = [partition for partition in self._again if self._may_begin_anew(replication.replicas[partition])]
        if again:
            self._again = [partition for partition in self._again if partition not in again]
            self.broker.leadership.prepare(again)
        if replication.ready:
            ready = list(replication.ready)
            replication.ready.clear()
            # A node that was put out prepares nothing: as soon as it could write again it would publish the wills of
            # clients that live with others.
            if self._serving:
                self.scarcity.fill(ready)
                self.broker.leadership.prepare(self.scarcity.served(ready))

    def _may_begin_anew(self, replica: Replica) -> bool:
        """Whether a partition that this node leads already can be restored from the store.

        The store shows rows only when they are written. Read earlier, the partition would lack what was acknowledged in
        the last turns. And what is restored counts as committed: records can be read, messages go out. So all of the
        ISR must have it, as in a takeover (phase SHARED), or the next leader gives its places to something else (A9).
        """
        if self.fabric.planted.dirty_anew:
            return replica.is_written()
        return replica.is_committed()

    def _look_for_leaders(self) -> None:
        """Note which leaders at other nodes have opened their partitions; those of this node are known."""
        still: list[int] = []
        for partition in self._unopened:
            if self.fabric.leaders[partition] == self.me.node_id:
                continue
            if self.replication.leader_open(partition):
                self.broker.leadership.opened(partition)
            else:
                still.append(partition)
        self._unopened = still

    def written(self, token: int) -> None:
        """A batch is on the disk of this node."""
        unsynced = self._unsynced
        while unsynced and unsynced[0][0] <= token:
            self.membership.durable(self.state.now - unsynced.popleft()[1])
        self.membership.written(token, self.state.now)
        self.broker.written(token)
        self.replication.written(token, self.state.now)
        self._progress()

    def wake(self) -> None:
        """Deadlines may have come."""
        now = self.state.now
        self.membership.set_full(self.state.storage_full, now)
        self.membership.set_load({**own_load(self.state), **self.pace.figures(now)})
        levels = [level_of(self.membership.load_of(node_id)) for node_id in self._members]
        self.broker.turn.overload.others = max(levels, default=0)
        self.fabric.full = {node_id: None for node_id in self._members if is_full(self.membership.load_of(node_id))}
        self.peers.wake(now)
        self.replication.wake(now)
        self.shutdown.step()
        self.meter.step(now)
        self.heal_log.step()
        self.logins.step()
        self.step()
        if self.opening.step():
            self._progress()

    def next_wake(self) -> int:
        """Return when `wake` is due, in microseconds."""
        others = min(self.peers.next_wake(), self.replication.next_wake())
        return min(self.membership.next_wake(), others, self._background_us() + _BACKGROUND_US)

    def _background_us(self) -> int:
        """Return when acknowledgements, pings, digests and questions about clocks are due."""
        return min(self.peers.background_us, self.clock_sharing.due_us(), self.replication.background_us)

    def _work_in_background(self) -> None:
        """Do what is due and can wait for a turn like this one, so that an idle node does not wake up for it."""
        now = self.state.now
        self.peers.wake(now)
        self.replication.work_in_background(now)
        self.clock_sharing.step()
        self.step()

    # -- what goes ----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Let the membership put its rows into the batch of this turn, before that is taken."""
        if self.state.now >= self._background_us():
            self._work_in_background()
        self.membership.know_refusals(self.peers.refused_us, self.peers.twin_us)
        self.membership.step(self.state.writer, self.state.now)
        if self.membership.take_doubt():
            self.replication.doubt()

    def seal(self, batch: Batch | None) -> None:
        """End the turn with this batch: replicate it, and install views. `send` follows."""
        now = self.state.now
        if batch is not None:
            self._unsynced.append((batch.token, now))
        self.replication.context.shift_us = self.state.clock.shift_us
        self.replication.seal(batch, now)
        self._collect()
        while self.membership.installs:
            view = self.membership.installs.pop(0)
            self._install(view)
        self._stand_down()
        self.state.speaks_until_ns = self.membership.speaks_until_ns
        self._progress()
        self.congestion.weigh(self._members)
        self.broker.speak()
        self._keep_connected()
        self._collect()

    def send(self, speaks: bool) -> None:
        """Send all messages of the turn; without a lease (`speaks`) those of the broker wait, see `node.withheld`."""
        outgoing = self._outgoing
        if speaks:
            for node_id, kind, body in outgoing:
                if kind >= BROKER_FIRST and self.fabric.withheld:
                    self._send_withheld()
                self.peers.send(node_id, kind, body)
            self._send_withheld()
        else:
            self._withhold(outgoing)
        outgoing.clear()
        self.peers.flush(self.state.now)

    def _withhold(self, outgoing: list[tuple[str, int, bytes]]) -> None:
        withheld = self.fabric.withheld
        if self.fabric.idle:
            withheld.clear()
        for node_id, kind, body in outgoing:
            if kind < BROKER_FIRST:
                self.peers.send(node_id, kind, body)
            elif not self.fabric.idle:
                withheld.append((self.state.now, node_id, kind, body))
        size = sum([len(body) + _MESSAGE_BYTES for _since_us, _node_id, _kind, body in withheld])
        if size > self.config.link_buffer_bytes_max:  # as if the links held them
            for node_id in dict.fromkeys([message[1] for message in withheld]):
                self.peers.overflow(node_id)
            withheld.clear()

    def _send_withheld(self) -> None:
        """Send what has waited for a lease, before what is new; the others learn for how long: it may expire."""
        withheld = self.fabric.withheld
        for since_us, node_id, kind, body in withheld:
            self.peers.send(node_id, kind, body, since_us)
        withheld.clear()

    def _drop_withheld(self) -> None:
        """Forget messages of the broker that have not left: this node stops leading what they are about.

        Some may have waited for the lease that ended because of that.
        """
        self.fabric.out.clear()
        self.fabric.withheld.clear()
        self._outgoing[:] = [message for message in self._outgoing if message[1] < BROKER_FIRST]

    def _install(self, view: View) -> None:
        """Let a view take effect, between two turns; the order of the steps matters."""
        self._end_last_view()
        before = self._install_at_replicas(view)
        if not self._serves():
            return
        before = self._begin_anew(before)
        self._hold_back_offsets()
        self.scarcity.find(view)
        self._install_at_broker(view, before)
        self._find_unopened()
        self.broker.know()
        self.broker.dispatch.installed(self._members)  # last: what came early is for the view as it is now

    def _end_last_view(self) -> None:
        """What was sent in the view before is handled in it, and rows of this turn are changes of it."""
        for node_id in list(self._inboxes):
            self._empty_inbox(node_id)
        self.broker.flush()
        assert all(inbox.is_empty() for inbox in self._inboxes.values()), "nothing of the last view waits"

    def _install_at_replicas(self, view: View) -> dict[str, int]:
        """Give the copies their roles; return the other members of the view before, with their incarnations."""
        self._move_ids(view)
        self.replication.install(view, self.state.now)
        members = {member.node_id: member.incarnation for member in view.members if member.node_id != self.me.node_id}
        before = self._members
        self._find_resets(view, members)
        self._members = members
        self.congestion.installed(members)
        self._see_features()
        self._epoch = view.epoch
        return before

    def _move_ids(self, view: View) -> None:
        """Let the packet ids of a fork be others than those of the other sides of the split."""
        self.state.ids_ahead = 0
        if view.is_trunk or self.me.node_id not in view.known:
            return
        place, epoch = view.known.index(self.me.node_id), view.epoch
        if self.fabric.planted.same_ids:
            place = epoch = 0
        self.state.ids_ahead = distance_in_fork(place, len(view.known), epoch)

    def _begin_anew(self, before: dict[str, int]) -> dict[str, int]:
        """Forget what can not be trusted any more; return the members before with which this node goes on."""
        if not self._serving:
            # It had stood down and knows nothing of anybody: all members are new to it.
            self._serving = True
            self.fabric.idle = ""
            before = {}
        elif self._to_reset or self.fabric.out_of_sync:
            # What this node has in memory includes what these members have said, or not: see `leave_all`.
            self.broker.leadership.leave_all()
            before = {node_id: before[node_id] for node_id in before if node_id not in self._to_reset}
        self._to_reset.clear()
        return before

    def _hold_back_offsets(self) -> None:
        """Before leaders change: a partition of which a newer copy may still be missing opens without its offsets."""
        for partition in range(self.state.partitions):
            held = not self.replication.replicas[partition].is_readable()
            self.broker.streams.hold(partition, held)
            self.broker.delivery.transactions.hold(partition, held)

    def _install_at_broker(self, view: View, before: dict[str, int]) -> None:
        """Tell the broker who leads which partition for it."""
        partitions = self.state.partitions
        self.fabric.away = not view.is_whole()
        self.fabric.absent = dict.fromkeys([*view.losses.missing, *view.losses.damaged])
        self.fabric.holds = [self.me.node_id in replicas for replicas in view.replicas] or [False] * partitions
        self.broker.leadership.install(
            view.epoch,
            self._members,
            self.scarcity.leaders(view) or [""] * partitions,
            list(view.leader_epochs) or [0] * partitions,
            before,
            list(view.branches),
            self._since(view),
        )
        # Marks of nodes that are no more are dropped, but not while anybody is away: a merge compares them.
        known = [*view.known, *self._members, self.me.node_id] if view.is_whole() else []
        self.broker.partition.marks.know(known)
        assert self.fabric.epoch == view.epoch, "the broker has the view"
        led = [partition for partition in range(partitions) if self.state.leads[partition]]
        assert all(self.replication.leads(one) for one in led), "a leadership that goes on does so in both halves"

    def _find_unopened(self) -> None:
        """Note which partitions are still to be opened: at their leaders, and here."""
        partitions = range(self.state.partitions)
        self._unopened = self.scarcity.served([p for p in partitions if not self.fabric.open[p]])
        led = self.scarcity.served([p for p in partitions if self.replication.leads(p)])
        self._again = [p for p in led if not self.state.leads[p]]

    def _since(self, view: View) -> dict[str, int]:
        """Return in which epoch each other member and this one have started over."""
        bases = view.bases
        own = bases[self.me.node_id]
        return {node_id: max(bases[node_id], own) for node_id in bases if node_id != self.me.node_id}

    def _find_resets(self, view: View, members: dict[str, int]) -> None:
        """Note with which members this node starts over: those that have come up again, though the process is the same.

        The others have taken their clients for disconnected, and forwarded nothing to them.
        """
        for node_id, incarnation in members.items():
            if self._members.get(node_id) == incarnation:
                reset = view.bases[node_id] > self._epoch
            else:
                reset = self._past.get(node_id) == incarnation
            if reset:
                self._to_reset[node_id] = None
        self._past.update(members)

    def _see_features(self) -> None:
        self.fabric.features = features_on(self.features, list(self._members), self.peers.features())
        self.fabric.defers = self._forks and DEFERS in self.fabric.features

    def _serves(self) -> bool:
        return self.membership.may_write

    def _stand_down(self) -> None:
        """Serve no client while this node is not up: the cluster continues without it, or its side is about to fork.

        What is not committed is taken back where there are forks: its clients may be at another side by now, and send
        it again.
        """
        if self._serving and not self._serves():
            self._serving = False
            self._again, self._unopened = [], []
            why = "the cluster goes on without this node"
            self.fabric.idle = why
            self._drop_withheld()
            self.broker.flush()
            self.broker.leadership.stand_down(why)
            if self._forks and not self.fabric.planted.tail_kept:
                self.replication.truncate(self._rows)

    def _keep_connected(self) -> None:
        if self.membership.seeks:
            self.membership.know_seeds(self.peers.residents())
        if self._wants is self.membership.wants:
            return
        self._wants = self.membership.wants
        wants = dict.fromkeys(self.membership.wants)
        for address in wants:
            if address not in self._wanted:
                self.peers.want(address)
        for address in self._wanted:
            if address not in wants:
                self.peers.unwant(address)
        self._wanted = wants

    def _collect(self) -> None:
        """Collect the messages so far, in their order; `send` sends them."""
        for out in (self.membership.out, self.replication.out, self.fabric.out):
            self._outgoing.extend(out)
            out.clear()

    def take_effects(self, effects: Effects) -> None:
        """Put what the driver has to do for peers into a turn's effects."""
        peers = self.peers
        effects.dials = list(peers.dials)
        peers.dials.clear()
        effects.peer_outputs = list(peers.outputs)
        for peer in peers.outputs:
            self.state.counters.peer_bytes_sent += peer.output_bytes()
        peers.outputs.clear()
        effects.peer_closes = list(peers.closes)
        peers.closes.clear()

    def take_events(self) -> list[Event]:
        """Return the events for the log."""
        events: list[Event] = []
        for source in (self.peers.events, self.membership.events, self.replication.events):
            events.extend(source)
            source.clear()
        return events

    def more(self) -> bool:
        """Whether there is work to continue at once."""
        for inbox in self._inboxes.values():
            if not inbox.is_empty():
                return True
        unsealed = self.state.writer.dirty or self.broker.turn.commits.asked  # by what came after the turn's end
        return unsealed or self.replication.more() or bool(self.membership.installs) or self.opening.runnable()
