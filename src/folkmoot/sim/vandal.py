"""Peers that break the protocol: garbage, half packets, wrong order. Other clients must not notice them.

Owns one expectation: a fault that is fatal by the specification (MQTT 5 section 4.13) ends the connection. Vandals
publish nothing valid, so no message of theirs may reach a subscriber.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, V311, Connect, Packet, Pingreq, Subscribe, Unsubscribe
from folkmoot.sim.causes import Causes
from folkmoot.sim.network import Caller, Link, Network
from folkmoot.sim.site import ROAMING, Site
from folkmoot.sim.world import World

__all__ = ["Vandals"]

_PATIENCE_US = 2 * SECOND
"""How long the node may take to close a connection that has broken the protocol."""


class Vandal(Caller):
    """One connection that misbehaves; it listens to nothing."""

    def link_data(self, link: Link, data: bytes) -> None:
        """Ignore what the node says."""

    def link_closed(self, link: Link) -> None:
        """Nothing to do."""


class Vandals:
    """Sends vandals to the node."""

    def __init__(self, world: World, rng: Rng, network: Network, site: Site, judge: Causes) -> None:
        self.world = world
        self._rng = rng
        self._network = network
        self._site = site
        self._judge = judge  # in a troubled cluster a connection may not be admitted, and its bytes are not read
        self._count = 0
        self._kinds: list[Callable[[int], tuple[bytes, bool]]] = [
            self._noise,
            self._half_connect,
            self._no_connect,
            self._two_connects,
            self._bad_publish,
            self._bad_flags,
            self._bent,
        ]

    def strike(self) -> None:
        """Open a connection and misbehave."""
        self._count += 1
        version = V5 if self._rng.chance(1, 2) else V311
        kind = self._kinds[self._rng.below(len(self._kinds))]
        data, fatal = kind(version)
        link = self._network.dial(Vandal(), self._site.pick(self._rng, ROAMING, None, failed=False))
        self.world.mark("vandal")
        self.world.note("vandal", f"{link.name} {kind.__name__}", data)
        link.from_caller(data)
        self.world.later(_PATIENCE_US, self._leave, link, fatal)

    def _leave(self, link: Link, fatal: bool) -> None:
        served = link.server_open and link.read_bytes == link.sent_bytes and not link.server.away
        if fatal and served and not self._judge.unserved(link.opened_us - _PATIENCE_US):
            self.world.violate("protocol", f"the node keeps {link.name}, which has broken the protocol")
        link.close_by_caller()

    def _connect(self, version: int) -> bytes:
        return encode(Connect(version, f"vandal{self._count}"), version)

    def _bytes(self, length: int) -> bytes:
        return bytes([self._rng.below(256) for _ in range(length)])

    def _noise(self, _version: int) -> tuple[bytes, bool]:
        return self._bytes(self._rng.between(1, 60)), False

    def _half_connect(self, version: int) -> tuple[bytes, bool]:
        data = self._connect(version)
        return data[: self._rng.between(1, len(data) - 1)], False

    def _no_connect(self, _version: int) -> tuple[bytes, bool]:
        return encode(Pingreq(), V5), True  # [MQTT-3.1.0-1]

    def _two_connects(self, version: int) -> tuple[bytes, bool]:
        data = self._connect(version)
        return data + data, True  # [MQTT-3.1.0-2]

    def _bad_publish(self, version: int) -> tuple[bytes, bool]:
        bodies = (
            b"\x36\x06\x00\x01x\x00\x01y",  # QoS 3 [MQTT-3.3.1-4]
            b"\x30\x05\x00\x03x/+",  # a wildcard [MQTT-3.3.2-2]
            b"\x30\x05\x00\x03x\xc3(",  # not UTF-8 [MQTT-1.5.4-1]
            b"\x32\x05\x00\x01x\x00\x00",  # packet id 0 [MQTT-2.2.1-3]
            b"\x38\x03\x00\x01x",  # DUP with QoS 0 [MQTT-3.3.1-2]
            b"\x30\x80\x80\x80\x80\x01",  # a remaining length of five bytes [MQTT-1.5.5-1]
        )
        return self._connect(version) + bodies[self._rng.below(len(bodies))], True

    def _bad_flags(self, version: int) -> tuple[bytes, bool]:
        return self._connect(version) + b"\x80\x06\x00\x01\x00\x01x\x00", True  # [MQTT-3.8.1-1]

    def _bent(self, version: int) -> tuple[bytes, bool]:
        """Flip a bit somewhere in valid packets that publish nothing."""
        packets: list[Packet] = [Subscribe(1, [(b"x/#", 1), (b"y", 0)]), Pingreq(), Unsubscribe(2, [b"x/#"])]
        data = bytearray(encode(packets[self._rng.below(3)], version))
        # The first byte stays: as a PUBLISH it might be a valid one.
        at = self._rng.between(1, len(data) - 1)
        data[at] ^= 1 << self._rng.below(8)
        return self._connect(version) + bytes(data), False
