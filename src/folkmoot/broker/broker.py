"""The broker as one thing: passes on what happens to its parts (`parts`), and ends turns."""

from __future__ import annotations

from folkmoot.broker.parts import Neighbours
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.event import ERROR, INFO, WARNING
from folkmoot.kernel.pack import varint
from folkmoot.merge.stamp import Stamp, encode_stamp
from folkmoot.mqtt import reason
from folkmoot.session.connection import CHECKING, CLOSING, OPEN, Connection, PeerInfo
from folkmoot.store.batch import Batch
from folkmoot.store.key import QUEUE, kind_of, stamp_key
from folkmoot.streams.table import Streams
from folkmoot.turn.commit import PendingTurn
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import CONFIRM
from folkmoot.turn.state import (
    TIMER_CONNECT,
    TIMER_EVENTS,
    TIMER_OVERLOAD,
    TIMER_RATE,
    TIMER_RETENTION,
    TIMER_TABLES,
    State,
)

__all__ = ["Broker"]

_RETENTION_INTERVAL_US = 10 * SECOND
_LATE_US = 2 * SECOND  # a deadline handled so late means that nothing was read either
_UNSTASH_BYTES_MAX = 1 << 20  # in one turn
_DEADLINES_MAX = 256  # in one turn: a hundred thousand sessions may end in the same second


class Broker(Neighbours):
    """All that a node does with MQTT and streams; time is in `state.now`, set by the node."""

    def __init__(self, state: State, fabric: Fabric, streams: Streams) -> None:
        super().__init__(state, fabric, streams)
        self._connections = 0
        self._trimming = False
        self._excused_us = 0

    def open(self) -> None:
        """Restore what the store has; raises CorruptStore or StoreError."""
        if self.fabric.alone:
            for partition in range(self.state.partitions):
                self.restore.load(partition)
            self.restore.settle()
        self.sys.start()
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
        self.state.timers.set(now + self.state.limits.connect_timeout_us, TIMER_CONNECT, connection.id)
        return connection

    def receive(self, connection: Connection, data: bytes) -> None:
        """Bytes came."""
        if self.waking.unsure:
            self.waking.hold(connection, data)
            return
        if connection.unsent_bytes > self.state.limits.send_buffer_bytes_max and connection.state < CLOSING:
            # Messages wait for it to read, answers cannot: it asks and asks and takes no answer (A13).
            self.closing.disconnect(connection, reason.QUOTA_EXCEEDED, "the client does not read what it is sent")
        if connection.state < CLOSING:
            self.ingress.receive(connection, data)

    def lost(self, connection: Connection, why: str) -> None:
        """The network connection is gone."""
        if self.waking.unsure and self.waking.hold_end(connection, why):
            return
        if connection.stash is not None and connection.state == OPEN:
            if connection.relay is not None:
                connection.relay.let_overtake()
            self.ingress.unstash(connection)  # it has sent that before it went
            if connection.state == OPEN:
                self.ingress.goodbye(connection)
        self.closing.lost(connection, why)
        self.commits.forget(connection)
        self.state.timers.cancel(TIMER_RATE, connection.id)
        self.state.timers.cancel(TIMER_OVERLOAD, connection.id)

    def awake(self) -> None:
        """Go on with what has waited for the others after this process stood still."""
        for held in self.waking.take():
            if held.why is None:
                self.receive(held.connection, held.data)
            else:
                self.lost(held.connection, held.why)

    def writable(self, connection: Connection, flag: bool) -> None:
        """The transport's buffer is full, or empty enough again."""
        connection.writable = flag
        if flag:
            connection.unsent_bytes = 0
        session = connection.session
        if connection.relay is not None:
            self.relays.block(connection.relay, not flag)
        if flag and session is not None:
            self.queue.pump(session)
            self.feeds.unpark(session)

    def authenticated(self, connection: Connection, ok: bool) -> None:
        """The driver has checked a password."""
        self.connecting.authenticated(connection, ok)
        if connection.state != CHECKING:
            self.ingress.resume(connection)

    def stop(self) -> None:
        """Tell every client that the server goes down, and take no more."""
        self.state.stopping = True
        self.state.tell("node", {"what": "stopping"})
        code = reason.USE_ANOTHER_SERVER if self.state.identity.server_reference else reason.SERVER_SHUTTING_DOWN
        for connection in list(self.state.connections.values()):
            if connection.state < CLOSING:
                self.closing.disconnect(connection, code, "")

    # -- the store ----------------------------------------------------------------------------------------------------

    def storage(self, full: bool, why: str) -> None:
        """The disk is (nearly) full, or has room again."""
        if full != self.state.storage_full:
            self.state.storage_full = full
            self.state.counters.storage_full = 1 if full else 0
            self.state.event(ERROR if full else INFO, "storage_full" if full else "storage_has_room", {"why": why})
        if not full:
            self.commits.resume()

    def written(self, token: int) -> None:
        """All batches up to `token` are durable here: the store shows them."""
        self.commits.durable_token = token
        self.retained.written(token)

    def committed(self, token: int) -> None:
        """All batches up to `token` are on all disks that they must be on: what waited for that happens now."""
        revocable = self.state.revocable
        while revocable and revocable[0][0] <= token:
            revocable.popleft()
        for turn in self.commits.commit_through(token):
            for i in range(len(turn.sessions)):
                turn.sessions[i].durable_next = turn.durable_next[i]
            for session in turn.sessions:
                self.queue.pump(session)
        grown = self.streams.written(token)
        if grown:
            self.feeds.grown()
            self.answers.grown(grown)
        self.answers.committed()
        self.orders.committed()
        self.publications.committed()
        self.feeds.committed()
        self.forward_receiver.committed()
        self.completed()

    def completed(self) -> None:
        """Perhaps turns are complete: what they acknowledge is acknowledged now, in order."""
        for turn in self.commits.complete():
            self.state.meter.released(turn.token, turn.failed)
            if turn.failed:
                self._fail(turn)
            self._let_in(turn)
            self.commits.release(turn)
            if turn.handled:
                self.hosting.handled(turn.handled, turn.handled_packets)
        for turn in self.commits.ahead():
            self.state.meter.released(turn.token, False)
            self._let_in(turn)
            self.commits.release_ahead(turn)
        self.inbound.go_on()
        self.commits.resume()

    def _let_in(self, turn: PendingTurn) -> None:
        """Those whose sessions waited for a turn get their CONNACK, once."""
        for connection in turn.connects:
            self.attaching.opened(connection)
            self.ingress.resume(connection)
        turn.connects.clear()

    def _fail(self, turn: PendingTurn) -> None:
        """A turn is void: whoever waits for its acknowledgement must ask again, and is told so by losing the line."""
        for connection in [*turn.ack_connections, *turn.connects]:
            if connection.state < CLOSING:
                why = "lost in a change of leaders: connect, send again"
                self.closing.disconnect(connection, reason.SERVER_BUSY, why)

    def fail(self, token: int, partition: int) -> None:
        """What a turn did to a partition is in no copy that counts.

        Its clients are told at once: what they send after it must not overtake what they will send again.
        """
        turn = self.commits.fail(token)
        if turn is not None:
            self._fail(turn)
        self.forward_receiver.fail(token, partition)
        self.orders.fail(partition)

    def take_back(self) -> None:
        """Remove what clients have sent and no other disk is known to have; nobody was told of it.

        This node goes on in a minority: the others may live, and the clients be with them and send it again.
        """
        state = self.state
        for token, partition, key in state.revocable:
            if token > self.commits.committed_token and state.leads[partition]:
                state.writer.delete(partition, key)
                if kind_of(key) == QUEUE:
                    # The other side may have got it in time: that it is removed here says nothing then.
                    state.writer.put(partition, stamp_key(key), encode_stamp(Stamp(0, 0)))
        state.revocable.clear()
        self.publications.take_back()

    def flush(self) -> None:
        """Turn what is kept for the end of the turn into rows: roles are about to change."""
        if self.streams.dirty:
            self.state.counters.stream_bytes += self.streams.flush(self.state.writer)
        self.marks.flush()

    def seal(self) -> Batch | None:
        """End the turn: return what it has to write."""
        self._unstash()
        for client_id in self.pending_closes.settle():
            self.admission.go_on(client_id)
        self.shared.pass_on_lost()
        if self.shared.homeless:
            self.entries.pass_on()
        self._unfeed()
        if self.routes.events_changed:
            self.event_publisher.refresh()
        if self.state.listening:
            self.event_publisher.step()
        if self.retained.news:
            self.feeds.remember(self.retained.news)
            self.retained.news.clear()
        if self.streams.dirty:
            self.state.counters.stream_bytes += self.streams.flush(self.state.writer)
        if not self.fabric.alone:
            self.speak()
        self.marks.flush()
        batch = self.state.writer.take()
        if batch is None:
            if self.commits.asked:
                self.state.writer.skip()  # the turn has no rows, but answers that it waits for: it needs its number
        else:
            self.commits.seal(batch.token, batch.bytes)
            counters = self.state.counters
            counters.commit_batches += 1
            counters.commit_rows += len(batch.ops)
            counters.commit_bytes += batch.bytes
        self.commits.asked = False
        return batch

    def know(self) -> None:
        """See whether it is known who subscribes to what; who has waited for that goes on."""
        known = self.interest.is_complete()
        news = known != self.state.routes_known
        self.state.routes_known = known
        self.state.routes_whole = known and not self.interest.from_other_side
        if known:
            if news:
                self.routes.forget_all()
            self.hosting.inform()
            self.wills.go_on()
            if news:
                self.connecting.let_in()

    def speak(self) -> None:
        """Hand over what other nodes are to be told, rows aside."""
        self.routes.refresh()
        self.interest.flush()
        for confirmation in self.barrier.take(self.commits.committed_token):
            self.fabric.send(confirmation.node_id, CONFIRM, varint(confirmation.number))
        self.forward_sender.flush()
        self.pending_closes.speak()
        self.relays.flush()
        self.hosting.flush()

    def _unstash(self) -> None:
        """Let those publish on who may again, as far as one turn should go."""
        size = 0
        while self.state.unstash and size < _UNSTASH_BYTES_MAX:
            connection = self.state.unstash.popleft()
            if not connection.paused and connection.stash is not None:
                size += len(connection.stash)
                self.ingress.unstash(connection)

    def _unfeed(self) -> None:
        if self.queue.unfed:
            for session in self.queue.unfed:
                self.feeds.unpark(session)
            self.queue.unfed.clear()
        while self.queue.unreadable:
            session, fault = self.queue.unreadable.pop()
            if session.connection is not None:
                self.closing.unreadable(session.connection, fault)
        while self.feeds.failures:
            subscription, why = self.feeds.failures.pop()
            session = subscription.session
            self.subscribing.remove(session, subscription.name)
            if session.connection is not None:
                self.closing.disconnect(session.connection, reason.IMPLEMENTATION_SPECIFIC_ERROR, why)
        if self.lifecycle.ended:
            for session in self.lifecycle.ended:
                self.feeds.forget(session)
            self.lifecycle.ended.clear()

    # -- time ---------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Handle deadlines that have come, and a page of background work."""
        late_us = self.state.now - self.state.timers.next_due()
        if late_us > _LATE_US and self.state.connections and self.state.now - self._excused_us > _LATE_US:
            self._excuse(late_us)
        for _ in range(_DEADLINES_MAX):
            due = self.state.timers.pop(self.state.now)
            if due is None:
                break
            self._due(due[0], due[1])
        if self.queue.unfinished:
            self.queue.go_on()
        if self.feeds.runnable():
            self.feeds.step()
        if self.purges.active:
            self.purges.step(self.commits.durable_token)
        if self.producers.busy():
            self.producers.step()
        if self.transactions.waiting:
            self.publications.step()
        if self._trimming:
            self._trimming = self.streams.trim(self.state.now, self.state.writer)
            if self.streams.fault:
                self.state.event(ERROR, "corrupt_store", {"what": self.streams.fault})
                self.streams.fault = ""
            self.state.counters.stream_trimmed_records = self.streams.trimmed_records
            self.state.counters.stream_trimmed_bytes = self.streams.trimmed_bytes

    def _excuse(self, late_us: int) -> None:
        """Count nobody as silent for the time in which this server stood still, or in which its clock was set."""
        self._excused_us = self.state.now
        for connection in self.state.connections.values():
            connection.last_seen_us = self.state.now
        self.state.event(WARNING, "woke_late", {"seconds": late_us // SECOND})

    def more(self) -> bool:
        """Whether background work could go on at once."""
        return (
            self._trimming
            or self.state.timers.next_due() <= self.state.now
            or bool(self.queue.unfinished)
            or bool(self.state.unstash)
            or self.feeds.runnable()
            or self.purges.runnable(self.commits.durable_token)
            or self.producers.busy()
            or self.publications.runnable()
            or self.event_publisher.runnable()
            or self.state.writer.dirty  # rows came when the turn had ended
        )

    def _due(self, kind: int, subject: int | str) -> None:
        if kind == TIMER_EVENTS:
            self.event_publisher.tick()
        elif kind == TIMER_TABLES:
            self.tables.due()
        elif kind == TIMER_RETENTION:
            self._trimming = True
            self.state.timers.set(self.state.now + _RETENTION_INTERVAL_US, TIMER_RETENTION, 0)
        else:
            self.deadlines.due(kind, subject)
