"""A node in a box: the whole core on a store in memory, in virtual time, with clients at its side.

Nothing here waits: every call runs the node until it is at rest. A batch becomes durable only after the outputs of
its turn are out, which is the order that the node promises; `hold_writes` stretches that moment, `crash` loses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.event import Event
from folkmoot.mqtt.packet import V5
from folkmoot.node import Effects, Node, NodeConfig
from folkmoot.report.call import Call
from folkmoot.session.connection import Connection, PeerInfo
from folkmoot.store.batch import Batch
from folkmoot.store.memory import MemoryStore
from folkmoot.streams.config import StreamConfig
from folkmoot.turn.lazy import LAZY_US
from tests.harness.field import check_fields
from tests.harness.peer import Peer

__all__ = ["START", "Box"]

START = 1_600_000_000 * SECOND
"""The time at which every box begins, microseconds since 1970."""

TURNS_MAX = 20_000  # a node that is not at rest by then never will be

Check = Callable[[str | None, bytes | None, str], bool | str | None]
"""Whether a password is right; a text: there is no room for the check, and why; None: the check goes on."""


class Box:
    """One node. `limits` are attributes of `Limits` to set, `settings` attributes of `NodeConfig`."""

    def __init__(
        self,
        *,
        limits: Mapping[str, int | bool] | None = None,
        streams: Sequence[StreamConfig] = (),
        check: Check | None = None,
        chunk_bytes: int = 0,
        seed: int = 1,
        **settings: object,
    ) -> None:
        self.config = NodeConfig()
        self.config.limits.sys_interval_us = 0  # else every step of virtual time publishes
        for name, value in (limits or {}).items():
            assert hasattr(self.config.limits, name), name
            setattr(self.config.limits, name, value)
        for name, setting in settings.items():
            assert hasattr(self.config, name), name
            setattr(self.config, name, setting)
        self.config.streams = list(streams)
        self.config.check_passwords = check is not None
        self.check = check
        self.chunk_bytes = chunk_bytes
        self.seed = seed
        self.now = START
        self.store = MemoryStore()  # all that is durable
        self.tables = MemoryStore()  # what the node reads: the rows that are committed
        self.stopped_ns = 0
        self.stop_before_write_ns = 0  # how long the process is stopped between the end of a turn and its output
        self.drops: list[Connection] = []
        self.peers: list[Peer] = []
        self.events: list[Event] = []
        self.calls: list[Call] = []  # that have ended
        self.grown = False
        self._held = False
        self._unwritten: list[Batch] = []
        self._more = False
        self._closing: list[Connection] = []
        self._boot()

    def client(self, client_id: str = "", version: int = V5, acks: bool = True) -> Peer:
        """Return a new client that is not connected yet."""
        peer = Peer(self, client_id, version, acks)
        self.peers.append(peer)
        return peer

    def accept(self, peer: Peer, transport: str, certificate_name: str | None) -> None:
        """Give `peer` a network connection to the node."""
        info = PeerInfo(transport, f"192.0.2.{self.peers.index(peer) % 250}:1883", certificate_name)
        peer.connection = self.node.connect(peer, info, self.now)
        self.run()

    def run(self) -> None:
        """Turn after turn until nothing is left to do now."""
        for _ in range(TURNS_MAX):
            if not self.turn():
                return
        raise AssertionError("the node does not come to rest")

    def advance(self, us: int) -> None:
        """Let `us` microseconds pass; every timer goes off at its time."""
        end = self.now + us
        self.run()
        while (due := self.node.next_wake()) <= end:
            self.now = max(self.now, due)
            self.run()
        self.now = end
        self.run()

    def hold_writes(self) -> None:
        """From now on no batch becomes durable."""
        self._held = True

    def release_writes(self, count: int | None = None) -> None:
        """All held batches become durable, in order; or only the first `count`, and the others stay held."""
        if count is None:
            self._held = False
        else:
            self._commit(count)
        self.run()

    def settle(self) -> None:
        """Let removals that wait for company be written (`turn/lazy`)."""
        self.advance(LAZY_US)

    def crash(self, durable: int = 0) -> None:
        """Kill the node and start it again on what was durable; the first `durable` held batches had just become so."""
        for batch in self._unwritten[:durable]:
            self.store.apply(batch)
        self._restart()

    def restart(self) -> None:
        """Stop the node as an operator does, then start it again on the same store."""
        self.stop()
        self._restart()

    def stop(self) -> None:
        """Stop the node as an operator does."""
        self.node.stop(self.now)
        self.run()

    def storage(self, full: bool) -> None:
        """Tell the node that the disk is full, or that there is room again."""
        self.node.storage(full, "no space left on device" if full else "", self.now)
        self.run()

    def kinds(self) -> list[str]:
        """Return the kinds of the events so far."""
        return [event.kind for event in self.events]

    def _restart(self) -> None:
        self._held = False
        self._unwritten = []
        self._closing = []
        self.seed += 1
        for peer in self.peers:
            peer.connection = None
        self._boot()

    def _boot(self) -> None:
        self.tables = self.store.copy()
        self.node = Node(self.config, self.tables, self.seed)
        self.node.open(self.now)
        self.run()

    def turn(self) -> bool:
        """One turn: what is due, the effects in their order, then the writes. False if there was nothing to do.

        A connection that the node closes is lost one turn later, as on a real network: what is sent until then shows.
        """
        due = self._more or self.node.next_wake() <= self.now
        if due:
            self.node.wake(self.now)
        self.node.seal(self.now)
        effects = self.node.drain(self.now, self.decided_ns())
        self._more = effects.more
        if effects.apply:
            self._apply(effects)
        if effects.write is not None:
            self._unwritten.append(effects.write)
        closing, self._closing = self._closing, effects.closes
        moved = self._perform(effects)
        for connection in closing:
            if peer := self._peer(connection):
                peer.shut()
            self.node.lost(connection, "closed by the server", self.now)
        wrote = not self._held and self._commit(len(self._unwritten))
        return wrote or moved or due or effects.more or bool(closing)

    def _apply(self, effects: Effects) -> None:
        batch = Batch(effects.apply_token)
        batch.ops = effects.apply
        self.tables.apply(batch)
        self.node.applied(self.now)

    def alter(self, batch: Batch) -> None:
        """Change rows behind the back of the node, as damage does, when the tables have what it has written."""
        if self.node._rows._written:
            self.advance(100 * MILLISECOND)
        self.store.apply(batch)
        self.tables.apply(batch)

    def steady_ns(self) -> int:
        """Return the monotonic clock."""
        return self.now * 1000 + self.stopped_ns

    def decided_ns(self) -> int:
        """Return the monotonic time after the last decision of a turn."""
        return self.steady_ns()

    def _perform(self, effects: Effects) -> bool:
        self.drops.extend(effects.drops)
        if effects.outputs and self.steady_ns() + self.stop_before_write_ns >= effects.until_ns:
            self.stopped_ns += self.stop_before_write_ns
            self.stop_before_write_ns = 0
            self.node.withhold(effects)
            self._more = True
        check_fields(effects.events)
        self.events.extend(effects.events)
        self.calls.extend(effects.calls)
        self.grown = self.grown or effects.grown
        for connection in effects.outputs:
            data = connection.take_output()
            if peer := self._peer(connection):
                peer.feed(data)
        for connection in effects.pauses:
            if peer := self._peer(connection):
                peer.paused = True
        for connection in effects.resumes:
            if peer := self._peer(connection):
                peer.unpause()
        for ask in effects.checks:
            assert self.check is not None
            verdict = self.check(ask.username, ask.password, ask.client_id)
            if isinstance(verdict, str):
                self.node.crowded(ask.connection, verdict, self.now)
            elif verdict is not None:
                self.node.authenticated(ask.connection, verdict, self.now)
        return bool(effects.outputs or effects.closes or effects.pauses or effects.resumes or effects.checks)

    def _commit(self, count: int) -> bool:
        batches, self._unwritten = self._unwritten[:count], self._unwritten[count:]
        for batch in batches:
            self.store.apply(batch)
            self.node.written(batch.token, self.now)
        return bool(batches)

    def _peer(self, connection: Connection) -> Peer | None:
        """The client at the other end, if it still holds that connection."""
        peer = connection.handle
        assert isinstance(peer, Peer)
        return peer if peer.connection is connection else None
