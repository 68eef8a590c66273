"""The parts of a broker from `report`: each uses those above it, and those of earlier packages."""

from __future__ import annotations

from folkmoot.delivery.parts import DeliveryParts
from folkmoot.feed.parts import FeedParts
from folkmoot.partition.parts import PartitionParts
from folkmoot.report.answer import Answers
from folkmoot.report.call import Calls
from folkmoot.report.order import Orders
from folkmoot.report.table import Tables
from folkmoot.turn.parts import TurnParts

__all__ = ["ReportParts"]


class ReportParts:
    """Answers to questions, and orders of programs."""

    def __init__(self, turn: TurnParts, partition: PartitionParts, delivery: DeliveryParts, feed: FeedParts) -> None:
        state, fabric, streams = turn.state, turn.fabric, turn.streams
        self.tables = Tables(state, streams)
        deferral = delivery.publishing.deferral
        self.answers = Answers(state, fabric, turn.commits, partition.retained, streams, self.tables, deferral)
        self.calls = Calls(state, feed.inquiries, self.answers, feed.tails)
        self.orders = Orders(delivery.publications, self.calls)
