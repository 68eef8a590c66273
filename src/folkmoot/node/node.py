"""A node: the one interface for drivers. Every call carries the time; `drain` ends the turn and returns its effects."""

from __future__ import annotations

from typing import Final

from folkmoot.auth.access import Access
from folkmoot.auth.remembered import Remembered
from folkmoot.broker.broker import Broker
from folkmoot.kernel.clock import MILLISECOND, NEVER
from folkmoot.kernel.event import INFO
from folkmoot.kernel.planted import Planted
from folkmoot.kernel.rng import Rng
from folkmoot.membership.cluster_settings import ANY, Setting, SettingNews
from folkmoot.membership.holding import COMPLETE
from folkmoot.membership.log_rows import drop_lineages, put_cluster
from folkmoot.membership.requests import SettingAnswer
from folkmoot.membership.view import View
from folkmoot.metrics.counters import Counters, Histograms
from folkmoot.node.birth import Birth, read_birth, write_birth
from folkmoot.node.clock_report import ClockReport
from folkmoot.node.cluster_node import ClusterNode
from folkmoot.node.config import NodeConfig
from folkmoot.node.effect import Effects
from folkmoot.node.severity import temper
from folkmoot.node.withheld import NO_LEASE, Withheld
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.peer.peer import PeerConnection
from folkmoot.query.question import Answer
from folkmoot.report.call import Call
from folkmoot.report.copies import Copies
from folkmoot.session.connection import CLOSED, CLOSING, Connection, PeerInfo
from folkmoot.store.batch import Batch
from folkmoot.store.overlay import Overlay
from folkmoot.store.reader import Reader
from folkmoot.store.writer import Writer
from folkmoot.streams.log import StreamLog
from folkmoot.streams.table import Streams
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import Identity, State

__all__ = ["Node"]

_APPLY_BYTES: Final = 128 << 10
"""Rows go to the tables when there are so many bytes of them: one write of some milliseconds."""

_APPLY_US: Final = 50 * MILLISECOND
"""Or when the oldest of them has waited for so long, in the next turn."""


class Node:
    """One node as a deterministic core: the same calls with the same times give the same effects.

    No call raises for what a client sends. `now` is a monotonic clock in microseconds that began, when the process did,
    at its wall clock; steps of the wall clock are reported by `set_wall`.
    A single node is a cluster of one: it leads every partition, in a view whose epoch is the number of its start.
    """

    def __init__(self, config: NodeConfig, reader: Reader, seed: int) -> None:
        """Raises StoreError if the store belongs to a node with other settings, CorruptStore if it is damaged."""
        self.config = config
        self.birth: Birth = read_birth(reader, config, seed)
        member = Member(config.node_id, self.birth.incarnation, "", config.node_id, ACTIVE)
        member.disk = self.birth.disk
        self.view = View(self.birth.incarnation, [member])
        identity = Identity()
        identity.node_id = config.node_id
        identity.version = config.version
        identity.response_information = config.response_information
        identity.server_reference = config.server_reference
        identity.incarnation = self.birth.incarnation
        writer = Writer(config.partitions, self.view.epoch)
        self._rows = Overlay(reader)
        self._state = State(identity, config.limits, config.access(), config.partitions, self._rows, writer, Rng(seed))
        self.streams = Streams(config.streams, config.partitions, self._rows)
        self.histograms = Histograms()
        alone = config.cluster is None
        self._state.alone = alone
        self._state.routes_known = self._state.routes_whole = alone
        self._clock_report = ClockReport(self._state)
        fabric = Fabric(config.node_id, config.partitions, alone)
        if config.cluster is not None:
            fabric.planted = Planted(config.cluster.planted)
            self._state.work.endless = fabric.planted.endless_turns
        self._planted = fabric.planted
        self._broker = Broker(self._state, fabric, self.streams)
        self._withheld = Withheld(self._state, fabric, self._broker)
        self._sealed = False
        self._renewed_token = 0  # of the batch that makes the folder another disk; 0: there is none
        self._renewed = False  # that batch is durable
        self._write: Batch | None = None
        self.remembered = Remembered()  # of passwords that were right, here or at other nodes; for the driver
        self.cluster_node: ClusterNode | None = None
        if config.cluster is not None:
            self.cluster_node = ClusterNode(
                config.cluster,
                self._state,
                fabric,
                self._broker,
                self._rows,
                self.birth,
                config.version,
                self.remembered,
            )

    @property
    def counters(self) -> Counters:
        """The figures of this node, for metrics."""
        return self._state.counters

    @property
    def now(self) -> int:
        """The time of the last call, on the clock of the driver."""
        return self._state.now

    def open(self, now: int) -> None:
        """Restore what the store has; raises CorruptStore or StoreError. Call it once, before everything else."""
        self._state.clock.begin(now, now)
        self._tick(now)
        self._state.started_us = self._state.now
        self._state.counters.started_us = self._state.now
        if self.cluster_node is not None:
            self.cluster_node.open()
        write_birth(self._state.writer, self.birth, self.config)
        self._broker.open()
        fields: dict[str, object] = {"node": self.config.node_id, "start": self.view.epoch}
        if self.cluster_node is None:
            fields["sessions"] = len(self._state.sessions)
            fields["queued"] = self._state.counters.queue_messages
            fields["retained"] = self._state.counters.retained_messages
        else:  # what is in them is known, and told by `leads`, where they are led
            fields["copies"] = self.cluster_node.replication.count(COMPLETE)
        self._state.event(INFO, "opened", fields)

    def connect(self, handle: object, info: PeerInfo, now: int) -> Connection:
        """A network connection was accepted; `handle` belongs to the driver and is kept as `Connection.handle`."""
        self._tick(now)
        return self._broker.connect(handle, info)

    def receive(self, connection: Connection, data: bytes, now: int) -> None:
        """Bytes came on a connection, in chunks of any size."""
        self._tick(now)
        self._broker.receive(connection, data)

    def lost(self, connection: Connection, why: str, now: int) -> None:
        """The network connection has ended, for whatever reason; may be called twice."""
        self._tick(now)
        self._broker.lost(connection, why)

    def writable(self, connection: Connection, flag: bool, now: int) -> None:
        """The transport's buffer is full (False), or has room again (True)."""
        self._tick(now)
        self._broker.writable(connection, flag)

    def authenticated(self, connection: Connection, ok: bool, now: int) -> None:
        """The answer to an Authenticate effect."""
        self._tick(now)
        self._broker.authenticated(connection, ok)

    def remember(self, mark: bytes, now: int) -> None:
        """The driver has found a password right: remember its mark, and tell the other nodes."""
        self._tick(now)
        if self.cluster_node is not None:
            self.cluster_node.logins.share(mark)
        else:
            self.remembered.add(mark)

    def limited(self, connection: Connection, why: str, now: int) -> None:
        """The answer to an Authenticate effect that is not checked, after too many wrong passwords."""
        self._tick(now)
        self._broker.limited(connection, why)

    def crowded(self, connection: Connection, why: str, now: int) -> None:
        """The answer to an Authenticate effect for which there is no room."""
        self._tick(now)
        self._broker.crowded(connection, why)

    def reload(self, access: Access, now: int) -> None:
        """Other rules for clients are in force: all that is open is judged again, a page per turn."""
        self._tick(now)
        self._broker.reload(access)

    def replace_secrets(self, words: list[bytes], now: int) -> None:
        """Use other secrets of the cluster: the first to prove, all to accept."""
        self._tick(now)
        if self.cluster_node is not None:
            self.cluster_node.peers.replace_secrets(words, self._state.now)
            self.cluster_node.step()

    def connections(self) -> list[Connection]:
        """Return the network connections of clients that are open."""
        return list(self._state.connections.values())

    def revoke(self, connection: Connection, why: str, now: int) -> None:
        """The driver would not accept a connection any more, such as one whose certificate is not trusted now."""
        self._tick(now)
        self._broker.revoke(connection, why)

    def storage(self, full: bool, why: str, now: int) -> None:
        """The disk is full, or nearly, or has room again."""
        self._tick(now)
        self._broker.storage(full, why)
        if self.cluster_node is not None:
            self.cluster_node.membership.set_full(full, self._state.now)

    def disk_low(self, low: bool, now: int) -> None:
        """The disk is nearly full, so that users with much on it may not store more, or has enough room again."""
        self._tick(now)
        self._broker.disk_low(low)

    def written(self, token: int, now: int) -> None:
        """The batch with this token, and all before it, are durable."""
        self._tick(now)
        self._rows.written(token, self._state.now)
        if self.cluster_node is not None:
            self._renewed = 0 < self._renewed_token <= token
            self.cluster_node.written(token)
            return
        self._broker.written(token)
        self._broker.committed(token)

    def applied(self, now: int) -> None:
        """The tables have the operations of `Effects.apply`."""
        self._tick(now)
        self._rows.applied()

    def wake(self, now: int) -> None:
        """A deadline of `next_wake` has come, or the last effects said `more`."""
        self._tick(now)
        self._state.counters.wakes += 1
        self._broker.wake()
        if self.cluster_node is not None:
            self.cluster_node.wake()

    def next_wake(self) -> int:
        """Return when `wake` must be called at the latest, in microseconds, or NEVER."""
        due = min(self._state.timers.next_due(), self._withheld.due_us)
        return due if self.cluster_node is None else min(due, self.cluster_node.next_wake())

    # -- streams ------------------------------------------------------------------------------------------------------

    def leads_stream(self, log: StreamLog) -> bool:
        """Whether a stream partition can be read here; else another node is asked."""
        return self._broker.report.calls.leads(log)

    @property
    def copies(self) -> Copies:
        """Reading stream partitions of which this node has a copy."""
        return self._broker.report.calls.copies

    def ask_stream(
        self, handle: object, log: StreamLog, what: int, numbers: list[int], now: int
    ) -> Call | Answer | None:
        """Ask the leader of a stream partition, see `folkmoot.query.question`; None: it has no open leader.

        A call ends with `Effects.calls`; `handle` belongs to the driver and is kept as `Call.handle`.
        """
        self._tick(now)
        return self._broker.report.calls.ask(handle, log, what, numbers)

    def ask_table(
        self, handle: object, name: bytes, partition: int, node_id: str, flags: int, after: bytes, now: int
    ) -> Call | Answer | None:
        """Ask a partition's leader, or a given node, for a page of a table, see `folkmoot.report.table`; as above."""
        self._tick(now)
        return self._broker.report.calls.ask_table(handle, name, partition, node_id, flags, after)

    def stream_end(self, log: StreamLog, now: int) -> int:
        """Return the readable end of a stream partition as far as it is known here, -1 if it is not.

        `Effects.grown` reports once that the end of a stream partition that another node leads has changed since.
        """
        self._tick(now)
        return self._broker.report.calls.end_of(log)

    # -- transactions -------------------------------------------------------------------------------------------------

    def ask_home(
        self, handle: object, partition: int, what: int, name: bytes, numbers: list[int], key: bytes, now: int
    ) -> Call | Answer | None:
        """Ask the leader of an app's home to do something, see `folkmoot.report.order`; None: it has no open leader.

        A call ends with `Effects.calls`, as one of `ask_stream` does.
        """
        self._tick(now)
        return self._broker.report.orders.ask(handle, partition, what, name, numbers, key)

    def homes(self) -> list[list[int]]:
        """Return the partitions that have a leader, grouped by leader."""
        return self._broker.report.orders.homes()

    # -- peers --------------------------------------------------------------------------------------------------------

    def peer_connected(self, handle: object, address: str, outgoing: bool, now: int) -> PeerConnection:
        """A network connection to another node was made: dialled to `address`, or accepted from it."""
        self._tick(now)
        cluster_node = self._cluster_node()
        peer = cluster_node.peers.connected(handle, address, outgoing, self._state.now)
        cluster_node.step()
        return peer

    def peer_received(self, peer: PeerConnection, data: bytes, now: int) -> None:
        """Bytes came from another node, in chunks of any size."""
        self._tick(now)
        cluster_node = self._cluster_node()
        cluster_node.peers.received(peer, data, self._state.now)
        cluster_node.step()

    def peer_writable(self, peer: PeerConnection, flag: bool, now: int) -> None:
        """The transport's buffer is full (False), or has room again (True)."""
        self._tick(now)
        self._cluster_node().peers.writable(peer, flag, self._state.now)

    def peer_lost(self, peer: PeerConnection, why: str, now: int) -> None:
        """The connection has ended, for whatever reason; may be called twice."""
        self._tick(now)
        cluster_node = self._cluster_node()
        cluster_node.peers.lost(peer, why, self._state.now)
        cluster_node.step()

    def dial_failed(self, address: str, why: str, refused: bool, now: int) -> None:
        """An address of `Effects.dials` could not be reached; `refused`: its host answers that nothing listens."""
        self._tick(now)
        cluster_node = self._cluster_node()
        cluster_node.peers.dial_failed(address, why, refused, self._state.now)
        cluster_node.step()

    def stalled(self, what: str, since_us: int, now: int) -> None:
        """What is named so ("disk") has stalled since then; 0 = it works again."""
        self._tick(now)
        if self.cluster_node is not None:
            self.cluster_node.membership.stalled(what, since_us)

    def leave(self, now: int) -> None:
        """Hand over all copies, announce the end, and leave for good; then `left`, and the process may end."""
        self._tick(now)
        self._cluster_node().membership.leave(self._state.now)

    @property
    def left(self) -> bool:
        """Whether this node has left its cluster, so that nothing depends on it."""
        return self.cluster_node is not None and self.cluster_node.membership.left

    def seek(self, seeds: list[str], now: int) -> None:
        """Replace the seeds by these peer addresses."""
        self._tick(now)
        cluster_node = self._cluster_node()
        cluster_node.config.seeds = list(seeds)
        cluster_node.config.seeds_unknown = False
        cluster_node.step()

    @property
    def found(self) -> bool:
        """Whether this node is in a view with others, or knows of no others."""
        cluster_node = self.cluster_node
        if cluster_node is None:
            return True
        view = cluster_node.membership.view
        if view is None or cluster_node.membership.state not in ("member", "witness"):
            return False
        config = cluster_node.config
        return len(view.members) > 1 or not [seed for seed in config.seeds if seed != config.peer_address]

    # -- settings of the whole cluster, for the HTTP interface that is to come ----------------------------------------

    def put_setting(self, key: str, value: bytes, author: str, now: int, expected: int = ANY, lineage: int = 0) -> int:
        """Ask for a setting of the whole cluster, of at most 64 KiB; return the ticket that `take_answers` will name.

        The change is made once at most, and the answer comes within some ten seconds.

        expected: the number of the value that this one replaces, ABSENT for none, ANY for whatever there is. lineage:
        where that was read (`settings_lineage`): after a split another value may have the same number; 0: here.
        """
        self._tick(now)
        return self._cluster_node().membership.put(key, value, expected, author, self._state.now, lineage)

    def delete_setting(self, key: str, author: str, now: int, expected: int = ANY, lineage: int = 0) -> int:
        """Ask for the end of a setting; return the ticket that `take_answers` will name."""
        self._tick(now)
        return self._cluster_node().membership.delete(key, expected, author, self._state.now, lineage)

    @property
    def settings_lineage(self) -> int:
        """The lineage in which the numbers of settings count."""
        return self._cluster_node().membership.settings_lineage

    def take_answers(self) -> list[SettingAnswer]:
        """Return what became of requests for settings since the last call."""
        return self._cluster_node().membership.take_answers()

    def setting(self, key: str) -> Setting | None:
        """Return a setting as this node knows it: its value, number and author; None if there is none."""
        return self._cluster_node().membership.settings.values.get(key)

    def settings_since(self, news: SettingNews | None) -> SettingNews:
        """Return which settings have changed since the last call, whose answer is passed; None: all that there are."""
        return self._cluster_node().membership.settings_since(news)

    @property
    def renewed(self) -> bool:
        """Whether the folder has become another disk: the driver stops this node, and opens another one on it.

        The folder was set back, copied, or removed from the cluster, so nobody may rely on what its former disk has
        confirmed. The new one joins as any other member, and is filled.
        """
        return self._renewed

    def _see_disk(self, cluster_node: ClusterNode) -> None:
        """Make the folder another disk if it has to be, and forget the former one when that is over."""
        membership = cluster_node.membership
        writer = self._state.writer
        if membership.renewal and self._renewed_token == 0:
            self.birth.renew(self._state.rng.next64(), self.config)
            write_birth(writer, self.birth, self.config)
            drop_lineages(writer)
            if membership.control.cluster:
                put_cluster(writer, membership.control.cluster)
            self._renewed_token = writer.token
        elif self.birth.former and membership.state in ("member", "witness"):
            self.birth.former = membership.held.former = 0
            write_birth(writer, self.birth, self.config)

    @property
    def stays(self) -> bool:
        """Whether this node is a member that does not leave, or not any more."""
        return self.cluster_node is not None and self.cluster_node.membership.stays

    @property
    def closing(self) -> bool:
        """Whether this node is about to leave, and should accept no more connections."""
        return self.cluster_node is not None and self.cluster_node.membership.drained

    def depart(self, now: int) -> None:
        """Have the others continue without this node, which stops (`stop`) and will be back; then `departed`."""
        self._tick(now)
        if self.cluster_node is not None:
            self.cluster_node.membership.depart(self._state.now)

    @property
    def departed(self) -> bool:
        """Whether the others continue without this node, or there are none."""
        return self.cluster_node is None or self.cluster_node.membership.departed

    def set_wall(self, wall_us: int, now: int) -> None:
        """The wall clock of the machine was set: at `now` it shows `wall_us`."""
        self._tick(now)
        self._state.clock.set_wall(wall_us)

    def lagged(self, late_us: int, now: int) -> None:
        """Report the lag of the event loop."""
        self._tick(now)
        self._broker.turn.overload.lag_us = late_us

    def measured(self, size: int, now: int) -> None:
        """Report the bytes that the process has in memory, about once a second and when `Effects.measure` asks."""
        self._tick(now)
        self._state.memory.measured(size, self._state.now)

    def _cluster_node(self) -> ClusterNode:
        assert self.cluster_node is not None, "a node alone has no peers"
        return self.cluster_node

    def stop(self, now: int) -> None:
        """Disconnect all clients, and take no new ones.

        When the effects are done and the last batch is `written`, the process can end without loss.
        """
        self._tick(now)
        self._broker.stop()

    def seal(self, now: int) -> None:
        """Take the last decisions of the turn. `drain` follows, with a time that was read after this."""
        self._tick(now)
        assert not self._sealed, "a turn ends once"
        self._sealed = True
        if self._withheld.active:
            self._withheld.step()
        if self.cluster_node is not None:
            self.cluster_node.prepare()
            self._see_disk(self.cluster_node)
        self._write = self._broker.seal()
        if self._write is not None:
            self._rows.submitted(self._write)
        if self.cluster_node is not None:
            self.cluster_node.seal(self._write)

    def drain(self, now: int, steady_ns: int = 0) -> Effects:
        """End the turn and return its effects, see `folkmoot.node.effect` for their order.

        steady_ns: the monotonic clock of the driver, in nanoseconds, read after `seal`: what clients may observe leaves
        only if the lease of this node ends later, see `folkmoot.node.withheld`.
        """
        if not self._sealed:
            self.seal(now)
        self._sealed = False
        self._tick(now)
        state = self._state
        assert steady_ns or not state.leased, "a lease ends on the monotonic clock"
        state.counters.turns += 1
        if state.clock.changed:
            self._clock_report.step()
        effects = Effects()
        effects.write = self._write
        self._write = None
        if self._rows.is_due(state.now, _APPLY_BYTES, _APPLY_US):
            effects.apply = self._rows.hand_over(self._broker.turn.commits.committed_token, state.now)
            effects.apply_token = self._rows.applying_token
        effects.until_ns = NEVER if self._planted.unleased else state.speaks_until_ns
        speaks = steady_ns < effects.until_ns
        cluster_node = self.cluster_node
        if cluster_node is not None:
            cluster_node.send(speaks)
            cluster_node.take_effects(effects)
            events = cluster_node.take_events()
            temper(events, cluster_node.membership)
            state.events.extend(events)
        self._broker.turn.overload.step()
        effects.outputs = list(state.outputs)
        state.outputs.clear()
        if state.outputs_gone:  # its transport is gone
            state.outputs_gone = False
            effects.outputs = [
                connection for connection in effects.outputs if connection.state != CLOSED and not connection.ending
            ]
        effects.closes = list(state.closes)
        state.closes.clear()
        if not speaks:
            self._withheld.hold(effects, steady_ns)
        elif self._withheld.active:
            self._withheld.release(effects)
        if state.drops:
            effects.drops = list(state.drops)
            state.drops.clear()
            for connection in effects.outputs:
                connection.dirty = bool(connection.out)
            effects.outputs = [connection for connection in effects.outputs if connection.dirty]
        for connection in effects.outputs:
            state.counters.bytes_sent += connection.out_bytes
            connection.bytes_out += connection.out_bytes
            if not connection.writable:  # `take_output` adds it to what is unsent
                state.memory.unsent_bytes += connection.out_bytes
                connection.counted_unsent_bytes += connection.out_bytes
        # A turn may pause and resume a connection: the last of both counts. One that closes is read to its end.
        effects.pauses = [
            connection for connection in state.pauses if connection.reading_paused and connection.state < CLOSING
        ]
        state.pauses.clear()
        self._broker.turn.throttle.defer_publishes()
        effects.resumes = [connection for connection in state.resumes if not connection.reading_paused]
        state.resumes.clear()
        effects.checks = list(state.checks)
        state.checks.clear()
        if state.listening and state.events:
            self._broker.delivery.event_publisher.overhear(state.events)
        if state.meter.on:
            state.meter.turn_end(state.now)
        effects.events = list(state.events)
        state.events.clear()
        calls = self._broker.report.calls
        if calls.ended:
            effects.calls = list(calls.ended)
            calls.ended.clear()
        effects.grown = calls.take_growth()
        state.counters.turn_steps += state.work.done()
        state.counters.input_waits = state.work.waits
        state.counters.clients_waiting = len(state.work)
        state.work.end_turn()
        effects.measure = state.memory.wanted
        effects.more = effects.more or self._broker.more() or (cluster_node is not None and cluster_node.more())
        return effects

    def withhold(self, effects: Effects) -> None:
        """The driver has found, just before it wrote, that the lease has ended: take back what has not left."""
        state = self._state
        for connection in effects.outputs:
            size = connection.out_bytes
            state.counters.bytes_sent -= size
            connection.bytes_out -= size
            if not connection.writable:
                state.memory.unsent_bytes -= size
                connection.counted_unsent_bytes -= size
        self._withheld.keep(effects)

    @property
    def speaks_until_ns(self) -> int:
        """When the lease of this node ends, on the monotonic clock of the driver; NEVER: it does not end."""
        return self._state.speaks_until_ns

    def lease(self, until_ns: int) -> None:
        """Set when the lease ends, for tests of a node without a cluster; in a cluster, `cluster_node` does."""
        self._state.speaks_until_ns = until_ns

    def silence(self, steady_ns: int) -> str:
        """Return why this node may not answer clients at this time of the monotonic clock; "": it may."""
        return "" if steady_ns < self._state.speaks_until_ns else NO_LEASE

    def _tick(self, now: int) -> None:
        passed_us = now - self._state.now
        if passed_us > 0:
            self._state.now = now
            self._state.clock.tick(now)
            if not self._state.speaks:
                self._broker.doubt_routes()
