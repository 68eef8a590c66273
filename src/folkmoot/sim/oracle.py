"""The oracle: receives everything that clients see and passes it to the checkers of the promises.

Owns the order in which facts are registered and judged. docs/limits.md has the promises.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER
from folkmoot.mqtt.packet import Connack, Publish
from folkmoot.sim.check_delivery import DeliveryChecker
from folkmoot.sim.check_retained import RetainedChecker
from folkmoot.sim.check_session import SessionChecker
from folkmoot.sim.check_stream import StreamChecker
from folkmoot.sim.check_will import WillChecker
from folkmoot.sim.fact import Life, Message, SessionRecord, Sub
from folkmoot.sim.ledger import Ledger
from folkmoot.sim.network import Link
from folkmoot.sim.profile import Profile

__all__ = ["Oracle"]

_REPLAY = b"$stream/"


class Oracle:
    """Receives the reports of all clients of a run."""

    def __init__(self, ledger: Ledger, watchers: list[str]) -> None:
        self.ledger = ledger
        self.world = ledger.world
        self.judge = ledger.judge
        self.sessions = SessionChecker(ledger)
        self.deliveries = DeliveryChecker(ledger)
        self.wills = WillChecker(ledger, watchers)
        self.retained = RetainedChecker(ledger, self.wills.outcomes)
        self.streams = StreamChecker(ledger)
        self.strict = False  # nothing has been wrong for a while

    # Connections

    def connecting(self, life: Life) -> None:
        """CONNECT is about to be sent; with clean start, the present session ends now or never counts again."""
        self.ledger.connecting(life)
        if life.clean:
            self._end(life.client_id)

    def accepted(self, life: Life, connack: Connack, profile: Profile) -> SessionRecord:
        """CONNACK with success came."""
        expiry_s = profile.session_expiry_s
        if not profile.v5 and life.clean:
            expiry_s = 0  # [MQTT-3.1.2-6] of MQTT 3.1.1
        if connack.properties is not None and connack.properties.session_expiry is not None:
            expiry_s = connack.properties.session_expiry
        life.expiry_low_s = life.expiry_high_s = expiry_s
        record = self.sessions.accepted(life, connack.session_present, expiry_s)
        record.packet_bytes_max = profile.packet_bytes_max or NEVER
        return record

    def expiry_changed(self, life: Life, record: SessionRecord, expiry_s: int) -> None:
        """DISCONNECT with another session expiry was sent."""
        life.expiry_low_s = min(life.expiry_low_s, expiry_s)
        life.expiry_high_s = max(life.expiry_high_s, expiry_s)
        self.sessions.expiry_changed(record, expiry_s)
        if expiry_s == 0:
            self._end(record.client_id)

    def refused(self, kind: str, code: int, what: str) -> None:
        """A node refuses a packet: it has a reason only while something is wrong, or was lately."""
        self.world.mark(f"{kind} refused {code:#x}")
        if self.strict:
            self.world.violate("A11", f"{kind} of {what} is refused with {code:#x}, although nothing is wrong")

    def _end(self, client_id: str) -> None:
        """Owe nothing to the client's session from now on."""
        record = self.ledger.current.get(client_id)
        if record is not None:
            for sub in record.subs.values():
                sub.until_us = min(sub.until_us, self.world.now)

    # Publishing

    def sent(self, message: Message, link: Link) -> None:
        """PUBLISH was sent."""
        self.ledger.sent(message, link)
        self.deliveries.sent(message)

    def answered(self, message: Message, code: int) -> None:
        """PUBACK or PUBREC came."""
        if code >= 0x80:
            message.refused = True
            self.refused("PUBLISH", code, repr(message))
        elif not message.acked:
            message.acked_us = self.world.now

    def settled(self, message: Message) -> None:
        """The publisher will not send the message again."""
        message.settled_us = min(message.settled_us, self.world.now)

    # Subscribing

    def subscribing(self, record: SessionRecord, name: bytes, options: int, identifier: int) -> Sub:
        """SUBSCRIBE for one filter was sent; it replaces a subscription with the same filter."""
        now = self.world.now
        known = record.subs.get(name)
        if known is not None and known.options == options and known.identifier == identifier:
            known.asks += 1
            return known
        sub = Sub(name, options, identifier, now)
        if known is not None:
            known.until_us = min(known.until_us, now)
            sub.asks += known.asks
        record.subs[name] = sub
        record.every.append(sub)
        record.possible.clear()
        if name.startswith(_REPLAY):
            record.replayer = True
            record.replays = {}  # it begins at its start, also where the earlier session may still be joined
        return sub

    def subscribed(self, record: SessionRecord, sub: Sub, code: int) -> None:
        """SUBACK answered for one filter."""
        if code >= 0x80:
            self.refused("SUBSCRIBE", code, f"{record} to {sub.name!r}")
            return
        if code > sub.options & 3:
            self.world.violate("protocol", f"{record}: {sub.name!r} was granted QoS {code}")
        sub.granted = code
        if record.subs.get(sub.name) is sub and sub.until_us == NEVER:
            if sub.since_us == NEVER:
                sub.since_us = self.world.now
                sub.link = record.link

    def unsubscribing(self, record: SessionRecord, name: bytes) -> None:
        """UNSUBSCRIBE was sent."""
        sub = record.subs.pop(name, None)
        if sub is not None:
            sub.until_us = min(sub.until_us, self.world.now)

    def unsubscribed(self, record: SessionRecord, name: bytes, sent_us: int) -> None:
        """UNSUBACK came: later messages do not match the earlier subscription any more."""
        for sub in record.every:
            if sub.name == name and sub.until_us <= sent_us and record.subs.get(name) is not sub:
                sub.gone_us = min(sub.gone_us, self.world.now)

    # Receiving

    def held(self, record: SessionRecord, link: Link, packet: Publish) -> None:
        """A client keeps a QoS 2 message until its PUBREL comes."""
        message = self.ledger.by_payload.get(packet.payload)
        if message is not None:
            self.deliveries.held(record, link, message, packet.dup)

    def received(self, record: SessionRecord, link: Link, packet: Publish, late: bool = False) -> None:
        """A client passed a message to its application. late: at PUBREL."""
        if record.replayer:
            self.streams.replayed(record, packet)
            return
        self.deliveries.received(record, link, packet, late)
        if packet.retain:
            self.retained.received(record, packet)
        record.got_us = self.world.now
        message = self.ledger.by_payload.get(packet.payload)
        if message is not None and not packet.retain:
            self._check_gone(record, message, packet)
        if message is not None and message.staged and not message.attempts:
            self.world.violate("A2", f"{record} got {message} of a transaction that nobody has committed")

    def _check_gone(self, record: SessionRecord, message: Message, packet: Publish) -> None:
        """After UNSUBACK no message that is published later comes any more [MQTT-3.10.4-2]."""
        first_us = message.first_us
        subs = record.matching(message.topic)
        if subs and first_us < NEVER and all(sub.gone_us < first_us for sub in subs):
            if self.judge.sent_after_unsubscribe(record, message):
                return
            if self.deliveries.earlier_subs(record, message, packet):
                return
            self.world.violate("A2", f"{record} got {message}, published after UNSUBACK")
