"""Liveness under faults: a client at every machine that connects, subscribes, publishes, unsubscribes, and leaves.

Owns two demands. A node that says it is ready answers each of these within a bound, in every topology. A majority that
is connected to one of its members, and has a copy of everything, makes progress, or one with a member of it does. A
refusal is an answer; it is no progress.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.mqtt.packet import V5, Connack, Publish, Suback, Unsuback
from folkmoot.sim.causes import Causes
from folkmoot.sim.client import Client
from folkmoot.sim.excuse import ANSWERS, JUDGED, PROGRESS, WAITING
from folkmoot.sim.fact import Message, SessionRecord
from folkmoot.sim.history import HEAL_US, History
from folkmoot.sim.host import Host
from folkmoot.sim.inside import ready_at
from folkmoot.sim.network import Link, Network
from folkmoot.sim.oracle import Oracle
from folkmoot.sim.profile import NEVER_EXPIRES_S, Profile
from folkmoot.sim.site import FAITHFUL, Site

if TYPE_CHECKING:
    from folkmoot.kernel.rng import Rng

__all__ = ["ANSWER_US", "PROGRESS_US", "Prober"]

ANSWER_US: Final = 10 * SECOND
"""A node that has said for this time that it is ready has answered."""

PROGRESS_US: Final = 20 * SECOND
"""After this time without a change of machines and links, a group that can serve does."""

IDENTITIES: Final = 4
"""Clients of a machine: with one, the partition of its session may be the only one that is away."""

CONNECTED, SUBSCRIBED, RETURNED, PUBLISHED, DELIVERED = range(1, 6)
REFUSED_CODE: Final = 0x80
STAGES: Final = ("CONNACK", "SUBACK", "the second CONNACK", "the acknowledgement", "delivery", "UNSUBACK")

_EVERY_US: Final = 250 * MILLISECOND
_PAUSE_US: Final = 750 * MILLISECOND
"""Between an answer and the next question to the same node."""


class Probe(Client):
    """One identity of the client at a machine. It asks one question after the other, in rounds.

    Every second identity has a persistent session: it leaves, comes back, and sends a message to itself with QoS 2.
    """

    def __init__(
        self, rng: Rng, network: Network, site: Site, oracle: Oracle, host: Host, number: int, watch: Watch
    ) -> None:
        profile = Profile(f"probe-{host.name}-{number}", V5)
        profile.route = FAITHFUL
        profile.expiry_s = NEVER_EXPIRES_S if number % 2 else 0
        profile.clean = profile.expiry_s == 0
        profile.late = True
        profile.keep_alive_s = 2  # a connection to a machine without power would never end
        super().__init__(oracle.world, rng, network, site, oracle, profile)
        self.at = host
        self.watch = watch
        self.topic = b"probe/" + self.name.encode()
        self._session: SessionRecord | None = None  # the one of this round
        self._returned = False  # it has a session, and has left and come back
        self._closing = False  # it has sent UNSUBSCRIBE
        self._message: Message | None = None

    def begin(self) -> None:
        """Begin a round."""
        self._session = None
        self._returned = not self.profile.persistent
        self.wanted = True
        self.connect(clean=True)

    def connect(self, clean: bool = False) -> None:
        """Connect to its machine, and to no other while it asks."""
        if self.watch.asks:
            self.next_host = self.at
        super().connect(clean)

    def _accepted(self, packet: Connack) -> None:
        if packet.code and self.watch.asks:
            self.wanted = False
            self.watch.refused()
        super()._accepted(packet)

    def _answered(self, packet: Suback | Unsuback) -> None:
        super()._answered(packet)
        if isinstance(packet, Unsuback):
            self.watch.served()
        elif any(code >= REFUSED_CODE for code in packet.codes):
            self.watch.refused()

    def step(self) -> None:
        """Go on, if the newest question is answered."""
        record = self.record
        if self.link is None or not self.online or self.requests or record is None:
            return
        if record is not self._session:
            self._session = record
            self._message = None
            self._closing = False
        watch = self.watch
        message = self._message
        if message is None:
            sub = record.subs.get(self.topic)
            if sub is None or sub.since_us == NEVER:  # or the answer was lost with a connection
                watch.passed(CONNECTED)
                self.subscribe([(self.topic, 2)], 0)
            elif not self._returned:
                watch.passed(SUBSCRIBED)
                self._returned = True
                self.disconnect(0, None)
            else:
                watch.passed(RETURNED)
                self._publish()
        elif message.refused:
            watch.refused()
        elif self._closing:
            self.unsubscribe([self.topic])  # the answer was lost with a connection
        elif self.outflow.idle:
            watch.passed(PUBLISHED)
            if record.copies.get(message.number) and self.inflow.idle:
                watch.passed(DELIVERED)
                self._closing = True
                self.unsubscribe([self.topic])

    def _publish(self) -> None:
        payload = b"m%d probe" % len(self.oracle.ledger.messages)
        packet = Publish(self.topic, payload, 2 if self.profile.persistent else 1)
        self._message = self.oracle.ledger.publish(self.name, packet, once=False)
        self.outflow.publish(self._message)

    def leave(self) -> None:
        """End the session."""
        self.wanted = False
        self.disconnect(0, 0)


class Watch:
    """What the probes of one machine have been answered. They take turns, a round each.

    `answered_us`: the last progress of a round, or the last refusal; a round that begins again must get further than
    the one before. `served_us`: the end of the last round without a refusal.
    """

    def __init__(self, rng: Rng, network: Network, site: Site, oracle: Oracle, host: Host) -> None:
        self.world = oracle.world
        self.at = host
        self.probes = [Probe(rng.fork(), network, site, oracle, host, number, self) for number in range(IDENTITIES)]
        self.ready_us = 0  # since then the node has said that it is ready
        self.answered_us = 0
        self.served_us = 0
        self.asks = False
        self._stage = 0  # how far the probe has come, in this round or in one that was cut short
        self._turn = 0
        self._ended = True

    @property
    def probe(self) -> Probe:
        """The one whose turn it is."""
        return self.probes[self._turn]

    @property
    def waits_for(self) -> str:
        """What the next answer is."""
        return f"{STAGES[self._stage]} of {self.probe.name}"

    def step(self) -> None:
        """Go on."""
        self.asks = True
        probe = self.probe
        if not self._ended:
            probe.step()
        if self._ended and self.world.now - self.answered_us >= _PAUSE_US:
            probe.leave()
            self._turn = (self._turn + 1) % IDENTITIES
            self._ended = False
            self.probe.begin()

    def passed(self, stage: int) -> None:
        """A question is answered, and the next one is asked."""
        if stage > self._stage:
            self._stage = stage
            self.answered_us = self.world.now

    def refused(self) -> None:
        """A question is answered, and the round is over."""
        self._stage = 0
        self._ended = True
        self.answered_us = self.world.now

    def served(self) -> None:
        """All questions of a round are answered."""
        self.served_us = self.world.now
        self.refused()

    def stop(self) -> None:
        """Ask no more, and give up what was under way. Persistent sessions remain, and are served as others are."""
        self.asks = False
        self._stage = 0
        self._ended = True
        self.ready_us = 0
        for probe in self.probes:
            probe.outflow.pending.clear()
            if probe.profile.clean:
                probe.wanted = False
                probe.disconnect(0, None)
                probe.outflow.inflight.clear()


class Prober:
    """All probes of a run."""

    def __init__(
        self,
        rng: Rng,
        network: Network,
        site: Site,
        oracle: Oracle,
        history: History,
        judge: Causes,
        spare_copies: int,
        others: Callable[[], list[Client]],
        *,
        majority: bool,
    ) -> None:
        self.world = oracle.world
        self.site = site
        self.others = others  # returns all clients of the run beside its own
        self.history = history
        self.judge = judge
        self.spare_copies = spare_copies  # of each partition: without so many, it is served
        self.majority = majority
        self.watches = [Watch(rng.fork(), network, site, oracle, host) for host in site.doors]
        self._begun_us = 0  # 0: it does not run
        self._hindered_us: dict[Link, int] = {}  # when bytes were held back in a connection
        self._round = 0

    def start(self) -> None:
        """Begin to ask."""
        for client in self.clients:
            client.leave()
        self._begun_us = self.world.now
        self._round += 1
        self._tick(self._round)

    def stop(self) -> None:
        """Ask no more: the world comes to rest."""
        self._begun_us = 0
        self._round += 1
        for watch in self.watches:
            watch.stop()

    @property
    def clients(self) -> list[Probe]:
        """Those with sessions that may hold something."""
        probes = [probe for watch in self.watches for probe in watch.probes]
        return [probe for probe in probes if probe.profile.persistent and probe.record is not None]

    def _tick(self, number: int) -> None:
        if number != self._round:
            return
        for watch in self.watches:
            self._look(watch)
        for client in self.others():
            self._look_at_client(client)
        self._look_for_progress()
        self.world.later(_EVERY_US, self._tick, number)

    # A node that is ready

    def _look(self, watch: Watch) -> None:
        host = watch.at
        now = self.world.now
        asked = host.member and host.node is not None
        if asked:
            watch.step()
        elif watch.asks:
            watch.stop()
        fit = host.up and not host.disk.full and not host.disk.slow
        ready = asked and fit and ready_at(host)
        if host.member:
            why = JUDGED if ready else "it does not say that it is ready" if fit else "it is down, or its disk is"
            self.judge.look_at(ANSWERS, why)
        if not ready:
            watch.ready_us = 0
            return
        if watch.ready_us == 0:
            watch.ready_us = now
        waits = now - max(watch.ready_us, watch.answered_us, self._begun_us)
        if watch.answered_us == now:
            self.judge.judge("A11")
        elif waits > ANSWER_US:
            text = f"{host.name} says it is ready, and has not given {watch.waits_for} for {waits // SECOND} s"
            self.world.violate("A11", text)

    def _look_at_client(self, client: Client) -> None:
        """Demand that what a client waits for comes, if its node is ready and nothing holds back its bytes."""
        now = self.world.now
        link, life = client.link, client.life
        if link is None or life is None or not client.online:
            return
        if link.congested or link.to_node.held or link.to_client.held or link.to_node.dead or link.to_client.dead:
            self._hindered_us[link] = now
        ready_us = max([watch.ready_us for watch in self.watches if watch.at is client.host], default=0)
        held = self._hindered_us.get(link, 0) == now
        why = "its bytes are held back" if held else JUDGED if ready_us else "its node is not ready"
        self.judge.look_at(WAITING, why)
        asked_us, what = client.waits_for
        since = max(asked_us, ready_us, self._begun_us, life.accepted_us, self._hindered_us.get(link, 0))
        if ready_us and now - since > ANSWER_US:
            text = f"{client.name} has waited {(now - since) // SECOND} s for {what} of {link.server.name}"
            self.world.violate("A11", f"{text}, which says it is ready")

    # A group that can serve

    def _look_for_progress(self) -> None:
        since = max(self.history.changed_us, self._begun_us)
        if self.world.now - since < PROGRESS_US:
            self.judge.look_at(PROGRESS, "machines or links have changed lately")
            return
        members = [host for host in self.site.hosts if host.member or host.leaving]
        for reached in self.history.reached():
            group = [host for host in reached if not host.put_out]
            if self.majority and 2 * len(group) <= len(members):
                self.judge.look_at(PROGRESS, "it is no majority")
                continue
            if not group or self._is_hindered(group, members, since):
                self.judge.look_at(PROGRESS, "a copy may be away, or a machine cannot do its part")
                continue
            served = self._served_us(group)
            late = served < self.world.now - PROGRESS_US
            if late and self._another_serves(group):
                self.judge.look_at(PROGRESS, "another group with one of its members is served")
                continue
            self.judge.look_at(PROGRESS, JUDGED)
            if late:
                names = " ".join([host.name for host in group])
                self.world.violate(
                    "A11",
                    f"nobody serves at {names}, connected to {group[0].name} for {PROGRESS_US // SECOND} s and more",
                )
                return
            if served == self.world.now:
                self.judge.judge("A11")

    def _served_us(self, group: list[Host]) -> int:
        return max([watch.served_us for watch in self.watches if watch.at in group], default=self.world.now)

    def _another_serves(self, group: list[Host]) -> bool:
        """Whether a group that has a member in common with this one is served: that member is with those.

        In a ring of five, each has a majority with its neighbours. A witness is linked to two nodes that have no link.
        """
        since_us = self.world.now - PROGRESS_US
        for other in self.history.reached():
            if [host for host in other if host in group] and self._served_us(other) >= since_us:
                return True
        return False

    def _is_hindered(self, group: list[Host], members: list[Host], since_us: int) -> bool:
        """Whether the group may lack a copy of something, or has a machine that cannot do its part.

        A machine that hears others is told that they go on without its copies, which are in sync no more.
        """
        lacking = [
            host
            for host in members
            if host not in group
            or self.history.down(host.name, since_us - HEAL_US, since_us)
            or self._was_apart(host, members, since_us)
            or self.history.hears_one_way(host.name, since_us - HEAL_US, since_us)
        ]
        unfit = [host for host in group if host.disk.full or host.disk.slow or host.hung]
        return len(lacking) + self._leaving(group, lacking) > self.spare_copies or bool(unfit)

    def _leaving(self, group: list[Host], lacking: list[Host]) -> int:
        """Return how many others have to leave a group, because of two without a link one cannot stay."""
        linked = {reached[0].name: reached for reached in self.history.reached()}
        left = [host for host in group if host not in lacking]
        count = 0
        while left:
            missing = {host.name: [other for other in left if other not in linked[host.name]] for host in left}
            worst = max(left, key=lambda host: len(missing[host.name]))
            if not missing[worst.name]:
                break
            left.remove(worst)
            count += 1
        return count

    def _was_apart(self, host: Host, members: list[Host], since_us: int) -> bool:
        """Whether a machine may have been of another side than some other one, so that it lacks what that one has.

        That may be one that is away now: before the links to it broke, it may have been of the side that went on.
        """
        before_us = since_us - 1  # the change at `since_us` has made the group
        return any(self.history.apart(host.name, other.name, since_us - HEAL_US, before_us) for other in members)
