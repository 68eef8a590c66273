"""A simulated machine that runs one node: the driver of the core, its turns and its deaths.

Does what the runtime does, in virtual time: feeds bytes, drains effects, hands batches to the disk, closes what is to
be closed. Owns the host's clock, which may differ from the world's.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.clock import MILLISECOND, NEVER
from folkmoot.kernel.rng import Rng
from folkmoot.node import Effects, Node
from folkmoot.session.connection import Authenticate, Connection, PeerInfo
from folkmoot.sim.disk import Disk
from folkmoot.sim.network import Link, Server
from folkmoot.sim.world import World
from folkmoot.store.batch import Batch
from folkmoot.store.reader import Reader

__all__ = ["Host", "MakeNode"]

MakeNode = Callable[[Reader, int], Node]
"""Builds a node over a store, with a seed."""


class Host(Server):
    """One machine: `node` is None while it is down.

    `on_turn` is called after every turn. Every start of a node is a new life: what was set in motion by the life before
    finds another number and does nothing.
    """

    def __init__(self, world: World, rng: Rng, name: str, disk: Disk, make_node: MakeNode) -> None:
        self.world = world
        self.name = name
        self.disk = disk
        self.node: Node | None = None
        self.links: dict[int, Link] = {}  # open ones, by number
        self.turns = 0
        self.life = 0
        self.clock_offset_us = 0
        self.started_us = world.now
        self.starts_us: list[int] = []
        self.stops_us: list[int] = []  # the end of each life, whatever its cause
        self.crashed_us: list[int] = []
        self.full_since_us = NEVER
        self.full_spans: list[tuple[int, int]] = []
        self.on_turn: Callable[[], None] = lambda: None
        self.turn_us = 100  # input that comes within this time may share a turn
        self._rng = rng
        self._make_node = make_node
        self._turn_set = False
        self._wake_us = NEVER
        self._by_number: dict[int, Link] = {}  # connections of this life, also those that are gone
        disk.on_written = self._written

    def clock(self) -> int:
        """Return what the host believes to be the time, microseconds since 1970."""
        return self.world.now + self.clock_offset_us

    # Life and death

    def start(self) -> None:
        """Start a node over what the disk has."""
        assert self.node is None, "a host runs one node"
        self.life += 1
        self.started_us = self.world.now
        self.starts_us.append(self.world.now)
        self._turn_set = False
        self._wake_us = NEVER
        self._by_number.clear()
        self.node = self._make_node(self.disk.store, self._rng.next64())
        self.world.note(self.name, "start")
        self.node.open(self.clock())
        self._set_turn()

    def crash(self) -> None:
        """Kill the process: unsynced writes and all connections are lost."""
        assert self.node is not None, "only a running node can crash"
        self.world.mark("crash")
        self.crashed_us.append(self.world.now)
        self.stops_us.append(self.world.now)
        self.node = None
        self.life += 1
        self.disk.crash()
        silent = self._rng.chance(1, 4)  # a lost power supply closes no connection
        self.world.note(self.name, "crash, silent" if silent else "crash")
        for link in list(self.links.values()):
            link.crashed = True
            self._end(link)
            if silent and self._rng.chance(1, 2):
                self.world.mark("half-open client")
                link.reset(NEVER, NEVER)
                link.reset_on_send = self._rng.chance(1, 2)
            else:
                link.reset(self._rng.below(50 * MILLISECOND), NEVER)
        self.links.clear()

    def stop(self, then: Callable[[], None]) -> None:
        """Stop the node in good order and call `then` when all is on disk."""
        assert self.node is not None, "only a running node can stop"
        self.world.mark("graceful stop")
        self.world.note(self.name, "stop")
        self.node.stop(self.clock())
        self._set_turn()
        self.world.after(5 * MILLISECOND, self._stopped, self.life, then)

    def _stopped(self, life: int, then: Callable[[], None]) -> None:
        if self.node is None or life != self.life:
            return
        if not self.disk.idle or self._turn_set:
            self.world.after(5 * MILLISECOND, self._stopped, life, then)
            return
        self.world.note(self.name, "stopped")
        self.stops_us.append(self.world.now)
        for link in list(self.links.values()):
            self.link_lost(link, "stopped")
            link.reset(0, NEVER)
        self.node = None
        self.life += 1
        then()

    # Links

    def link_opened(self, link: Link) -> bool:
        """Accept a connection, unless the node is down."""
        if self.node is None:
            self.world.mark("connection refused")
            return False
        link.server_open = True
        self.links[link.number] = link
        info = PeerInfo("tcp", f"10.0.0.{link.number}", None)
        connection = self.node.connect(link, info, self.clock())
        link.connection = connection
        self._by_number[connection.id] = link
        self._set_turn()
        return True

    def link_data(self, link: Link, data: bytes) -> None:
        """Feed bytes to the node."""
        assert self.node is not None, "a node that is down has no links"
        self.node.receive(_connection(link), data, self.clock())
        self._set_turn()

    def link_lost(self, link: Link, reason: str) -> None:
        """Tell the node that a connection is gone."""
        if link.server_open and self.node is not None:
            self._end(link)
            del self.links[link.number]
            self.node.lost(_connection(link), reason, self.clock())
            self._set_turn()

    def link_writable(self, link: Link, writable: bool) -> None:
        """Pass on the back-pressure of the transport."""
        if link.server_open and self.node is not None:
            self.node.writable(_connection(link), writable, self.clock())
            self._set_turn()

    def _end(self, link: Link) -> None:
        link.server_open = False
        link.ended_us = min(link.ended_us, self.world.now)

    # Disk

    def fill(self) -> None:
        """The disk is full."""
        self.world.note(self.name, "disk full")
        self.world.mark("disk full")
        if self.full_since_us == NEVER:
            self.full_since_us = self.world.now
        self._storage(full=True)

    def free(self) -> None:
        """There is room on the disk again."""
        if self.full_since_us < NEVER:
            self.world.note(self.name, "disk has room")
            self.full_spans.append((self.full_since_us, self.world.now))
            self.full_since_us = NEVER
            self.disk.free()
            self._storage(full=False)

    def _storage(self, full: bool) -> None:
        if self.node is not None:
            self.node.storage(full, "no space left on device" if full else "", self.clock())
            self._set_turn()

    def _written(self, token: int) -> None:
        if self.node is not None:
            self.node.written(token, self.clock())
            self._set_turn()

    # Turns

    def _set_turn(self) -> None:
        if not self._turn_set:
            self._turn_set = True
            self.world.after(self._rng.below(self.turn_us), self._turn, self.life)

    def _turn(self, life: int) -> None:
        if life != self.life or self.node is None:
            return
        self._turn_set = False
        self.turns += 1
        effects = self.node.drain(self.clock())
        self.carry_out(effects)
        if effects.more:
            self.world.after(self._rng.below(self.turn_us), self._more, life)
        self._set_wake()
        self.on_turn()

    def carry_out(self, effects: Effects) -> None:
        """Do what a turn wants done, in the order of `node/effect.py`."""
        if effects.write is not None:
            self.world.note(self.name, f"turn {self.turns} writes batch {effects.write.token}", effects.write.ops)
            self.write(effects.write)
        for connection in effects.outputs:
            self.output(_link(connection), connection.take_output())
        for connection in effects.closes:
            self.close(_link(connection))
        for connection in effects.pauses:
            self.world.mark("reading paused")
            _link(connection).to_node.block(paused=True)
        for connection in effects.resumes:
            _link(connection).to_node.block(paused=False)
        for check in effects.checks:
            self.world.after(self._rng.below(20 * MILLISECOND), self._checked, self.life, check)
        for event in effects.events:
            self.world.note(self.name, f"event {event.kind}", event)
            self.world.mark(f"event {event.kind}")
            if event.kind == "disconnected":
                self._expelled(event.fields["connection"])

    def _expelled(self, number: object) -> None:
        assert isinstance(number, int), "a connection's number"
        self._by_number[number].expelled = True

    def write(self, batch: Batch) -> None:
        """Hand a batch to the disk."""
        self.disk.submit(batch)

    def output(self, link: Link, data: bytes) -> None:
        """Send what the node wrote to a connection."""
        if not link.server_open or not data:
            return
        link.turn = self.turns
        if link.first_turn == 0:
            link.first_turn = self.turns
        if link.turn > link.fenced_turn:
            self.world.violate("A6", f"{link.name} got output after {link.client_id!r} was taken over: {data!r}")
        link.from_server(data)

    def close(self, link: Link) -> None:
        """Close a connection after its output, and tell the node when it is gone."""
        if link.server_open:
            link.close_by_server()
            link.ended_us = min(link.ended_us, self.world.now)
            self.world.after(self._rng.below(MILLISECOND), self._closed, self.life, link)

    def _closed(self, life: int, link: Link) -> None:
        if life == self.life:
            self.link_lost(link, "closed")

    def _checked(self, life: int, check: Authenticate) -> None:
        if life == self.life and self.node is not None:
            self.node.authenticated(check.connection, check.password != b"wrong", self.clock())
            self._set_turn()

    def _more(self, life: int) -> None:
        if life == self.life and self.node is not None:
            self.node.wake(self.clock())
            self._set_turn()

    def _set_wake(self) -> None:
        assert self.node is not None, "only a running node has timers"
        due = self.node.next_wake()
        if due < NEVER:
            due = max(due - self.clock_offset_us, self.world.now)
            if due < self._wake_us or self._wake_us <= self.world.now:
                self._wake_us = due
                self.world.later(due - self.world.now, self._wake, self.life, due)

    def _wake(self, life: int, due: int) -> None:
        if life == self.life and self.node is not None and due == self._wake_us:
            self._wake_us = NEVER
            self.node.wake(self.clock())
            self._set_turn()


def _link(connection: Connection) -> Link:
    link = connection.handle
    assert isinstance(link, Link), "every connection of a simulated node has a link"
    return link


def _connection(link: Link) -> Connection:
    connection = link.connection
    assert isinstance(connection, Connection), "a link without a connection was not accepted"
    return connection
