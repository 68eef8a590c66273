"""A simulated machine that runs one node: the driver of the core, its turns and its deaths.

Does in virtual time what the runtime does: feeds bytes, carries out effects, hands batches to the disk, closes
connections. `peering` has everything that concerns other nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.mqtt.kind import DISCONNECT
from folkmoot.node import Effects
from folkmoot.session.connection import Authenticate, Connection, PeerInfo
from folkmoot.sim.core import Core
from folkmoot.sim.disk import Disk
from folkmoot.sim.machine import Machine
from folkmoot.sim.network import Link
from folkmoot.sim.peering import Peering
from folkmoot.sim.pipe import CUT
from folkmoot.sim.world import World
from folkmoot.store.batch import Batch
from folkmoot.store.reader import Reader

__all__ = ["Host", "MakeNode"]

_DEPART_US: Final = 2 * SECOND
"""A process that stops waits for the others no longer than this."""

_WAKES_MAX: Final = 10_000
"""A timer that goes off so often at one moment of virtual time would never let time pass."""

_APPLY_US: Final = MILLISECOND
"""How long the store takes to change rows; they are durable already."""

MakeNode = Callable[["Host", Reader, int], Core]
"""Builds the node of a host over a store, with a seed."""


class Host(Machine):
    """A machine with a node.

    `on_turn` is called after every turn, `on_write` for every batch, `on_output` for all output to a client.
    """

    def __init__(self, world: World, rng: Rng, name: str, disk: Disk, make_node: MakeNode) -> None:
        super().__init__(world, rng, name, disk)
        self.turns = 0
        self.bytes_in = 0  # in this turn
        self.started_us = world.now
        self.starts_us: list[int] = []
        self.stops_us: list[int] = []  # the end of each life, whatever its cause
        self.crashed_us: list[int] = []
        self.on_turn: Callable[[Host], None] = lambda _host: None
        self.on_write: Callable[[Host, Batch], None] = lambda _host, _batch: None
        self.on_output: Callable[[Host, Link, bytes], None] = lambda _host, _link, _data: None
        self.turn_us = 100  # input that comes within this time may share a turn
        self._make_node = make_node
        self._turn_set = False
        self.leaving = False
        self.leaves_us: list[int] = []  # when it was told to leave
        self.told_to_leave = False  # by an operator, whatever the node has answered: it may leave at any time
        self.stopping = False  # told to stop in good order; it does not want to be a member until it starts
        # no node would remain; but a node that was cut off in the meantime continues with the order
        self._stays = False
        self._renews = False  # its folder has become another disk: another node is started on it
        self._patience_us = 0  # until then a stopping node waits for the others
        self._wake_us = NEVER
        self._woken_us = 0  # when its timer went off last, and how often it did at that moment
        self._wakes = 0
        self._told_ahead_us = 0  # by how much the wall clock is ahead, as the node knows

    # Life and death

    def start(self) -> None:
        """Start a node over what the disk has."""
        assert self.node is None, "a host runs one node"
        self.life += 1
        self._renews = self.put_out = False
        self.stopping = False
        self.started_us = self.world.now
        self.starts_us.append(self.world.now)
        self._turn_set = False
        self._wake_us = NEVER
        self._stall_told = False
        self.disk.begin()
        self.node = self._make_node(self, self.disk.reader if self.peering else self.disk.tables, self.rng.next64())
        self.world.note(self.name, "start")
        if self.off:
            self.off = False
            self.reach()
        self.on_change()
        self.anchor()
        self._told_ahead_us = 0
        self.node.open(self.clock())
        self.set_turn()
        if self.leaving:
            self.tell(self._leave)  # a node that dies before it has left continues to leave: the operator asks again
        elif self._stays:
            self._look_whether_left(self.life)

    def crash(self, *, is_told: bool = False) -> None:
        """Kill the process: unsynced writes and all connections are lost.

        is_told: its system closes its connections, so that the others learn of it at once; else this is drawn.
        """
        assert self.node is not None, "only a running node can crash"
        self.hung = False
        self.paused = False
        self._news = []
        self.world.mark("crash")
        self.crashed_us.append(self.world.now)
        self.stops_us.append(self.world.now)
        self.node = None
        self.life += 1
        self.disk.crash()
        silent = self.rng.chance(1, 4) and not is_told  # a lost power supply closes no connection
        self.world.note(self.name, "crash, silent" if silent else "crash")
        if self.peering is not None:
            self.off = silent
            self.peering.die(silent=silent)
            self.reach()
        for link in list(self.links.values()):
            link.crashed = True
            self._end(link)
            if silent and self.rng.chance(1, 2):
                self.world.mark("half-open client")
                link.reset(NEVER, NEVER)
                link.reset_on_send = self.rng.chance(1, 2)
            else:
                link.reset(self.rng.below(50 * MILLISECOND), NEVER)
        self.links.clear()
        for link in self.parting:
            link.reset(self.rng.below(50 * MILLISECOND), NEVER)
        self.parting.clear()
        self.on_change()
        self.on_fail(self)

    def leave(self) -> None:
        """Make the node leave the cluster for good: when no view has it any more, its process ends."""
        node: Any = self.node
        if node is not None and hasattr(node, "leave"):
            self.member = False
            self.leaving = True
            self.told_to_leave = True
            self.leaves_us.append(self.world.now)
            self.tell(self._leave)

    def _leave(self) -> None:
        node: Any = self.node
        node.leave(self.clock())
        self.set_turn()
        self._look_whether_left(self.life)

    def _stay(self) -> None:
        """No node would remain: the operator learns it, and counts on the node; those of the other side may not."""
        self.member = True
        self.leaving = False
        self._stays = True

    def _look_whether_left(self, life: int) -> None:
        node: Any = self.node
        if life != self.life or node is None or not (self.leaving or self._stays):
            return
        if self.hung or not node.left:
            self.world.later(50 * MILLISECOND, self._look_whether_left, life)
            return
        self.world.mark("left" if self.leaving else "left after all")
        self.member = False
        self.leaving = False
        self._stays = False
        self.told_to_leave = False
        self.stop(self.wipe)

    def operate(self, action: Callable[[str, int], str], node_id: str) -> None:
        """Give the node an operator's order about another node."""
        self.tell(self._operate, action, node_id)

    def _operate(self, action: Callable[[str, int], str], node_id: str) -> None:
        action(node_id, self.clock())
        self.set_turn()

    def stop(self, then: Callable[[], None]) -> None:
        """Stop the node in good order and call `then` when all is on disk."""
        assert self.node is not None, "only a running node can stop"
        self.world.mark("graceful stop")
        self.world.note(self.name, "stop")
        self.stopping = True
        self.tell(self._say_goodbye)
        self.world.after(5 * MILLISECOND, self._stopped, self.life, then)

    def _say_goodbye(self) -> None:
        node: Any = self.node
        node.stop(self.clock())
        if self.peering is not None and hasattr(node, "depart") and self.rng.chance(1, 2):
            self.world.mark("told the others before it stopped")
            node.depart(self.clock())
            self._patience_us = self.world.now + _DEPART_US
        self.set_turn()

    def _stopped(self, life: int, then: Callable[[], None]) -> None:
        if self.node is None or life != self.life:
            return
        departing = self._patience_us > self.world.now and not getattr(self.node, "departed", True)
        if not self.disk.idle or self._turn_set or self.hung or departing:
            self.world.after(5 * MILLISECOND, self._stopped, life, then)
            return
        self.world.note(self.name, "stopped")
        self.stops_us.append(self.world.now)
        for link in list(self.links.values()):
            self.link_lost(link, "stopped")
            link.reset(0, NEVER)
        self.node = None
        self.life += 1
        if self.peering is not None:
            self.peering.die(silent=False)
        self.on_change()
        then()

    # Links

    def link_opened(self, link: Link) -> bool:
        """Accept a connection, unless the node is down, or is a witness: that has no listeners."""
        if self.node is None or self.witness:
            self.world.mark("connection refused")
            return False
        link.server_open = True
        self.links[link.number] = link
        info = PeerInfo("tcp", f"10.0.0.{link.number}", None)
        connection = self.node.connect(link, info, self.clock())
        link.connection = connection
        self.set_turn()
        return True

    def link_data(self, link: Link, data: bytes) -> None:
        """Feed bytes to the node."""
        assert self.node is not None, "a node that is down has no links"
        self.bytes_in += len(data)
        self.node.receive(_connection(link), data, self.clock())
        self.set_turn()

    def link_lost(self, link: Link, reason: str) -> None:
        """Tell the node that a connection is gone."""
        if link.server_open and self.node is not None:
            self._end(link)
            del self.links[link.number]
            if link.to_client.held & CUT:
                self.parting.append(link)
            self.tell(self._lost, link, reason)

    def _lost(self, link: Link, reason: str) -> None:
        assert self.node is not None, "see tell"
        self.node.lost(_connection(link), reason, self.clock())
        self.set_turn()

    def link_writable(self, link: Link, writable: bool) -> None:
        """Pass on the back-pressure of the transport."""
        if link.server_open and self.node is not None:
            self.tell(self._writable, link, writable)

    def _writable(self, link: Link, writable: bool) -> None:
        assert self.node is not None, "see tell"
        if link.server_open:
            self.node.writable(_connection(link), writable, self.clock())
            self.set_turn()

    def _end(self, link: Link) -> None:
        link.server_open = False
        link.ended_us = min(link.ended_us, self.world.now)

    # Turns

    def set_turn(self) -> None:
        """Something came in: there will be a turn."""
        if not self._turn_set:
            self._turn_set = True
            # Nodes of a cluster talk all the time: their turns do not keep the world from being quiet.
            schedule = self.world.after if self.peering is None else self.world.later
            schedule(self.rng.below(self.turn_us) if self.turn_us > 1 else 0, self._turn_due, self.life)

    def _turn_due(self, life: int) -> None:
        # Events that woke the node in between have had their turn at once.
        if life == self.life and self._turn_set:
            self.tell(self._turn)

    def _turn(self) -> None:
        node = self.node
        assert node is not None, "see tell"
        self._turn_set = False
        self.turns += 1
        self.world.turns += 1
        ahead_us = self.wall() - self.clock()
        if ahead_us != self._told_ahead_us:
            self._told_ahead_us = ahead_us
            node.set_wall(self.wall(), self.clock())
        node.seal(self.clock())
        effects = node.drain(self.clock(), self.decided_ns())
        self.carry_out(effects)
        if effects.more:
            self.world.after(self.rng.below(self.turn_us), self._more, self.life)
        self._set_wake(node)
        self.on_turn(self)
        if getattr(node, "renewed", False) and not self._renews:
            self._renews = True
            self.world.mark("disk renewed")
            self.stop(self.start)

    def decided_ns(self) -> int:
        """Return the monotonic time after the last decision of the turn."""
        return self.steady_ns()

    def carry_out(self, effects: Effects) -> None:
        """Carry out the effects of a turn, in the order of `node/effect.py`."""
        if effects.write is not None:
            self.world.note(self.name, f"turn {self.turns} writes batch {effects.write.token}", effects.write.ops)
            self.write(effects.write)
        if effects.apply:
            self.world.after(_APPLY_US, self._apply, self.life, effects.apply)
        if self.peering is not None:
            self.carry_out_peers(self.peering, effects)
        self.speak(effects)
        for connection in effects.closes:
            self.close(_link(connection))
        for connection in effects.pauses:
            self.world.mark("reading paused")
            _link(connection).to_node.block(paused=True)
        for connection in effects.resumes:
            _link(connection).to_node.block(paused=False)
        for call in effects.calls:
            handle: Any = call.handle
            handle.ended(call)
        for check in effects.checks:
            self.world.after(self.rng.below(20 * MILLISECOND), self._checked, self.life, check)
        for event in effects.events:
            self.world.note(self.name, f"event {event.kind}", event)
            self.world.mark(f"event {event.kind}")
            if event.kind == "leave_refused":
                self._stay()

    def _apply(self, life: int, ops: list[tuple[int, bytes, bytes]]) -> None:
        """The store has changed the rows that the node reads."""
        if life == self.life and self.node is not None:
            self.disk.change_tables(ops)
            self.node.applied(self.clock())

    def speak(self, effects: Effects) -> None:
        """Send the output of connections, unless the lease has ended since."""
        if effects.outputs and not self.still_speaks(effects.until_ns):
            assert self.node is not None, "its turn has just ended"
            self.world.mark("lease over before the write")
            self.node.withhold(effects)
            self.set_turn()
        for connection in effects.drops:
            if _link(connection).congested:
                _link(connection).reset(0, 0)
        for connection in effects.outputs:
            self.output(_link(connection), connection.take_output())

    def still_speaks(self, until_ns: int) -> bool:
        """Whether output that may leave until then still may."""
        return self.steady_ns() < until_ns

    def carry_out_peers(self, peering: Peering, effects: Effects) -> None:
        """Carry out the effects of a turn for other nodes."""
        wanted: Any = effects
        peering.carry_out(wanted.dials, wanted.peer_outputs, wanted.peer_closes)

    def write(self, batch: Batch) -> None:
        """Hand a batch to the disk."""
        self.on_write(self, batch)
        self.disk.submit(batch)

    def output(self, link: Link, data: bytes) -> None:
        """Send what the node wrote to a connection."""
        if not link.server_open or not data:
            return
        if data[0] >> 4 != DISCONNECT:  # which only ends the connection: a node that is cut off says it late (A6)
            link.turn = self.world.turns
        if link.first_turn == 0:
            link.first_turn = self.world.turns
        self.on_output(self, link, data)
        link.from_server(data)

    def close(self, link: Link) -> None:
        """Close a connection after its output, and tell the node when it is gone."""
        if link.server_open:
            link.close_by_server()
            link.ended_us = min(link.ended_us, self.world.now)
            self.world.after(self.rng.below(MILLISECOND), self._closed, self.life, link)

    def _closed(self, life: int, link: Link) -> None:
        if life == self.life:
            self.link_lost(link, "closed")

    def _checked(self, life: int, check: Authenticate) -> None:
        if life == self.life:
            self.tell(self._answer, check)

    def _answer(self, check: Authenticate) -> None:
        assert self.node is not None, "see tell"
        self.node.authenticated(check.connection, check.password != b"wrong", self.clock())
        self.set_turn()

    def _more(self, life: int) -> None:
        if life == self.life:
            self.tell(self._awake)

    def _awake(self) -> None:
        assert self.node is not None, "see tell"
        self.node.wake(self.clock())
        self._turn()  # like a real driver: it waits for nothing

    def _set_wake(self, node: Core) -> None:
        due = node.next_wake()
        if due < NEVER:
            now = self.world.now
            due = max(now + due - self.clock(), now)
            if due < self._wake_us or self._wake_us <= now:
                self._wake_us = due
                self.world.later(due - now, self._wake, self.life, due)

    def set_clock(self) -> None:
        """Look at the clock again: the next wake-up is computed at the end of a turn."""
        self._wake_us = NEVER
        if self.node is not None:
            self.set_turn()

    def _wake(self, life: int, due: int) -> None:
        if life == self.life and due == self._wake_us:
            self._wake_us = NEVER
            if self._woken_us != self.world.now:
                self._woken_us = self.world.now
                self._wakes = 0
            self._wakes += 1
            if self._wakes > _WAKES_MAX:
                self.world.violate("liveness", f"{self.name} sets its timer to the same moment again and again")
            self.tell(self._awake)


def _link(connection: Connection) -> Link:
    link = connection.handle
    assert isinstance(link, Link), "every connection of a simulated node has a link"
    return link


def _connection(link: Link) -> Connection:
    connection = link.connection
    assert isinstance(connection, Connection), "a link without a connection was not accepted"
    return connection
