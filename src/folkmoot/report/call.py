"""Questions from outside this core, as from the HTTP interface, about what any node leads."""

from __future__ import annotations

from folkmoot.query.inquiry import Inquiries, Inquiry, Waiter
from folkmoot.query.question import REFUSED, TABLE, Answer
from folkmoot.query.tail import Tails
from folkmoot.report.answer import Answers
from folkmoot.report.copies import Copies
from folkmoot.report.table import HERE
from folkmoot.streams.log import StreamLog
from folkmoot.turn.state import State

__all__ = ["Call", "Calls"]


class Call(Waiter):
    """A question to another node; `handle` is the driver's own. `answer` None: the leader is gone."""

    def __init__(self, calls: Calls, handle: object) -> None:
        self.calls = calls
        self.handle = handle
        self.answer: Answer | None = None
        self.over = False

    def heard(self, inquiry: Inquiry) -> None:
        """Take the answer, or the notice that the node leads no more."""
        self.end(inquiry.answer)

    def again(self) -> None:
        """The view has changed: the answer will not come."""
        self.end(None)

    def end(self, answer: Answer | None) -> None:
        """Report the end of the call to the driver."""
        if not self.over:
            self.over = True
            self.answer = answer
            self.calls.ended.append(self)

    def __repr__(self) -> str:
        return f"Call(over={self.over} {self.answer!r})"


class Calls:
    """`ended`: finished calls, in order; the driver limits how many there are.

    `copies`: answers that need no question.
    """

    def __init__(self, state: State, inquiries: Inquiries, answers: Answers, tails: Tails) -> None:
        self.state = state
        self.inquiries = inquiries
        self.answers = answers
        self.tails = tails
        self.copies = Copies(inquiries.fabric)
        self.ended: list[Call] = []
        self._growth = 0

    def leads(self, log: StreamLog) -> bool:
        """Whether this node leads a stream partition, so that its log can be read."""
        return self.state.leads[log.store_partition]

    def ask(self, handle: object, log: StreamLog, what: int, numbers: list[int]) -> Call | Answer | None:
        """Ask about a stream partition; None when it has no open leader."""
        if self.leads(log):
            return self.answers.look(log, what, numbers)
        return self.pass_on(handle, log.store_partition, what, log.config.name.encode(), numbers, b"")

    def pass_on(
        self, handle: object, partition: int, what: int, name: bytes, numbers: list[int], key: bytes
    ) -> Call | None:
        """Ask the leader of a partition that this node does not lead; None when it has none that is open."""
        if not self.inquiries.may_ask(partition):
            return None
        call = Call(self, handle)
        self.inquiries.ask(call, partition, what, name, numbers, key)
        return call

    def ask_table(
        self, handle: object, name: bytes, partition: int, node_id: str, flags: int, after: bytes
    ) -> Call | Answer | None:
        """Ask for a page of a table: of a partition, or with HERE of a node; None when no node can answer now.

        REFUSED: there is no such node. Raises ValueError if the question is malformed.
        """
        fabric = self.inquiries.fabric
        if self.state.leads[partition] if partition != HERE else node_id == fabric.node_id:
            return self.answers.tables.look(name, partition, flags, after)
        if partition != HERE:
            node_id = fabric.leaders[partition]
            if not self.inquiries.may_ask(partition):
                return None
        elif node_id not in fabric.others:
            return Answer(REFUSED, [])
        call = Call(self, handle)
        self.inquiries.ask_node(call, node_id, TABLE, name, [partition, flags], after)
        return call

    def end_of(self, log: StreamLog) -> int:
        """Return the readable end of a stream partition as known here; `take_growth` tells when it has grown."""
        return log.readable_end if self.leads(log) else self.tails.end_of(log)

    def take_growth(self) -> bool:
        """Whether more may have become readable at another node since the last call."""
        growth = self._growth
        self._growth = self.tails.growth
        return growth != self._growth
