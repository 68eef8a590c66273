"""The parts of a broker from `delivery`: each uses those above it, and those of earlier packages."""

from __future__ import annotations

from folkmoot.channel.parts import ChannelParts
from folkmoot.delivery.event_publisher import EventPublisher
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
from folkmoot.partition.parts import PartitionParts
from folkmoot.routing.interest import Interest
from folkmoot.routing.route import Routes
from folkmoot.turn.parts import TurnParts

__all__ = ["DeliveryParts"]


class DeliveryParts:
    """From a message to everyone who gets it, here and at other nodes."""

    def __init__(self, turn: TurnParts, channel: ChannelParts, partition: PartitionParts) -> None:
        state, fabric, streams = turn.state, turn.fabric, turn.streams
        self.interest = Interest(fabric, turn.commits, turn.barrier, turn.landings, state.partitions)
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
        self.publishing = Publishing(state, fabric, channel, partition, self.keeping, self.routes, self.shared)
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
