"""The parts of a broker from `protocol`: each uses those above it, and those of earlier packages."""

from __future__ import annotations

from folkmoot.delivery.express import Express
from folkmoot.delivery.parts import DeliveryParts
from folkmoot.feed.parts import FeedParts
from folkmoot.partition.parts import PartitionParts
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
from folkmoot.proxy.parts import ProxyParts
from folkmoot.turn.parts import TurnParts

__all__ = ["ProtocolParts"]


class ProtocolParts:
    """From the bytes of a connection to what they mean."""

    def __init__(
        self, turn: TurnParts, proxy: ProxyParts, partition: PartitionParts, delivery: DeliveryParts, feed: FeedParts
    ) -> None:
        state, fabric = turn.state, turn.fabric
        self.wills = Wills(state, delivery.entries)
        self.lifecycle = Lifecycle(
            state,
            proxy.pending_closes,
            partition.queue,
            delivery.routes,
            delivery.shared,
            self.wills,
            delivery.purges,
        )
        self.closing = Closing(state, fabric, self.lifecycle)
        self.attaching = Attaching(state, turn.commits, partition.queue, self.lifecycle)
        self.subscribing = Subscribing(
            state, turn.commits, delivery.routes, feed.feeds, partition.retained, turn.streams, delivery.sys
        )
        self.admission = Admission(
            state,
            fabric,
            proxy.relays,
            self.wills,
            self.lifecycle,
            self.closing,
            self.attaching,
            self.subscribing,
        )
        self.connecting = Connecting(
            state, fabric, turn.throttle, proxy.relays, self.lifecycle, self.closing, self.attaching, self.admission
        )
        self.acknowledging = Acknowledging(state, fabric, turn.commits)
        self.inbound = Inbound(
            state,
            turn.commits,
            proxy.relays,
            delivery.routes,
            delivery.publishing,
            delivery.entries,
            self.acknowledging,
        )
        self.control = Control(
            state,
            turn.commits,
            proxy.relays,
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
