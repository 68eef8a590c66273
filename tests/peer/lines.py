"""A network of bytes between the `Peers` of several nodes: nothing arrives before a test says so."""

from __future__ import annotations

from folkmoot.kernel.event import Event
from folkmoot.kernel.rng import Rng
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.kind import DELAYED
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.peer.peer import PeerChange, PeerConnection
from folkmoot.peer.peers import Peers

__all__ = ["Line", "Net", "Site", "config_of"]

START_US = 1_700_000_000_000_000


def config_of(secret: bytes = b"") -> ClusterConfig:
    config = ClusterConfig()
    config.secret = secret
    return config


class Site:
    """One process: its core and everything that came out of it."""

    def __init__(self, node_id: str, incarnation: int, config: ClusterConfig, seed: int, member: Member | None) -> None:
        self.node_id = node_id
        self.address = f"{node_id}:1"
        self.config = config
        me = member or Member(node_id, incarnation, self.address, node_id, ACTIVE)
        self.peers = Peers(me, config, Rng(seed))
        self.inbox: list[tuple[str, int, bytes]] = []
        self.changes: list[PeerChange] = []
        self.events: list[Event] = []
        self.alive = True

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def reasons(self, kind: str) -> str:
        return " | ".join(str(event.fields.get("reason")) for event in self.events if event.kind == kind)

    def bodies(self, node_id: str, only: int = 0) -> list[bytes]:
        got = [(kind, body) for sender, kind, body in self.inbox if sender == node_id and kind != DELAYED]
        return [body for kind, body in got if only in (0, kind)]


class End:
    """One end of a line: bytes on their way to it, and what its process knows of it."""

    def __init__(self, site: Site, peer: PeerConnection) -> None:
        self.site = site
        self.peer = peer
        self.coming = bytearray()
        self.told_lost = False


class Line:
    """A TCP connection between two processes."""

    def __init__(self, first: End, second: End) -> None:
        self.ends = (first, second)
        self.broken = False
        self.half_dead = False  # nothing comes through any more and nobody is told

    def other(self, end: End) -> End:
        return self.ends[1] if end is self.ends[0] else self.ends[0]


class Net:
    """All sites and lines. A line that is cut loses what is on its way; both ends are told when a test says so."""

    def __init__(self) -> None:
        self.now = START_US
        self.sites: dict[str, Site] = {}
        self.lines: list[Line] = []
        self.dials: list[tuple[Site, str]] = []
        self.ports: dict[str, str] = {}  # further addresses: the address and whose it is
        self.unreachable: set[str] = set()  # addresses where SYNs get lost
        self.seeds = 1

    def start(
        self, node_id: str, incarnation: int = 1, config: ClusterConfig | None = None, member: Member | None = None
    ) -> Site:
        old = self.sites.get(node_id)
        if old is not None:
            self.kill(old)
        self.seeds += 1
        site = Site(node_id, incarnation, config or config_of(), self.seeds, member)
        self.sites[node_id] = site
        return site

    def kill(self, site: Site) -> None:
        site.alive = False
        for line in self.lines:
            if any(end.site is site for end in line.ends):
                line.broken = True
        self.dials = [(dialler, address) for dialler, address in self.dials if dialler is not site]

    def turn(self, site: Site) -> None:
        """End a turn of a site: take what came out of it."""
        peers = site.peers
        peers.flush(self.now)
        site.changes += peers.changes
        site.inbox += peers.inbox
        site.events += peers.events
        self.dials += [(site, address) for address in peers.dials]
        peers.changes.clear()
        peers.inbox.clear()
        peers.events.clear()
        peers.dials.clear()
        for peer in list(peers.outputs):
            data = peer.take_output()
            for line in self.lines:
                for end in line.ends:
                    if end.peer is peer and not line.half_dead and not line.broken:
                        line.other(end).coming += data
        peers.outputs.clear()
        for peer in list(peers.closes):
            for line in self.lines:
                for end in line.ends:
                    if end.peer is peer:
                        self.close(line, end)
        peers.closes.clear()

    def close(self, line: Line, end: End) -> None:
        """One end has closed: the other may read what is there, then it is told."""
        end.told_lost = True
        end.coming.clear()
        if line.broken:
            return
        line.broken = True

    def connect(self, dialler: Site, address: str, answerer: Site | None = None) -> Line | None:
        """Let a dial succeed, or fail where nobody listens."""
        owner = answerer or self.sites.get(self.ports.get(address, address.split(":", maxsplit=1)[0]))
        if address in self.unreachable:
            dialler.peers.dial_failed(address, "timed out", False, self.now)
        elif owner is None or not owner.alive:
            dialler.peers.dial_failed(address, "connection refused", True, self.now)
        else:
            there = owner.peers.connected(None, f"{dialler.node_id}:40000", False, self.now)
            here = dialler.peers.connected(None, address, True, self.now)
            line = Line(End(dialler, here), End(owner, there))
            self.lines.append(line)
            self.turn(dialler)
            self.turn(owner)
            return line
        self.turn(dialler)
        return None

    def answer_dials(self) -> None:
        dials, self.dials = self.dials, []
        for dialler, address in dials:
            if dialler.alive:
                self.connect(dialler, address)

    def deliver(self, line: Line, side: int, size: int) -> bool:
        """Let up to `size` bytes arrive at an end, or the news that the line is gone; False: there was nothing."""
        end = line.ends[side]
        if not end.site.alive or end.told_lost or line.half_dead:
            return False
        if end.coming:
            data = bytes(end.coming[:size])
            del end.coming[:size]
            end.site.peers.received(end.peer, data, self.now)
        elif line.broken:
            end.told_lost = True
            end.site.peers.lost(end.peer, "connection reset", self.now)
        else:
            return False
        self.turn(end.site)
        return True

    def cut(self, line: Line) -> None:
        """Break a line: what is on its way is lost."""
        line.broken = True
        for end in line.ends:
            end.coming.clear()

    def wake(self) -> None:
        for site in list(self.sites.values()):
            if site.alive and min(site.peers.next_wake(), site.peers.background_us) <= self.now:
                site.peers.wake(self.now)
                self.turn(site)

    def settle(self, chunk: int = 1 << 20) -> None:
        """Let everything arrive and be answered, without time going by."""
        for _round in range(10_000):
            self.wake()
            self.answer_dials()
            moved = [self.deliver(line, side, chunk) for line in list(self.lines) for side in (0, 1)]
            if not any(moved) and not self.dials:
                self.lines = [line for line in self.lines if not all(end.told_lost for end in line.ends)]
                return
        raise AssertionError("the nodes do not come to rest")

    def run(self, duration_us: int, step_us: int = 5_000, chunk: int = 1 << 20) -> None:
        """Let time go by, and everything arrive."""
        until = self.now + duration_us
        self.settle(chunk)
        while self.now < until:
            self.now += step_us
            self.settle(chunk)

    def meet(self, *sites: Site) -> None:
        """Have all sites want each other, and wait until they have met."""
        for site in sites:
            for other in sites:
                site.peers.want(other.address)
        self.run(200_000)
