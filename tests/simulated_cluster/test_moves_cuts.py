"""Drawn runs: links between nodes are cut while clients act and leaderships move (A1 to A8, A11 to A13).

Each seed draws a small cluster, its clients, and which ways between nodes are cut, and for how long: also while a lease
ends, a fork is founded or merged, or a node is put out. The faults of `test_moves` happen meanwhile. While a cut lasts,
nobody waits for a node that is ready, and a side that can serve does. In the end everything is whole again, and the
demands of `test_moves` hold; what `available` excuses is in `drawn_cuts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.mqtt.packet import V5, V311
from tests.harness.simulated_cluster import SimulatedCluster
from tests.harness.soak import seeds
from tests.simulated_cluster.drawn import ASKED, OPEN, DrawnClient, Ledger
from tests.simulated_cluster.drawn_cuts import CutClient, CutLedger, Network, topology
from tests.simulated_cluster.moving import TOPICS, Run

WITNESS = 0  # as a number of nodes: two, and a witness
SHAPES = (
    (WITNESS, 1, 2, 1),
    (WITNESS, 3, 2, 1),
    (2, 1, 2, 1),
    (2, 3, 2, 1),
    (2, 3, 1, 1),
    (3, 1, 3, 1),
    (3, 3, 2, 1),
    (3, 4, 3, 2),
    (3, 4, 1, 1),
    (4, 2, 2, 1),
    (4, 3, 3, 1),
    (5, 2, 2, 2),
    (5, 2, 3, 1),
    (5, 4, 3, 1),
)
LASTS_US = [ms * MILLISECOND for ms in (30, 300, 800, 1100, 1500, 2500, 3200, 4000, 5000, 6000, 7500, 9000, 14000)]
FLAPS_US = [ms * MILLISECOND for ms in (50, 400, 1200, 3500)]
STEPS_US = [ms * MILLISECOND for ms in (0, 3, 10, 40, 120, 400, 900, 1500)]
PATIENCE_US = 10 * SECOND
SERVES_US = 25 * SECOND  # a side serves, although its links failed several times before
DRAWN = seeds(range(8), range(400))
FOUND = [
    ("majority", "unasked", 0),
    ("majority", "unmarked", 0),
    ("majority", "outbox_forgotten", 6),
    ("available", "unasked", 0),
    ("available", "unmarked", 18),
]
"""Bugs of `kernel/planted`, and the seed that finds each today; one of the next thirty does."""


class CutRun(Run):
    """One drawn run."""

    network: Network
    settles_s = 90
    patience = 10

    def __init__(self, seed: int, policy: str, planted: Sequence[str] = ()) -> None:
        self.policy = policy
        self.planted = planted
        super().__init__(2 * seed + (policy == "available"), SHAPES)
        self.ledger = CutLedger(self.network) if policy == "available" else Ledger()
        for client in self.clients:
            client.ledger = self.ledger
        self.waits: dict[str, tuple[str, int]] = {}  # by client: what it waits for, and since when
        self.ready_us: dict[str, int] = {}  # by node: since when it says that it is ready
        self.hindered_us = 0  # when a link was last held, or a disk slow
        self.habit = self.rng.choice(("stays", "stays", "roams", "any"))

    def _cluster(self, nodes: int, *shape: int, **arguments: Any) -> SimulatedCluster:
        cluster = super()._cluster(nodes or 2, *shape, split_policy=self.policy, planted=self.planted, **arguments)
        if nodes == WITNESS:
            cluster.add("w", witness=True)
            cluster.advance(5 * SECOND)
            cluster.settle()
        self.network = Network(self.policy == "available", list(cluster.sites))
        return cluster

    def _client(self, name: str) -> DrawnClient:
        rng = self.rng
        names = rng.sample([*TOPICS, "r/#", "w/#"], rng.randint(1, 4)) if rng.random() < 0.8 else ["#"]
        version = rng.choice((V5, V5, V311))
        client = CutClient(
            self.network,
            self.cluster,
            Ledger(),
            name,
            version=version,
            persistent=rng.random() < 0.8,
            filters=[(one, rng.choice((1, 2, 2))) for one in names],
            window=rng.choice((0, 0, 1, 3)) if version == V5 else 0,
        )
        client.has_will = rng.random() < 0.4
        return client

    # -- what happens -------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Let all kinds of things happen."""
        rng = self.rng
        self.clients_connect()
        for client in self.clients:
            assert isinstance(client, CutClient)
            client.home = client.site
        for _ in range(rng.randint(15, 60)):
            self.burst()
            chance = rng.random()
            if chance < 0.50:
                self.burst()
            elif chance < 0.68:
                self.cut()
            elif chance < 0.76:
                self.at_a_moment()
            elif chance < 0.82:
                self.hold()
            elif chance < 0.90:
                self.move()
            elif chance < 0.94:
                self.hinder()
            else:
                self.harm()
            self.go_on()

    def burst(self) -> None:
        """Have clients do several things in a short time."""
        for _ in range(self.rng.randint(0, 8)):
            self.act(self.rng.choice(self.clients))
            if not self.frozen and self.rng.random() < 0.3:
                self.advance(self.rng.choice((0, 1, 5)) * MILLISECOND)
                self.look()

    def ask(self, client: DrawnClient) -> None:
        """Have a connected client send something, mostly a message."""
        rng = self.rng
        if rng.random() < 0.5:
            super().ask(client)
            return
        retain = rng.random() < 0.25
        client.publish(f"r/{client.name}" if retain else rng.choice(TOPICS), rng.choice((1, 2, 2)), retain)
        self.note(f"{client} publishes {self.ledger.messages[len(self.ledger.messages)]}")

    def place(self, client: DrawnClient) -> str:
        """Return where a client connects next, by the habit of the run."""
        assert isinstance(client, CutClient)
        there = [name for name in self.places() if self.cluster[name].up]
        if self.habit == "stays" and client.home in there:
            return client.home
        if self.habit == "roams":
            others = [name for name in there if name not in self.network.side(client.site, self.now)]
            return self.rng.choice(others or there)
        return self.rng.choice(there)

    def cut(self) -> None:
        """Cut links in place of those that are cut, for a while, perhaps again and again; or end all cuts."""
        rng = self.rng
        if self.network.ways and rng.random() < 0.4:
            if rng.random() < 0.5:
                self.sever(set(), "heals")
            return  # or it goes on
        kind, ways = topology(rng, self.network.names)
        self.sever(ways, kind)
        if rng.random() < 0.2:
            self._flap_later(ways, rng.randint(1, 6))
        else:
            lasts = LASTS_US if rng.random() < 0.4 else LASTS_US[len(LASTS_US) // 2 :]
            self._later(rng.choice(lasts), "the cut ends", lambda: self.sever(set(), "heals"))

    def _flap_later(self, ways: set[tuple[str, str]], times: int) -> None:
        self._later(self.rng.choice(FLAPS_US), "flaps", lambda: self.flap(ways, times))

    def flap(self, ways: set[tuple[str, str]], times: int) -> None:
        """Heal what is cut, or cut it again; in the end it is whole."""
        self.sever(set() if self.network.ways or not times else ways, "flaps")
        if times:
            self._flap_later(ways, times - 1)

    def sever(self, ways: set[tuple[str, str]], why: str) -> None:
        """Have these ways be cut, and no others."""
        if ways == self.network.ways:
            return
        self.troubled = True
        self.note(f"{why}: {sorted(ways)} are cut")
        self.network.cut(self.now, ways)
        self.cluster.sever(ways, resets=self.rng.random() < 0.5)

    def at_a_moment(self) -> None:
        """Wait for a moment in which the control of the cluster does something, and do something then."""
        rng = self.rng
        if self.frozen:
            return
        moment, has_come = rng.choice(list(self.moments().items()))
        before = has_come()
        for _ in range(rng.choice((50, 200, 500))):
            self.advance(rng.choice((1, 5, 20)) * MILLISECOND)
            self.look()
            if has_come() != before:
                self.note(f"{moment} now")
                break
        self.advance(rng.choice((0, 0, 1, 5, 20, 100)) * MILLISECOND)
        rng.choice((self.cut, self.cut, self.harm, self.move, lambda: self.act(rng.choice(self.clients))))()

    def moments(self) -> dict[str, Callable[[], object]]:
        """Return what changes at moments that matter."""
        live = self.cluster.live
        return {
            "a fork": lambda: sum(site.kinds().count("cluster_forked") for site in self.cluster.sites.values()),
            "another lineage": lambda: [site.control.lineage for site in live()],
            "a merge": lambda: [len(one.branches) for site in live() if (one := site.control.configuration)],
            "a lease": lambda: [bool(site.node.silence(site.steady_ns())) for site in live()],
            "a controller": lambda: [site.name for site in live() if site.control.controller is not None],
            "a phase": lambda: [site.control.phase for site in live()],
            "members": lambda: [len(view.members) if (view := site.cluster_node.view) else 0 for site in live()],
        }

    def harm(self) -> None:
        """Do one of the faults of this run."""
        before = (self.killed, self.leaseless)
        super().harm()
        self.hindered_us = self.now
        for site in {self.killed, self.leaseless} - set(before):
            assert site is not None
            self.network.happens(self.now, [site.name], kills=True)
            self.network.killed = self.ledger.tick()

    def revive(self) -> None:
        """The node that was killed starts again."""
        assert self.killed is not None
        self.network.happens(self.now, [self.killed.name], kills=True)
        super().revive()

    def grant(self) -> None:
        """The node without a lease may have one."""
        assert self.leaseless is not None
        self.network.happens(self.now, [self.leaseless.name])
        super().grant()

    # -- time ---------------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Let time pass."""
        if self.frozen:
            super().go_on()
            return
        self.advance(self.rng.choice(STEPS_US))
        self.look()

    def advance(self, us: int) -> None:
        """Let time pass, not too much without a look."""
        while us > SECOND // 2 and not self.frozen:
            super().advance(SECOND // 2)
            us -= SECOND // 2
            self.look()
        super().advance(us)

    def look(self) -> bool:
        """Have all clients look at what has come, and see that nobody waits in vain."""
        came = super().look()
        if not self.frozen:
            self._look_at_whole()
            self._look_at_waits()
        return came

    def _look_at_whole(self) -> None:
        network, cluster = self.network, self.cluster
        if network.ways or cluster.held or self.killed or self.leaseless or self.later or not self.is_one():
            return
        network.becomes_whole()
        for client in self.clients:
            if isinstance(client, CutClient):
                client.all_is_whole()

    def is_one(self) -> bool:
        """Whether all nodes are one cluster again, and everything is merged."""
        if not self.cluster.settled():
            return False
        controls = [site.control for site in self.cluster.live()]
        if len({control.lineage for control in controls}) > 1:
            return False
        return not any(control.configuration is None or control.configuration.branches for control in controls)

    def _look_at_waits(self) -> None:
        """A node that is ready answers."""
        if self.cluster.held:
            self.hindered_us = self.now
        for site in self.cluster.sites.values():
            if not site.up or site.node.silence(site.steady_ns()):
                self.ready_us.pop(site.name, None)
            else:
                self.ready_us.setdefault(site.name, self.now)
        for client in self.clients:
            what = client.waits() if client.state == OPEN else client.state
            key = f"{client.connections} {client.state} {what}"
            if self.waits.get(client.name, ("", 0))[0] != key:
                self.waits[client.name] = (key, self.now)
            since = max(self.waits[client.name][1], self.ready_us.get(client.site, self.now), self.hindered_us)
            if (what and client.state == OPEN and not client.lazy) or client.state == ASKED:
                assert self.now - since < PATIENCE_US, f"{client} waits for {what} at a node that is ready"

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """See what the sides of a last split do; then everything is whole again: judge."""
        if self.frozen:
            self.thaw()
        if self.rng.random() < 0.4:
            self._recover()
            self._split_in_the_end()
        self.sever(set(), "at last")
        super().end()

    def _recover(self) -> None:
        """Let all that is wrong end, and the cluster settle."""
        while self.later:
            self.advance(max(0, self.later[0][0] - self.now))
        self.sever(set(), "for a while")
        for _ in range(10 * self.settles_s):
            self._rest(1)
            if self.is_one():
                return
        raise AssertionError(f"it does not settle: {[str(self.cluster.view_of(site)) for site in self.cluster.live()]}")

    def _rest(self, tenths: int) -> None:
        super()._rest(tenths)
        if self.later and not self.frozen:
            self.advance(0)

    def _split_in_the_end(self) -> None:
        kind, ways = topology(self.rng, self.network.names)
        self.sever(ways, kind)
        end = self.now + SERVES_US
        while self.now < end:
            self.burst()
            self.advance(self.rng.choice((100, 500, 900)) * MILLISECOND)
            self.look()
        network = self.network
        hubs = [network.neighbours(name) for name in network.names]
        quorums = [group for group in hubs if 2 * len(group) > len(network.names) and set(group) & set(self.places())]
        if len(network.names) % 2 == 0:  # one is no voter, and may be the one in the middle
            quorums = [group for group in quorums if all(network.neighbours(name) >= group for name in group)]
        if quorums:  # in a ring each node has a quorum with its neighbours, and one of these serves
            serves = [group for group in quorums if self._ready(group)]
            assert serves, f"A11: nobody serves of {[sorted(group) for group in quorums]}"
            is_clique = all(network.neighbours(name) >= serves[0] for name in serves[0])
            self._demand_service(serves[0], is_clean=is_clique and not network.forks)
        if network.forks:
            sides = {group for group in hubs if all(network.neighbours(name) == group for name in group)}
            for group in sorted(sides, key=sorted):
                if set(group) & set(self.places()):
                    self._demand_service(group, is_clean=self._is_clean(group))

    def _is_clean(self, group: frozenset[str]) -> bool:
        """Whether nodes of a group and others do not reach each other in either direction."""
        rest = set(self.network.names) - group
        return all({(one, other), (other, one)} <= self.network.ways for one in group for other in rest)

    def _ready(self, group: frozenset[str]) -> list[str]:
        sites = [self.cluster[name] for name in sorted(group) if name in self.places()]
        return [site.name for site in sites if site.up and not site.node.silence(site.steady_ns())]

    def _demand_service(self, group: frozenset[str], is_clean: bool) -> None:
        ready = self._ready(group)
        assert ready, f"A11: nobody serves in {sorted(group)}"
        places = [name for name in group if name in self.places()]
        least = len(self.places()) - min(self.cluster.replicas, len(self.places())) + self.cluster.min_in_sync
        if len(places) < least or not is_clean:  # a node that hears others is told if they go on without its copies
            return
        number = len(self.clients)
        topic = "p/p"
        client = CutClient(
            self.network, self.cluster, self.ledger, f"p{number}", filters=[(topic, 1)], persistent=False
        )
        self.clients.append(client)
        client.connect(self.rng.choice(ready))
        self._rest(10)
        assert client.state == OPEN, f"A11: {client} is {client.state} {client.ends}, in {sorted(group)}"
        client.subscribe(topic)
        client.publish(topic, 1, False)
        self._rest(10)
        waits = client.waits()
        assert client.state == OPEN, f"A11: {client} is {client.state} {client.ends}"
        assert not waits, f"A11: {client} waits for {waits}"
        message = self.ledger.messages[len(self.ledger.messages)]
        assert message.acked or message.refused
        assert message.acked, f"A11: {message} is refused"
        client.disconnect()
        self._rest(1)


@pytest.mark.parametrize("seed", DRAWN)
@pytest.mark.parametrize("policy", ["majority", "available"])
def test_links_are_cut_and_whole_again(policy: str, seed: int) -> None:
    CutRun(seed, policy).judged(pressed=False)


def is_found(policy: str, bug: str, seed: int) -> bool:
    """Tell whether a run with a bug breaks a promise."""
    try:
        CutRun(seed, policy, [bug]).judged(pressed=False)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize(("policy", "bug", "first"), FOUND)
def test_a_planted_bug_is_found(policy: str, bug: str, first: int) -> None:
    assert any(is_found(policy, bug, seed) for seed in range(first, first + 30))
