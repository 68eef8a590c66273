"""Asking other nodes for what they lead, and hearing their answers. The answering side is `answer`.

A question is forgotten when its answer comes, and whenever the view changes: then whoever asked looks again who leads,
and asks anew. Nothing is asked of a partition whose leader has not opened it: who wants to is told when it may be so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from folkmoot.query.question import REFUSED, Answer, Question, decode_answer, encode_question
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import QUERY

__all__ = ["Inquiries", "Inquiry", "Waiter"]


class Waiter(ABC):
    """Somebody who asks."""

    @abstractmethod
    def heard(self, inquiry: Inquiry) -> None:
        """An answer has come."""

    @abstractmethod
    def again(self) -> None:
        """Leaders may have changed: answers that were not given never will be, and others may be had now."""


class Inquiry:
    """A question on its way; `answer` is None until it comes, and for ever once `void`."""

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
        self._waiting: dict[Waiter, None] = {}  # for leaders that have not opened, or are not known here

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
        """Tell the waiter when a leader has opened."""
        self._waiting[waiter] = None

    def drop(self, inquiry: Inquiry) -> None:
        """Nobody wants this answer any more."""
        self._asked.pop(inquiry.number, None)

    def leave(self, waiter: Waiter) -> None:
        """The waiter wants nothing any more; its questions were dropped."""
        self._waiting.pop(waiter, None)

    def receive(self, body: bytes) -> None:
        """Take an answer; raises ValueError for nonsense."""
        number, answer = decode_answer(body)
        inquiry = self._asked.pop(number, None)
        if inquiry is None:
            return
        if answer.status == REFUSED:
            inquiry.void = True  # the node knows a newer view: this one will have it soon
            self._waiting[inquiry.waiter] = None
        else:
            inquiry.answer = answer
        inquiry.waiter.heard(inquiry)

    def installed(self) -> None:
        """A view was installed: all ask anew."""
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
