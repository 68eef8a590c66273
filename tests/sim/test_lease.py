"""Simulated nodes whose leases lapse, and whose processes stop in the middle of turns: nothing is said without one.

The leases are granted by the test. A lapse is shorter or longer than the pause of `folkmoot.node.withheld`.
"""

from __future__ import annotations

from typing import cast

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.mqtt.framer import Framer
from folkmoot.mqtt.kind import CONNACK, DISCONNECT
from folkmoot.node import Node
from folkmoot.sim import Simulation
from folkmoot.sim.host import Host
from folkmoot.sim.network import Link
from folkmoot.sim.swarm import Swarm

STEPS = 300
SEEDS = 3
PLANTED_SEEDS = 6

LENGTH_US = 300 * MILLISECOND
RENEWED_US = 50 * MILLISECOND
STOPPED_US = 400 * MILLISECOND
ANSWERED_AT_ONCE = (0x30, 0x31, 0xC0)  # PUBLISH with QoS 0, PINGREQ: their effects wait for no disk


class SpokeWithoutLease(AssertionError):
    """The process has written what needs a lease."""


class LeasedHost(Host):
    """Its node has a lease that is renewed, but for lapses; now and then its process stops within a turn."""

    peaceful = False
    lapses = 0
    stops = 0
    lapse_until_us = 0

    def start(self) -> None:
        super().start()
        self.renew(self.life)

    def renew(self, life: int) -> None:
        if life != self.life or self.node is None:
            return
        self.world.later(RENEWED_US, self.renew, life)
        now = self.world.now
        if self.hung or now < self.lapse_until_us:
            return
        if not self.peaceful and self.rng.chance(1, 8):
            self.lapses += 1
            self.lapse_until_us = now + self.rng.between(LENGTH_US, 3 * SECOND)
        node = cast("Node", self.node)
        node.lease(self.steady_ns() + LENGTH_US * 1000)
        self.set_turn()

    def link_data(self, link: Link, data: bytes) -> None:
        super().link_data(link, data)
        if not self.hung and not self.peaceful and data[0] in ANSWERED_AT_ONCE and self.rng.chance(1, 4):
            self.stops += 1
            self.pause()
            self.world.after(STOPPED_US, self.go_on)

    def output(self, link: Link, data: bytes) -> None:
        node = cast("Node", self.node)
        if data and self.steady_ns() >= node.speaks_until_ns:
            for first, body in Framer(1 << 28).feed(data):
                code = body[-1] if first >> 4 == CONNACK and len(body) == 2 else body[1 if first >> 4 == CONNACK else 0]
                if first >> 4 not in (CONNACK, DISCONNECT) or code not in (0x89, 3):
                    raise SpokeWithoutLease(f"{first:02x} {body.hex()} at {self.world.now}")
        super().output(link, data)


class AtTheBeginning(LeasedHost):
    """A planted bug: the lease is compared with the time at which the first bytes of the turn came, and never again."""

    began_ns = 0

    def set_turn(self) -> None:
        if not self._turn_set:
            self.began_ns = self.steady_ns()
        super().set_turn()

    def _turn(self) -> None:
        super()._turn()
        self.began_ns = 0

    def decided_ns(self) -> int:
        return self.began_ns or self.steady_ns()

    def still_speaks(self, until_ns: int) -> bool:
        return self.decided_ns() < until_ns


class Leases(Simulation):
    """Ends the lapses with the other faults."""

    def heal(self) -> bool:
        for host in self.site.hosts:
            if isinstance(host, LeasedHost):
                host.peaceful = True
                host.lapse_until_us = 0
        return super().heal()


def shape(swarm: Swarm) -> None:
    for name in ("takeovers", "retained", "streams", "wills", "qos 0"):
        swarm.on[name] = True


def test_promises_hold_while_leases_lapse() -> None:
    lapses = stops = 0
    for seed in range(1, SEEDS + 1):
        simulation = Leases(seed, STEPS, host_class=LeasedHost, shape=shape)
        assert simulation.run().violations == []
        hosts = [host for host in simulation.site.hosts if isinstance(host, LeasedHost)]
        lapses += sum(host.lapses for host in hosts)
        stops += sum(host.stops for host in hosts)
    assert lapses > 0
    assert stops > 0


def test_a_lease_that_is_compared_with_the_beginning_of_the_turn_is_found() -> None:
    for seed in range(1, PLANTED_SEEDS + 1):
        violations = Leases(seed, STEPS, host_class=AtTheBeginning, shape=shape).run().violations
        if any("SpokeWithoutLease" in str(violation) for violation in violations):
            return
    raise AssertionError(f"not found within {PLANTED_SEEDS} seeds")


def test_the_lease_of_a_node_without_this_test_never_ends() -> None:
    simulation = Simulation(1, 20, shape=shape)
    simulation.run()
    assert all(cast("Node", host.node).speaks_until_ns == NEVER for host in simulation.site.hosts if host.node)
