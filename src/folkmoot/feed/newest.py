"""Where the new records of a stream begin: what a SUBSCRIBE to `$stream/NAME/latest/...` waits for (A9).

SUBACK says that later records come, so it needs the ends of all stream partitions, and only their leaders know them.
"""

from __future__ import annotations

from folkmoot.feed.replay import UNKNOWN
from folkmoot.query.inquiry import Inquiries, Inquiry, Waiter
from folkmoot.query.question import BOUNDS, FOUND
from folkmoot.session.connection import Connection
from folkmoot.streams.table import Stream
from folkmoot.turn.work import Work

__all__ = ["Newest"]


class Newest(Waiter):
    """Asks for the ends of the stream partitions that this node does not lead; the task of the client sleeps meanwhile.

    offsets: the ends, UNKNOWN until they are known; why: why one of them cannot be known now.
    """

    def __init__(self, inquiries: Inquiries, work: Work, connection: Connection, stream: Stream) -> None:
        self.stream = stream
        self.offsets = [UNKNOWN] * len(stream.logs)
        self.why = ""
        self._inquiries = inquiries
        self._work = work
        self._connection = connection
        self._asked: list[Inquiry | None] = [None] * len(stream.logs)

    def look(self, leads: list[bool]) -> None:
        """Note the ends that are known here, and ask for the others; leads: per partition, whether this node does."""
        name = self.stream.config.name
        fabric = self._inquiries.fabric
        for log in self.stream.logs:
            index, partition = log.index, log.store_partition
            if self.offsets[index] != UNKNOWN or self._asked[index] is not None:
                continue
            if leads[partition]:
                self.offsets[index] = log.readable_end
            elif self._inquiries.may_ask(partition):
                self._asked[index] = self._inquiries.ask(self, partition, BOUNDS, name.encode(), [index])
            elif not fabric.leaders[partition] or partition in fabric.scarce:
                self.why = (
                    f"partition {index} of the stream has no copies in sync here, or too few: try again or elsewhere"
                )
            else:
                self._inquiries.wait(self)

    def end(self) -> None:
        """Forget the questions."""
        for inquiry in self._asked:
            if inquiry is not None:
                self._inquiries.drop(inquiry)
        self._inquiries.leave(self)

    def heard(self, inquiry: Inquiry) -> None:
        """Take an end."""
        index = self._asked.index(inquiry)
        self._asked[index] = None
        answer = inquiry.answer
        if answer is None:
            return
        if answer.status == FOUND and len(answer.numbers) > 1:
            self.offsets[index] = answer.numbers[1]
        else:
            self.why = answer.text or f"the end of partition {index} is not known: {answer!r}"
        if self.why or UNKNOWN not in self.offsets:
            self._work.wake(self._connection)

    def again(self) -> None:
        """Ask the present leaders."""
        for index, inquiry in enumerate(self._asked):
            if inquiry is not None and inquiry.void:
                self._asked[index] = None
        self._work.wake(self._connection)
