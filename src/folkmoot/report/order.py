"""Requests about transactions, from the HTTP interface of any node; the leader of the app's home answers.

An answer waits until everything it depends on is on the disks of all replicas. A node without an answer, because the
leader is gone or leads no more, asks again: every order may come twice. Owns the encoding of orders and figures.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from folkmoot.delivery.publication import Publications
from folkmoot.kernel.pack import get_u16, u16
from folkmoot.query.question import (
    ABORT,
    BUSY,
    COMMIT,
    FAULT,
    FORGET,
    FOUND,
    LIST,
    NO_ROOM,
    REFUSED,
    STAGE,
    UNKNOWN,
    Answer,
    decode_question,
    encode_answer,
)
from folkmoot.report.call import Call, Calls
from folkmoot.turn.message import QUERY_ANSWER

__all__ = ["LIST_MAX", "Orders", "encode_chunk", "encode_commit"]

LIST_MAX: Final = 1_000  # apps of one node in a list
_PUT_OFF: Final = (BUSY, NO_ROOM, FAULT)  # refusals that depend on nothing stored

_Figures = tuple[bytes, list[int]]


def encode_chunk(part: bytes, packets: bytes) -> bytes:
    """Return a part's name and the packets of one of its chunks as the key of a question."""
    return u16(len(part)) + part + packets


def encode_commit(parts: list[tuple[bytes, int]]) -> bytes:
    """Return the parts of a transaction in order, each with its number of chunks, as the key of a question."""
    return msgspec.msgpack.encode(parts)


class _Waiting:
    """An answer that waits until all up to `token` is committed, for a node or for a call of this one."""

    def __init__(self, token: int, partition: int, answer: Answer) -> None:
        self.token = token
        self.partition = partition
        self.answer = answer
        self.node_id = ""
        self.number = 0
        self.call: Call | None = None


class Orders:
    """Executes orders in the homes that this node leads, and passes on those for others."""

    def __init__(self, publications: Publications, calls: Calls) -> None:
        transactions = publications.transactions
        self.publications = publications
        self.transactions = transactions
        self.calls = calls
        self.answers = calls.answers
        self.state = transactions.state
        self.fabric = transactions.fabric
        self.commits = transactions.commits
        self._waiting: deque[_Waiting] = deque()  # in the order of their tokens

    # -- asking -------------------------------------------------------------------------------------------------------

    def ask(
        self, handle: object, partition: int, what: int, name: bytes, numbers: list[int], key: bytes
    ) -> Call | Answer | None:
        """Send an order to the leader of a home; None when there is no open leader.

        The call ends in `Calls.ended`; `handle` is the driver's own.
        """
        if not self.state.leads[partition]:
            return self.calls.pass_on(handle, partition, what, name, numbers, key)
        answer = self._perform(partition, what, name, numbers, key)
        waiting = self._wait(partition, what, answer)
        if waiting is None:
            return answer
        waiting.call = Call(self.calls, handle)
        return waiting.call

    def homes(self) -> list[list[int]]:
        """Return all partitions that have a leader, sorted by leader."""
        found: dict[str, list[int]] = {}
        for partition, leader in enumerate(self.fabric.leaders):
            if leader:
                found.setdefault(leader, []).append(partition)
        return list(found.values())

    # -- answering ----------------------------------------------------------------------------------------------------

    def receive(self, node_id: str, body: bytes) -> bool:
        """Handle a question of another node if it is an order; raises ValueError or IndexError if it is malformed."""
        question = decode_question(body)
        if not STAGE <= question.what <= LIST:
            return False
        partition = question.numbers[0]
        if not 0 <= partition < self.state.partitions:
            raise ValueError(f"there is no partition {partition}")
        if not self.state.leads[partition]:
            self._send(node_id, question.number, Answer(REFUSED, []))
            return True
        answer = self._perform(partition, question.what, question.name, question.numbers, question.key)
        waiting = self._wait(partition, question.what, answer)
        if waiting is None:
            self._send(node_id, question.number, answer)
        else:
            waiting.node_id = node_id
            waiting.number = question.number
        return True

    def _perform(self, partition: int, what: int, name: bytes, numbers: list[int], key: bytes) -> Answer:
        """Execute an order; numbers: the partition, the transaction, the chunk, and how many messages it has."""
        transactions = self.transactions
        if what == STAGE:
            end = 2 + get_u16(key, 0)
            return transactions.stage(partition, name, numbers[1], key[2:end], numbers[2], numbers[3], key[end:])
        if what == COMMIT:
            parts = msgspec.msgpack.decode(key, type=list[tuple[bytes, int]])
            return transactions.commit(partition, name, numbers[1], parts)
        if what == ABORT:
            return transactions.abort(partition, name, numbers[1], key)
        if what == FORGET:
            return transactions.forget_app(partition, name)
        if what == LIST:
            return self._list(name, numbers)
        answer = Answer(FAULT, [])
        answer.text = f"node {self.fabric.node_id} does not know the question {what}: it runs another version"
        return answer

    def _list(self, name: bytes, partitions: list[int]) -> Answer:
        """Return the figures of one app, or (without a name) of all in these partitions."""
        found: list[_Figures] = []
        for partition in partitions:
            if not 0 <= partition < self.state.partitions or not self.state.leads[partition]:
                continue
            for app in self.transactions.led[partition].apps.values():
                if app.known and (not name or app.name == name) and len(found) < LIST_MAX:
                    found.append((app.name, app.figures()))
        answer = Answer(FOUND if found or not name else UNKNOWN, [])
        answer.chunks = [msgspec.msgpack.encode(figures) for figures in found]
        return answer

    def _wait(self, partition: int, what: int, answer: Answer) -> _Waiting | None:
        """Hold an answer until everything it depends on is committed; for a repeated order that includes the first one.

        A final refusal waits as well: other nodes may have removed this one from the view, and know better.
        """
        token = self.commits.newest_token()
        if answer.status in _PUT_OFF or what == LIST or token <= self.commits.committed_token:
            return None
        waiting = _Waiting(token, partition, answer)
        self._waiting.append(waiting)
        return waiting

    def _end(self, waiting: _Waiting, answer: Answer | None) -> None:
        if waiting.call is not None:
            waiting.call.end(answer)
        else:
            self._send(waiting.node_id, waiting.number, Answer(REFUSED, []) if answer is None else answer)

    def _send(self, node_id: str, number: int, answer: Answer) -> None:
        if node_id in self.fabric.others:
            self.fabric.send(node_id, QUERY_ANSWER, encode_answer(number, answer))

    def committed(self) -> None:
        """More turns are committed: send their answers."""
        waiting = self._waiting
        while waiting and waiting[0].token <= self.commits.committed_token:
            first = waiting.popleft()
            self._end(first, first.answer)

    def fail(self, partition: int) -> None:
        """A turn's change of the partition is lost, or the leader has changed: the order must be repeated."""
        failed = [waiting for waiting in self._waiting if waiting.partition == partition]
        if failed:
            self._waiting = deque([waiting for waiting in self._waiting if waiting.partition != partition])
            for waiting in failed:
                self._end(waiting, None)

    def leave(self, partition: int) -> None:
        """End the leadership of the partition: drop its answers."""
        self.answers.leave(partition)
        self.publications.leave(partition)
        self.fail(partition)

    def gone(self, node_id: str) -> None:
        """Drop the answers for a node that is no member any more."""
        self.answers.gone(node_id)
        self._waiting = deque([waiting for waiting in self._waiting if waiting.node_id != node_id])
