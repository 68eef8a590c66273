"""Liveness under faults: a client at every machine that connects, publishes, and leaves, again and again.

Owns two demands. A node that says it is ready answers CONNECT and PUBLISH within a bound, in every topology. A majority
that is connected to one of its members, and has a copy of everything, makes progress, or one with a member of it does.
A refusal is an answer; it is no progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.mqtt.packet import V5, Connack, Publish
from folkmoot.sim.causes import Causes
from folkmoot.sim.client import Client
from folkmoot.sim.fact import Message
from folkmoot.sim.history import HEAL_US, History
from folkmoot.sim.host import Host
from folkmoot.sim.inside import ready_at
from folkmoot.sim.network import Network
from folkmoot.sim.oracle import Oracle
from folkmoot.sim.profile import Profile
from folkmoot.sim.site import FAITHFUL, Site

if TYPE_CHECKING:
    from folkmoot.kernel.rng import Rng

__all__ = ["ANSWER_US", "PROGRESS_US", "Prober"]

ANSWER_US: Final = 10 * SECOND
"""A node that has said for this time that it is ready has answered."""

PROGRESS_US: Final = 20 * SECOND
"""After this time without a change of machines and links, a group that can serve does."""

_EVERY_US: Final = 250 * MILLISECOND
_PAUSE_US: Final = 750 * MILLISECOND
"""Between an answer and the next question to the same node."""


class Probe(Client):
    """The client at one machine. `answered_us`, `served_us`: the last answer, and the last one that was no refusal."""

    def __init__(self, rng: Rng, network: Network, site: Site, oracle: Oracle, host: Host) -> None:
        profile = Profile(f"probe-{host.name}", V5)
        profile.route = FAITHFUL
        profile.expiry_s = 0
        profile.clean = True
        profile.keep_alive_s = 2  # a connection to a machine without power would never end
        super().__init__(oracle.world, rng, network, site, oracle, profile)
        self.at = host
        self.ready_us = 0  # since then it has said that it is ready
        self.answered_us = 0
        self.served_us = 0
        self._message: Message | None = None

    def connect(self, clean: bool = False) -> None:
        """Connect to its machine and no other."""
        self.next_host = self.at
        super().connect(clean)

    def _accepted(self, packet: Connack) -> None:
        if packet.code:
            self.answered_us = self.world.now
        super()._accepted(packet)

    def step(self) -> None:
        """Go on: connect, publish, or leave for a while when the answer has come."""
        now = self.world.now
        message = self._message
        if message is not None and (message.acked or message.refused):
            self.answered_us = now
            if message.acked:
                self.served_us = now
            self._message = None
            self.wanted = False
            self.disconnect(0, None)
        elif self.online and message is None:
            packet = Publish(b"probe/" + self.at.name.encode(), b"m%d probe" % len(self.oracle.ledger.messages), 1)
            self._message = self.oracle.ledger.publish(self.name, packet, once=False)
            self.outflow.publish(self._message)
        elif self.link is None and now - self.answered_us >= _PAUSE_US:
            self.wanted = True
            self.connect()

    def stop(self) -> None:
        """Leave, and give up what was under way."""
        self.wanted = False
        self._message = None
        self.disconnect(0, None)
        self.outflow.pending.clear()
        self.outflow.inflight.clear()


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
        copies: int,
        *,
        majority: bool,
    ) -> None:
        self.world = oracle.world
        self.site = site
        self.history = history
        self.judge = judge
        self.copies = copies
        self.majority = majority
        self.probes = [Probe(rng.fork(), network, site, oracle, host) for host in site.doors]
        self._begun_us = 0  # 0: it does not run
        self._round = 0

    def start(self) -> None:
        """Begin to ask."""
        self._begun_us = self.world.now
        self._round += 1
        self._tick(self._round)

    def stop(self) -> None:
        """Ask no more: the world comes to rest."""
        self._begun_us = 0
        self._round += 1
        for probe in self.probes:
            probe.ready_us = 0
            probe.stop()

    def _tick(self, number: int) -> None:
        if number != self._round:
            return
        for probe in self.probes:
            self._look(probe)
        self._look_for_progress()
        self.world.later(_EVERY_US, self._tick, number)

    # A node that is ready

    def _look(self, probe: Probe) -> None:
        host = probe.at
        now = self.world.now
        asked = host.member and host.node is not None
        if asked:
            probe.step()
        elif probe.wanted:
            probe.stop()
        fit = host.up and not host.disk.full and not host.disk.slow
        if not asked or not fit or not ready_at(host):
            probe.ready_us = 0
            return
        if probe.ready_us == 0:
            probe.ready_us = now
        waits = now - max(probe.ready_us, probe.answered_us, self._begun_us)
        if probe.answered_us == now:
            self.judge.judge("A11")
        elif waits > ANSWER_US:
            self.world.violate(
                "A11", f"{host.name} says it is ready, and has answered no client for {waits // SECOND} s"
            )

    # A group that can serve

    def _look_for_progress(self) -> None:
        since = max(self.history.changed_us, self._begun_us)
        if self.world.now - since < PROGRESS_US:
            return
        members = [host for host in self.site.hosts if host.member or host.leaving]
        for group in self.history.reached():
            if self.majority and 2 * len(group) <= len(members):
                continue
            if self._is_hindered(group, members, since):
                continue
            served = self._served_us(group)
            if served < self.world.now - PROGRESS_US:
                if self._another_serves(group):
                    continue
                names = " ".join([host.name for host in group])
                self.world.violate(
                    "A11",
                    f"nobody serves at {names}, connected to {group[0].name} for {PROGRESS_US // SECOND} s and more",
                )
                return
            if served == self.world.now:
                self.judge.judge("A11")

    def _served_us(self, group: list[Host]) -> int:
        return max([probe.served_us for probe in self.probes if probe.at in group], default=self.world.now)

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
            or self._was_apart(host, group, since_us)
            or self.history.hears_one_way(host.name, since_us - HEAL_US, since_us)
        ]
        unfit = [host for host in group if host.disk.full or host.disk.slow or host.hung]
        return len(lacking) + self._leaving(group, lacking) >= self.copies or bool(unfit)

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

    def _was_apart(self, host: Host, group: list[Host], since_us: int) -> bool:
        """Whether a machine may have been of another side than the group, so that it lacks what the others have."""
        before_us = since_us - 1  # the change at `since_us` has made the group
        return any(self.history.apart(host.name, other.name, since_us - HEAL_US, before_us) for other in group)
