"""Passes messages of other nodes' brokers to the parts. A malformed one is reported as an event and never raises."""

from __future__ import annotations

from typing import Final

import msgspec

from folkmoot.channel.parts import ChannelParts
from folkmoot.delivery.parts import DeliveryParts
from folkmoot.kernel.clock import MILLISECOND
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.kernel.pack import get_varint, varint
from folkmoot.leadership.hosting import UNKNOWN_CLIENT
from folkmoot.leadership.leadership import Leadership
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.peer.kind import DELAYED
from folkmoot.peer.waiting import Waiting
from folkmoot.protocol.parts import ProtocolParts
from folkmoot.proxy.parts import ProxyParts
from folkmoot.proxy.relay import decode_host
from folkmoot.report.order import Orders
from folkmoot.session.connection import CLOSING
from folkmoot.session.session import PACKET_IDS
from folkmoot.turn.message import (
    ANNOUNCE,
    ASKS_CONFIRM,
    ASKS_LANDED,
    ATTACHED,
    CONFIRM,
    ENTER,
    EXPEL,
    FORWARD,
    FORWARD_ACK,
    HOST,
    LANDED,
    OUTPUT,
    OWN,
    QUERY,
    QUERY_ANSWER,
    RELAY,
    WANTED,
)
from folkmoot.turn.parts import TurnParts

__all__ = ["EARLY_BYTES_MAX", "Dispatch"]

EARLY_BYTES_MAX: Final = 64 << 20
"""Of messages of one node that wait for a configuration."""


class Dispatch:
    """Handles messages in their order from each node."""

    def __init__(
        self,
        turn: TurnParts,
        channel: ChannelParts,
        proxy: ProxyParts,
        delivery: DeliveryParts,
        protocol: ProtocolParts,
        orders: Orders,
        leadership: Leadership,
    ) -> None:
        self.state = turn.state
        self.fabric = turn.fabric
        self.forward_sender = channel.forward_sender
        self.relays = proxy.relays
        self.interest = delivery.interest
        self.forward_receiver = delivery.forward_receiver
        self.connecting = protocol.connecting
        self.closing = protocol.closing
        self.hosting = leadership.hosting
        self.inquiries = orders.calls.inquiries
        self.answers = orders.answers
        self.orders = orders
        self.leadership = leadership
        self._processes: dict[str, int] = {}  # by node: the incarnation of the process to which there is a link
        self._members: dict[str, int] = {}  # by node: the incarnation of the process that is a member
        # Of processes that are not yet members; without messages: of a node whose former process still is one.
        self._early: dict[str, Waiting] = {}
        self.renew = False  # messages of a member were dropped: all members have to begin anew with each other

    def is_unfinished(self, node_id: str) -> bool:
        """Whether the newest message of a node is not handled as a whole: `go_on` continues."""
        return self.forward_receiver.is_receiving(node_id)

    def go_on(self, node_id: str) -> bool:
        """Continue with the newest message of a node; True: it is handled."""
        try:
            return self.forward_receiver.go_on(node_id)
        except (IndexError, ValueError, MalformedPacket, CorruptStore) as fault:
            self._report(node_id, FORWARD, fault)
        return True

    def receive(self, node_id: str, kind: int, body: bytes) -> None:
        """Take a message; one of a process that is about to be a member waits until it is one here.

        The process has installed the configuration in which it came up; this node may be some of them behind, and take
        its former process for the member, or none. So does one of a member to which messages were lost: it would not
        get the answer, and does not know that it should ask again. A message with much work may take several turns:
        call `go_on` before the next one. How long others have waited in the link waits only behind them: alone it is no
        message.
        """
        if kind == DELAYED and node_id not in self._early:
            self.hosting.delayed(node_id, get_varint(body, 0)[0] * MILLISECOND)
        elif node_id not in self.fabric.others or node_id in self._early or node_id in self.fabric.out_of_sync:
            self._keep(node_id, kind, body)
        else:
            self._take(node_id, kind, body)

    def _keep(self, node_id: str, kind: int, body: bytes) -> None:
        """Keep a message, and with it all that follow it from its node, for the next view."""
        early = self._early.get(node_id)
        if early is None:
            early = self._early[node_id] = Waiting(EARLY_BYTES_MAX)
        self.state.counters.cluster_messages_dropped += early.keep(kind, body)

    def installed(self, members: dict[str, int]) -> None:
        """A view with these members and their incarnations was installed: handle what they have sent before."""
        before = self._members
        self._members = members
        for node_id in dict.fromkeys([*before, *members]):
            if before.get(node_id) != members.get(node_id):  # no client of its former process is counted any more
                self.hosting.silence(node_id, self._is_former(node_id))
        for node_id in list(self._early):
            if self._is_member(node_id):
                early = self._early.pop(node_id)
                if early.is_cut:
                    self.hosting.delayed(node_id, 0)
                    self.fabric.lose_sync(node_id)  # what is left would hide what was dropped
                    self.renew = True
                    continue
                work = self.state.work
                stop = work.begin_all()
                for kind, body in early.messages:
                    self.receive(node_id, kind, body)  # one that is for a still newer view keeps all behind it waiting
                work.end_all(stop)
            elif node_id not in members and not self._is_ahead(node_id):
                self._forget_early(node_id)

    def _is_member(self, node_id: str) -> bool:
        """Whether the process at the other end of the link is the one that is a member."""
        incarnation = self._members.get(node_id, -1)
        return incarnation >= 0 and self._processes.get(node_id, incarnation) == incarnation

    def _is_former(self, node_id: str) -> bool:
        """Whether a member is a process that has ended: its node has another one."""
        return node_id in self._members and not self._is_member(node_id)

    def _is_ahead(self, node_id: str) -> bool:
        """Whether a node has installed a newer view than this one: it may be a member there."""
        epoch = self.fabric.entered.get(node_id, 0)
        for kind, body in self._early[node_id].messages:
            if kind == ENTER and body:
                epoch = get_varint(body, 0)[0]
        return epoch > self.fabric.epoch

    def renewed(self, node_id: str, incarnation: int) -> None:
        """There is a new link to a node, to this process: what a former one sent is void, and its clients are lost.

        Until the configuration says so, nothing is sent to these: it would count as sent, and never expire.
        """
        self._forget_early(node_id)
        self._processes[node_id] = incarnation
        self.hosting.silence(node_id, self._is_former(node_id))
        if self._is_former(node_id):
            self._early[node_id] = Waiting(EARLY_BYTES_MAX)

    def ended(self, node_id: str, incarnation: int) -> None:
        """A process of a node has ended: what it sent is void, and its clients are lost, see `renewed`."""
        if self._processes.get(node_id, incarnation) == incarnation:
            self._forget_early(node_id)
        if self._members.get(node_id) == incarnation:
            self.hosting.silence(node_id, True)

    def resumed(self, node_id: str) -> None:
        """The link to a node goes on: its process has not ended, whatever seemed to say so."""
        self.hosting.silence(node_id, False)

    def _forget_early(self, node_id: str) -> None:
        self._early.pop(node_id, None)
        self.hosting.delayed(node_id, 0)

    def _take(self, node_id: str, kind: int, body: bytes) -> None:
        try:
            self._dispatch(node_id, kind, body)
        except (IndexError, ValueError, MalformedPacket, CorruptStore) as fault:
            self._report(node_id, kind, fault)

    def _report(self, node_id: str, kind: int, fault: Exception) -> None:
        fields: dict[str, object] = {"node": node_id, "kind": kind, "what": f"{type(fault).__name__}: {fault}"}
        self.state.event(ERROR, "peer_nonsense", fields)

    def _dispatch(self, node_id: str, kind: int, body: bytes) -> None:
        if kind == ENTER:
            self.fabric.entered[node_id] = get_varint(body, 0)[0]
            self.hosting.entered(node_id)
        elif self.fabric.entered.get(node_id, 0) < self.leadership.met.get(node_id, 0):
            # It was sent before this node and that one started over with each other, perhaps at another side of a
            # split: its link has kept it, and its broker sends again what still counts.
            self.state.counters.cluster_messages_void += 1
        elif kind == FORWARD:
            self.forward_receiver.receive(node_id, body, self.fabric.entered.get(node_id, 0))
        elif kind == FORWARD_ACK:
            self.forward_sender.done(node_id, body)
        elif kind == RELAY:
            self.hosting.packets(node_id, body)
        elif kind == OUTPUT:
            self._output(node_id, body)
        elif kind == ANNOUNCE:
            epoch, _ = get_varint(body, get_varint(body, 0)[1])
            if epoch > self.fabric.epoch:  # the leaders of that view are not known here yet
                self._keep(node_id, kind, body)
                return
            number, asks = self.interest.receive(node_id, body)
            self.inquiries.opened()  # the node may lead a partition now for which it refused to answer
            self.leadership.routes.refresh()  # messages that follow in this turn use the new routes
            if asks & ASKS_CONFIRM:
                self.fabric.send(node_id, CONFIRM, varint(number))
            if asks & ASKS_LANDED:
                self.forward_sender.barrier.asked(node_id, number, self.forward_sender.commits.newest_token())
        elif kind == CONFIRM:
            self.interest.confirmed(node_id, get_varint(body, 0)[0])
        elif kind == LANDED:
            number, pos = get_varint(body, 0)
            if get_varint(body, pos)[0] > self.fabric.epoch:
                # What that node had under way may wait for the leaders of that view, which are not known here yet.
                self._keep(node_id, kind, body)
            else:
                self.interest.landings.landed(node_id, number)
        elif kind == HOST:
            self._host(node_id, body)
        else:
            self._dispatch_rare(node_id, kind, body)

    def _dispatch_rare(self, node_id: str, kind: int, body: bytes) -> None:
        if kind == QUERY:
            if not self.orders.receive(node_id, body):
                self.answers.receive(node_id, body)
        elif kind == QUERY_ANSWER:
            self.inquiries.receive(body)
        elif kind == OWN:
            relay = self.relays.find(node_id, get_varint(body, 0)[0])
            if relay is not None:
                self.connecting.own(relay.connection)
        elif kind == EXPEL:
            self._expel(node_id, body)
        elif kind == WANTED:
            epoch, partitions = msgspec.msgpack.decode(body, type=tuple[int, list[int]])
            if epoch == self.fabric.epoch:
                self.relays.wanted(node_id, epoch, partitions)
            elif epoch > self.fabric.epoch:
                self._keep(node_id, kind, body)
        elif kind == ATTACHED:
            self.leadership.told(node_id, body)

    def _host(self, node_id: str, body: bytes) -> None:
        request = decode_host(body)
        leader_epoch, client = request
        partition = client.partition
        if not 0 <= partition < self.state.partitions:
            raise ValueError(f"there is no partition {partition}")
        if leader_epoch > self.fabric.leader_epochs[partition]:  # this node does not know yet that it is to lead
            self._keep(node_id, HOST, body)
        else:
            self.hosting.host(node_id, request)

    def _output(self, node_id: str, body: bytes) -> None:
        """Take bytes for a client from its session, and the number of its last packet that is handled."""
        number, pos = get_varint(body, 0)
        handled, pos = get_varint(body, pos)
        flags = body[pos]
        count, pos = get_varint(body, pos + 1)
        sequences: list[int] = []
        for _ in range(count):
            sequence, pos = get_varint(body, pos)
            sequences.append(sequence)
        relay = self.relays.find(node_id, number)
        if relay is None:
            return
        if flags & UNKNOWN_CLIENT and not self.interest.has_announced(relay.partition):
            return  # it was to lead the partition and has not begun: another leader gets the packets
        connection = relay.connection
        if flags & 1:
            self.connecting.relayed(connection)
        for sequence in sequences:
            relay.flights[sequence % PACKET_IDS + 1] = sequence
        if pos < len(body) and connection.state < CLOSING:
            connection.put(body[pos:])
        self.relays.acknowledged(relay, handled)

    def _expel(self, node_id: str, body: bytes) -> None:
        number, pos = get_varint(body, 0)
        relay = self.relays.find(node_id, number)
        if relay is None:
            self.relays.expelled(node_id, number)
            return
        connection = relay.connection
        if connection.state < CLOSING and not self.closing.hear_goodbye(connection):
            if body[pos]:
                self.closing.disconnect(connection, body[pos], body[pos + 1 :].decode())
            else:
                self.closing.close(connection)
