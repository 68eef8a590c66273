"""A node that only talks: the real links between nodes, and above them nothing but numbers that must come in order.

It proves the network between machines without a cluster. Clients are accepted and never answered.
"""

from __future__ import annotations

from typing import Any

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.kernel.pack import get_u64, u64
from folkmoot.kernel.rng import Rng
from folkmoot.node import Effects
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import DELAYED
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.peer.peer import PeerConnection
from folkmoot.peer.peers import Peers
from folkmoot.session.connection import Connection, PeerInfo
from folkmoot.sim.disk import Disk
from folkmoot.sim.host import Host
from folkmoot.sim.mesh import Mesh
from folkmoot.sim.peering import Peering
from folkmoot.sim.site import peer_address
from folkmoot.sim.trace import Trace
from folkmoot.sim.world import World
from folkmoot.store.memory import MemoryStore
from folkmoot.store.reader import Reader
from folkmoot.streams.table import Streams

KIND = 40
EVERY_US = 50 * MILLISECOND


class Wanted:
    """The effects of a turn."""

    def __init__(self) -> None:
        plain = Effects()
        self.write = None
        self.apply = plain.apply
        self.outputs: list[Connection] = []
        self.closes: list[Connection] = []
        self.pauses: list[Connection] = []
        self.resumes: list[Connection] = []
        self.calls = plain.calls
        self.checks = plain.checks
        self.drops = plain.drops
        self.until_ns = plain.until_ns
        self.events = plain.events
        self.more = False
        self.dials: list[str] = []
        self.peer_outputs: list[PeerConnection] = []
        self.peer_closes: list[PeerConnection] = []


class Talker:
    """Sends the numbers 1, 2, 3 ... to everybody, and keeps what it gets, by (sender, its incarnation)."""

    def __init__(self, name: str, incarnation: int, address: str, others: list[str], seed: int) -> None:
        config = ClusterConfig()
        config.peer_address = address
        self.name = name
        self.incarnation = incarnation
        self.peers = Peers(Member(name, incarnation, address, "", ACTIVE), config, Rng(seed))
        self.streams = Streams([], 1, MemoryStore())
        self.others = others
        self.talking = True
        self.sent: dict[str, int] = {}  # by receiver: the newest number
        self.got: dict[tuple[str, int], list[int]] = {}
        self.up: dict[str, int] = {}  # incarnations
        self.downs: list[tuple[str, bool]] = []  # (node, refused)
        self.failures: list[tuple[str, bool]] = []
        self.stalls: list[tuple[str, int]] = []
        self._next_us = 0
        self._connections: list[Connection] = []

    def open(self, now: int) -> None:
        for address in self.others:
            self.peers.want(address)
        self.wake(now)

    def wake(self, now: int) -> None:
        self.peers.wake(now)
        if now >= self._next_us:
            self._next_us = now + EVERY_US
            for node_id in self.peers.up_ids() if self.talking else []:
                number = self.sent.get(node_id, 0) + 1
                self.sent[node_id] = number
                self.peers.send(node_id, KIND, u64(self.incarnation) + u64(number))

    def next_wake(self) -> int:
        return min(self._next_us, self.peers.next_wake())

    def seal(self, now: int) -> None:
        pass

    def withhold(self, effects: Effects) -> None:
        raise AssertionError("it needs no lease")

    def drain(self, now: int, steady_ns: int = 0) -> Any:
        peers = self.peers
        for node_id, kind, body in peers.inbox:
            if kind == DELAYED:
                continue
            assert kind == KIND
            self.got.setdefault((node_id, get_u64(body, 0)), []).append(get_u64(body, 8))
        peers.inbox.clear()
        for change in peers.changes:
            if change.up:
                if self.up.get(change.node_id) != change.member.incarnation:
                    self.sent[change.node_id] = 0
                self.up[change.node_id] = change.member.incarnation
            else:
                self.downs.append((change.node_id, change.refused))
        peers.changes.clear()
        peers.flush(now)
        wanted = Wanted()
        wanted.dials, wanted.peer_outputs, wanted.peer_closes = (
            list(peers.dials),
            list(peers.outputs),
            list(peers.closes),
        )
        for kept in (peers.dials, peers.outputs, peers.closes, peers.events):
            kept.clear()
        return wanted

    def peer_connected(self, handle: object, address: str, outgoing: bool, now: int) -> PeerConnection:
        return self.peers.connected(handle, address, outgoing, now)

    def peer_received(self, peer: PeerConnection, data: bytes, now: int) -> None:
        self.peers.received(peer, data, now)

    def peer_writable(self, peer: PeerConnection, flag: bool, now: int) -> None:
        self.peers.writable(peer, flag, now)

    def peer_lost(self, peer: PeerConnection, why: str, now: int) -> None:
        self.peers.lost(peer, why, now)

    def dial_failed(self, address: str, why: str, refused: bool, now: int) -> None:
        self.failures.append((why, refused))
        self.peers.dial_failed(address, why, refused, now)

    def set_wall(self, wall_us: int, now: int) -> None:
        """A talker has no use for the time of day."""

    def stalled(self, what: str, since_us: int, now: int) -> None:
        self.stalls.append((what, since_us))

    # Clients and disk

    def connect(self, handle: object, info: PeerInfo, now: int) -> Connection:
        return Connection(1, handle, info, now, [])

    def receive(self, connection: Connection, data: bytes, now: int) -> None:
        pass

    def lost(self, connection: Connection, why: str, now: int) -> None:
        pass

    def writable(self, connection: Connection, flag: bool, now: int) -> None:
        pass

    def authenticated(self, connection: Connection, ok: bool, now: int) -> None:
        pass

    def storage(self, full: bool, why: str, now: int) -> None:
        pass

    def written(self, token: int, now: int) -> None:
        pass

    def applied(self, now: int) -> None:
        pass

    def stop(self, now: int) -> None:
        pass


class Talkers:
    """Machines with talkers in an otherwise empty world."""

    def __init__(self, count: int = 3, seed: int = 1, split: int = 1) -> None:
        self.world = World(seed, Trace())
        self.rng = Rng(seed)
        self.mesh = Mesh(self.world, self.rng.fork(), 500, split)
        self.lives: dict[str, list[Talker]] = {}
        self.hosts = [self._host(number) for number in range(1, count + 1)]
        for host in self.hosts:
            host.start()

    def _host(self, number: int) -> Host:
        disk = Disk(self.world, self.rng.fork(), f"disk{number}", 1_000)
        host = Host(self.world, self.rng.fork(), f"n{number}", disk, self._make)
        host.peering = Peering(host, peer_address(number))
        self.mesh.listen(host.peering.address, host.peering)
        return host

    def _make(self, host: Host, reader: Reader, seed: int) -> Talker:
        number = int(host.name[1:])
        others = [peer_address(other) for other in range(1, len(self.hosts) + 1) if other != number]
        lives = self.lives.setdefault(host.name, [])
        talker = Talker(host.name, len(lives) + 1, peer_address(number), others, seed)
        lives.append(talker)
        return talker

    def talker(self, name: str) -> Talker:
        """The newest life of a machine."""
        return self.lives[name][-1]

    def run(self, duration_us: int) -> None:
        """Let time pass."""
        self.world.run(self.world.now + duration_us)

    def hush(self) -> None:
        """Let everybody be silent until what is on its way has come."""
        for lives in self.lives.values():
            for talker in lives:
                talker.talking = False
        self.run(5_000_000)

    def gaps(self) -> list[str]:
        """What between the present lives did not come exactly once, in order, up to the last number sent."""
        faults: list[str] = []
        for sender in [lives[-1] for lives in self.lives.values()]:
            for receiver in [lives[-1] for lives in self.lives.values()]:
                if receiver is not sender:
                    got = receiver.got.get((sender.name, sender.incarnation), [])
                    last = sender.sent.get(receiver.name, 0)
                    if not last or got != list(range(1, last + 1)):
                        faults.append(f"{sender.name} sent {receiver.name} {last}, it got {got}")
        return faults
