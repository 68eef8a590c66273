"""The broker: makes its parts (`parts`), passes calls on to them, and ends turns."""

from __future__ import annotations

from folkmoot.auth.access import Access
from folkmoot.broker.dispatch import Dispatch
from folkmoot.channel.parts import ChannelParts
from folkmoot.delivery.parts import DeliveryParts
from folkmoot.feed.parts import FeedParts
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.event import ERROR, INFO, WARNING
from folkmoot.kernel.pack import varint
from folkmoot.leadership.leadership import Leadership
from folkmoot.leadership.shedding import Shedding
from folkmoot.mqtt import reason
from folkmoot.partition.partition import Led
from folkmoot.partition.parts import PartitionParts
from folkmoot.protocol.parts import ProtocolParts
from folkmoot.proxy.parts import ProxyParts
from folkmoot.report.parts import ReportParts
from folkmoot.session.connection import CHECKING, CLOSING, OPEN, REGISTERING, Connection, PeerInfo
from folkmoot.store.batch import Batch
from folkmoot.streams.table import Streams
from folkmoot.turn.commit import PendingTurn
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import LANDED
from folkmoot.turn.parts import TurnParts
from folkmoot.turn.state import (
    TIMER_ABSENT,
    TIMER_CONNECT,
    TIMER_DRAIN,
    TIMER_EVENTS,
    TIMER_LAZY,
    TIMER_OVERLOAD,
    TIMER_RATE,
    TIMER_RETENTION,
    TIMER_TABLES,
    State,
)

__all__ = ["Broker"]

_RETENTION_INTERVAL_US = 10 * SECOND
_LATE_US = 2 * SECOND  # a deadline that is this late means that nothing was read either
_DEADLINES_MAX = 256  # in one turn: a hundred thousand sessions may expire in the same second


class Broker:
    """The MQTT and streams half of a node; the time is `state.now`, which the node sets."""

    def __init__(self, state: State, fabric: Fabric, streams: Streams) -> None:
        self.state = state
        self.fabric = fabric
        self.streams = streams
        self.turn = TurnParts(state, fabric, streams)
        led = Led()
        self.channel = ChannelParts(led, self.turn)
        self.proxy = ProxyParts(self.turn, self.channel)
        self.partition = PartitionParts(led, self.turn)
        self.delivery = DeliveryParts(self.turn, self.channel, self.partition)
        self.feed = FeedParts(self.turn, self.partition)
        self.protocol = ProtocolParts(self.turn, self.proxy, self.partition, self.delivery, self.feed)
        self.report = ReportParts(self.turn, self.partition, self.delivery, self.feed)
        self.leadership = Leadership(
            self.turn,
            self.channel,
            self.proxy,
            self.partition,
            self.delivery,
            self.feed,
            self.protocol,
            self.report.orders,
        )
        self.shedding = Shedding(state, self.protocol.closing, self.proxy.relays, self.leadership.hosting)
        self.dispatch = Dispatch(
            self.turn,
            self.channel,
            self.proxy,
            self.delivery,
            self.protocol,
            self.report.orders,
            self.leadership,
        )
        self._ingress = self.protocol.ingress  # asked for each chunk of bytes
        self._connections = 0  # since the start: the number of the newest one
        self._trimming = False  # retention is removing records of streams, a page per turn

    def open(self) -> None:
        """Restore what the store has, on a node alone; raises CorruptStore or StoreError."""
        if self.fabric.alone:
            for partition in range(self.state.partitions):
                self.leadership.restore.load(partition)
            self.leadership.restore.settle()
        self.delivery.sys.start()
        if self.streams.streams:
            self.state.timers.set(self.state.now + _RETENTION_INTERVAL_US, TIMER_RETENTION, 0)

    # -- connections --------------------------------------------------------------------------------------------------

    def connect(self, handle: object, info: PeerInfo) -> Connection:
        """A network connection was accepted: it has a limited time for its CONNECT [MQTT-3.1.4-1]."""
        self._connections += 1
        now = self.state.now
        connection = Connection(self._connections, handle, info, now, self.state.outputs)
        self.state.connections[connection.id] = connection
        self.state.counters.connections += 1
        self.state.counters.connections_opened += 1
        # The time of its TLS handshake counts.
        patience_us = max(self.state.limits.connect_timeout_us - info.waited_us, 0)
        self.state.timers.set(now + patience_us, TIMER_CONNECT, connection.id)
        return connection

    def receive(self, connection: Connection, data: bytes) -> None:
        """Bytes came."""
        if connection.unsent_bytes > self.state.limits.send_buffer_bytes_max and connection.state < CLOSING:
            # Messages wait until the client reads, but answers cannot: it sends requests and reads no answer (A13).
            self.protocol.closing.disconnect(
                connection, reason.QUOTA_EXCEEDED, "the client does not read what it is sent"
            )
        if connection.state < CLOSING:
            self._ingress.receive(connection, data)
            self.turn.throttle.weigh(connection)

    def lost(self, connection: Connection, why: str) -> None:
        """The network connection has ended."""
        if connection.ending:
            return
        if self._is_unheard(connection):
            if connection.relay is not None:
                connection.relay.let_overtake()  # its messages need not wait for each other any more
            connection.ending = why or "lost"  # it sent that before it ended
            self.turn.throttle.release(connection)
            if connection.dirty:
                self.state.outputs_gone = True
            connection.dirty = True  # its output goes nowhere
            if connection.state == OPEN:
                self.state.work.give_up(connection)
                self.state.work.wait(connection)
        else:
            self._end(connection, why)

    def _is_unheard(self, connection: Connection) -> bool:
        """Whether the client has sent something that is still to be handled: before its CONNACK, too (3.1.4)."""
        if connection.state == REGISTERING:
            return connection.parts is not None and connection.parts_bytes > 0
        return connection.state == OPEN and (connection.has_stash() or self._ingress.is_waiting(connection))

    def _end(self, connection: Connection, why: str) -> None:
        """A connection has ended, and what it has sent is handled."""
        self.protocol.closing.lost(connection, why)
        self.turn.throttle.forget(connection)
        self.state.timers.cancel(TIMER_RATE, connection.id)
        self.state.timers.cancel(TIMER_OVERLOAD, connection.id)
        if connection.ending:
            self.protocol.admission.go_on(connection.client_id)

    def writable(self, connection: Connection, flag: bool) -> None:
        """The transport's buffer is full (False), or has room again (True)."""
        connection.writable = flag
        if flag:
            self.state.memory.unsent_bytes -= connection.counted_unsent_bytes
            connection.counted_unsent_bytes = 0
            connection.unsent_bytes = 0
        session = connection.session
        if connection.relay is not None:
            self.proxy.relays.block(connection.relay, not flag)
        if flag and session is not None:
            self.partition.queue.pump_soon(session)
            self.feed.feeds.unpark(session)

    def authenticated(self, connection: Connection, ok: bool) -> None:
        """The driver has checked a password."""
        self.protocol.connecting.authenticated(connection, ok)
        if connection.state != CHECKING:
            self.protocol.ingress.resume(connection)

    def reload(self, access: Access) -> None:
        """Judge all that is open by other rules."""
        self.protocol.judging.begin(access)
        self.state.accounts.check_names(access.has_users)

    def revoke(self, connection: Connection, why: str) -> None:
        """End a connection that the driver would not accept any more."""
        self.protocol.judging.revoke(connection, why, True)

    def limited(self, connection: Connection, why: str) -> None:
        """The driver does not check a password now."""
        self.protocol.connecting.limited(connection, why)

    def crowded(self, connection: Connection, why: str) -> None:
        """The driver has no room for a check."""
        self.protocol.connecting.crowded(connection, why)

    def dismiss(self, why: str) -> None:
        """Disconnect every client, because this node has no lease. It may have one again: it gives nothing up."""
        self.protocol.closing.dismiss_all(why)

    def stop(self) -> None:
        """Disconnect every client because the server stops, and take no new ones."""
        self.state.stopping = True
        self.state.tell("node", {"what": "stopping"})
        code = reason.USE_ANOTHER_SERVER if self.state.identity.server_reference else reason.SERVER_SHUTTING_DOWN
        for connection in list(self.state.connections.values()):
            if connection.state < CLOSING:
                self.protocol.closing.disconnect(connection, code, "")

    # -- the store ----------------------------------------------------------------------------------------------------

    def storage(self, full: bool, why: str) -> None:
        """The disk is (nearly) full, or has room again."""
        if full != self.state.storage_full:
            self.state.storage_full = full
            self.state.counters.storage_full = 1 if full else 0
            self.state.event(ERROR if full else INFO, "storage_full" if full else "storage_has_room", {"why": why})

    def disk_low(self, low: bool) -> None:
        """The disk is nearly full: the rest is for users that have stored little; or it has room again."""
        accounts = self.state.accounts
        if low != accounts.disk_low:
            accounts.disk_low = low
            self.state.event(WARNING if low else INFO, "storage_low" if low else "storage_has_enough", {})

    def written(self, token: int) -> None:
        """All batches up to `token` are durable here: the store shows them."""
        self.turn.commits.durable_through(token)
        self.partition.retained.written(token)

    def committed(self, token: int) -> None:
        """All batches up to `token` are committed: do what waited for that."""
        for turn in self.turn.commits.commit_through(token):
            for i in range(len(turn.sessions)):
                turn.sessions[i].committed_next = turn.committed_next[i]
            for session in turn.sessions:
                self.partition.queue.committed(session)
        grown = self.streams.written(token)
        if grown:
            self.feed.feeds.grown()
            self.report.answers.grown(grown)
        self.report.answers.committed()
        self.report.orders.committed()
        self.delivery.publications.committed()
        self.delivery.forward_receiver.committed()
        self.completed()

    def completed(self) -> None:
        """Send the acknowledgements of turns that are complete now, in order."""
        for turn in self.turn.commits.complete():
            self.state.meter.released(turn.token, turn.failed)
            if turn.failed:
                self._fail(turn)
            self._let_in(turn)
            self.turn.commits.release(turn)
            if turn.handled:
                self.leadership.hosting.complete(turn.handled, turn.handled_packets)
        for turn in self.turn.commits.ahead():
            self.state.meter.released(turn.token, False)
            self._let_in(turn)
            self.turn.commits.release_ahead(turn)
        self.protocol.inbound.go_on()
        self.turn.throttle.resume()

    def _let_in(self, turn: PendingTurn) -> None:
        """Send CONNACK, once, to clients whose sessions waited for a turn."""
        for connection in turn.connects:
            self.protocol.attaching.opened(connection)
        turn.connects.clear()

    def _fail(self, turn: PendingTurn) -> None:
        """A turn is void: disconnect the clients that wait for its acknowledgements, so that they send again."""
        for connection in [*turn.ack_connections, *turn.connects]:
            if connection.state < CLOSING:
                why = "lost in a change of leaders: connect, send again"
                self.protocol.closing.disconnect(connection, reason.SERVER_BUSY, why)

    def fail(self, token: int, partition: int) -> None:
        """The changes of a turn to a partition are lost: no copy that counts has them.

        Its clients are disconnected at once: what they send now must not overtake what they will send again.
        """
        turn = self.turn.commits.fail(token)
        if turn is not None:
            self._fail(turn)
        self.delivery.forward_receiver.fail(token, partition)
        self.report.orders.fail(partition)

    def flush(self) -> None:
        """Write rows that are usually written at the end of the turn: roles are about to change."""
        if self.delivery.shared.homeless:
            self.delivery.entries.pass_on(only_of_partitions=True)
        self._flush_streams()
        self.partition.marks.flush()
        self._flush_lazy()  # a body that goes with this batch must not go without the rows that name it

    def _flush_streams(self) -> None:
        """Write the records of this turn as rows."""
        if self.streams.dirty:
            self.state.counters.stream_bytes += self.streams.flush(self.state.writer)

    def seal(self) -> Batch | None:
        """End the turn: return the batch to write."""
        if self.state.work.is_waiting():
            self._serve()
        for client_id in self.proxy.pending_closes.settle():
            self.protocol.admission.go_on(client_id)
        self.protocol.admission.settle()
        self.delivery.shared.pass_on_lost()
        if self.delivery.shared.homeless:
            self.delivery.entries.pass_on()
        self._unfeed()
        if self.delivery.routes.events_changed:
            self.delivery.event_publisher.refresh()
        if self.state.listening:
            self.delivery.event_publisher.step()
        if self.partition.retained.news:
            self.feed.feeds.remember(self.partition.retained.news)
            self.partition.retained.news.clear()
        self._flush_streams()
        if not self.fabric.alone:
            self.speak()
            self._flush_streams()  # the will of a connection that has ended in that: its row goes in this batch
        self.partition.marks.flush()
        self._flush_lazy()
        batch = self.state.writer.take()
        if batch is None:
            if self.turn.commits.asked:
                self.state.writer.skip()  # no rows, but answers to wait for: the turn needs a token
        else:
            self.turn.commits.seal(batch)
            counters = self.state.counters
            counters.commit_batches += 1
            counters.commit_rows += len(batch.ops)
            counters.commit_bytes += batch.bytes
        self.turn.commits.asked = False
        return batch

    def _flush_lazy(self) -> None:
        """Let removals that wait for a batch go with this one; if there is none, those that are due make one."""
        state = self.state
        if len(state.lazy) and (state.writer.dirty or state.stopping or state.lazy.is_due(state.now)):
            state.timers.cancel(TIMER_LAZY, 0)
            handled = state.lazy.flush()
            if handled:
                turn = self.turn.commits.current()
                for connection, packet in handled:
                    turn.handled.append(connection)
                    turn.handled_packets.append(packet)

    def know(self) -> None:
        """Look whether all subscriptions of the cluster are known, and continue what waited for that (A5)."""
        interest = self.delivery.interest
        state = self.state
        before = self._knowledge()
        known = self.fabric.decides(state.speaks) and interest.has_heard_all(state.now)
        if known:
            interest.note_unheard()
        news = known != state.routes_known
        state.routes_known = known
        state.unheard = interest.unheard()
        state.routes_whole = known and state.unheard < 0 and not interest.from_other_side
        if known:
            if news:
                self.delivery.routes.forget_all()
            self.leadership.hosting.inform()
            if self._knowledge() != before:
                self.protocol.wills.go_on()
            if news:
                self.protocol.connecting.let_in()

    def doubt_routes(self) -> None:
        """This node has no lease: others may have acknowledged subscriptions that it does not know (A1).

        Whatever is stored as published now would not be published again, so it waits: for the next lease, before which
        this node knows them, or for the next leader.
        """
        if not self.fabric.decides(False):
            self.state.routes_known = self.state.routes_whole = False

    def _knowledge(self) -> tuple[bool, bool, bool]:
        return (self.state.routes_known, self.state.unheard < 0, self.state.routes_whole)

    def speak(self) -> None:
        """Hand over the messages to other nodes, rows excepted."""
        self.delivery.routes.refresh()
        self.delivery.interest.flush()
        if self.turn.barrier.is_asked and not self.leadership.is_opening():
            self._tell_landed()
        self.channel.forward_sender.flush()
        self.proxy.pending_closes.speak()
        self.protocol.inbound.speak()
        self.proxy.relays.flush()
        self.leadership.hosting.flush()

    def _tell_landed(self) -> None:
        """Answer those that ask whether retained messages have landed."""
        for landing in self.turn.barrier.take(self.turn.commits.committed_token):
            if landing.node_id == self.fabric.node_id:
                self.turn.landings.landed(landing.node_id, landing.number)
            else:
                self.fabric.send(landing.node_id, LANDED, varint(landing.number) + varint(self.fabric.epoch))

    def _serve(self) -> None:
        """Handle input that waits for its turn, as far as the steps of this turn reach."""
        work = self.state.work
        work.begin_rounds()
        connection = work.next()
        while connection is not None:
            if connection.remote is not None:
                self.leadership.hosting.serve(connection)
            else:
                self._ingress.serve(connection)
                self.turn.throttle.weigh(connection)
                if connection.ending and not connection.queued:
                    self._end(connection, connection.ending)
            connection = work.next()

    def _unfeed(self) -> None:
        """Wake feeds whose sessions take messages again; handle rows that cannot be read, and sessions that ended."""
        if self.partition.queue.unfed:
            for session in self.partition.queue.unfed:
                self.feed.feeds.unpark(session)
            self.partition.queue.unfed.clear()
        while self.partition.queue.unreadable:
            session, fault = self.partition.queue.unreadable.pop()
            if session.connection is not None:
                self.protocol.closing.unreadable(session.connection, fault)
        while self.feed.feeds.failures:
            subscription, why = self.feed.feeds.failures.pop()
            session = subscription.session
            self.protocol.subscribing.remove(session, subscription.name)
            if session.connection is not None:
                self.protocol.closing.disconnect(session.connection, reason.IMPLEMENTATION_SPECIFIC_ERROR, why)
        if self.protocol.lifecycle.ended:
            for session in self.protocol.lifecycle.ended:
                self.feed.feeds.forget(session)
            self.protocol.lifecycle.ended.clear()

    # -- time ---------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Handle deadlines that are due, and a page of background work."""
        late_us = self.state.now - self.state.timers.next_due()
        if late_us > _LATE_US and self.state.connections and self.state.now - self.state.excused_us > _LATE_US:
            self._excuse(late_us)
        for _ in range(_DEADLINES_MAX):
            if self.state.work.is_spent():  # sessions that end cost work too
                break
            due = self.state.timers.pop(self.state.now)
            if due is None:
                break
            self._due(due[0], due[1])
        if self.partition.queue.unfinished:
            self.partition.queue.go_on()
        self.feed.feeds.run()
        if self.protocol.wills.is_busy():
            self.protocol.wills.step()
        if self.protocol.lifecycle.is_removing():
            self.protocol.lifecycle.remove_more()
        if self.delivery.purges.active:
            self.delivery.purges.step(self.turn.commits.durable_token)
        if self.partition.producers.busy():
            self.partition.producers.step()
        if self.protocol.judging.busy():
            self.protocol.judging.step()
        if self.shedding.busy():
            self.shedding.step()
        if self.delivery.transactions.waiting:
            self.delivery.publications.step()
        self._absorb()
        if self._trimming:
            self._trimming = self.streams.trim(self.state.clock.expiry_time, self.state.writer)
            if self.streams.fault:
                self.state.event(ERROR, "corrupt_store", {"what": self.streams.fault})
                self.streams.fault = ""
            self.state.counters.stream_trimmed_records = self.streams.trimmed_records
            self.state.counters.stream_trimmed_bytes = self.streams.trimmed_bytes

    def _absorb(self) -> None:
        """Append a page of what another side of a split has written into streams."""
        leftovers = self.leadership.restore.leftovers
        leftovers.step(self.state.writer, self.state.clock.time, self.turn.commits.durable_token)
        if leftovers.fault:
            self.state.event(ERROR, "corrupt_store", {"what": leftovers.fault})
            leftovers.fault = ""

    def _excuse(self, late_us: int) -> None:
        """Start keep alive over for all clients: this server stood still, and nothing was read."""
        self.state.excused_us = self.state.now
        self.state.event(WARNING, "woke_late", {"seconds": late_us // SECOND})

    def more(self) -> bool:
        """Whether there is background work to continue at once."""
        return (
            self._trimming
            or self.state.timers.next_due() <= self.state.now
            or bool(self.partition.queue.unfinished)
            or self.protocol.wills.is_busy()
            or self.protocol.lifecycle.is_removing()
            or self.state.work.is_waiting()
            or self.feed.feeds.runnable()
            or self.delivery.purges.runnable(self.turn.commits.durable_token)
            or self.partition.producers.busy()
            or self.protocol.judging.busy()
            or self.shedding.busy()
            or self.leadership.restore.leftovers.runnable(self.turn.commits.durable_token)
            or self.delivery.publications.runnable()
            or self.delivery.event_publisher.runnable()
            or self.state.writer.dirty  # rows were added after the end of the turn
        )

    def _due(self, kind: int, subject: int | str) -> None:
        if kind == TIMER_EVENTS:
            self.delivery.event_publisher.tick()
        elif kind == TIMER_ABSENT:
            self.leadership.absent(int(subject))
        elif kind == TIMER_DRAIN:
            self.leadership.drain.due()
        elif kind == TIMER_TABLES:
            self.report.tables.due()
        elif kind == TIMER_RETENTION:
            self._trimming = True
            self.leadership.restore.leftovers.retry()
            self.state.timers.set(self.state.now + _RETENTION_INTERVAL_US, TIMER_RETENTION, 0)
        else:
            self.protocol.deadlines.due(kind, subject)
