"""What a broker is made of: records of parts, built in the order in which they may use each other.

A part is made with the parts that it uses, so it can use only parts above it in its record, or of an earlier record.
"""

from __future__ import annotations

from folkmoot.broker.dispatch import Dispatch
from folkmoot.channel.forward_sender import ForwardSender
from folkmoot.channel.outbox import Outbox
from folkmoot.delivery.event_publisher import EventPublisher
from folkmoot.delivery.express import Express
from folkmoot.delivery.forward_receiver import ForwardReceiver
from folkmoot.delivery.keeping import Keeping
from folkmoot.delivery.outbox_publish import OutboxPublishing
from folkmoot.delivery.publication import Publications
from folkmoot.delivery.publish import Publishing
from folkmoot.delivery.purge import Purges
from folkmoot.delivery.run import Runs
from folkmoot.delivery.shared import Shared
from folkmoot.delivery.sys import SysTopics
from folkmoot.delivery.transaction import Transactions
from folkmoot.feed.feed import Feeds
from folkmoot.leadership.hosting import Hosting
from folkmoot.leadership.leadership import Leadership
from folkmoot.leadership.restore import Restore
from folkmoot.leadership.shedding import Shedding
from folkmoot.partition.backlog import Backlog
from folkmoot.partition.body import Bodies
from folkmoot.partition.mark import Marks
from folkmoot.partition.partition import Led
from folkmoot.partition.producer import Producers
from folkmoot.partition.queue import Queue
from folkmoot.partition.retained import Retained
from folkmoot.partition.retained_sweep import RetainedSweep
from folkmoot.protocol.acknowledge import Acknowledging
from folkmoot.protocol.admit import Admission
from folkmoot.protocol.attach import Attaching
from folkmoot.protocol.closing import Closing
from folkmoot.protocol.connect import Connecting
from folkmoot.protocol.control import Control
from folkmoot.protocol.deadline import Deadlines
from folkmoot.protocol.inbound import Inbound
from folkmoot.protocol.ingress import Ingress
from folkmoot.protocol.judging import Judging
from folkmoot.protocol.lifecycle import Lifecycle
from folkmoot.protocol.subscribe import Subscribing
from folkmoot.protocol.will import Wills
from folkmoot.proxy.pending_close import PendingCloses
from folkmoot.proxy.relay import Relays
from folkmoot.query.inquiry import Inquiries
from folkmoot.query.tail import Tails
from folkmoot.report.answer import Answers
from folkmoot.report.call import Calls
from folkmoot.report.order import Orders
from folkmoot.report.table import Tables
from folkmoot.routing.interest import Interest
from folkmoot.routing.route import Routes
from folkmoot.streams.table import Streams
from folkmoot.turn.barrier import Barrier
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.overload import Overload
from folkmoot.turn.receipt import Receipts
from folkmoot.turn.state import State
from folkmoot.turn.throttle import Throttle

__all__ = [
    "ChannelParts",
    "ClusterParts",
    "DeliveryParts",
    "PartitionParts",
    "ProtocolParts",
    "QueryParts",
    "TurnParts",
]


class TurnParts:
    """When the changes of a turn are durable and committed, and how much may wait for that."""

    def __init__(self, state: State, fabric: Fabric, streams: Streams) -> None:
        self.receipts = Receipts(state, fabric)
        self.throttle = Throttle(state)
        self.commits = Commits(state, streams, self.receipts, self.throttle)
        self.overload = Overload(state, self.commits)
        self.barrier = Barrier()


class ChannelParts:
    """To other nodes: publishes, outbox entries, and the packets of clients whose session is there."""

    def __init__(self, state: State, fabric: Fabric, led: Led, turn: TurnParts) -> None:
        self.forward_sender = ForwardSender(state, fabric, turn.commits, turn.barrier)
        self.outbox = Outbox(state, led, fabric, turn.commits, self.forward_sender)
        self.relays = Relays(state, fabric, turn.throttle)
        self.pending_closes = PendingCloses(state, fabric, self.forward_sender, self.outbox, self.relays)


class PartitionParts:
    """The memory of the partitions that this node leads."""

    def __init__(self, state: State, fabric: Fabric, led: Led, turn: TurnParts) -> None:
        self.led = led
        self.marks = Marks(state, led)
        self.bodies = Bodies(state, led)
        self.queue = Queue(state, fabric, turn.commits, Backlog(state, self.bodies))
        self.retained = Retained(state, led, fabric)
        self.retained_sweep = RetainedSweep(state, turn.commits, self.retained)
        self.producers = Producers(state, led, fabric, turn.commits)


class DeliveryParts:
    """From a message to everyone who gets it, here and at other nodes."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        streams: Streams,
        turn: TurnParts,
        channel: ChannelParts,
        partition: PartitionParts,
    ) -> None:
        self.interest = Interest(fabric, turn.commits, state.partitions)
        self.routes = Routes(state, fabric, self.interest, streams)
        self.shared = Shared(partition.queue, self.routes)
        self.keeping = Keeping(
            state,
            fabric,
            channel.forward_sender,
            partition.bodies,
            partition.queue,
            partition.retained,
            partition.producers,
            partition.marks,
        )
        self.publishing = Publishing(
            state,
            fabric,
            channel.forward_sender,
            self.keeping,
            partition.queue,
            self.routes,
            self.shared,
            partition.retained,
            partition.producers,
        )
        self.entries = OutboxPublishing(state, channel.outbox, self.publishing)
        self.transactions = Transactions(state, partition.led, fabric, turn.commits)
        self.publications = Publications(state, turn.commits, self.entries, self.transactions)
        self.runs = Runs(state, self.routes, self.publishing, channel.forward_sender)
        self.forward_receiver = ForwardReceiver(
            state,
            fabric,
            turn.commits,
            partition.marks,
            channel.forward_sender,
            channel.outbox,
            self.publishing,
            self.runs,
        )
        self.sys = SysTopics(state, partition.queue, self.publishing)
        self.event_publisher = EventPublisher(state, fabric, self.routes, self.publishing, streams)
        self.purges = Purges(state, turn.throttle, partition.bodies, self.shared)


class QueryParts:
    """Reads of partitions, at this node or at their leaders: feeds of subscribers, answers, and orders of programs."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        streams: Streams,
        turn: TurnParts,
        partition: PartitionParts,
        delivery: DeliveryParts,
    ) -> None:
        self.inquiries = Inquiries(fabric)
        self.tails = Tails(self.inquiries)
        self.feeds = Feeds(state, turn.commits, partition.queue, self.inquiries, self.tails)
        self.tables = Tables(state, streams)
        self.answers = Answers(state, fabric, turn.commits, partition.retained, streams, self.tables)
        self.calls = Calls(state, self.inquiries, self.answers, self.tails)
        self.orders = Orders(delivery.publications, self.calls)


class ProtocolParts:
    """From the bytes of a connection to what they mean."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        streams: Streams,
        turn: TurnParts,
        channel: ChannelParts,
        partition: PartitionParts,
        delivery: DeliveryParts,
        query: QueryParts,
    ) -> None:
        self.wills = Wills(state, delivery.entries)
        self.lifecycle = Lifecycle(
            state,
            channel.pending_closes,
            partition.queue,
            delivery.routes,
            delivery.shared,
            self.wills,
            delivery.purges,
        )
        self.closing = Closing(state, fabric, self.lifecycle)
        self.attaching = Attaching(state, turn.commits, partition.queue, self.lifecycle)
        self.subscribing = Subscribing(
            state, turn.commits, delivery.routes, query.feeds, partition.retained, streams, delivery.sys
        )
        self.admission = Admission(
            state,
            fabric,
            channel.relays,
            self.wills,
            self.lifecycle,
            self.closing,
            self.attaching,
            self.subscribing,
        )
        self.connecting = Connecting(
            state, fabric, turn.throttle, channel.relays, self.lifecycle, self.closing, self.attaching, self.admission
        )
        self.acknowledging = Acknowledging(state, fabric, turn.commits)
        self.inbound = Inbound(
            state,
            turn.commits,
            channel.relays,
            delivery.routes,
            delivery.publishing,
            delivery.entries,
            self.acknowledging,
        )
        self.control = Control(
            state,
            turn.commits,
            channel.relays,
            partition.queue,
            self.acknowledging,
            self.closing,
            self.connecting,
            self.subscribing,
        )
        self.deadlines = Deadlines(
            state,
            turn.throttle,
            self.closing,
            self.lifecycle,
            self.wills,
            delivery.sys,
            delivery.transactions,
            partition.retained_sweep,
        )
        self.judging = Judging(state, self.closing, self.attaching, self.subscribing, self.wills)
        self.express = Express(state, delivery.runs)
        self.ingress = Ingress(
            state, turn.throttle, delivery.routes, self.inbound, delivery.runs, self.express, self.control, self.closing
        )


class ClusterParts:
    """Changes of leaders, sessions for clients of other nodes, and the messages of other nodes."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        streams: Streams,
        turn: TurnParts,
        channel: ChannelParts,
        partition: PartitionParts,
        delivery: DeliveryParts,
        query: QueryParts,
        protocol: ProtocolParts,
    ) -> None:
        self.restore = Restore(
            state,
            partition.led,
            partition.marks,
            channel.outbox,
            partition.bodies,
            delivery.routes,
            partition.retained,
            protocol.wills,
            delivery.purges,
            protocol.lifecycle,
            query.feeds,
            delivery.transactions,
            streams,
        )
        self.hosting = Hosting(
            state,
            fabric,
            turn.commits,
            partition.queue,
            protocol.lifecycle,
            protocol.closing,
            protocol.attaching,
            protocol.admission,
            protocol.inbound,
            protocol.control,
            self.restore,
        )
        self.leadership = Leadership(
            state,
            partition.led,
            fabric,
            delivery.interest,
            channel.forward_sender,
            channel.relays,
            channel.outbox,
            partition.bodies,
            delivery.routes,
            partition.retained,
            partition.producers,
            delivery.purges,
            protocol.lifecycle,
            query.feeds,
            protocol.closing,
            protocol.attaching,
            protocol.admission,
            delivery.forward_receiver,
            self.restore,
            self.hosting,
            query.inquiries,
            query.orders,
            streams,
        )
        self.shedding = Shedding(state, protocol.closing, channel.relays, self.hosting)
        self.dispatch = Dispatch(
            state,
            fabric,
            delivery.interest,
            channel.forward_sender,
            channel.relays,
            protocol.connecting,
            protocol.closing,
            delivery.forward_receiver,
            self.hosting,
            query.orders,
            self.leadership,
        )
