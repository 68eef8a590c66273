"""A client that reads all retained messages, and leaves. Owns what it has received; judges nothing."""

from __future__ import annotations

from folkmoot.mqtt.packet import V5, Publish
from folkmoot.sim.client import Client
from folkmoot.sim.network import Network
from folkmoot.sim.oracle import Oracle
from folkmoot.sim.profile import Profile
from folkmoot.sim.site import Site

__all__ = ["Auditor"]


class Auditor(Client):
    """Collects the result of a fresh wildcard subscription: `got`, topic -> payload, the newest of each topic."""

    def __init__(self, network: Network, site: Site, oracle: Oracle, name: str) -> None:
        self.got: dict[bytes, bytes] = {}
        profile = Profile(name, V5)
        profile.expiry_s = 0
        profile.clean = True
        world = oracle.world
        super().__init__(world, world.fork(), network, site, oracle, profile)
        self.hasty = True
        self.wanted = True

    def received(self, packet: Publish, late: bool = False) -> None:
        """Keep the newest per topic."""
        super().received(packet, late)
        if packet.retain:
            self.got[packet.topic] = packet.payload
