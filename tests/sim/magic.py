"""A cluster that cannot go wrong: all machines share one node with a disk outside of this world.

It is as good as a cluster can be: no message between machines, no delay, no split. What the checkers find here is their
own mistake, and what faults do to clients and machines can be tried without a cluster.
"""

from __future__ import annotations

from typing import Any

from folkmoot.membership.view import View
from folkmoot.node import Node, NodeConfig
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.session.connection import Connection, PeerInfo
from folkmoot.sim import Simulation
from folkmoot.sim.host import Host
from folkmoot.sim.network import Link
from folkmoot.sim.swarm import Shape
from folkmoot.store.epoch import make_epoch
from folkmoot.store.memory import MemoryStore
from folkmoot.store.reader import Reader
from folkmoot.streams.table import Streams


class Magic:
    """The one node behind all; `parts` are its faces, by the name of the machine."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.store = MemoryStore()
        self.parts: list[Face] = []
        self.ups: list[list[tuple[int, bool]]] = []  # who ran, in the order of changes
        self.left: list[str] = []  # ids that have gone for good
        self.open: dict[int, tuple[Connection, Host, int]] = {}  # connections, with the life of their machine

    def make(self, config: NodeConfig, _reader: Reader, seed: int) -> Any:
        """Return what a machine takes for its node."""
        return self.face(config, seed, Face)

    def face(self, config: NodeConfig, seed: int, kind: type[Face]) -> Face:
        """Return a face of this kind."""
        if self.node is None:
            alone = NodeConfig()
            alone.partitions = config.partitions
            alone.limits = config.limits
            alone.streams = config.streams
            alone.check_passwords = config.check_passwords
            self.node = Node(alone, self.store, seed)
        if config.node_id in self.left:
            self.left.remove(config.node_id)  # it was started again before it had gone
        face = kind(self, self.node, config)
        self.parts.append(face)
        return face

    def bury(self, now: int) -> None:
        """Let the connections of machines that died be lost."""
        assert self.node is not None
        for number, (connection, host, life) in list(self.open.items()):
            if host.life != life:
                del self.open[number]
                self.node.lost(connection, "its machine died", now)


class Face:
    """The calls of a node at one machine."""

    def __init__(self, magic: Magic, node: Node, config: NodeConfig) -> None:
        self.magic = magic
        self.node = node
        self.config = config
        self.own = config.node_id.encode()
        self.told = False

    @property
    def streams(self) -> Streams:
        return self.node.streams

    @property
    def view(self) -> View:
        """Everybody who runs, in epochs that count their starts."""
        hosts = [host for host in SIMULATIONS[-1].site.hosts if host.up and host.node_id not in self.magic.left]
        ups = [(host.life, host in hosts) for host in SIMULATIONS[-1].site.hosts]
        if not self.magic.ups or self.magic.ups[-1] != ups:
            self.magic.ups.append(ups)
        view = View(
            make_epoch(len(self.magic.ups), "magic"), [Member(host.node_id, 1, "", "", ACTIVE) for host in hosts]
        )
        view.replicas = [[host.node_id for host in hosts] for _ in range(self.config.partitions)]
        return view

    def everybody(self) -> list[Member]:
        """All machines as members, whether they run or not."""
        return [Member(host.node_id, 1, "", "", ACTIVE) for host in SIMULATIONS[-1].site.hosts]

    def open(self, now: int) -> None:
        if len(self.magic.parts) == 1:
            self.node.open(now)

    def connect(self, handle: Any, info: PeerInfo, now: int) -> Connection:
        connection = self.node.connect(handle, info, now)
        self.magic.open[connection.id] = (connection, handle.server, handle.server.life)
        return connection

    def lost(self, connection: Connection, why: str, now: int) -> None:
        self.magic.open.pop(connection.id, None)
        self.node.lost(connection, why, now)

    def stop(self, now: int) -> None:
        """Only this machine's clients go."""
        for number, (connection, _, _) in list(self.magic.open.items()):
            if connection.handle.server.node is self:  # type: ignore[attr-defined]
                del self.magic.open[number]
                self.node.lost(connection, "stopped", now)

    def leave(self, _now: int) -> None:
        """Leave every view from now on."""
        self.magic.left.append(self.config.node_id)

    def drain(self, now: int, steady_ns: int = 0) -> Turn:
        self.magic.bury(now)
        effects = self.node.drain(now, steady_ns)
        if effects.write is not None:
            self.magic.store.apply(effects.write)
            self.node.written(effects.write.token, now)
            effects.write = None
            effects.more = True
        return Turn(effects)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)

    def stalled(self, what: str, since_us: int, now: int) -> None:
        pass


class Turn:
    """The effects of a turn, with none for other machines."""

    def __init__(self, effects: Any) -> None:
        self.effects = effects
        self.dials: list[str] = []
        self.peer_outputs: list[Any] = []
        self.peer_closes: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.effects, name)


SIMULATIONS: list[Simulation] = []


class MagicHost(Host):
    """Closes also the clients of other machines."""

    def close(self, link: Link) -> None:
        host = link.server
        assert isinstance(host, Host)
        Host.close(host, link)


def magic_simulation(seed: int, steps: int, shape: Shape | None = None, nodes: int = 3) -> Simulation:
    """Return a run on the perfect cluster."""
    simulation = Simulation(seed, steps, shape=shape, nodes=nodes, host_class=MagicHost, make_core=Magic().make)
    SIMULATIONS.append(simulation)
    return simulation
