"""Several nodes in one box: whole cores on stores in memory, in virtual time, with a wire between them that loses nothing.

`Camp` runs all nodes until none has anything to do now; each of its boxes is a `Box` whose clients live at that node.
"""

from __future__ import annotations

from collections import deque

from folkmoot.cluster.config import ClusterConfig
from folkmoot.cluster.peer import PeerConnection
from folkmoot.kernel.clock import SECOND
from folkmoot.node import Effects
from folkmoot.streams.config import StreamConfig
from tests.harness.box import START, Box

__all__ = ["Camp", "Site"]

TURNS_MAX = 200_000


class Wire:
    """One connection between two nodes; bytes arrive in the next round."""

    def __init__(self, near: Site, far: Site) -> None:
        self.sites = (near, far)
        self.ends: list[PeerConnection | None] = [None, None]
        self.data: list[deque[bytes]] = [deque(), deque()]
        self.open = True

    def other(self, peer: PeerConnection) -> int:
        return 1 if self.ends[0] is peer else 0


class Site(Box):
    """One node of a camp."""

    def __init__(self, camp: Camp, name: str, streams: list[StreamConfig], limits: dict[str, int | bool]) -> None:
        self.camp = camp
        self.name = name
        self.up = True
        self.cut: set[str] = set()
        self.address = f"{name}:1"
        cluster = ClusterConfig()
        cluster.peer_address = self.address
        cluster.seeds = [site.address for site in camp.sites.values()]
        cluster.replicas = camp.replicas
        cluster.join_wait_us = camp.join_wait_us
        super().__init__(
            cluster=cluster, node_id=name, partitions=camp.partitions, streams=streams, limits=limits, seed=len(camp.sites) + 1
        )

    def run(self) -> None:
        """Run all nodes until none has anything to do now."""
        self.camp.run()

    def advance(self, us: int) -> None:
        """Let time pass everywhere."""
        self.camp.advance(us)

    def _boot(self) -> None:
        self.now = self.camp.now
        super()._boot()

    def turn(self) -> bool:
        """One turn of this node, if it is up."""
        self.now = self.camp.now
        return self.up and super().turn()

    def _perform(self, effects: Effects) -> bool:
        moved = super()._perform(effects)
        for address in effects.dials:
            self.camp.dial(self, address)
        for peer in effects.peer_outputs:
            wire = peer.handle
            assert isinstance(wire, Wire)
            wire.data[wire.other(peer)].append(peer.take_output())
        for peer in effects.peer_closes:
            self.camp.drop(peer.handle)
        return moved or bool(effects.dials or effects.peer_outputs or effects.peer_closes)

    def kill(self) -> None:
        """Kill the node: what was not written is lost, connections break."""
        self.up = False
        self._unwritten = []
        for peer in self.peers:
            peer.connection = None
        for wire in list(self.camp.wires):
            if self in wire.sites:
                self.camp.drop(wire)
        self.camp.run()

    def revive(self) -> None:
        """Start the node again on its store."""
        self.up = True
        self._restart()


class Camp:
    """`count` nodes that find each other by seeds."""

    def __init__(
        self,
        count: int,
        *,
        replicas: int = 3,
        partitions: int = 8,
        join_wait_us: int = 2 * SECOND,
        streams: list[StreamConfig] | None = None,
        limits: dict[str, int | bool] | None = None,
    ) -> None:
        self.replicas = replicas
        self.partitions = partitions
        self.join_wait_us = join_wait_us
        self.streams = streams if streams is not None else []
        self.limits = limits if limits is not None else {}
        self.now = START
        self.sites: dict[str, Site] = {}
        self.wires: list[Wire] = []
        self._running = False
        for number in range(count):
            self.add(f"n{number + 1}")
        self.settle()

    def add(self, name: str) -> Site:
        """Start one more node."""
        site = Site.__new__(Site)
        self._running = True  # not before the node is there
        site.__init__(self, name, self.streams, dict(self.limits))  # type: ignore[misc]
        self._running = False
        self.sites[name] = site
        return site

    def __getitem__(self, name: str) -> Site:
        return self.sites[name]

    def settle(self, us: int = 20 * SECOND) -> None:
        """Let time pass until all that are up lead or follow everything that they should, or too long."""
        end = self.now + us
        while self.now < end:
            self.advance(SECOND // 10)
            if self.settled():
                return
        raise AssertionError(f"the camp does not settle: {[str(self.view_of(site)) for site in self.live()]}")

    def live(self) -> list[Site]:
        return [site for site in self.sites.values() if site.up]

    def view_of(self, site: Site) -> object:
        assert site.node.liaison is not None
        return site.node.liaison.view

    def settled(self) -> bool:
        """Whether all live nodes are in one view and every partition is open everywhere with all its replicas."""
        live = self.live()
        epochs = set()
        for site in live:
            liaison = site.node.liaison
            assert liaison is not None
            view = liaison.view
            if view is None or len(view.members) != len(live):
                return False
            epochs.add(view.epoch)
            if not all(liaison.fabric.open) or any(view.learners):
                return False
            if any(len(replicas) < min(self.replicas, len(live)) for replicas in view.replicas):
                return False
        return len(epochs) == 1

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
            raise AssertionError("the camp does not come to rest")
        finally:
            self._running = False

    def advance(self, us: int) -> None:
        """Let `us` microseconds pass; every timer goes off at its time."""
        end = self.now + us
        self.run()
        while True:
            due = min([site.node.next_wake() for site in self.live()], default=end + 1)
            if due > end:
                break
            self.now = max(self.now, due)
            self.run()
        self.now = end
        self.run()

    def cut(self, name: str, *others: str) -> None:
        """Cut a node off from others, both ways, silently."""
        for other in others:
            self.sites[name].cut.add(other)
            self.sites[other].cut.add(name)

    def heal(self) -> None:
        """All nodes reach each other again; connections that were cut are gone."""
        for site in self.sites.values():
            site.cut.clear()

    def dial(self, site: Site, address: str) -> None:
        """Connect a node to an address, now or (when it is cut off) never."""
        far = next((one for one in self.sites.values() if one.address == address), None)
        if far is None or not far.up:
            site.node.dial_failed(address, "nobody listens", True, self.now)
        elif far.name in site.cut:
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
                if data and peer is not None and wire.open:
                    moved = True
                    chunk = b"".join(data)
                    data.clear()
                    wire.sites[end].node.peer_received(peer, chunk, self.now)
        return moved
