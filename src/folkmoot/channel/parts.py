"""The parts of a broker from `channel`: each uses those above it, and those of earlier packages."""

from __future__ import annotations

from folkmoot.channel.deferral import Deferral
from folkmoot.channel.forward_sender import ForwardSender
from folkmoot.channel.outbox import Outbox
from folkmoot.partition.partition import Led
from folkmoot.turn.parts import TurnParts

__all__ = ["ChannelParts"]


class ChannelParts:
    """Messages to other nodes, and to partitions that other nodes lead."""

    def __init__(self, led: Led, turn: TurnParts) -> None:
        state, fabric = turn.state, turn.fabric
        self.forward_sender = ForwardSender(state, fabric, turn.commits, turn.barrier)
        self.outbox = Outbox(state, led, fabric, turn.commits, self.forward_sender)
        self.deferral = Deferral(state, fabric, self.forward_sender, self.outbox)
