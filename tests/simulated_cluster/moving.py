"""What drawn runs have in common: a cluster in which leaderships move, faults that end, and clients that act meanwhile.

A run draws a small cluster, its clients, and what happens: links that hold what they carry, leaderships that are handed
on before they have begun, nodes that die or lose their leases, partitions with too few copies. In the end everything is
whole again, and what must be true then is demanded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.membership.command import Lead
from folkmoot.membership.lifecycle import is_up
from folkmoot.mqtt.packet import V5, V311
from folkmoot.sim.check_quota import miscounted
from tests.harness.simulated_cluster import SimulatedCluster, Site
from tests.simulated_cluster.drawn import ASKED, AWAY, OPEN, DrawnClient, Ledger, TimedPeer

TOPICS = ("t/0", "t/1", "t/2")
SHAPES = (
    (3, 1, 2, 1),
    (3, 2, 2, 2),
    (3, 4, 3, 2),
    (4, 2, 2, 2),
    (4, 3, 3, 1),
    (5, 1, 2, 2),
    (5, 2, 2, 2),
    (5, 4, 3, 2),
)
SCARCE = ((5, 1, 2, 2), (5, 2, 2, 2), (6, 1, 2, 2))
FAULTS = ("kill", "lease", "scarce", "slow disk", "log", "frozen")
HOLD_US = (MILLISECOND, 5 * MILLISECOND, 30 * MILLISECOND, 150 * MILLISECOND, 400 * MILLISECOND)
APART_US = 900 * MILLISECOND  # a lease is a second
ANSWER_US = 250 * MILLISECOND  # in which a heartbeat is sent and answered

__all__ = ["SCARCE", "SHAPES", "TOPICS", "Run", "leftovers"]


class Run:
    """One drawn run."""

    patience = 3  # tenths of a second until clients that have come back have their answers
    settles_s = 30  # the cluster is whole by then

    def __init__(self, seed: int, shapes: Sequence[tuple[int, int, int, int]] = SHAPES) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        shape = rng.choice(shapes)
        self.cluster = self._cluster(*shape)
        self.faults = [fault for fault in FAULTS if rng.random() < 0.35]
        self.trail = [f"{shape} {self.faults}"]
        self.restlessness = rng.choice((0, 0, 0.1))  # how often a client leaves instead of asking for something
        self.ledger = Ledger()
        self.clients = self._draw_clients()
        self.later: list[tuple[int, str, Callable[[], None]]] = []  # what ends a fault, and when
        self._slow: dict[frozenset[str], tuple[int, int]] = {}  # by pair of nodes: since and until when a way is held
        self.troubled = False  # a node was away, or had no lease, or a partition had too few copies
        self.killed: Site | None = None
        self.leaseless: Site | None = None
        self.frozen = False
        self.is_enough = False  # what waits now is to be answered: nothing more happens to its client
        self.changed_us = 0  # when a node last had another configuration
        self._epochs: list[object] = []

    def judged(self, pressed: bool) -> None:
        """Draw the run and judge it; pressed: with few events, at the moments that are hardest."""
        try:
            if pressed:
                self.press()
            else:
                self.draw()
            self.end()
        except BaseException as fault:
            fault.add_note("\n".join([f"seed {self.seed}", *self.trail]))
            raise

    @property
    def now(self) -> int:
        """The time."""
        return self.cluster.now

    def _cluster(self, nodes: int, partitions: int, replicas: int, least: int, **arguments: Any) -> SimulatedCluster:
        arguments.setdefault("split_policy", "majority")
        return SimulatedCluster(nodes, partitions=partitions, replicas=replicas, min_in_sync=least, **arguments)

    def _draw_clients(self) -> list[DrawnClient]:
        return [self._client(f"c{number}") for number in range(self.rng.randint(2, 5))]

    def _client(self, name: str) -> DrawnClient:
        rng = self.rng
        names = rng.sample([*TOPICS, "r/#"], rng.randint(1, 3)) if rng.random() < 0.8 else ["#"]
        filters = [(one, rng.choice((1, 2, 2))) for one in names]
        version = rng.choice((V5, V5, V311))
        window = rng.choice((0, 0, 1, 3)) if version == V5 else 0
        return DrawnClient(
            self.cluster,
            self.ledger,
            name,
            version=version,
            persistent=rng.random() < 0.75,
            filters=filters,
            window=window,
        )

    def note(self, what: str) -> None:
        """Write the trail of the run."""
        self.trail.append(f"{(self.now - 1_600_000_000 * SECOND) / 1000:.1f} {what}")

    # -- what happens -------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Let all kinds of things happen."""
        rng = self.rng
        self.clients_connect()
        for _ in range(rng.randint(30, 90)):
            chance = rng.random()
            if chance < 0.55:
                self.act(rng.choice(self.clients))
            elif chance < 0.70:
                self.hold()
            elif chance < 0.84:
                self.move()
            elif chance < 0.92:
                self.hinder()
            else:
                self.harm()
            self.go_on()
            if self.is_enough:
                return

    def press(self) -> None:
        """Let clients wait for answers when the leadership of their partition is handed on before it has begun."""
        self.restlessness = 0
        self.clients_connect()
        for _ in range(self.rng.randint(0, 12)):
            client = self.rng.choice(self.clients)
            if client.state == OPEN:
                self.ask(client)
            if self.rng.random() < 0.2:
                self.hold()
            self.advance(self.rng.choice((1, 10, 40)) * MILLISECOND)
            self.look()
        for _ in range(3):
            self.squeeze()
            if self.killed is not None:
                break
            self.advance(SECOND)
        for _ in range(self.rng.randint(0, 4)):
            self.move()
            self.go_on()

    def clients_connect(self) -> None:
        """Connect most of the clients, and let them subscribe, before anything happens."""
        for client in self.clients:
            client.connect(self.rng.choice(self.places()))
        self.cluster.run()
        self.look()
        for client in self.clients:
            for name in client.filters:
                if client.state == OPEN and self.rng.random() < 0.7:
                    client.subscribe(name)
        self.cluster.run()
        self.look()

    def act(self, client: DrawnClient) -> None:
        """Have a client do something."""
        rng = self.rng
        if client.state != OPEN:
            if client.state == AWAY or rng.random() < 0.2:
                site = self.place(client)
                clean = client.version == V5 and rng.random() < 0.1  # before, such a session would be transient
                self.note(f"{client} connects at {site} {'anew' if clean else ''}")
                client.connect(site, clean)
            return
        if rng.random() >= self.restlessness:
            self.ask(client)
            return
        how = rng.choice(("disconnects", "loses its connection", "connects again"))
        self.note(f"{client} {how}")
        if how == "disconnects":
            client.disconnect()
        elif how == "loses its connection":
            client.lose()
        else:
            client.connect(self.place(client))

    def places(self) -> list[str]:
        """Return the names of the nodes that serve clients."""
        return [site.name for site in self.cluster.sites.values() if not site.settings.witness]

    def place(self, client: DrawnClient) -> str:
        """Return where a client connects next."""
        return self.rng.choice([name for name in self.places() if self.cluster[name].up])

    def ask(self, client: DrawnClient) -> None:
        """Have a connected client send something to which an answer belongs, or be lazy from now on, or no more."""
        rng = self.rng
        chance = rng.random()
        if chance < 0.5:
            topic, retain = (f"r/{client.name}", True) if rng.random() < 0.25 else (rng.choice(TOPICS), False)
            qos = rng.choice((1, 2, 1, 2, 0))
            client.publish(topic, qos, retain and qos > 0)
            self.note(f"{client} publishes {self.ledger.messages[len(self.ledger.messages)]}")
        elif chance < 0.7:
            name = rng.choice(list(client.filters))
            self.note(f"{client} subscribes to {name}")
            client.subscribe(name)
        elif chance < 0.84:
            name = rng.choice(list(client.filters))
            self.note(f"{client} unsubscribes from {name}")
            client.unsubscribe(name)
        elif chance < 0.9:
            client.ping()
        else:
            client.lazy = not client.lazy

    def hold(self) -> None:
        """Hold what one node sends to another for a while."""
        names = list(self.cluster.sites)
        link = (self.rng.choice(names), self.rng.choice(names))
        if link[0] != link[1] and link not in self.cluster.held:
            self._hold(link, self.rng.choice(HOLD_US))

    def _hold(self, link: tuple[str, str], us: int) -> None:
        """Hold one way; not where, with ways held before, no answer would come for so long that a lease is over."""
        pair = frozenset(link)
        since, until = self._slow.get(pair, (self.now, 0))
        if until + ANSWER_US < self.now:
            since = self.now
        until = max(until, self.now + us)
        if until - since > APART_US:
            return
        self._slow[pair] = (since, until)
        self.note(f"{link} is held")
        self.cluster.held.add(link)
        self._later(us, f"{link} is released", lambda: self.cluster.held.discard(link))

    def move(self) -> None:
        """Hand on the leadership of a partition, perhaps twice, or back, before the next one has begun."""
        partition = self.rng.randrange(self.cluster.partitions)
        self.lead(partition)
        if self.rng.random() < 0.4:
            again = self.rng.choice((0, 1, 3, 10, 40)) * MILLISECOND
            self._later(again, "once more", lambda: self.lead(partition))

    def hinder(self) -> None:
        """Keep a leader from opening its partition when it gets or has it, and hand this on before it has opened."""
        rng = self.rng
        partition = rng.randrange(self.cluster.partitions)
        names = list(self.cluster.sites)
        if rng.random() < 0.5:
            self.lead(partition)
        leader = self.cluster.live()[0].cluster_node.fabric.leaders[partition]
        for link in ((rng.choice(names), leader), (rng.choice(names), rng.choice(names))):
            if leader and link[0] != link[1] and link not in self.cluster.held:
                self._hold(link, rng.choice((100, 300, 600)) * MILLISECOND)
        self._later(rng.choice((10, 80, 250, 550)) * MILLISECOND, "on", lambda: self.lead(partition))

    def lead(self, partition: int) -> None:
        """Propose that another of the copies in sync leads a partition."""
        for site in self.cluster.live():
            control = site.control
            if control.controller is None or control.log is None or control.configuration is None:
                continue
            state = control.configuration.partitions[partition]
            members = control.configuration.members
            heirs = [disk for disk in state.isr if disk != state.leader and is_up(members[disk].state)]
            if heirs:
                heir = self.rng.choice(heirs)
                self.note(f"{partition} goes to {members[heir].node_id}")
                control.log.propose(Lead(partition, state.version, heir), self.now * 1000)
                self.cluster.run()

    def harm(self) -> None:
        """Do one of the faults of this run."""
        rng = self.rng
        if not self.faults:
            return
        fault = rng.choice(self.faults)
        site = rng.choice(self.cluster.live())
        if fault == "scarce" and self.cluster.min_in_sync > 1 and rng.random() < 0.7:
            self.squeeze()
        elif fault in ("kill", "scarce") and self.killed is None and self.leaseless is None:
            self.troubled = True
            self.note(f"{site.name} is killed")
            self._kill(site)
            away = rng.choice((10, 200, 800)) if fault == "kill" else rng.choice((1500, 2500))
            self._later(away * MILLISECOND, f"{site.name} is revived", self.revive)
        elif fault == "lease" and self.leaseless is None and self.killed is None:
            self.troubled = True
            self.note(f"{site.name} has no lease")
            self.leaseless = site
            self.ledger.troubles.append((site.name, self.now))
            site.end_lease()
            self._later(rng.choice((10, 200, 900, 1500)) * MILLISECOND, f"{site.name} gets leases", self.grant)
        elif fault == "slow disk":
            self.note(f"the disk of {site.name} stands still")
            site.hold_writes()
            self._later(rng.choice(HOLD_US), f"the disk of {site.name} goes on", site.release_writes)
        elif fault == "log":
            self._hand_log_to(site)
        elif fault == "frozen" and not self.frozen:
            self.frozen = True
            self.cluster.freeze()
            self._later(rng.choice((0, 1, 5)) * MILLISECOND, "all runs", self.thaw)

    def _hand_log_to(self, site: Site) -> None:
        leaders = [one for one in self.cluster.live() if one.control.controller is not None]
        if len(leaders) == 1 and leaders[0].control.log is not None:
            self.note(f"the log goes to {site.name}")
            leaders[0].control.log.transfer(site.cluster_node.me.disk, self.now * 1000)

    def squeeze(self) -> None:
        """A copy dies; another one takes its place, and the leadership is handed on before it has begun."""
        rng = self.rng
        partition = rng.randrange(self.cluster.partitions)
        controllers = [site for site in self.cluster.live() if site.control.controller is not None]
        if self.killed is not None or self.leaseless is not None or self.frozen or len(controllers) != 1:
            return
        view = controllers[0].cluster_node.view
        isr = view.replicas[partition] if view is not None else []
        victims = [name for name in isr[1:] if name != controllers[0].name]
        if not victims or isr[0] == controllers[0].name:
            self._hand_log_to(rng.choice(self.cluster.live()))
            return
        self.troubled = True
        victim = self.cluster[rng.choice(victims)]
        self.note(f"{victim.name} is killed, a copy of {partition}")
        self._kill(victim)
        self._later(rng.choice((1500, 2500)) * MILLISECOND, f"{victim.name} is revived", self.revive)
        known = (isr[0], controllers[0].name, victim.name)
        silent = rng.choice([name for name in self.cluster.sites if name not in known] or [isr[0]])
        for step in range(150):  # after a second, its place is given to another node
            client = rng.choice(self.clients)
            if rng.random() < 0.2 and client.state == OPEN:
                self.ask(client)
            self.advance(10 * MILLISECOND)
            self.look()
            view = controllers[0].cluster_node.view
            if view is None or self.killed is None or len(view.replicas[partition]) > 1:
                break
            if step == 80 and silent != isr[0]:
                self._hold((silent, isr[0]), rng.choice((300, 900)) * MILLISECOND)
        concerned = [one for one in self.clients if one.state == OPEN and self._partition_of(one) == partition]
        for client in concerned:
            self.ask(client)
        self.advance(rng.choice((0, 50, 300)) * MILLISECOND)
        late = rng.choice(concerned or self.clients).site
        if late != controllers[0].name:
            self._hold((controllers[0].name, late), rng.choice(HOLD_US))
        self.lead(partition)
        self.is_enough = rng.random() < 0.7

    def _partition_of(self, client: DrawnClient) -> int:
        return hash64(client.name.encode()) % self.cluster.partitions

    def _kill(self, site: Site) -> None:
        self.killed = site
        self.ledger.troubles.append((site.name, self.now))
        site.kill()
        for peer in site.peers:
            if isinstance(peer, TimedPeer):
                peer.note_end()

    def revive(self) -> None:
        """The node that was killed starts again."""
        assert self.killed is not None
        self.killed.revive()
        self.killed = None

    def grant(self) -> None:
        """The node without a lease may have one."""
        assert self.leaseless is not None
        control = self.leaseless.control
        control._lease._length_ns = control.options.lease_ns
        self.leaseless = None

    def thaw(self) -> None:
        """Nodes and wires run by themselves."""
        self.frozen = False
        self.cluster.thaw()

    def _later(self, us: int, what: str, action: Callable[[], None]) -> None:
        self.later.append((self.now + us, what, action))
        self.later.sort(key=lambda one: one[0])

    # -- time ---------------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Let a little time pass: turns of single nodes and bytes on single wires, or all of it."""
        rng = self.rng
        us = rng.choice((0, 0, 1, 1, 3, 10, 40, 120)) * MILLISECOND
        if self.frozen:
            units = len(self.cluster.sites) + 2 * len(self.cluster.wires)
            for _ in range(rng.randint(0, 40)):
                self.cluster.unit(rng.randrange(units))
            self.cluster.now += min(us, 3 * MILLISECOND)
            self._end_faults()
        else:
            self.advance(us)
        self.look()

    def advance(self, us: int) -> None:
        """Let time pass, and end the faults whose time is over."""
        end = self.now + us
        while self.later and self.later[0][0] <= end and not self.frozen:
            self.cluster.advance(max(0, self.later[0][0] - self.now))
            self._end_faults()
        if not self.frozen:
            self.cluster.advance(max(0, end - self.now))

    def _end_faults(self) -> None:
        while self.later and self.later[0][0] <= self.now:
            _, what, action = self.later.pop(0)
            self.note(what)
            action()

    def look(self) -> bool:
        """Have all clients look at what has come; tell whether anything has."""
        came = False
        for client in self.clients:
            before = client.state
            came = client.look() or came
            if client.state != before:
                self.note(f"{client} was {before} and is {client.state}")
        if not self.frozen:
            self.cluster.run()
        epochs: list[object] = [site.cluster_node.membership.view for site in self.cluster.sites.values()]
        if epochs != self._epochs:
            self.changed_us = self.now
            self._epochs = epochs
        return came

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Everything is whole again and settles; then judge."""
        cluster = self.cluster
        if self.frozen:
            self.thaw()
        while self.later:
            self.advance(max(0, self.later[0][0] - self.now))
        self.note("all is whole")
        for client in self.clients:
            client.lazy = False
        if "lease" in self.faults:  # the others may go on without a node that had none, when it has one again
            self._rest(30)
        for _ in range(10 * self.settles_s):  # a node whose links failed several times comes up late
            self._rest(1)
            if self.is_one() and not [client for client in self.clients if client.state != AWAY and client.waits()]:
                break
        assert self.is_one(), [str(cluster.view_of(site)) for site in cluster.live()]
        for client in self.clients:
            waits = client.waits()
            assert client.state != OPEN or not waits, f"{client} waits for {waits}"
            assert client.state != ASKED, f"{client} waits for CONNACK"
        if not self.troubled:
            ends = [end for client in self.clients for end in client.ends if not client.is_hasty]
            assert not ends, f"without a cause: {ends}"
        self._return()
        self._judge()
        self._probe()
        self._audit()

    def is_one(self) -> bool:
        """Whether all nodes are one cluster, in which all is as it should be."""
        return self.cluster.settled()

    def _rest(self, tenths: int) -> None:
        for _ in range(tenths):
            self.cluster.advance(SECOND // 10)
            while self.look():
                pass

    def _admit(self, clients: Sequence[DrawnClient]) -> None:
        for _ in range(50):
            self._rest(1)
            if all(client.state == OPEN for client in clients):
                return
            for client in clients:
                if client.state == AWAY:  # its node was put out after all
                    client.connect(client.site)
        raise AssertionError(f"{clients} are not admitted")

    def _return(self) -> None:
        """All clients with sessions come back, and get what waits for them."""
        for client in self.clients:
            if client.state == AWAY:
                client.hang_up()
        for client in self.clients:
            if client.state == AWAY and client.persistent and client.sessions:
                client.connect(self.rng.choice(self.places()))
        self._rest(self.patience)
        for client in self.clients:
            assert client.state == OPEN or not client.persistent or not client.sessions, f"{client} is {client.state}"
            waits = client.waits()
            assert client.state != OPEN or not waits, f"{client} waits for {waits} in the end"
            assert client.state != OPEN or not client.left, f"A6: {client} has other connections: {client.left}"

    def _judge(self) -> None:
        for message in self.ledger.messages.values():
            for client in self.clients:
                assert not client.lacks(message, not self.troubled), f"A1: {client} lacks {message}"
        for client in self.clients:
            self._judge_order(client)
            self._judge_repetitions(client)
        reader = DrawnClient(self.cluster, self.ledger, "reader", filters=[("r/#", 1)], persistent=False)
        self.clients.append(reader)
        reader.connect(self.rng.choice(self.places()))
        self._admit([reader])
        reader.subscribe("r/#")
        self._rest(3)
        for client in self.clients:
            topic = f"r/{client.name}"
            found = reader.retained.get(topic, 0)
            allowed = self.ledger.values(topic)
            assert found in allowed, f"A8: {topic} is {found} and not of {allowed}"

    def _judge_order(self, client: DrawnClient) -> None:
        """A3, among the messages of one connection that were acknowledged over it."""
        newest: dict[tuple[object, ...], int] = {}
        for number in client.first:
            message = self.ledger.messages[number]
            if not message.acked or message.repeated or not message.qos:
                continue
            key = (message.client.name, message.connection, message.topic, message.qos)
            assert newest.get(key, 0) < number, f"A3: {client} gets {message} after {newest[key]}"
            newest[key] = number

    def _judge_repetitions(self, client: DrawnClient) -> None:
        for number, arrivals in client.got.items():
            message = self.ledger.messages[number]
            fresh = arrivals.count(False)
            if not self.troubled and not message.repeated:
                assert fresh <= 1, f"{client} gets {message} {arrivals}"

    def _probe(self) -> None:
        """Each node knows all subscriptions: what is published there now arrives once, where it is wanted."""
        probers: list[DrawnClient] = []
        for name in self.places():
            probers.append(DrawnClient(self.cluster, self.ledger, f"probe-{name}", persistent=False))
            probers[-1].connect(name)
        self.clients += probers
        self._admit(probers)
        first = len(self.ledger.messages) + 1
        for prober in probers:
            for topic in TOPICS:
                prober.publish(topic, 1, False)
        self._rest(5)
        for number in range(first, len(self.ledger.messages) + 1):
            message = self.ledger.messages[number]
            assert message.acked, f"{message} is not acknowledged"
            for client in self.clients:
                sure = client.wants(message.topic)
                arrivals = client.got.get(number, [])
                if client.state == OPEN and sure is not None:
                    assert len(arrivals) == sure, f"{client} gets {message} {arrivals} for {client.sure}"

    def _audit(self) -> None:
        self.cluster.advance(SECOND // 10)
        for site in self.cluster.live():
            assert not (left := leftovers(site)), f"A13: {site.name} keeps {left}"
            assert not (wrong := miscounted(site.node)), f"{site.name}: {wrong}"


def leftovers(site: Site) -> dict[str, Any]:
    """Return what a node at rest still keeps of what was under way."""
    node: Any = site.node
    broker = node._broker
    state = node._state
    throttle = broker.turn.throttle
    commits = broker.turn.commits
    hosting = broker.leadership.hosting
    sender = broker.channel.forward_sender
    found: dict[str, Any] = {
        "relays": [relay for relay in broker.proxy.relays.relays.values() if relay.log or relay.state != 1],
        "early": hosting._early,
        "deferred": hosting._deferred_hosts,
        "recovery": len(broker.leadership.recovery),
        "turns": [token for token, turn in commits._turns.items() if turn.shrink()],
        "owed": commits._owed,
        "incomplete": commits.committed_token - commits.complete_token,
        "backlog": throttle.backlog_bytes,
        "stranded": throttle.stranded_bytes,
        "stash": throttle.stash_bytes,
        "paused": throttle.paused,
        "pauses": state.counters.publishers_paused,
        "sender": [part for sent in sender._sent.values() for part in sent.values()],
        "parked": sender._parked,
        "stranded of": sender.stranded,
        "closes": broker.proxy.pending_closes._closes,
        "outboxes": [memory.outbox for memory in broker.partition.led if memory.outbox],
        "held": [one for one in state.connections.values() if one.held or one.paused or one.stash],
        "hosted": [one for one in hosting.remotes.values() if one.held or one.backlog or one.task],
        "inflight": [one for one in state.sessions.values() if one.inflight or one.waiting],
        "waiters": list(broker.feed.inquiries._waiting),
    }
    return {name: what for name, what in found.items() if what}
