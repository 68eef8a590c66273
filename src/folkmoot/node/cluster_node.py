"""Between the broker and the cluster: carries views, changes and messages from one to the other, turn by turn.

Decides nothing. The order matters and is this: messages of peers are taken as they come; a view is installed only
between two turns, after the rows of the turn before it were handed over; what a turn has to say to a peer leaves as one
frame at its end, together with the changes that it says it about.
"""

from __future__ import annotations

from folkmoot.broker.broker import Broker
from folkmoot.kernel.event import Event
from folkmoot.kernel.feature import features_on
from folkmoot.membership.membership import Membership
from folkmoot.membership.view import View
from folkmoot.node.congestion import Congestion
from folkmoot.node.effect import Effects
from folkmoot.node.heal_log import HealLog
from folkmoot.node.load import is_full, level_of, own_load
from folkmoot.node.meter import Meter
from folkmoot.node.opening import Opening
from folkmoot.node.pace import Pace
from folkmoot.node.replica_holdings import ReplicaHoldings
from folkmoot.node.rows import put_view, read_view
from folkmoot.node.shutdown import Shutdown
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import BROKER_FIRST, HEALS, REPLICATION_FIRST
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.peer.peer import PeerChange
from folkmoot.peer.peers import Peers
from folkmoot.replica.replication import Replication
from folkmoot.store.batch import Batch
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.receipt import Evidence
from folkmoot.turn.state import State

__all__ = ["ClusterNode"]


class _Disks(Evidence):
    """What the followers have said of their disks."""

    def __init__(self, replication: Replication) -> None:
        self.replication = replication

    def copies(self, partition: int, sequence: int) -> int:
        return self.replication.lead.copies_of(partition, sequence)


class ClusterNode:
    """The cluster's side of one node."""

    def __init__(
        self, config: ClusterConfig, state: State, fabric: Fabric, broker: Broker, incarnation: int, version: str
    ) -> None:
        self.config = config
        self.state = state
        self.fabric = fabric
        self.broker = broker
        self.features = config.features
        # So long silent, a process may be put out beside one that has died: it beats more often than that.
        self.stood_us = 3 * config.heartbeat_us
        zone = config.zone if config.zone else fabric.node_id
        self.me = Member(fabric.node_id, incarnation, config.peer_address, zone, ACTIVE, 1, 1, version)
        self.peers = Peers(self.me, config, state.rng.fork())
        self.congestion = Congestion(config, fabric, broker, self.peers)
        self.replication = Replication(fabric.node_id, state.partitions, config, state.reader, state.writer)
        broker.receipts.evidence = _Disks(self.replication)
        stored = self.stored = read_view(state.reader)
        self.membership = Membership(
            self.me, config, state.partitions, state.rng.fork(), ReplicaHoldings(self.replication), stored
        )
        self.pace = Pace(self.replication.copies)
        self.opening = Opening(state, broker, self.replication)
        self.meter = Meter(state.counters, self.peers, self.replication)
        self.shutdown = Shutdown(state, broker, self.membership)
        self.heal_log = HealLog(fabric.node_id, state, self.peers, self.replication)
        self._needs_majority = config.split_policy == "majority"
        self._members: dict[str, int] = {}  # the others of the view: their incarnations
        self._wanted: dict[str, None] = {}
        self._serving = False
        self._epoch = 0  # of the view
        self._again: list[int] = []  # partitions that begin anew here, when the store shows what was written
        self._past: dict[str, int] = {}  # all that have been members: their newest incarnations
        self._to_reset: dict[str, None] = {}  # members that were at another side: the view begins anew with them
        self._unopened: list[int] = []  # partitions whose leader has not said that it is there

    @property
    def view(self) -> View | None:
        """The installed view."""
        return self.membership.view

    def open(self) -> None:
        """Read how far this node's copies are; raises CorruptStore or StoreError."""
        self.replication.open(self.state.now, self.stored)
        self.heal_log.open()
        self.membership.wake(self.state.now)
        self.step()

    # -- what comes ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Take what peers have said, and let every part go on with it."""
        now = self.state.now
        peers = self.peers
        while peers.changes or peers.inbox:
            changes = list(peers.changes)
            peers.changes.clear()
            inbox = list(peers.inbox)
            peers.inbox.clear()
            for change in changes:
                self._change(change, now)
            for node_id, kind, body in inbox:
                self._message(node_id, kind, body, now)
        self._progress(now)

    def _change(self, change: PeerChange, now: int) -> None:
        if change.up:
            self.state.counters.peer_connects += 1
            self.membership.up(change.member, now)
            self._see_features()
            if not change.resumed:
                self.membership.renewed(change.node_id)
                self.heal_log.greet(change.node_id)
                self.broker.switch.forget(change.node_id)
                if self._members.get(change.node_id, -1) == change.incarnation:
                    self.fabric.lose_sync(change.node_id)  # the next view begins anew with it
                    self.membership.changed(now)
        else:
            if change.refused:
                self.broker.switch.forget(change.node_id)  # what it has said of a view to come is for nobody
            else:  # that a process is gone is told after the loss of its connections
                self.state.counters.peer_losses += 1
            self.membership.down(change.node_id, change.incarnation, change.refused, now)

    def _message(self, node_id: str, kind: int, body: bytes, now: int) -> None:
        if kind == HEALS:
            self.heal_log.learn(node_id, body)
        elif kind < REPLICATION_FIRST:
            self.membership.receive(node_id, kind, body, now)
        elif kind < BROKER_FIRST:
            self.replication.receive(node_id, kind, body, now)
        else:
            self._void()
            self.broker.switch.receive(node_id, kind, body)

    def _void(self) -> None:
        """Let those go whose packets are lost with a change of leaders, before the next leader speaks to them."""
        for token, partition in self.replication.abandoned:
            self.broker.fail(token, partition)
        self.replication.abandoned.clear()

    def _progress(self, now: int) -> None:
        """Tell each part what the others have decided."""
        replication = self.replication
        for partition, node_id in replication.filled:
            self.membership.filled(partition, node_id, now)
        replication.filled.clear()
        if replication.unfit:
            replication.unfit.clear()
            self.membership.changed(now)
        if self._unopened:
            self._look_for_leaders()
        if self._again and replication.replica_states.is_written(self._again):
            again = self._again
            self._again = []
            self.broker.leadership.prepare(again)
        if replication.ready:
            ready = list(replication.ready)
            replication.ready.clear()
            if self._serving:
                self.broker.leadership.prepare(ready)
        if not self.state.routes_whole:
            self.broker.know()
        self._void()
        if self.fabric.idle:
            self.broker.waking.know()
        self.broker.awake()
        # Turns without rows, and answers of other nodes, bring turns to completion too.
        self.broker.committed(replication.committed_token)

    def _look_for_leaders(self) -> None:
        """Leaders of other nodes that have opened their partitions take requests; this one knows by itself."""
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
        self.broker.written(token)
        self.replication.written(token, self.state.now)
        self._progress(self.state.now)

    def wake(self) -> None:
        """Deadlines may have come."""
        now = self.state.now
        for node_id in self._members:
            self.membership.heard(node_id, self.peers.last_heard_us(node_id))
        self.membership.bootstrap.refused_us = self.peers.refused_us
        self.membership.set_full(self.state.storage_full, now)
        self.membership.set_load({**own_load(self.state), **self.pace.figures(now)})
        levels = [level_of(self.membership.load_of(node_id)) for node_id in self._members]
        self.broker.overload.others = max(levels, default=0)
        self.fabric.full = {node_id: None for node_id in self._members if is_full(self.membership.load_of(node_id))}
        self.peers.wake(now)
        self.membership.wake(now)
        self.replication.wake(now)
        self.shutdown.step()
        self.meter.step(now)
        self.heal_log.step()
        self.step()
        if self.opening.step():
            self._progress(now)

    def next_wake(self) -> int:
        """Return when `wake` is due, in microseconds."""
        return min(self.peers.next_wake(), self.membership.next_wake(), self.replication.next_wake())

    # -- what goes ----------------------------------------------------------------------------------------------------

    def seal(self, batch: Batch | None) -> None:
        """A turn ends with this batch: ship it, install views, and send everything that is to be said."""
        now = self.state.now
        self.replication.seal(batch, now)
        self._send()
        while self.membership.installs:
            view = self.membership.installs.pop(0)
            self._install(view)
        self._stand()
        self._progress(now)
        self.congestion.weigh(self._members)
        self.broker.speak()
        self._keep_connected()
        self._send()
        self.peers.flush(now)

    def _install(self, view: View) -> None:
        now = self.state.now
        self.broker.flush()
        if self._needs_majority and not view.has_majority():
            return  # copies stay as they are: what was not committed when the split came must not become so
        put_view(self.state.writer, view)
        self.state.minority_side = False
        if self._serving and self._lost_majority(view):
            self._begin_as_minority()
        elif self._serving and view.begins_anew(self.me.node_id, self.replication.replica_states.view):
            self._serving = False
            self.broker.leadership.stand_down("this node was forgotten, and begins anew")
            self.broker.flush()
        self.replication.install(view, now)
        members = {member.node_id: member.incarnation for member in view.members if member.node_id != self.me.node_id}
        before = self._members
        self._find_resets(view, members)
        self._members = members
        self.congestion.installed(members)
        self._see_features()
        self._epoch = view.epoch
        self.replication.closed.clear()  # the broker compares the leaders itself
        if not self._serves():
            return
        if not self._serving:
            self._serving = True
            self.fabric.idle = ""
            before = {}
        elif self._to_reset or self.fabric.out_of_sync:
            self.broker.leadership.leave_all()
            before = {node_id: before[node_id] for node_id in before if node_id not in self._to_reset}
        self._to_reset.clear()
        partitions = self.state.partitions
        leaders = [replicas[0] if replicas else "" for replicas in view.replicas]
        self.fabric.holds = [self.me.node_id in replicas for replicas in view.replicas] or [False] * partitions
        for partition in range(partitions):
            held = not self.replication.replica_states.is_readable(partition)
            self.broker.streams.hold(partition, held)
            self.broker.transactions.hold(partition, held)
        merging = list(view.branches)
        self.broker.leadership.install(view.epoch, members, leaders if leaders else [""] * partitions, before, merging)
        self.broker.marks.know([*view.known, *members, self.me.node_id] if view.is_whole() else [])
        self._unopened = [partition for partition in range(partitions) if not self.fabric.open[partition]]
        self._again = [p for p in range(partitions) if self.replication.leads(p) and not self.state.leads[p]]
        self.broker.know()
        self.broker.switch.installed()

    def _lost_majority(self, view: View) -> bool:
        """Whether members were lost that may go on by themselves, and count for more than those who are left."""
        before = self.replication.replica_states.view
        if before is None or view.has_majority_or_tie():
            return False
        return any(before.member(node_id) is not None for node_id in view.doubtful)

    def _begin_as_minority(self) -> None:
        """Begin anew as the smaller side of a split: nothing is told that was not certain before the others were lost.

        Clients that seem to be here may be with the others by now, and send there again what was not answered here.
        """
        self._serving = False
        self.state.minority_side = True
        self.broker.take_back()
        self.broker.leadership.stand_down("this is the smaller side of a split")
        self.broker.flush()

    def _find_resets(self, view: View, members: dict[str, int]) -> None:
        """Note with whom all begins anew: who was in a view without this node, or is back in one with it.

        A side of a split takes the clients of the other for gone, and passes nothing on to it.
        """
        excluded_by = self.membership.excluded_by
        for node_id, incarnation in members.items():
            if self._members.get(node_id) == incarnation:
                reset = node_id in excluded_by or view.bases.get(node_id, 0) > self._epoch
            else:
                reset = self._past.get(node_id) == incarnation
            if reset:
                self._to_reset[node_id] = None
        excluded_by.clear()
        self._past.update(members)

    def _see_features(self) -> None:
        self.fabric.features = features_on(self.features, list(self._members), self.peers.features())

    def _serves(self) -> bool:
        return self.membership.state == "member" and self.membership.may_write

    def _stand(self) -> None:
        """Serve nobody while the cluster goes on without this node, or while this side of a split may not go on."""
        if self._serving and not self._serves():
            self._serving = False
            self._again, self._unopened = [], []
            excluded = self.membership.state == "excluded"
            why = "the cluster goes on without this node" if excluded else "this side of the split has no majority"
            self.fabric.idle = why
            self.broker.flush()
            self.broker.leadership.stand_down(why)

    def _keep_connected(self) -> None:
        if self.membership.seeks:
            self.membership.know_seeds(self.peers.residents())
        wants = dict.fromkeys(self.membership.wants)
        for address in wants:
            if address not in self._wanted:
                self.peers.want(address)
        for address in self._wanted:
            if address not in wants:
                self.peers.unwant(address)
        self._wanted = wants

    def _send(self) -> None:
        for out in (self.membership.out, self.replication.out, self.fabric.out):
            for node_id, kind, body in out:
                self.peers.send(node_id, kind, body)
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
        """Return the facts for the log."""
        events: list[Event] = []
        for source in (self.peers.events, self.membership.events, self.replication.events):
            events.extend(source)
            source.clear()
        return events

    def more(self) -> bool:
        """Whether there is work that could go on at once."""
        unsealed = self.state.writer.dirty or self.broker.commits.asked  # by what came after the turn's end
        return unsealed or self.replication.more() or bool(self.membership.installs) or self.opening.runnable()
