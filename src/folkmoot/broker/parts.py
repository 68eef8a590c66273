"""What a broker is made of: builds its parts, each on those before it.

The order in which they are built is the order in which they may use each other.
"""

from __future__ import annotations

from folkmoot.broker.dispatch import Switch
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
from folkmoot.leadership.waking import Waking
from folkmoot.partition.backlog import Backlog
from folkmoot.partition.body import Bodies
from folkmoot.partition.mark import Marks
from folkmoot.partition.producer import Producers
from folkmoot.partition.queue import Queue
from folkmoot.partition.retained import Retained
from folkmoot.protocol.acknowledge import Acknowledging
from folkmoot.protocol.admit import Admission
from folkmoot.protocol.attach import Attaching
from folkmoot.protocol.closing import Closing
from folkmoot.protocol.connect import Connecting
from folkmoot.protocol.control import Control
from folkmoot.protocol.deadline import Deadlines
from folkmoot.protocol.inbound import Inbound
from folkmoot.protocol.ingress import Ingress
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

__all__ = ["Clients", "Delivery", "Neighbours"]


class Delivery:
    """From a message to everyone who gets it, here and at other nodes."""

    def __init__(self, state: State, fabric: Fabric, streams: Streams) -> None:
        self.state = state
        self.fabric = fabric
        self.streams = streams
        self.receipts = Receipts(state, fabric)
        self.commits = Commits(state, streams, self.receipts)
        self.overload = Overload(state, self.commits)
        self.interest = Interest(fabric, self.commits, state.partitions)
        self.barrier = Barrier()
        self.forward_sender = ForwardSender(state, fabric, self.commits, self.barrier)
        self.inquiries = Inquiries(fabric)
        self.tails = Tails(self.inquiries)
        self.outbox = Outbox(state, fabric, self.commits, self.forward_sender)
        self.relays = Relays(state, fabric, self.commits)
        self.pending_closes = PendingCloses(state, fabric, self.forward_sender, self.outbox, self.relays)
        self.marks = Marks(state)
        self.bodies = Bodies(state)
        self.queue = Queue(state, fabric, self.commits, Backlog(state, self.bodies))
        self.routes = Routes(state, fabric, self.interest, streams)
        self.shared = Shared(self.queue, self.routes)
        self.retained = Retained(state)
        self.producers = Producers(state, self.commits)
        self.keeping = Keeping(
            state, fabric, self.forward_sender, self.bodies, self.queue, self.retained, self.producers
        )
        self.publishing = Publishing(
            state,
            fabric,
            self.forward_sender,
            self.keeping,
            self.queue,
            self.routes,
            self.shared,
            self.retained,
            self.producers,
        )
        self.entries = OutboxPublishing(state, self.outbox, self.publishing)
        self.transactions = Transactions(state, fabric, self.commits)
        self.publications = Publications(state, self.commits, self.entries, self.transactions)
        self.runs = Runs(state, self.routes, self.publishing, self.forward_sender)
        self.forward_receiver = ForwardReceiver(
            state, fabric, self.commits, self.marks, self.forward_sender, self.outbox, self.publishing, self.runs
        )


class Clients(Delivery):
    """From the bytes of a connection to what they mean."""

    def __init__(self, state: State, fabric: Fabric, streams: Streams) -> None:
        super().__init__(state, fabric, streams)
        self.waking = Waking(fabric, self.commits)
        self.sys = SysTopics(state, self.queue, self.publishing)
        self.event_publisher = EventPublisher(state, fabric, self.routes, self.publishing, streams)
        self.wills = Wills(state, self.entries)
        self.purges = Purges(state, self.bodies, self.shared)
        self.lifecycle = Lifecycle(
            state, self.pending_closes, self.queue, self.routes, self.shared, self.wills, self.purges
        )
        self.feeds = Feeds(state, self.commits, self.queue, self.inquiries, self.tails)
        self.tables = Tables(state, streams)
        self.answers = Answers(state, fabric, self.commits, self.retained, streams, self.tables)
        self.calls = Calls(state, self.inquiries, self.answers, self.tails)
        self.orders = Orders(self.publications, self.calls)
        self.closing = Closing(state, self.lifecycle)
        self.attaching = Attaching(state, self.commits, self.queue, self.lifecycle)
        self.admission = Admission(state, fabric, self.relays, self.wills, self.lifecycle, self.closing, self.attaching)
        self.connecting = Connecting(
            state,
            fabric,
            self.commits,
            self.relays,
            self.lifecycle,
            self.closing,
            self.attaching,
            self.admission,
        )
        self.subscribing = Subscribing(state, self.commits, self.routes, self.feeds, self.retained, streams, self.sys)
        self.acknowledging = Acknowledging(state, fabric, self.commits)
        self.inbound = Inbound(
            state, self.commits, self.relays, self.routes, self.publishing, self.entries, self.acknowledging
        )
        self.control = Control(
            state,
            self.commits,
            self.relays,
            self.queue,
            self.acknowledging,
            self.lifecycle,
            self.closing,
            self.connecting,
            self.subscribing,
        )
        self.deadlines = Deadlines(
            state, self.commits, self.closing, self.lifecycle, self.wills, self.sys, self.transactions
        )
        self.express = Express(state, self.runs)
        self.ingress = Ingress(state, self.routes, self.inbound, self.runs, self.express, self.control, self.closing)


class Neighbours(Clients):
    """Sessions for clients of other nodes, and partitions that come and go."""

    def __init__(self, state: State, fabric: Fabric, streams: Streams) -> None:
        super().__init__(state, fabric, streams)
        self.restore = Restore(
            state,
            self.marks,
            self.outbox,
            self.bodies,
            self.routes,
            self.retained,
            self.producers,
            self.wills,
            self.purges,
            self.lifecycle,
            self.feeds,
            self.transactions,
            streams,
        )
        self.hosting = Hosting(
            state,
            fabric,
            self.commits,
            self.queue,
            self.lifecycle,
            self.closing,
            self.attaching,
            self.admission,
            self.inbound,
            self.control,
            self.restore,
        )
        self.leadership = Leadership(
            state,
            fabric,
            self.interest,
            self.forward_sender,
            self.relays,
            self.marks,
            self.outbox,
            self.bodies,
            self.routes,
            self.retained,
            self.producers,
            self.purges,
            self.lifecycle,
            self.feeds,
            self.closing,
            self.attaching,
            self.admission,
            self.forward_receiver,
            self.restore,
            self.hosting,
            self.inquiries,
            self.orders,
            streams,
        )
        self.switch = Switch(
            state,
            fabric,
            self.waking,
            self.interest,
            self.forward_sender,
            self.relays,
            self.connecting,
            self.ingress,
            self.closing,
            self.forward_receiver,
            self.hosting,
            self.orders,
            self.leadership,
        )
