"""Bugs to plant: disks that break their word and hosts that mistreat packets. The node stays as it is."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.mqtt.framer import Framer
from folkmoot.mqtt.varint import encode_varint
from folkmoot.node import Effects
from folkmoot.sim.core import Core
from folkmoot.sim.disk import Disk
from folkmoot.sim.host import Host
from folkmoot.sim.network import Link
from folkmoot.store.batch import DELETE, DELETE_RANGE, PUT, Batch
from folkmoot.store.key import CHUNK, QUEUE, RECEIVED, RELEASED, RETAINED, SESSION, SUBSCRIPTION, WILL, kind_of

EVERY_KIND = range(32)


class AmnesiacDisk(Disk):
    """A crash undoes what was done to rows of some kinds not long before, although it was reported durable."""

    kinds: tuple[int, ...] = ()
    operations: tuple[int, ...] = (PUT, DELETE, DELETE_RANGE)
    window_us = 300 * MILLISECOND
    _journal: list[tuple[int, bytes, bytes | None]] | None = None

    def apply(self, batch: Batch) -> None:
        now = self._world.now
        journal = self.journal()
        for operation, key, value in batch.ops:
            if operation in self.operations and kind_of(key) in self.kinds:
                if operation == DELETE_RANGE:
                    journal.extend([(now, row, old) for row, old in self.store.scan(key, value, 1 << 30)])
                else:
                    journal.append((now, key, self.store.get(key)))
        super().apply(batch)

    def journal(self) -> list[tuple[int, bytes, bytes | None]]:
        """What there was before, oldest first."""
        if self._journal is None:
            self._journal = []
        return self._journal

    def crash(self) -> None:
        super().crash()
        undo = Batch(0)
        for at, key, old in reversed(self.journal()):
            if at >= self._world.now - self.window_us:
                if old is None:
                    undo.delete(key)
                else:
                    undo.put(key, old)
        self.store.apply(undo)
        self.journal().clear()


class ForgetsBatches(AmnesiacDisk):
    """As if batches were reported durable when they have only been handed over."""

    kinds = tuple(EVERY_KIND)
    window_us = 5 * MILLISECOND


class ForgetsSubscriptions(AmnesiacDisk):
    """As if SUBACK left before its subscription was durable."""

    kinds = (SUBSCRIPTION,)
    operations = (PUT,)


class RemembersSubscriptions(AmnesiacDisk):
    """As if UNSUBACK left before the subscription was gone."""

    kinds = (SUBSCRIPTION,)
    operations = (DELETE,)
    window_us = 60_000 * MILLISECOND


class ForgetsQueues(AmnesiacDisk):
    """As if PUBACK left before the message was in the queues."""

    kinds = (QUEUE,)
    operations = (PUT,)


class ForgetsSessions(AmnesiacDisk):
    """As if CONNACK left before the session was durable."""

    kinds = (SESSION,)
    operations = (PUT,)
    window_us = 5_000 * MILLISECOND


class ForgetsReceived(AmnesiacDisk):
    """As if PUBREC left before the packet id of a QoS 2 message was durable."""

    kinds = (RECEIVED,)
    operations = (PUT,)


class ForgetsReleased(AmnesiacDisk):
    """As if PUBREL left before the end of the message's first half was durable."""

    kinds = (RELEASED,)
    operations = (PUT,)


class ForgetsWills(AmnesiacDisk):
    """As if wills were kept in memory only."""

    kinds = (WILL,)
    operations = (PUT,)
    window_us = 60_000 * MILLISECOND


class RemembersWills(AmnesiacDisk):
    """As if a will were published in one batch and forgotten in another."""

    kinds = (WILL,)
    operations = (DELETE,)
    window_us = 2_000 * MILLISECOND


class RemembersRetained(AmnesiacDisk):
    """As if a retained message were cleared in memory first."""

    kinds = (RETAINED,)
    operations = (DELETE,)
    window_us = 60_000 * MILLISECOND


class ForgetsChunks(AmnesiacDisk):
    """As if records could be read before they were durable: their offsets are used again."""

    kinds = (CHUNK,)


class PacketHost(Host):
    """Gives subclasses the packets of an output."""

    def output(self, link: Link, data: bytes) -> None:
        packets = Framer(1 << 28).feed(data)
        changed = self.change(packets)
        super().output(link, b"".join([bytes([first]) + encode_varint(len(body)) + body for first, body in changed]))

    def change(self, packets: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return what is sent instead of `packets`, each a first byte and a body."""
        return packets


def is_publish(packet: tuple[int, bytes], qos: int) -> bool:
    return packet[0] >> 4 == 3 and packet[0] >> 1 & 3 == qos


class RepeatsHost(PacketHost):
    """Sends a QoS 0 message twice, now and then."""

    def change(self, packets: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        changed: list[tuple[int, bytes]] = []
        for packet in packets:
            changed.append(packet)
            if is_publish(packet, 0) and self.turns % 10 == 0:
                changed.append(packet)
        return changed


class SwapsHost(PacketHost):
    """Sends two neighbouring QoS 1 messages in the wrong order."""

    def change(self, packets: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        at = 0
        while at + 1 < len(packets):
            if is_publish(packets[at], 1) and is_publish(packets[at + 1], 1):
                packets[at], packets[at + 1] = packets[at + 1], packets[at]
                at += 1
            at += 1
        return packets


class DropsHost(PacketHost):
    """Loses a QoS 1 message now and then, as a wrong window would."""

    def change(self, packets: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        return [packet for packet in packets if not (is_publish(packet, 1) and self.turns % 40 == 0)]


class CorruptsHost(PacketHost):
    """Changes the last byte of a payload now and then."""

    def change(self, packets: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        if self.turns % 40:
            return packets
        return [
            (first, body[:-1] + b"!") if first >> 4 == 3 and body[-1:] == b"." else (first, body)
            for first, body in packets
        ]


class LateHost(Host):
    """Goes on sending over a connection that was taken over: no fencing."""

    def carry_out(self, effects: Effects) -> None:
        held = []
        for connection in effects.closes:
            link = connection.handle
            assert isinstance(link, Link)
            if connection in effects.outputs:
                held.append((link, connection.take_output()))
        super().carry_out(effects)
        for link, data in held:
            if data:
                self.world.after(20 * MILLISECOND, self._late, link, data)

    def close(self, link: Link) -> None:
        self.world.after(30 * MILLISECOND, self._close_late, link, self.life)

    def _close_late(self, link: Link, life: int) -> None:
        if life == self.life:
            super().close(link)

    def _late(self, link: Link, data: bytes) -> None:
        if link.server_open:
            self.output(link, data)


class RestlessHost(Host):
    """As if the node had a deadline in the past that no turn does away with."""

    def _set_wake(self, node: Core) -> None:
        self._wake_us = self.world.now
        self.world.later(0, self._wake, self.life, self._wake_us)
