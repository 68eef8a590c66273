"""Joining a connection and a session, up to CONNACK (MQTT 5 sections 3.1.2, 3.2).

Owns what CONNECT agrees on for a connection, and the moment at which it opens. `admit` decides which client may enter.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.event import INFO
from folkmoot.mqtt.packet import Connect
from folkmoot.partition.queue import Queue
from folkmoot.protocol.lifecycle import EXPIRY_NEVER, Lifecycle
from folkmoot.protocol.presence import connected_fields
from folkmoot.protocol.scrutiny import renew_rights
from folkmoot.proxy.relay import token_of
from folkmoot.session.connection import OPEN, REGISTERING, Connection
from folkmoot.session.session import PACKET_IDS, Session
from folkmoot.turn.commit import Commits
from folkmoot.turn.state import TIMER_CONNECT, TIMER_KEEP_ALIVE, TIMER_SESSION, State
from folkmoot.turn.throttle import FOR_HANDSHAKE

__all__ = ["Attaching"]


class Attaching:
    """Joins connections and sessions."""

    def __init__(self, state: State, commits: Commits, queue: Queue, lifecycle: Lifecycle) -> None:
        self.state = state
        self.commits = commits
        self.throttle = commits.throttle
        self.queue = queue
        self.lifecycle = lifecycle

    def agree(self, connection: Connection, packet: Connect) -> None:
        """Apply CONNECT and the limits to the connection itself."""
        limits = self.state.limits
        properties = packet.properties
        if properties is not None:
            if properties.packet_max is not None:
                connection.packet_bytes_max = properties.packet_max
            alias_max = properties.topic_alias_max
            elsewhere = connection.remote is not None or connection.relay is not None
            if alias_max and limits.topic_alias_out_max and not elsewhere:  # aliases do not survive a change of leader
                connection.alias_out_max = min(alias_max, limits.topic_alias_out_max)
                connection.alias_out = {}
            connection.problem_information = properties.request_problem != 0
        connection.send_bytes_max = limits.send_buffer_bytes_max
        connection.fast = not limits.publish_rate_max and limits.qos_max == 2 and not limits.message_expiry_max_s
        renew_rights(connection, self.state.policy)
        if connection.remote is None:
            self.state.timers.cancel(TIMER_CONNECT, connection.id)
            self._set_keep_alive(connection, packet)

    def _set_keep_alive(self, connection: Connection, packet: Connect) -> None:
        keep_alive_s = packet.keep_alive_s
        limits = self.state.limits
        if connection.v5:  # only version 5 can report another value to the client [MQTT-3.2.2-21]
            if keep_alive_s == 0:
                keep_alive_s = limits.keep_alive_default_s
            keep_alive_s = min(keep_alive_s, limits.keep_alive_max_s)
        if keep_alive_s:
            connection.patience_us = keep_alive_s * SECOND * 3 // 2  # [MQTT-3.1.2-22]
            self.state.timers.set(self.state.now + connection.patience_us, TIMER_KEEP_ALIVE, connection.id)
        else:
            connection.patience_us = NEVER

    def attach(self, connection: Connection, session: Session, packet: Connect, expiry_s: int) -> None:
        """Give a session to a client that has just connected; store that it is connected, and over which connection.

        Unanswered packets of its earlier connections are void, even if a new leader still receives them.
        """
        self._join(connection, session, packet)
        if session.username != connection.username or session.proved != connection.is_proved:
            self.state.accounts.hand_over(session, connection.username, connection.is_proved, self.state.now)
        session.expiry_s = expiry_s
        session.ends_us = 0
        self.state.timers.cancel(TIMER_SESSION, session.client_id)
        self.queue.attach(session)
        if session.persistent:
            session.token = token_of(connection, self.state)
            self.lifecycle.save(session)
        if connection.remote is None:
            self.state.counters.clients_connected += 1

    def _join(self, connection: Connection, session: Session, packet: Connect) -> None:
        session.connection = connection
        session.version = packet.version
        connection.session = session
        session.window = self.state.limits.inflight_max
        properties = packet.properties
        if properties is not None and properties.receive_max is not None:  # [MQTT-3.3.4-9]
            session.window = min(session.window, properties.receive_max)
        session.window = min(session.window, PACKET_IDS - 1)
        if session.persistent:
            self.lifecycle.routes.look(session)
        if session.received:
            connection.received_before = set(session.received)

    def resume(self, connection: Connection, session: Session, packet: Connect, sequences: list[int]) -> None:
        """Continue the session of a connected client at its new leader, which is this node.

        sequences: queued messages that the client may have and whose acknowledgement may be lost.
        """
        self.agree(connection, packet)
        self._join(connection, session, packet)
        if session.persistent and session.ends_us:
            session.ends_us = 0
            self.lifecycle.save(session)  # when a split heals, the place of the client decides which session continues
        connection.connect = None
        connection.state = OPEN
        self.queue.attach(session)
        if session.persistent:
            self.queue.reclaim(session, sequences)
            self.queue.pump_soon(session)

    def attach_proxy(self, connection: Connection) -> None:
        """Create the proxy of a session that is led elsewhere."""
        session = Session(connection.client_id, self.state.partition_of(connection.client_id.encode()), False)
        session.proxy = True
        session.username = connection.username
        session.proved = connection.is_proved
        session.connection = connection
        connection.session = session

    def answer(self, connection: Connection, wait: bool) -> None:
        """Send CONNACK, or wait until the session is on disk, including its rows that are not written yet."""
        connection.state = REGISTERING
        token = self.commits.newest_token()
        if wait and token > self.commits.complete_token:
            self.commits.turn_of(token).connects.append(connection)
        else:
            self.opened(connection)

    def opened(self, connection: Connection) -> None:
        """The turn of its CONNECT is complete: send CONNACK, then what waits for the client [MQTT-3.2.0-1]."""
        session = connection.session
        if connection.state != REGISTERING or session is None:
            return  # it is closed, or its partition has moved and it asks the new leader
        connection.state = OPEN
        connection.opened_us = self.state.now
        remote = connection.remote
        if remote is not None:
            remote.opened = True
            connection.put(connection.connack)
            connection.connack = b""
        else:
            self.throttle.unpause(connection, FOR_HANDSHAKE)
            connection.put(connection.connack)
            connection.connack = b""
            self.state.counters.sent_connack += 1
            self.welcome(connection, session.expiry_s)
            self.hear(connection)
        if session.persistent:
            self.queue.resend(session)
        self.queue.pump_soon(session)

    def hear(self, connection: Connection) -> None:
        """Handle the packets that came before CONNACK (section 3.1.4): nothing else need come from the client."""
        if connection.parts is not None:
            self.state.work.wait(connection)

    def welcome(self, connection: Connection, expiry_s: int) -> None:
        """Count and report an admitted client."""
        self.state.counters.connects_accepted += 1
        fields: dict[str, object] = {
            "client": connection.client_id,
            "user": connection.username,
            "address": connection.info.address,
            "transport": connection.info.transport,
            "version": connection.version,
            "expiry_s": None if expiry_s == EXPIRY_NEVER else expiry_s,
        }
        self.state.event(INFO, "connected", fields)
        connection.opened_us = self.state.now
        connection.came_us = self.state.clock.time
        if self.state.listening:
            self.state.tell("connected", connected_fields(connection, fields["expiry_s"]))
