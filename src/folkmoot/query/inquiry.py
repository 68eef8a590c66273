"""Asking other nodes about what they lead, and receiving their answers. The answering side is `report.answer`.

A question is forgotten when its answer comes, and whenever the view changes: the waiter then finds the leader again,
and asks anew. A partition whose leader has not opened it is not asked: the waiter is called when it may be.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from folkmoot.query.question import REFUSED, Answer, Question, decode_answer, encode_question
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import QUERY

__all__ = ["Inquiries", "Inquiry", "Waiter"]


class Waiter(ABC):
    """The part of this node that asks."""

    @abstractmethod
    def heard(self, inquiry: Inquiry) -> None:
        """Take an answer."""

    @abstractmethod
    def again(self) -> None:
        """Ask anew: leaders may have changed, so missing answers will not come."""


class Inquiry:
    """A question under way; `answer` is None until it comes, and for ever once `void`."""

    def __init__(self, number: int, waiter: Waiter, what: int) -> None:
        self.number = number
        self.waiter = waiter
        self.what = what
        self.void = False
        self.answer: Answer | None = None

    def __repr__(self) -> str:
        return f"Inquiry({self.number} what={self.what} void={self.void} {self.answer!r})"


class Inquiries:
    """The questions of this node, at most one or two per feed and stream partition."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._number = 0
        self._asked: dict[int, Inquiry] = {}
        self._waiting: dict[Waiter, None] = {}  # for leaders that have not opened, or are unknown here

    def __len__(self) -> int:
        return len(self._asked)

    def may_ask(self, partition: int) -> bool:
        """Whether another node leads the partition and answers."""
        leader = self.fabric.leaders[partition]
        return self.fabric.open[partition] and leader != self.fabric.node_id and leader != ""

    def ask(
        self, waiter: Waiter, partition: int, what: int, name: bytes, numbers: list[int], key: bytes = b""
    ) -> Inquiry:
        """Ask the leader of a partition, which `may_ask` allows."""
        return self.ask_node(waiter, self.fabric.leaders[partition], what, name, numbers, key)

    def ask_node(self, waiter: Waiter, node_id: str, what: int, name: bytes, numbers: list[int], key: bytes) -> Inquiry:
        """Ask another member of the view."""
        self._number += 1
        inquiry = Inquiry(self._number, waiter, what)
        self._asked[self._number] = inquiry
        question = Question(self._number, what, name, numbers, key)
        self.fabric.send(node_id, QUERY, encode_question(question))
        return inquiry

    def wait(self, waiter: Waiter) -> None:
        """Call the waiter when a leader has opened a partition."""
        self._waiting[waiter] = None

    def drop(self, inquiry: Inquiry) -> None:
        """Forget a question whose answer is not needed any more."""
        self._asked.pop(inquiry.number, None)

    def leave(self, waiter: Waiter) -> None:
        """Forget a waiter; its questions were dropped."""
        self._waiting.pop(waiter, None)

    def receive(self, body: bytes) -> None:
        """Handle an answer; raises ValueError if it is malformed."""
        number, answer = decode_answer(body)
        inquiry = self._asked.pop(number, None)
        if inquiry is None:
            return
        if answer.status == REFUSED:
            inquiry.void = True  # the node has installed a newer view, which comes here soon
            self._waiting[inquiry.waiter] = None
        else:
            inquiry.answer = answer
        inquiry.waiter.heard(inquiry)

    def installed(self) -> None:
        """A view was installed: all waiters ask anew."""
        asked = self._asked
        self._asked = {}
        for inquiry in asked.values():
            inquiry.void = True
            self._waiting[inquiry.waiter] = None
        self.opened()

    def opened(self) -> None:
        """A leader has opened a partition, here or elsewhere."""
        waiting = self._waiting
        self._waiting = {}
        for waiter in waiting:
            waiter.again()
