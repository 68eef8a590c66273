"""The parts of a broker from `proxy`: each uses those above it, and those of earlier packages."""

from __future__ import annotations

from folkmoot.channel.parts import ChannelParts
from folkmoot.proxy.pending_close import PendingCloses
from folkmoot.proxy.relay import Relays
from folkmoot.turn.parts import TurnParts

__all__ = ["ProxyParts"]


class ProxyParts:
    """The clients of this node whose sessions other nodes lead."""

    def __init__(self, turn: TurnParts, channel: ChannelParts) -> None:
        state, fabric = turn.state, turn.fabric
        self.relays = Relays(state, fabric, turn.throttle)
        self.pending_closes = PendingCloses(state, fabric, channel.forward_sender, self.relays)
