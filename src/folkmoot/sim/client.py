"""A model client of MQTT 3.1, 3.1.1 and 5: correct by construction, so that every fault is the node's.

Owns one client id's connections and its half of the session state. It reports everything that it sees to the oracle.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.mqtt.decode import decode
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.framer import Framer
from folkmoot.mqtt.packet import (
    PUBREL,
    V31,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from folkmoot.mqtt.reason import (
    MALFORMED_PACKET,
    PACKET_TOO_LARGE,
    PAYLOAD_FORMAT_INVALID,
    PROTOCOL_ERROR,
    QOS_NOT_SUPPORTED,
    RECEIVE_MAXIMUM_EXCEEDED,
    RETAIN_NOT_SUPPORTED,
    SESSION_TAKEN_OVER,
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    TOPIC_ALIAS_INVALID,
    TOPIC_NAME_INVALID,
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
)
from folkmoot.sim.fact import Life, Message, SessionRecord, Sub
from folkmoot.sim.host import Host
from folkmoot.sim.inflow import Inflow
from folkmoot.sim.network import Caller, Link, Network
from folkmoot.sim.oracle import Oracle
from folkmoot.sim.outflow import Outflow
from folkmoot.sim.profile import NEVER_EXPIRES_S, PATIENCE_US, Profile
from folkmoot.sim.site import Site
from folkmoot.sim.world import World

__all__ = ["Client"]

_PACKET_BYTES_MAX = 1 << 28
_BELATED_US = 10 * SECOND  # how long a CONNECT may wait at nodes that hang or have no leader
_QUIET_US = 50 * MILLISECOND  # longer than a password check
_BLAMES = (
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    TOPIC_NAME_INVALID,
    RECEIVE_MAXIMUM_EXCEEDED,
    TOPIC_ALIAS_INVALID,
    PACKET_TOO_LARGE,
    PAYLOAD_FORMAT_INVALID,
    RETAIN_NOT_SUPPORTED,
    QOS_NOT_SUPPORTED,
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
)  # reasons of DISCONNECT that only a client can give


class Request:
    """A SUBSCRIBE or UNSUBSCRIBE without an answer so far."""

    def __init__(self, subs: list[Sub], filters: list[bytes], sent_us: int) -> None:
        self.subs = subs
        self.filters = filters
        self.sent_us = sent_us


class Client(Caller):
    """One client: it keeps a connection while `wanted`, and reconnects when it is lost.

    `hasty` switches its pauses off: it acknowledges and reconnects at once.
    """

    def __init__(self, world: World, rng: Rng, network: Network, site: Site, oracle: Oracle, profile: Profile) -> None:
        self.world = world
        self.rng = rng
        self.network = network
        self.site = site
        self.oracle = oracle
        self.profile = profile
        self.outflow = Outflow(self)
        self.inflow = Inflow(self)
        self.requests: dict[int, Request] = {}
        self.record: SessionRecord | None = None
        self.link: Link | None = None
        self.life: Life | None = None
        self.online = False  # CONNACK came and the connection stands
        self.wanted = False
        self.host: Host | None = None  # its last host
        self.next_host: Host | None = None  # its next host, whatever its habits
        self.hasty = False
        self.make_will: Callable[[Client], Message | None] = lambda _client: None
        self._framer = Framer(_PACKET_BYTES_MAX)
        self._links: list[Link] = []  # those that a node may still have
        self._alone = False  # since CONNACK no node has another connection of it
        self._must_clean = False  # its half of the session is gone, the other half may exist
        self._reconnect_set = False
        self._quiet_us = 0  # no CONNECT before
        self._asked_us = 0  # when PINGREQ was sent; 0: it was answered
        self._unanswered = 0  # connections that it has given up since the newest CONNACK

    @property
    def name(self) -> str:
        """The client id."""
        return self.profile.client_id

    @property
    def waits_for(self) -> tuple[int, str]:
        """Since when it has waited for an answer of the node, and for which; nothing: for none."""
        found = [(request.sent_us, "SUBACK" if request.subs else "UNSUBACK") for request in self.requests.values()]
        found += self.outflow.waits + self.inflow.waits
        if self._asked_us:
            found.append((self._asked_us, "PINGRESP"))
        return min(found, default=(NEVER, ""))

    @property
    def current(self) -> Link:
        """The present connection; only while there is one."""
        assert self.link is not None, "a client without a connection sends nothing"
        return self.link

    @property
    def idle(self) -> bool:
        """Whether the client has nothing under way."""
        return self.online and self.outflow.idle and self.inflow.idle and not self.requests

    # Connecting

    def connect(self, clean: bool = False) -> None:
        """Open a connection and send CONNECT; an open one remains, for the node to close (takeover)."""
        profile = self.profile
        clean = clean or profile.clean or self._must_clean
        if self.world.now < self._quiet_us:
            self._reconnect()
            return
        if self.online:
            self.world.mark("takeover")
        elif self.link is not None:
            return  # the present attempt is not over
        self._lose()
        accepted = self.life is not None and self.life.accepted_us < NEVER
        picked = self.next_host or self.site.pick(self.rng, self.profile.route, self.host, failed=not accepted)
        self.host = picked
        self.next_host = None
        link = self.network.dial(self, picked)
        self._links = [former for former in self._links if self._is_rival(former)]
        self._links.append(link)
        self.link = link
        self._framer = Framer(_PACKET_BYTES_MAX)
        life = Life(self.name, profile.version, link, clean, self.world.now)
        life.will = self.make_will(self)
        if life.will is not None:
            life.will.will_link = link
        life.will_delay_s = profile.will_delay_s if profile.v5 else 0
        self.life = life
        if clean:
            # Its own half of the session is gone, so a session that the node may have kept must go too.
            self._must_clean = True
        self.oracle.connecting(life)
        self.send(self._connect_packet(clean, life.will))
        life.connect_bytes = link.sent_bytes
        patience_us = min(self.profile.patience_us << min(self._unanswered, 8), PATIENCE_US)
        self.world.later(patience_us, self._give_up, link)

    def _connect_packet(self, clean: bool, will_message: Message | None) -> Connect:
        profile = self.profile
        will: Will | None = None
        if will_message is not None:
            will = Will(will_message.topic, will_message.payload, will_message.qos, will_message.retain)
            if profile.v5 and (profile.will_delay_s or will_message.properties is not None):
                will.properties = will_message.properties or Properties()
                will.properties.will_delay = profile.will_delay_s or None
        properties: Properties | None = None
        if profile.v5:
            properties = Properties()
            properties.session_expiry = profile.expiry_s or None
            properties.receive_max = profile.receive_max or None
            properties.packet_max = profile.packet_bytes_max or None
            properties.topic_alias_max = profile.alias_max or None
        return Connect(
            profile.version,
            self.name,
            clean,
            profile.keep_alive_s,
            profile.username,
            profile.password,
            will,
            properties,
        )

    def _give_up(self, link: Link) -> None:
        if link is self.link and not self.online:
            self.world.mark("CONNACK timed out")
            self._unanswered += 1
            self.drop()

    def _accepted(self, packet: Connack) -> None:
        life = self.life
        assert life is not None, "a CONNACK answers a CONNECT"
        if packet.code:
            life.refused = True
            self.oracle.refused("CONNACK", packet.code, self.name)
            self.drop()
            return
        self.online = True
        self._unanswered = 0
        self._must_clean = False
        self._alone = not [link for link in self._links if link is not self.link and self._is_rival(link)]
        if self.profile.version == V31 and not life.clean:
            # MQTT 3.1 has no session present flag: a client assumes the session that it remembers.
            packet.session_present = self.record is not None and self.record.persistent and not self.record.ended
        # A session that ended with its connection is forgotten here, even if another CONNECT has made a new one there.
        present = packet.session_present and self.record is not None and self.record.persistent
        self.record = self.oracle.accepted(life, packet, self.profile)
        receive_max = 65_535
        alias_max = 0
        if packet.properties is not None:
            receive_max = packet.properties.receive_max or receive_max
            alias_max = packet.properties.topic_alias_max or 0
        self.inflow.connected(present)
        self.outflow.connected(present, receive_max, alias_max)
        self._asked_us = 0
        keep_alive = self.profile.keep_alive_s
        if packet.properties is not None and packet.properties.server_keep_alive is not None:
            keep_alive = packet.properties.server_keep_alive
        if keep_alive:
            self.world.later(keep_alive * SECOND // 2, self._keep_alive, self.current, keep_alive)

    def _is_rival(self, link: Link) -> bool:
        """Whether a node may still have a connection, or a CONNECT of it without an answer is under way."""
        waits = not link.client_id and link.opened_us + _BELATED_US > self.world.now
        return link.ended_us == NEVER or waits

    def _keep_alive(self, link: Link, keep_alive_s: int) -> None:
        if link is not self.link:
            return
        now = self.world.now
        if self._asked_us and now - self._asked_us > keep_alive_s * SECOND:
            self.world.mark("client missed PINGRESP")
            self.drop()
            return
        if not self._asked_us:
            self._asked_us = now
            self.send(Pingreq())
        self.world.later(keep_alive_s * SECOND // 2, self._keep_alive, link, keep_alive_s)

    # Disconnecting

    def disconnect(self, code: int, expiry_s: int | None) -> None:
        """Send DISCONNECT and close; `code` and the new session expiry have a meaning in MQTT 5 only."""
        life = self.life
        if not self.online or life is None:
            self.drop()
            return
        properties: Properties | None = None
        if self.profile.v5 and expiry_s is not None and self.profile.expiry_s:  # [MQTT-3.14.2-2]
            properties = Properties()
            properties.session_expiry = expiry_s
        self.send(Disconnect(code if self.profile.v5 else 0, properties))
        life.goodbye_us = self.world.now
        life.goodbye_bytes = self.current.sent_bytes
        life.goodbye_code = code if self.profile.v5 else 0
        if properties is not None and expiry_s is not None:
            assert self.record is not None, "an accepted connection has a session"
            self.oracle.expiry_changed(life, self.record, expiry_s)
            if expiry_s == 0:
                self._must_clean = True  # it has ended its half of the session
        self.drop()

    def drop(self) -> None:
        """Close the connection without DISCONNECT."""
        link = self.link
        answered = self.online
        self._lose()
        if link is not None and answered:
            link.close_by_caller()
        elif link is not None:
            link.reset(0, 0)
        self._reconnect()

    def _lose(self) -> None:
        if self.link is not None and not self.online and self._must_clean:
            # The node may still handle that CONNECT; if the next one overtook it, it would lose its session to the
            # older one.
            self._quiet_us = self.world.now + _QUIET_US
        record = self.record
        if self.link is not None and not self.online and record is not None and record.expiry_low_s < NEVER_EXPIRES_S:
            # That CONNECT may have begun a new session in place of an expired one.
            self._must_clean = True
        if self.link is not None:
            self.link.left_full = self.online and self.inflow.is_full
        self.online = False
        self.link = None
        self.requests.clear()

    def link_closed(self, link: Link) -> None:
        """The connection is gone."""
        if link is self.link:
            self.world.note(self.name, f"lost {link.name}")
            self._lose()
            self._reconnect()

    def _reconnect(self) -> None:
        if self.wanted and not self._reconnect_set:
            self._reconnect_set = True
            delay = 5 * MILLISECOND if self.hasty else self.profile.reconnect_us
            delay = MILLISECOND + self.rng.below(delay)
            self.world.after(max(delay, self._quiet_us - self.world.now), self._connect_again)

    def _connect_again(self) -> None:
        self._reconnect_set = False
        if self.wanted and self.link is None:
            self.connect()

    # Requests

    def subscribe(self, entries: list[tuple[bytes, int]], identifier: int) -> None:
        """Send SUBSCRIBE; `identifier` 0 is none."""
        assert self.record is not None, "only an online client subscribes"
        properties: Properties | None = None
        if identifier and self.profile.v5:
            properties = Properties()
            properties.subscription_ids = [identifier]
        packet_id = self.outflow.take_id()
        subs = [self.oracle.subscribing(self.record, name, options, identifier) for name, options in entries]
        self.requests[packet_id] = Request(subs, [], self.world.now)
        self.send(Subscribe(packet_id, entries, properties))

    def unsubscribe(self, filters: list[bytes]) -> None:
        """Send UNSUBSCRIBE."""
        assert self.record is not None, "only an online client unsubscribes"
        packet_id = self.outflow.take_id()
        for name in filters:
            self.oracle.unsubscribing(self.record, name)
        self.requests[packet_id] = Request([], filters, self.world.now)
        self.send(Unsubscribe(packet_id, filters))

    def _answered(self, packet: Suback | Unsuback) -> None:
        request = self.requests.pop(packet.packet_id, None)
        if request is None or (isinstance(packet, Suback) != bool(request.subs)) or self.record is None:
            self.fault(f"unexpected {packet}")
            return
        if isinstance(packet, Suback):
            if len(packet.codes) != len(request.subs):
                self.fault(f"{len(request.subs)} filters were asked for, {packet} answers")
                return
            for sub, code in zip(request.subs, packet.codes, strict=True):
                self.oracle.subscribed(self.record, sub, code)
            return
        for name in request.filters:
            self.oracle.unsubscribed(self.record, name, request.sent_us)

    # Packets

    def send(self, packet: Packet) -> None:
        """Send a packet over the present connection."""
        link = self.current
        self.world.note(self.name, "->", link.name, packet)
        link.from_caller(encode(packet, self.profile.version))

    def link_data(self, link: Link, data: bytes) -> None:
        """Take bytes from the node, unless they come over an abandoned connection."""
        if not self._has(link):
            return
        try:
            for first, body in self._framer.feed(data):
                self._handle(decode(first, body, self.profile.version), len(body))
                if not self._has(link):
                    return
        except MalformedPacket as error:
            self.fault(f"malformed packet from the node: {error}")

    def _has(self, link: Link) -> bool:
        return link is self.link

    def _handle(self, packet: Packet, size: int) -> None:
        self.world.note(self.name, "<-", self.current.name, packet)
        if isinstance(packet, Connack):
            if self.online:
                self.fault("a second CONNACK")
                return
            self._accepted(packet)
        elif isinstance(packet, Disconnect):
            self.world.mark(f"DISCONNECT {packet.code:#x} from the node")
            if packet.code in _BLAMES and self.online:
                self.fault(f"is disconnected with {packet.code:#x} for what it has not done")
            if packet.code == SESSION_TAKEN_OVER and self.online and self._alone:
                self.fault("is sent away for another connection, and has had none since CONNACK")
        elif not self.online:
            self.fault(f"{packet} before CONNACK")
        elif isinstance(packet, Publish):
            self.inflow.published(packet, size + 2 + (size > 127) + (size > 16_383))
        elif isinstance(packet, Ack):
            if packet.kind == PUBREL:
                self.inflow.released(packet)
            else:
                self.outflow.acknowledged(packet)
        elif isinstance(packet, (Suback, Unsuback)):
            self._answered(packet)
        elif isinstance(packet, Pingresp):
            self._asked_us = 0
        else:
            self.fault(f"unexpected {packet}")

    def received(self, packet: Publish, late: bool = False) -> None:
        """Pass a message to the application, which is the oracle. late: at PUBREL."""
        assert self.record is not None, "an accepted connection has a session"
        self.oracle.received(self.record, self.current, packet, late)

    def held(self, packet: Publish) -> None:
        """Keep a QoS 2 message until its PUBREL comes."""
        assert self.record is not None, "an accepted connection has a session"
        self.oracle.held(self.record, self.current, packet)

    def fault(self, text: str) -> None:
        """Report that the node broke a rule of the protocol."""
        link = self.link.name if self.link is not None else "no link"
        self.world.violate("protocol", f"{self.name} over {link}: {text}")
