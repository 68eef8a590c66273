"""The ends of stream partitions that other nodes lead, while something here waits for records: one question each."""

from __future__ import annotations

from folkmoot.query.inquiry import Inquiries, Inquiry, Waiter
from folkmoot.query.question import FOUND, WATCH
from folkmoot.streams.log import StreamLog

__all__ = ["Tails"]


class _Tail(Waiter):
    """The end of one stream partition: only its leader knows it."""

    def __init__(self, tails: Tails) -> None:
        self.tails = tails
        self.end = -1
        self.inquiry: Inquiry | None = None

    def heard(self, inquiry: Inquiry) -> None:
        """The leader has more records, or has lost the leadership."""
        self.inquiry = None
        answer = inquiry.answer
        if answer is not None and answer.status == FOUND and len(answer.numbers) > 1:
            self.end = max(self.end, answer.numbers[1])
            self.tails.growth += 1

    def again(self) -> None:
        """The parts that wait for records ask again, perhaps another leader."""
        self.inquiry = None
        self.tails.growth += 1


class Tails:
    """`growth` counts up whenever more may have become readable elsewhere: waiting parts then look again."""

    def __init__(self, inquiries: Inquiries) -> None:
        self.inquiries = inquiries
        self.growth = 0
        self._tails: dict[tuple[str, int], _Tail] = {}

    def end_of(self, log: StreamLog) -> int:
        """Return the end of a stream partition led elsewhere, as known here, -1 if unknown.

        From now on this node waits for it to grow, once.
        """
        key = (log.config.name, log.index)
        tail = self._tails.get(key)
        if tail is None:
            tail = _Tail(self)
            self._tails[key] = tail
        if tail.inquiry is None:
            if self.inquiries.may_ask(log.store_partition):
                name = log.config.name.encode()
                tail.inquiry = self.inquiries.ask(tail, log.store_partition, WATCH, name, [log.index, tail.end])
            else:
                self.inquiries.wait(tail)
        return tail.end
