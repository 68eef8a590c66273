"""The parts of a broker from `feed`: each uses those above it, and those of earlier packages."""

from __future__ import annotations

from folkmoot.feed.feed import Feeds
from folkmoot.partition.parts import PartitionParts
from folkmoot.query.inquiry import Inquiries
from folkmoot.query.tail import Tails
from folkmoot.turn.parts import TurnParts

__all__ = ["FeedParts"]


class FeedParts:
    """What fills the queues of subscribers page by page, from here or from the leaders."""

    def __init__(self, turn: TurnParts, partition: PartitionParts) -> None:
        self.inquiries = Inquiries(turn.fabric)
        self.tails = Tails(self.inquiries)
        self.feeds = Feeds(turn.state, turn.commits, turn.landings, partition.queue, self.inquiries, self.tails)
