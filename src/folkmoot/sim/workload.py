"""The actions of the clients: one per step, drawn from the seed. Owns the contents of messages; judges nothing."""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.mqtt.packet import Properties, Publish
from folkmoot.sim.client import Client
from folkmoot.sim.committer import Committer
from folkmoot.sim.fact import LONG_EXPIRY_S, Message
from folkmoot.sim.fleet import WILL_TOPICS
from folkmoot.sim.oracle import Oracle
from folkmoot.sim.profile import NEVER_EXPIRES_S
from folkmoot.sim.swarm import Swarm
from folkmoot.sim.world import World

__all__ = ["Workload"]

_PENDING_MAX = 30
"""Messages that a client keeps for better times."""

_BURST = 150
"""Messages that a client publishes at once, with bursts."""

_BURST_EVERY = 20
"""Publications between two bursts."""


class Workload:
    """Makes clients act.

    `actors` publish and subscribe; `watchers` and `replayers` subscribe once and go on listening.
    """

    def __init__(
        self,
        world: World,
        rng: Rng,
        swarm: Swarm,
        oracle: Oracle,
        actors: list[Client],
        watchers: list[Client],
        replayers: list[Client],
    ) -> None:
        self.world = world
        self.rng = rng
        self.swarm = swarm
        self.oracle = oracle
        self.actors = actors
        self.watchers = watchers
        self.replayers = replayers
        self.committers: list[Committer] = []
        self.visitors: list[Client] = []  # others whose sessions may hold something: they only finish
        self._sequences: dict[str, int] = {}
        self._publishes = 0
        self._actions: list[Callable[[Client], None]] = []
        self._add(60, self._publish, "")
        self._add(6, self._subscribe, "")
        self._add(3, self._unsubscribe, "unsubscribes")
        self._add(3, self._disconnect, "disconnects")
        self._add(2, self._drop, "")
        self._add(2, self._takeover, "takeovers")
        if swarm.topologies:
            self._add(10, self._subscribe, "")  # what one side learns only while it cannot tell the others
        for client in actors:
            client.make_will = self.will

    def _add(self, weight: int, action: Callable[[Client], None], feature: str) -> None:
        if not feature or self.swarm.has(feature):
            self._actions += [action] * weight

    @property
    def clients(self) -> list[Client]:
        """All clients."""
        return self.actors + self.watchers + self.replayers + self.visitors

    @property
    def idle(self) -> bool:
        """Whether all clients are idle."""
        return all(client.idle for client in self.clients) and all(committer.idle for committer in self.committers)

    def hurry(self) -> None:
        """Connect all clients, and let them finish what they have begun."""
        for client in self.clients:
            client.hasty = True
            client.wanted = True
            client.inflow.flush()
            if client.link is None:
                client.connect()

    def start(self) -> None:
        """Connect all clients."""
        for client in self.clients:
            client.wanted = True
            client.connect()

    def subscribe_watchers(self) -> bool:
        """Subscribe the watchers once they are connected; return whether all have been answered."""
        ready = True
        for client in self.watchers:
            if client.online and client.record is not None and not client.record.subs:
                client.subscribe([(WILL_TOPICS, 2)], 0)
            ready = ready and client.idle and client.record is not None and bool(client.record.subs)
        return ready

    def subscribe_actors(self) -> bool:
        """Subscribe half of the actors once they are connected, so that what they publish is owed to somebody.

        Return whether all have been answered.
        """
        ready = True
        for client in self.actors:
            if client.profile.late:  # half of the clients subscribe later, while things happen
                continue
            if client.online and client.record is not None and not client.record.every:
                self._subscribe(client)
            ready = ready and client.idle and client.record is not None and bool(client.record.every)
        return ready

    def step(self) -> None:
        """Let a client do something."""
        rng = self.rng
        if self.replayers and rng.chance(1, 40):
            self._replay(self.replayers[rng.below(len(self.replayers))])
        client = self.actors[rng.below(len(self.actors))]
        self._actions[rng.below(len(self._actions))](client)
        for committer in self.committers:
            if committer.rng.chance(1, 4):
                committer.step()

    # Publishing

    def _publish(self, client: Client) -> None:
        count = self.rng.between(1, 3)
        if self.swarm.has("bursts"):
            self._publishes += 1
            if self._publishes % _BURST_EVERY == 0:
                count = _BURST
        for _ in range(count):
            if len(client.outflow.pending) < _PENDING_MAX or count == _BURST:
                client.outflow.publish(self._message(client))

    def _message(self, client: Client) -> Message:
        rng = self.rng
        swarm = self.swarm
        profile = client.profile
        topic = profile.publishes[rng.below(len(profile.publishes))]
        qos = rng.between(0 if swarm.has("qos 0") else 1, 2)
        retain = swarm.has("retained") and rng.chance(1, 4)
        if retain and swarm.has("clears") and rng.chance(1, 4):
            payload = b""
        else:
            payload = self._payload(client.name)
        packet = Publish(topic, payload, qos, retain, False, 0, self._properties(client))
        return self.oracle.ledger.publish(client.name, packet, once=bool(profile.producer))

    def _payload(self, who: str) -> bytes:
        number = len(self.oracle.ledger.messages)
        filler = self.rng.below(self.swarm.payload_bytes)
        return b"m%d %s %s" % (number, who.encode(), b"." * filler)

    def _properties(self, client: Client) -> Properties | None:
        profile = client.profile
        rng = self.rng
        if not profile.v5 or (not profile.producer and rng.chance(1, 2)):
            return None
        properties = Properties()
        if profile.producer:
            sequence = self._sequences.get(profile.producer, 0) + 1
            self._sequences[profile.producer] = sequence
            properties.user_properties = [("folkmoot-producer", profile.producer), ("folkmoot-seq", str(sequence))]
        if rng.chance(1, 4):
            properties.content_type = "text/plain"
        if rng.chance(1, 4):
            properties.user_properties.append(("a", str(rng.below(3))))
            properties.user_properties.append(("a", "é"))
        if rng.chance(1, 8):
            properties.response_topic = b"answers"
            properties.correlation_data = b"\x00\x01"
        if rng.chance(1, 8):
            properties.payload_format = 1
        if self.swarm.has("expiring messages") and rng.chance(1, 4):
            properties.message_expiry = rng.between(1, 5)
            if self.swarm.has("wrong clocks") and properties.message_expiry > 2:
                properties.message_expiry = LONG_EXPIRY_S  # only a clock that is set wrong can end it
        return properties

    def will(self, client: Client) -> Message | None:
        """Return the will of a new connection, or None."""
        profile = client.profile
        if not profile.will_topic:
            return None
        retain = bool(self.swarm.retained_wills) and self.swarm.has("retained")
        packet = Publish(profile.will_topic, self._payload(client.name), profile.will_qos, retain)
        if profile.v5 and self.rng.chance(1, 3):
            packet.properties = Properties()
            packet.properties.content_type = "will"
        message = self.oracle.ledger.publish(client.name, packet, once=True)
        message.is_will = True
        return message

    # Subscribing

    def _subscribe(self, client: Client) -> None:
        if not client.online:
            return
        rng = self.rng
        filters = client.profile.filters
        entries: list[tuple[bytes, int]] = []
        for _ in range(rng.between(1, 3)):
            name = filters[rng.below(len(filters))]
            if name not in [entry[0] for entry in entries]:
                entries.append((name, self._options(client, name)))
        client.subscribe(entries, rng.between(1, 200) if rng.chance(1, 2) else 0)

    def _options(self, client: Client, name: bytes) -> int:
        rng = self.rng
        options = rng.below(3) if self.swarm.has("qos 0") else rng.between(1, 2)
        record = client.record
        if record is not None and name in record.subs and rng.chance(1, 2):
            return record.subs[name].options  # asking again for the same changes nothing
        if not client.profile.v5:
            return options
        if self.swarm.has("no local") and rng.chance(1, 4) and not name.startswith(b"$share/"):
            options |= 4
        if rng.chance(1, 4):
            options |= 8
        return options | rng.below(3) << 4

    def _unsubscribe(self, client: Client) -> None:
        if client.online and client.record is not None and client.record.subs:
            names = list(client.record.subs)
            client.unsubscribe([names[self.rng.below(len(names))]])

    def _replay(self, client: Client) -> None:
        if client.online and client.record is not None and client.record.subs:
            if self.swarm.restless_replays:  # it goes on at another node, perhaps before its former one has noticed
                self._drop(client) if self.rng.chance(1, 2) else client.connect()
        elif client.online and client.record is not None:
            filters = client.profile.filters
            client.subscribe([(name, self.rng.between(1, 2)) for name in filters], 0)

    # Coming and going

    def _disconnect(self, client: Client) -> None:
        rng = self.rng
        code = 4 if rng.chance(1, 4) else 0
        expiry_s: int | None = None
        if self.swarm.has("finite sessions") and rng.chance(1, 4):
            expiry_s = rng.between(0, 5)
        client.wanted = False
        client.disconnect(code, expiry_s)
        away = [10 * MILLISECOND, 500 * MILLISECOND, 8 * SECOND][rng.below(3)]
        self.world.later(rng.below(away), self._return, client)

    def _return(self, client: Client) -> None:
        client.wanted = True
        if client.link is None:
            finite = client.profile.expiry_s < NEVER_EXPIRES_S
            client.connect(clean=finite and self.rng.chance(1, 6))

    def _drop(self, client: Client) -> None:
        client.drop()

    def _takeover(self, client: Client) -> None:
        if client.wanted:
            client.connect(clean=self.rng.chance(1, 10))
