"""Several nodes in one box: whole cores on stores in memory, in virtual time, joined by wires that lose nothing.

`SimulatedCluster` runs all nodes until none has anything to do now; each of its boxes is a `Box` whose clients live
at that node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.membership.command import Lead
from folkmoot.membership.control import Control
from folkmoot.membership.lease import certain_ns
from folkmoot.membership.placement_plan import plan
from folkmoot.mqtt.packet import V5
from folkmoot.node import Effects, NodeConfig
from folkmoot.node.cluster_node import ClusterNode
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.peer import PeerConnection
from tests.harness.box import START, Box
from tests.harness.peer import Peer

__all__ = ["SimulatedCluster", "SimulatedBox", "Site"]

_AGES_US = 10_000 * 365 * 86_400 * SECOND
_YEAR_NS = 365 * 86_400 * SECOND * 1000
_LEASE_NS = 30 * _YEAR_NS  # of a cluster that is looked at as one box: it ends before NEVER
TURNS_MAX = 200_000
_SEGMENT_BYTES = 16 << 10
_HIGH_BYTES, _LOW_BYTES = 128 << 10, 32 << 10  # of a transport, as in `runtime/peers`


class Wire:
    """One connection between two nodes; bytes arrive in the next round, or as fast as `SimulatedCluster.rate` says."""

    def __init__(self, near: Site, far: Site) -> None:
        self.sites = (near, far)
        self.ends: list[PeerConnection | None] = [None, None]
        self.data: list[deque[bytes]] = [deque(), deque()]
        self.open = True
        self.free_us = [0, 0]  # when more can be sent to an end, with a rate
        self.full = [False, False]

    def other(self, peer: PeerConnection) -> int:
        return 1 if self.ends[0] is peer else 0


class Site(Box):
    """One node of a cluster."""

    def __init__(self, cluster: SimulatedCluster, name: str, *, witness: bool = False, **arguments: Any) -> None:
        self.cluster = cluster
        self.name = name
        self.up = True
        self.cut: set[str] = set()
        self.address = f"{name}:1"
        settings = ClusterConfig()
        settings.peer_address = self.address
        settings.seeds = [site.address for site in cluster.sites.values()]
        settings.witness = witness
        settings.replicas = cluster.replicas
        settings.gone_us = SECOND
        settings.split_policy = cluster.split_policy
        settings.min_in_sync = cluster.min_in_sync
        settings.join_wait_us = cluster.join_wait_us
        cluster.added += 1
        arguments["seed"] = 1000 * cluster.added  # each start of a node adds one
        settings.silence_us = cluster.silence_us
        settings.digest_us = settings.digest_pause_us = cluster.silence_us // 20
        settings.secret = cluster.secret
        settings.planted = cluster.planted
        settings.link_buffer_bytes_max = cluster.link_buffer_bytes_max
        self.settings = settings
        super().__init__(cluster=settings, node_id=name, partitions=cluster.partitions, **arguments)

    @property
    def cluster_node(self) -> ClusterNode:
        """What joins this node to the others."""
        assert self.node.cluster_node is not None
        return self.node.cluster_node

    @property
    def control(self) -> Control:
        """The part of this node in the control of the cluster."""
        return self.cluster_node.membership.control

    def end_lease(self) -> None:
        """End the lease of this node; until `grant_lease` it is over whenever it is extended, as by a fast clock."""
        lease = self.control._lease
        lease._length_ns = 0
        lease._until_ns = self.steady_ns()
        self.run()

    def grant_lease(self) -> None:
        """Let the next heartbeat extend the lease."""
        self.control._lease._length_ns = self.control.options.lease_ns
        self.advance(self.control.options.heartbeat_ns // 1000)

    def names_led(self, stem: str) -> list[str]:
        """Return client ids, or topics, whose partitions this node leads."""
        leaders = self.cluster_node.fabric.leaders
        names = [f"{stem}{number}" for number in range(200)]
        return [name for name in names if leaders[hash64(name.encode()) % len(leaders)] == self.name]

    def run(self) -> None:
        """Run all nodes until none has anything to do now."""
        self.cluster.run()

    def advance(self, us: int) -> None:
        """Let time pass everywhere."""
        self.cluster.advance(us)

    def run_alone(self) -> None:
        """Turns of this node alone."""
        super().run()

    def _boot(self) -> None:
        self.now = self.cluster.now
        super()._boot()

    def turn(self) -> bool:
        """One turn of this node, if it is up."""
        self.now = self.cluster.now
        moved = self.up and super().turn()
        if self.up and self.node.renewed:
            self._replace_node()
        return moved

    def _perform(self, effects: Effects) -> bool:
        moved = super()._perform(effects)
        for address in effects.dials:
            self.cluster.dial(self, address)
        for peer in effects.peer_outputs:
            wire = peer.handle
            assert isinstance(wire, Wire)
            wire.data[wire.other(peer)].append(peer.take_output())
            self.cluster.look_at_room(wire, wire.other(peer))
        for peer in effects.peer_closes:
            self.cluster.drop(peer.handle)
        return moved or bool(effects.dials or effects.peer_outputs or effects.peer_closes)

    def kill(self) -> None:
        """Kill the node: what was not written is lost, connections break."""
        self._end()
        self.cluster.run()

    def _end(self) -> None:
        self.up = False
        self._unwritten = []
        for peer in self.peers:
            peer.connection = None
        for wire in list(self.cluster.wires):
            if self in wire.sites:
                self.cluster.drop(wire)

    def _replace_node(self) -> None:
        """The folder has become another disk: open another node on it, as a driver does."""
        self._end()
        self.up = True
        self._restart()

    def revive(self) -> None:
        """Start the node again on its store."""
        self.up = True
        self._restart()


class SimulatedCluster:
    """`count` nodes that find each other by seeds."""

    def __init__(
        self,
        count: int,
        *,
        replicas: int = 3,
        partitions: int = 8,
        join_wait_us: int = SECOND // 5,
        silence_us: int = 2 * SECOND,
        split_policy: str = "available",
        min_in_sync: int = 1,
        link_buffer_bytes_max: int = 64 << 20,
        secret: bytes = b"",
        planted: Sequence[str] = (),
        **arguments: Any,
    ) -> None:
        self.secret = secret
        self.planted = list(planted)  # bugs of `kernel/planted`
        self.link_buffer_bytes_max = link_buffer_bytes_max
        self.replicas = replicas
        self.split_policy = split_policy
        self.min_in_sync = min_in_sync
        self.partitions = partitions
        self.join_wait_us = join_wait_us
        self.silence_us = silence_us
        self.arguments = arguments
        self.now = START
        self.sites: dict[str, Site] = {}
        self.added = 0  # nodes, also those that are gone
        self.wires: list[Wire] = []
        self.held: set[tuple[str, str]] = set()  # from and to: what goes there takes long
        self.severed: set[tuple[str, str]] = set()  # from and to: nothing goes there, and no connection is made
        self.rate = 0  # bytes per second of each connection and direction; 0: without a limit
        self._running = False
        for number in range(count):
            self.add(f"n{number + 1}")
        self.settle()

    def add(self, name: str, *, witness: bool = False) -> Site:
        """Start one more node."""
        site = Site.__new__(Site)
        self._running = True  # not before the node is there
        site.__init__(self, name, witness=witness, **self.arguments)  # type: ignore[misc]
        self._running = False
        self.sites[name] = site
        return site

    def __getitem__(self, name: str) -> Site:
        return self.sites[name]

    def settle(self, us: int = 20 * SECOND) -> None:
        """Let time pass until all that are up lead or follow everything that they should, or too long."""
        end = self.now + us
        while self.now < end:
            self.advance(SECOND // 20)
            if self.settled():
                return
        raise AssertionError(f"the cluster does not settle: {[str(self.view_of(site)) for site in self.live()]}")

    def controller(self) -> Site:
        """Return the node that leads the configuration log."""
        (found,) = [site for site in self.live() if site.control.controller is not None]
        return found

    def hand_log_to(self, name: str) -> None:
        """Have a node lead the configuration log."""
        leader = self.controller()
        if leader.name != name:
            assert leader.control.log is not None
            leader.control.log.transfer(self.sites[name].cluster_node.me.disk, self.now * 1000)
            self.advance(2 * SECOND)
        assert self.controller().name == name

    def hand_partition_to(self, partition: int, name: str) -> None:
        """Have the controller give the leadership of a partition to a node."""
        control = self.controller().control
        assert control.log is not None
        assert control.configuration is not None
        version = control.configuration.partitions[partition].version
        command = Lead(partition, version, self.sites[name].cluster_node.me.disk)
        assert control.log.propose(command, self.now * 1000).handle
        self.advance(5 * MILLISECOND)

    def proposes(self, kind: int) -> bool:
        """Whether a controller has proposed a command of this kind, which is not decided yet."""
        controllers = [site.control.controller for site in self.live()]
        return any(kind == key[0] for one in controllers if one is not None for key in one._open)

    def live(self) -> list[Site]:
        return [site for site in self.sites.values() if site.up]

    def view_of(self, site: Site) -> object:
        assert site.node.cluster_node is not None
        return site.node.cluster_node.view

    def settled(self) -> bool:
        """Whether all live nodes have leases in one view, and all partitions are open everywhere with all replicas."""
        live = [site for site in self.live() if not site.settings.witness]
        epochs = set()
        for site in live:
            cluster_node = site.node.cluster_node
            assert cluster_node is not None
            view = cluster_node.view
            if view is None or len(view.members) != len(live):
                return False
            if site.node.silence(site.steady_ns()):
                return False
            epochs.add(view.epoch)
            if not all(cluster_node.fabric.open) or any(view.learners):
                return False
            if any(len(replicas) < min(self.replicas, len(live)) for replicas in view.replicas):
                return False
        return len(epochs) == 1 and not self._is_moving()

    def _is_moving(self) -> bool:
        """Whether a controller has something to do yet."""
        for site in self.live():
            control = site.control
            if control.controller is not None and control.configuration is not None:
                voters, gone = control.controller.log.voters, control.controller._gone
                return len(plan(control.configuration, control.options.limits, voters, gone)) > 0
        return False

    def run(self) -> None:
        """Turn after turn until nothing is left to do now."""
        if self._running:
            return
        self._running = True
        try:
            for _ in range(TURNS_MAX):
                moved = False
                for site in list(self.sites.values()):
                    moved = site.turn() or moved
                moved = self._carry() or moved
                if not moved:
                    return
            raise AssertionError("the cluster does not come to rest")
        finally:
            self._running = False

    def advance(self, us: int) -> None:
        """Let `us` microseconds pass; every timer goes off at its time."""
        end = self.now + us
        self.run()
        while True:
            due = min([*self._arrivals(), *[site.node.next_wake() for site in self.live()]], default=end + 1)
            if due > end:
                break
            self.now = max(self.now, due)
            self.run()
        self.now = end
        self.run()

    def _arrivals(self) -> list[int]:
        """Return when links with a rate carry the next of what waits."""
        if not self.rate:
            return []
        wires = [wire for wire in self.wires if wire.open and wire.sites[1].name not in wire.sites[0].cut]
        ends = [(wire, end) for wire in wires for end in (0, 1) if wire.data[end] and not self._is_held(wire, end)]
        return [wire.free_us[end] for wire, end in ends]

    def freeze(self) -> None:
        """From now on nothing runs but what `unit` does, until `thaw`."""
        self._running = True

    def thaw(self) -> None:
        """All runs by itself again, from the next thing that happens on."""
        self._running = False

    def unit(self, number: int) -> bool:
        """The turn of a node, or what is on a wire in one direction; False if there is nothing to do there."""
        sites = list(self.sites.values())
        if number < len(sites):
            return sites[number].turn()
        wires = [wire for wire in self.wires if wire.open]
        place = (number - len(sites)) // 2
        end = number % 2
        if place >= len(wires):
            return False
        wire = wires[place]
        peer = wire.ends[end]
        if self._is_held(wire, end) or not wire.data[end] or peer is None:
            return False
        chunk = b"".join(wire.data[end])
        wire.data[end].clear()
        wire.sites[end].node.peer_received(peer, chunk, self.now)
        return True

    def _is_held(self, wire: Wire, end: int) -> bool:
        way = (wire.sites[1 - end].name, wire.sites[end].name)
        return way in self.held or way in self.severed

    def look_after_turns(self, look: Callable[[Site], None]) -> None:
        """Have something looked at after each turn of each node that is up."""

        def looked_at(site: Site, turn: Callable[[], bool]) -> Callable[[], bool]:
            def turn_and_look() -> bool:
                moved = turn()
                look(site)
                return moved

            return turn_and_look

        for site in self.live():
            site.turn = looked_at(site, site.turn)  # type: ignore[method-assign]

    def hold_opening(self, partition: int, heir: str, silent: str) -> None:
        """Let time pass until a node is to lead a partition; it cannot before `silent` says which clients it has."""
        fabric = self.sites[heir].cluster_node.fabric
        for _ in range(TURNS_MAX):
            if fabric.leaders[partition] == heir and not fabric.open[partition]:
                self.held = {(silent, heir)}
                self.run()
                return
            if not self.step():
                self.now += MILLISECOND
        raise AssertionError("nobody takes over")

    def step(self) -> bool:
        """One turn of each node, then all that is on the wires and not held; tell whether anything was done."""
        moved = [site.turn() for site in list(self.sites.values())]
        return self._carry() or any(moved)

    def deliver(self, source: str, target: str) -> bool:
        """Bring the oldest bytes that are held from one node to another; False if there are none."""
        for wire in list(self.wires):
            for end in (0, 1):
                names = (wire.sites[1 - end].name, wire.sites[end].name)
                peer = wire.ends[end]
                if names == (source, target) and wire.data[end] and peer is not None:
                    wire.sites[end].node.peer_received(peer, wire.data[end].popleft(), self.now)
                    return True
        return False

    def cut(self, name: str, *others: str) -> None:
        """Cut a node off from others, both ways, silently."""
        for other in others:
            self.sites[name].cut.add(other)
            self.sites[other].cut.add(name)

    def heal(self) -> None:
        """All nodes reach each other again; connections that were cut are gone."""
        for site in self.sites.values():
            site.cut.clear()

    def sever(self, ways: set[tuple[str, str]], resets: bool = False) -> None:
        """From now on these ways are cut, each in one direction, and no others.

        What waits on a way that is whole again arrives, unless that `resets` the connections.
        """
        before = self.severed
        self.severed = set(ways)
        for wire in list(self.wires):
            names = (wire.sites[0].name, wire.sites[1].name)
            was_cut = names in before or names[::-1] in before
            if resets and was_cut and not self._is_severed(*wire.sites):
                self.drop(wire)

    def _is_severed(self, one: Site, other: Site) -> bool:
        return (one.name, other.name) in self.severed or (other.name, one.name) in self.severed

    def dial(self, site: Site, address: str) -> None:
        """Connect a node to an address, now or (when it is cut off) never."""
        far = next((one for one in self.sites.values() if one.address == address), None)
        if far is None or not far.up:
            site.node.dial_failed(address, "nobody listens", True, self.now)
        elif far.name in site.cut or self._is_severed(site, far):
            site.node.dial_failed(address, "timed out", False, self.now)
        else:
            wire = Wire(site, far)
            self.wires.append(wire)
            wire.ends[0] = site.node.peer_connected(wire, address, True, self.now)
            wire.ends[1] = far.node.peer_connected(wire, site.address, False, self.now)

    def drop(self, wire: object) -> None:
        """Break a connection."""
        assert isinstance(wire, Wire)
        if not wire.open:
            return
        wire.open = False
        self.wires.remove(wire)
        for site, peer in zip(wire.sites, wire.ends, strict=True):
            if peer is not None and site.up:
                site.node.peer_lost(peer, "reset", self.now)

    def _carry(self) -> bool:
        moved = False
        for wire in list(self.wires):
            if wire.sites[1].name in wire.sites[0].cut:
                continue
            for end in (0, 1):
                data = wire.data[end]
                peer = wire.ends[end]
                if data and peer is not None and wire.open and not self._is_held(wire, end):
                    if self.rate and wire.free_us[end] > self.now:
                        continue
                    moved = True
                    chunk = b"".join(data)
                    data.clear()
                    if self.rate:
                        chunk = self._throttled(wire, end, chunk)
                    elif wire.full[end]:
                        self.look_at_room(wire, end)
                    wire.sites[end].node.peer_received(peer, chunk, self.now)
        return moved

    def _throttled(self, wire: Wire, end: int, chunk: bytes) -> bytes:
        """Return what a link with a rate carries now; the rest waits, and the sender hears when it is much."""
        rest = chunk[_SEGMENT_BYTES:]
        chunk = chunk[:_SEGMENT_BYTES]
        wire.free_us[end] = self.now + len(chunk) * SECOND // self.rate
        if rest:
            wire.data[end].append(rest)
        self.look_at_room(wire, end)
        return chunk

    def look_at_room(self, wire: Wire, end: int) -> None:
        """Tell the sender whether its transport has room; without a rate it always has."""
        sender = wire.ends[1 - end]
        size = sum([len(data) for data in wire.data[end]])
        full = self.rate > 0 and size > (_LOW_BYTES if wire.full[end] else _HIGH_BYTES)
        if full != wire.full[end] and sender is not None:
            wire.full[end] = full
            wire.sites[1 - end].node.peer_writable(sender, not full, self.now)


class SimulatedBox(Box):
    """A cluster that looks like one box: each client is at another node than the one before."""

    def __init__(self, **arguments: Any) -> None:  # the nodes are boxes, this is none
        self.cluster = SimulatedCluster(3, silence_us=_AGES_US, **arguments)
        self._be_patient()
        self._count = 0

    def _be_patient(self) -> None:
        """Beat so rarely that a test can let years pass, once all are members: their leases last for decades."""
        sites = list(self.cluster.sites.values())
        for site in sites:
            control = site.control
            control.options.raft.election_ns = 10 * _YEAR_NS
            control._lease._length_ns = _LEASE_NS
            if control.controller is not None:
                control.controller._leases._wait_ns = certain_ns(_LEASE_NS)
        self.cluster.advance(SECOND)  # what was set counts from the next heartbeat on, and from the one before the rest
        for site in sites:
            options = site.control.options
            options.heartbeat_ns = options.greet_ns = _YEAR_NS
            options.raft.heartbeat_ns = options.raft.learner_heartbeat_ns = _YEAR_NS
            site.settings.clock_us = _AGES_US // 100
        self.cluster.advance(SECOND)

    def client(self, client_id: str = "", version: int = V5, acks: bool = True) -> Peer:
        """Return a new client, at the next node."""
        sites = list(self.cluster.sites.values())
        self._count += 1
        return sites[self._count % len(sites)].client(client_id, version, acks)

    @property
    def peers(self) -> list[Peer]:  # type: ignore[override]
        """All clients, in the order of their nodes; the bystander first."""
        sites = list(self.cluster.sites.values())
        return [peer for site in [*sites[1:], sites[0]] for peer in site.peers]

    @property
    def config(self) -> NodeConfig:  # type: ignore[override]
        """The settings of the first node."""
        return self.cluster["n1"].config

    @property
    def now(self) -> int:  # type: ignore[override]
        """The time."""
        return self.cluster.now

    @property
    def events(self) -> list[Any]:  # type: ignore[override]
        """The facts that all nodes have told."""
        return [event for site in self.cluster.sites.values() for event in site.events]

    def run(self) -> None:
        """Run all nodes."""
        self.cluster.run()

    def advance(self, us: int) -> None:
        """Let time pass."""
        self.cluster.advance(us)

    def hold_writes(self) -> None:
        """No batch becomes durable at any node."""
        for site in self.cluster.sites.values():
            site.hold_writes()

    def release_writes(self, count: int | None = None) -> None:
        """What was held becomes durable."""
        for site in self.cluster.sites.values():
            site.release_writes(count)

    def storage(self, full: bool) -> None:
        """All disks are full, or have room again."""
        for site in self.cluster.sites.values():
            site.storage(full)

    def crash(self, durable: int = 0) -> None:
        """The power of all nodes fails, and comes back."""
        sites = list(self.cluster.sites.values())
        for site in sites:
            for batch in site._unwritten[:durable]:
                site.store.apply(batch)
            site.up = False
            site._unwritten = []
            for peer in site.peers:
                peer.connection = None
        for wire in list(self.cluster.wires):
            self.cluster.drop(wire)
        for site in sites:
            site.revive()
        self.cluster.settle()
        self._be_patient()

    def restart(self) -> None:
        """Stop all nodes as an operator does, then start them again."""
        self.stop()
        self.crash()

    def stop(self) -> None:
        """Stop all nodes as an operator does."""
        for site in self.cluster.sites.values():
            site.node.stop(self.cluster.now)
        self.cluster.run()
