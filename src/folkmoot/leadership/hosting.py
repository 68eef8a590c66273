"""The node with the session, when the client's connection is at another node: the other end of `relay`.

A client whose session is led here and whose connection is at another node has a Connection without a socket. The parts
of the broker treat it like any other, and its output is sent to that node. Bytes, and the number of the client's last
packet that is handled, go in one message, so that a failure cannot separate them.
"""

from __future__ import annotations

from collections import deque

import msgspec

from folkmoot.auth.access import BY_PASSWORD
from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import BYTE, get_u16, get_varint, varint
from folkmoot.leadership.restore import Restore
from folkmoot.mqtt import reason
from folkmoot.mqtt.connect import decode_connect
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.kind import PUBLISH
from folkmoot.mqtt.packet import Connect
from folkmoot.partition.parts import PartitionParts
from folkmoot.protocol.closing import ANOTHER, ENDED_BEFORE, OTHER_SIDE
from folkmoot.protocol.inbound import UNFINISHED
from folkmoot.protocol.parts import ProtocolParts
from folkmoot.proxy.relay import AGED, BLOCKED, CLOSED, GOODBYE, MARKED, UNBLOCKED, HostedClient, HostRequest, aged
from folkmoot.session.connection import CLOSED as CONNECTION_CLOSED
from folkmoot.session.connection import CLOSING, OPEN, Connection, PeerInfo, Task
from folkmoot.session.relay import ENTRY_BYTES, Lane, Remote
from folkmoot.session.session import Session
from folkmoot.store.row import UNPROVED_MARK
from folkmoot.turn.message import EXPEL, OUTPUT, OWN, WANTED, encode_expel
from folkmoot.turn.parts import TurnParts
from folkmoot.turn.work import PACKET_STEPS

__all__ = ["UNKNOWN_CLIENT", "Hosting"]

_OPENED = 1  # flag of OUTPUT: it contains the CONNACK
UNKNOWN_CLIENT = 2  # flag of OUTPUT: this node knows nothing of the client


class Hosting:
    """Clients that are connected to other nodes, and whose partitions this node leads."""

    def __init__(self, turn: TurnParts, partition: PartitionParts, protocol: ProtocolParts, restore: Restore) -> None:
        self.state = turn.state
        self.fabric = turn.fabric
        self.commits = turn.commits
        self.queue = partition.queue
        self.lifecycle = protocol.lifecycle
        self.closing = protocol.closing
        self.attaching = protocol.attaching
        self.admission = protocol.admission
        self.inbound = protocol.inbound
        self.control = protocol.control
        self.restore = restore
        self.remotes: dict[tuple[str, int], Connection] = {}
        self._lanes: dict[str, Lane] = {}  # by node
        self._silent: dict[str, None] = {}  # nodes whose processes have ended, and whose clients are still counted
        self.expecting = False  # this node is about to lead partitions, whose clients will be attached
        # Whether all members have announced their subscriptions since this node is a member
        self.informed = False
        # Packets of clients that came before that: node, number, packet, first byte, what follows, and when it came
        self._early: list[tuple[str, int, int, int, bytes, int]] = []
        self._delays_us: dict[str, int] = {}  # by node: how long what comes from it now has waited there
        # Clients that want into a partition which this node is to lead and does not yet: the request
        self._deferred_hosts: dict[tuple[str, int], HostRequest] = {}
        # Clients whose sessions this node has left, by node and number: the view in which it led them no more, and the
        # partition.
        self._left: dict[str, dict[int, tuple[int, int]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self.remotes)

    def _connection(self, node_id: str, client: HostedClient) -> tuple[Connection, Connect]:
        self._count -= 1  # negative: distinct from the connections of this node
        info = PeerInfo(client.transport, client.address, client.certificate)
        connection = Connection(self._count, None, info, self.state.now, self.state.outputs)
        packet = decode_connect(client.connect)
        connection.version = packet.version
        connection.v5 = packet.version == 5
        connection.connect = packet
        connection.connect_body = client.connect
        connection.client_id = client.client_id
        connection.username = client.user.removeprefix(UNPROVED_MARK)
        if self.state.access.has_users:
            if client.user.startswith(UNPROVED_MARK):
                connection.username = ""  # its node has not been reloaded yet, and lets in whoever takes a name
            else:
                connection.proved = BY_PASSWORD  # or another way: its node says no more
                if client.certificate == client.user:
                    self.state.access.returns(client.certificate)
        connection.remote = Remote(node_id, client.number, client.token)
        connection.remote.received_seq = client.handled
        connection.remote.resent_seq = client.sent
        connection.remote.choked = self._is_choked(node_id)
        connection.writable = not connection.remote.choked
        connection.lane = self._lanes.get(node_id)
        if connection.lane is None:
            connection.lane = Lane(self.fabric.lane_bytes)
            self._lanes[node_id] = connection.lane
        return connection, packet

    # -- from the nodes with the connections --------------------------------------------------------------------------

    def host(self, node_id: str, request: HostRequest) -> None:
        """Admit a client that has connected to another node. Raises MalformedPacket if its CONNECT is malformed."""
        leader_epoch, client = request
        number, partition = client.number, client.partition
        if (node_id, number) in self.remotes or leader_epoch != self.fabric.leader_epochs[partition]:
            return
        if not self.state.leads[partition]:
            # This node is to lead the partition: admit the client then. Its node may believe that this one leads
            # already, as after a time without a lease, and asks only once.
            if self._is_to_lead(partition):
                self._deferred_hosts[(node_id, number)] = request
            return
        connection, _ = self._connection(node_id, client)
        self.remotes[(node_id, number)] = connection
        self._is_back(node_id, number)
        self.admission.admit(connection, client.assigned)

    def packets(self, node_id: str, body: bytes) -> None:
        """Take packets of clients. Raises IndexError if they are malformed."""
        pos = 0
        size = len(body)
        while pos < size:
            number, pos = get_varint(body, pos)
            packet, pos = get_varint(body, pos)
            first = body[pos]
            length, pos = get_varint(body, pos + 1)
            rest = body[pos : pos + length]
            pos += length
            self._arrived(node_id, number, packet, first, rest, self._delays_us.get(node_id, 0))

    def _arrived(self, node_id: str, number: int, packet: int, first: int, rest: bytes, delay_us: int) -> None:
        connection = self.remotes.get((node_id, number))
        # Packets wait (`_early`) until all subscriptions are known: a message published before would miss subscribers
        # (A5). Reports without a number, that the client's socket is full, need not wait.
        if connection is not None and (self.informed or not packet):
            if delay_us >= SECOND:
                first, rest = aged(first, rest, delay_us)
            self._packet(connection, packet, first, rest)
        elif connection is not None or self.expecting or (node_id, number) in self._deferred_hosts:
            self._early.append((node_id, number, packet, first, rest, self.state.now - delay_us))
        elif packet and not self._asks_next(node_id, number):
            # This node does not know the client: its session is over, or it leads another partition now. Without an
            # answer the other node would keep the packet for ever.
            self.fabric.send(node_id, OUTPUT, self._output(number, packet, UNKNOWN_CLIENT, [], b""))

    def delayed(self, node_id: str, delay_us: int) -> None:
        """What comes from a node from now on has waited there for so long: 0, it has not."""
        if delay_us:
            self._delays_us[node_id] = delay_us
        else:
            self._delays_us.pop(node_id, None)

    def _asks_next(self, node_id: str, number: int) -> bool:
        """Whether the next leader of a client's session asks for the packets that its node has sent here.

        They were sent in a view in which this node still led it; or this node leads it again, and is about to ask.
        """
        left = self._left.get(node_id)
        if left is None or number not in left:
            return False
        since, partition = left[number]
        return self.fabric.entered.get(node_id, 0) < since or self._is_to_lead(partition)

    def _is_to_lead(self, partition: int) -> bool:
        """Whether this node is the leader of a partition, and has not begun to lead it."""
        return self.fabric.leaders[partition] == self.fabric.node_id and not self.state.leads[partition]

    def _is_of_next_leadership(self, request: HostRequest) -> bool:
        partition = request.client.partition
        return self._is_to_lead(partition) and request.leader_epoch == self.fabric.leader_epochs[partition]

    def _packet(self, connection: Connection, packet: int, first: int, rest: bytes) -> None:
        remote = connection.remote
        assert remote is not None, "a hosted connection is elsewhere"
        if first == BLOCKED or first == UNBLOCKED:  # without a number: it overtakes what waits
            remote.blocked = first == BLOCKED
            self._set_writable(connection, remote)
            return
        backlog = connection.backlog
        if packet:
            newest = backlog[-1][0] if backlog else remote.received_seq
            if packet != newest + 1:
                return  # a repetition; or one before it went to an earlier leader, and its node sends both again
        work = self.state.work
        if not connection.queued and work.begin(connection):
            done = self._handle(connection, remote, packet, first, rest)
            work.end(connection)
            if done:
                return
        else:
            self._backlog_of(connection, len(rest)).append((packet, first, rest))
            work.steps += 1
            if first == CLOSED or first == GOODBYE:
                work.give_up(connection)
        work.wait(connection)

    def _handle(self, connection: Connection, remote: Remote, packet: int, first: int, rest: bytes) -> bool:
        """Handle the next packet of a client; False: its steps are spent before the packet is handled.

        The packet is then in the backlog, or its task remains.
        """
        if packet:
            remote.received_seq = packet
            connection.repeated = packet <= remote.resent_seq
        if first >= 0x10 or first == AGED:
            self.state.work.steps += PACKET_STEPS
            if connection.state == OPEN and not self._handle_aged(connection, first, rest):
                if packet:
                    remote.received_seq = packet - 1
                self._backlog_of(connection, len(rest)).appendleft((packet, first, rest))
                return False
            if connection.task is not None:
                connection.noted = packet
                return False
        elif first == CLOSED or first == GOODBYE:
            self.lost(connection, first == GOODBYE)
        elif first == MARKED:
            remote.marked_seq = packet
        if packet:
            self._note(connection, remote, packet)
        return True

    def _handle_aged(self, connection: Connection, first: int, rest: bytes) -> bool:
        """Handle a packet of MQTT, which says so if it has waited for a leader."""
        connection.waited_us = 0
        if first == AGED:
            waited_ms, at = get_varint(rest, 0)
            connection.waited_us = waited_ms * MILLISECOND
            first, rest = rest[at], rest[at + 1 :]
        return self.handle(connection, first, rest)

    def serve(self, connection: Connection) -> None:
        """Continue with a client whose turn has come."""
        remote = connection.remote
        assert remote is not None, "a hosted connection is elsewhere"
        work = self.state.work
        if connection.state == CONNECTION_CLOSED or remote.gone:
            connection.drop_task()
            self._forget_backlog(connection)
            return
        if not work.begin(connection):
            work.wait(connection)
            return
        self._serve(connection, remote)
        work.end(connection)
        if connection.task is not None or connection.backlog:
            work.wait(connection)

    def _serve(self, connection: Connection, remote: Remote) -> None:
        task = connection.task
        if task is not None:
            if connection.state == OPEN and not self._go_on(connection, task):
                return
            connection.task = None
            if connection.noted:
                self._note(connection, remote, connection.noted)
        backlog = connection.backlog
        while backlog and not self.state.work.is_spent():
            packet, first, rest = backlog.popleft()
            connection.backlog_bytes -= len(rest) + ENTRY_BYTES
            self.state.memory.hosted_bytes -= len(rest) + ENTRY_BYTES
            if not self._handle(connection, remote, packet, first, rest):
                return
            backlog = connection.backlog

    def _backlog_of(self, connection: Connection, size: int) -> deque[tuple[int, int, bytes]]:
        """Return the packets of a client that wait, for another one of this size; its node bounds them (`relay`)."""
        connection.backlog_bytes += size + ENTRY_BYTES
        self.state.memory.hosted_bytes += size + ENTRY_BYTES
        if connection.backlog is None:
            connection.backlog = deque()
        return connection.backlog

    def _forget_backlog(self, connection: Connection) -> None:
        self.state.memory.hosted_bytes -= connection.backlog_bytes
        connection.backlog_bytes = 0
        connection.backlog = None

    def _go_on(self, connection: Connection, task: Task) -> bool:
        try:
            return task.go_on()
        except MalformedPacket as fault:
            self.closing.disconnect(connection, fault.code, fault.text)
        except CorruptStore as damage:  # another name: compiled, one has one type
            self.closing.unreadable(connection, damage)
        return True

    def _set_writable(self, connection: Connection, remote: Remote) -> None:
        connection.writable = not (remote.blocked or remote.choked)
        if connection.writable and connection.session is not None:
            self.queue.pump_soon(connection.session)
            self.queue.unfed.append(connection.session)

    def choke(self, node_id: str) -> None:
        """A node is too slow, or no longer: meanwhile messages for its clients wait in their queues (A13)."""
        choked = self._is_choked(node_id)
        for connection in [connection for key, connection in self.remotes.items() if key[0] == node_id]:
            remote = connection.remote
            if remote is not None and remote.choked != choked:
                remote.choked = choked
                self._set_writable(connection, remote)

    def silence(self, node_id: str, silent: bool) -> None:
        """The process of a node has ended, and its clients are still counted; or it has not, after all."""
        if silent == (node_id in self._silent):
            return  # as with almost every view and link: no look at all of its clients
        if silent:
            self._silent[node_id] = None
        else:
            del self._silent[node_id]
        self.choke(node_id)

    def _is_choked(self, node_id: str) -> bool:
        """Whether nothing is sent to the clients of a node: it is too slow, or its process has ended."""
        return node_id in self.fabric.choked or node_id in self._silent

    def refill(self, node_id: str, link_room: int) -> None:
        """A turn ends; link_room: how much the link to a node could take before the output of this turn."""
        lane = self._lanes.get(node_id)
        if lane is not None:
            lane.refill(self.fabric.lane_bytes, link_room)

    def _note(self, connection: Connection, remote: Remote, packet: int) -> None:
        """Report the packet to its node as handled as soon as all changes until now are complete."""
        token = self.commits.newest_token()
        if self.state.lazy.concerns(connection.session):
            self.state.lazy.handled.append((connection, packet))
        elif token <= self.commits.complete_token:
            remote.handled_seq = packet
            connection.touch()
        else:
            turn = self.commits.turn_of(token)
            turn.handled.append(connection)
            turn.handled_packets.append(packet)

    def handle(self, connection: Connection, first: int, rest: bytes) -> bool:
        """Handle a packet that another node has passed on, or would have.

        False: it must come again, because the client's steps are spent. What remains of it may be its task.
        """
        try:
            if first >> 4 == PUBLISH:
                data = BYTE[first] + rest
                return self.inbound.publish(connection, data, 0, 1, 3 + get_u16(rest, 0), len(data)) != UNFINISHED
            self.control.packet(connection, first, rest)
        except MalformedPacket as fault:
            self.closing.disconnect(connection, fault.code, fault.text)
        except CorruptStore as damage:  # another name: compiled, one has one type
            self.closing.unreadable(connection, damage)
        return True

    def lost(self, connection: Connection, goodbye: bool) -> None:
        """The connection at the other node has ended; goodbye: with DISCONNECT, before this node has ended it."""
        remote = connection.remote
        assert remote is not None, "a hosted connection is elsewhere"
        if connection.state < CLOSING:
            self.lifecycle.detach(connection, goodbye)
        elif connection.session is not None:
            self.lifecycle.detach(connection, remote.without_will)
        connection.state = CONNECTION_CLOSED
        self._drop(connection)
        self.admission.go_on(connection.client_id)

    def _drop(self, connection: Connection) -> None:
        remote = connection.remote
        assert remote is not None, "a hosted connection is elsewhere"
        if self.remotes.get((remote.node_id, remote.number)) is connection:
            del self.remotes[(remote.node_id, remote.number)]
        self.commits.throttle.forget(connection)
        connection.drop_task()
        self._forget_backlog(connection)

    def inform(self) -> None:
        """All subscriptions are known: handle packets that have waited, whose messages miss no subscriber now (A5)."""
        if not self.informed:
            self.informed = True
            self.catch_up(self.expecting)

    def installed(self, fresh: list[str], lost: dict[int, None]) -> None:
        """A view was installed; fresh: members with which this node starts over; lost: partitions that it led before.

        Members that are fresh send again what they had sent of their clients. Others have sent packets to this node
        until they enter this view, also if it had begun a partition anew, and had not opened it yet.
        """
        # Of another leadership, too: the nodes of its clients ask that one anew.
        self._deferred_hosts = {
            key: request
            for key, request in self._deferred_hosts.items()
            if key[0] not in fresh and self._is_of_next_leadership(request)
        }
        self._early = [early for early in self._early if early[0] not in fresh]
        if lost:
            for left in self._left.values():
                for number, (_since, partition) in left.items():
                    if partition in lost:
                        left[number] = (self.fabric.epoch, partition)

    def entered(self, node_id: str) -> None:
        """A node has installed a view: it knows which sessions this node has left before."""
        left = self._left.get(node_id)
        if not left:
            return
        epoch = self.fabric.entered[node_id]
        self._left[node_id] = {
            number: (since, partition)
            for number, (since, partition) in left.items()
            if since > epoch or self._is_to_lead(partition)
        }

    def gone(self, node_id: str) -> None:
        """A node is no longer a member: its clients have lost their connections (A7), and their wills are due."""
        self._early = [early for early in self._early if early[0] != node_id]
        self._left.pop(node_id, None)
        self._forget_deferred_hosts(node_id)
        for connection in [connection for key, connection in self.remotes.items() if key[0] == node_id]:
            remote = connection.remote
            assert remote is not None, "a hosted connection is elsewhere"
            remote.gone = True
            self.lost(connection, False)

    # -- to the nodes with the connections ----------------------------------------------------------------------------

    def complete(self, connections: list[Connection], packets: list[int]) -> None:
        """The changes by these packets are complete."""
        for i in range(len(packets)):
            remote = connections[i].remote
            assert remote is not None, "only packets of other nodes are noted"
            if remote.gone:
                continue  # the answer was not sent: if the node comes back, it sends the packet again
            remote.handled_seq = max(remote.handled_seq, packets[i])
            connections[i].touch()

    def flush(self) -> None:
        """Send the output of hosted connections, and close those to be closed; at the end of a turn.

        The end of one may admit the next one, or confirm packets: afterwards no output or end of any is left, since
        drivers know only the connections of this node.
        """
        state = self.state
        if not state.outputs and not state.closes:
            return
        self._send_outputs()
        while self._close_all():
            self._send_outputs()

    def _send_outputs(self) -> None:
        state = self.state
        mine = [connection for connection in state.outputs if connection.remote is not None]
        if mine:
            state.outputs[:] = [connection for connection in state.outputs if connection.remote is None]
            for connection in mine:
                self._send(connection)

    def _close_all(self) -> bool:
        """Have those closed that are to be closed by now; whether there were any."""
        state = self.state
        closes = [connection for connection in state.closes if connection.remote is not None]
        if closes:
            state.closes[:] = [connection for connection in state.closes if connection.remote is None]
            for connection in closes:
                self._close(connection)
        return bool(closes)

    def _send(self, connection: Connection) -> None:
        remote = connection.remote
        assert remote is not None, "a hosted connection is elsewhere"
        data = connection.take_output()
        connection.unsent_bytes = 0  # it waits at the node that has the connection
        flags = 0
        if remote.opened:
            remote.opened = False
            session = connection.session
            if session is not None and session.registration_only:
                self.fabric.send(remote.node_id, OWN, varint(remote.number))
                return
            flags = _OPENED
        self.fabric.send(
            remote.node_id, OUTPUT, self._output(remote.number, remote.handled_seq, flags, remote.sequences, data)
        )
        remote.sequences = []

    def _output(self, number: int, handled: int, flags: int, sequences: list[int], data: bytes) -> bytes:
        out = [varint(number), varint(handled), BYTE[flags], varint(len(sequences))]
        out.extend([varint(sequence) for sequence in sequences])
        out.append(data)
        return b"".join(out)

    def _close(self, connection: Connection) -> None:
        """Have a connection closed; one with a session waits here until its node says that it is (`lost`)."""
        remote = connection.remote
        assert remote is not None, "a hosted connection is elsewhere"
        if connection.state == CONNECTION_CLOSED:
            return
        self.expel(remote, remote.code, remote.why)
        packet, first, _rest = connection.backlog[-1] if connection.backlog else (0, UNBLOCKED, b"")
        is_over = first == CLOSED or first == GOODBYE  # its node has said so already
        if connection.session is None:
            connection.state = CONNECTION_CLOSED
            self._drop(connection)
            self.admission.go_on(connection.client_id)
        else:
            remote.expelled = True
            remote.received_seq = max(remote.received_seq, packet)
            self.state.work.wake(connection)  # nobody wakes it without its task, and its end is still to be handled
            connection.drop_task()
            self._forget_backlog(connection)
            if is_over:
                self.lost(connection, first == GOODBYE)
        if is_over and packet:  # its node keeps it until it hears that it is handled
            self._note(connection, remote, packet)

    def expel(self, remote: Remote, code: int, why: str) -> None:
        """Have a connection closed by its node, with DISCONNECT if there is a reason code."""
        self.fabric.send(remote.node_id, EXPEL, encode_expel(remote.number, code, why))

    # -- taking over ------------------------------------------------------------------------------------------------

    def want(self, partitions: list[int]) -> None:
        """Ask all other members which clients are connected."""
        body = msgspec.msgpack.encode((self.fabric.epoch, partitions))
        for node_id in self.fabric.others:
            self.fabric.send(node_id, WANTED, body)

    def attach(self, node_id: str, client: HostedClient, merged: bool) -> None:
        """Attach a client that another node reports as connected to its session, which was just restored.

        If the session has no connection by its row, an earlier leader has ended this one, and published its will.
        merged: two sides of a split have met, and the session may be as another connection left it on the other side.
        """
        persistent = client.persistent
        connection, packet = self._connection(node_id, client)
        remote = connection.remote
        assert remote is not None, "it was made so"
        session = self.state.sessions.get(connection.client_id)
        if session is None and not persistent:
            session = self.restore.registration(
                connection.client_id, connection.username, connection.is_proved, client.token
            )
        elsewhere = session is not None and (session.connection is not None or not session.had_by(client.token))
        # After a merge the session may be as a connection at the other side left it: SERVER_BUSY has the client come
        # again. SESSION_TAKEN_OVER would tell it to stay away.
        if merged and elsewhere and session is not None and session.connection is None:
            self.turn_away(node_id, client)
            return
        if session is not None and session.ends_us and not merged:
            self.expel(remote, reason.SERVER_BUSY, ENDED_BEFORE)
            return
        if session is None or elsewhere or session.persistent != persistent:
            why = "the session is not there" if session is None else ANOTHER
            code = reason.UNSPECIFIED_ERROR if session is None else reason.SESSION_TAKEN_OVER
            self.expel(remote, code, why)
            return
        self.state.accounts.hand_over(session, connection.username, connection.is_proved, self.state.now)
        self.remotes[(node_id, client.number)] = connection
        self._is_back(node_id, client.number)
        self.attaching.resume(connection, session, packet, client.flights)

    def turn_away(self, node_id: str, client: HostedClient) -> None:
        """Disconnect a client of the losing side of a split that has healed, so that it gets the merged session.

        Packet ids that it knows mean other messages there.
        """
        self.expel(Remote(node_id, client.number, client.token), reason.SERVER_BUSY, OTHER_SIDE)

    def _forget_deferred_hosts(self, node_id: str) -> None:
        if self._deferred_hosts:
            kept = {key: request for key, request in self._deferred_hosts.items() if key[0] != node_id}
            self._deferred_hosts = kept

    def stand_down(self) -> None:
        """This node serves no client."""
        self._deferred_hosts = {}
        self.catch_up(False)

    def let_in(self) -> None:
        """Admit clients that asked for a partition before this node led it."""
        if self._deferred_hosts:
            deferred = self._deferred_hosts
            self._deferred_hosts = {}
            for key, request in deferred.items():
                self.host(key[0], request)

    def catch_up(self, expecting: bool) -> None:
        """Handle early packets of clients that are attached now; `expecting`: others are about to be."""
        self.expecting = expecting
        early = self._early
        self._early = []
        for node_id, number, packet, first, rest, came_us in early:
            self._arrived(node_id, number, packet, first, rest, self.state.now - came_us)

    def release(self, connection: Connection) -> None:
        """This node no longer leads the client's partition: the client's node asks the new leader."""
        remote = connection.remote
        assert remote is not None, "a hosted connection is elsewhere"
        partition = self.state.partition_of(connection.client_id.encode())
        self._left.setdefault(remote.node_id, {})[remote.number] = (self.fabric.epoch, partition)
        remote.gone = True  # its next leader, which may be this node again, sends the answers that it waits for
        connection.state = CONNECTION_CLOSED
        self._drop(connection)

    def _is_back(self, node_id: str, number: int) -> None:
        left = self._left.get(node_id)
        if left is not None:
            left.pop(number, None)

    def leave(self, session: Session) -> None:
        """This node no longer leads the session: drop its connection, which is at another node."""
        connection = session.connection
        if connection is not None and connection.remote is not None:
            connection.session = None
            session.connection = None
            self.release(connection)
