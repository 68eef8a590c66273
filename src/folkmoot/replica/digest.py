"""Comparing replicas continuously: the leader asks for the digest of a page of rows at a common position.

Partitions are compared while they are written. Each replica leaves out the rows that changed between the leader's
position and its own (`window`), and reports its position; the leader leaves the same rows out. A page is passed over
when these changes are not remembered any more. The copy that stands alone with its digest is damaged; of two that
differ it is the follower's, because clients have seen the leader's.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.errors import CorruptStore
from folkmoot.membership.holding import COMPLETE
from folkmoot.peer.kind import DIGEST
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.notice import CompareNotice, encode_compare
from folkmoot.replica.page import read_page
from folkmoot.replica.phase import OPEN
from folkmoot.replica.replica import Replica
from folkmoot.replica.window import page_sum, row_sum, sum_bytes, window_of
from folkmoot.store.key import partition_end, partition_start

__all__ = ["Digests"]

_QUESTION: Final = 0
_ANSWER: Final = 1
_CANNOT: Final = 2
_VERDICT: Final = 3

_PATIENCE: Final = 50  # intervals after which an answer counts as missing
_WAITING_MAX: Final = 1024
_LONGER: Final = b"longer"


class Digests:
    """As leader, one comparison at a time; as follower, questions that wait for the disk."""

    def __init__(self, context: ReplicaContext, replicas: list[Replica]) -> None:
        self.context = context
        self.replicas = replicas
        self.compared = 0
        self.different = 0
        self.passed_over = 0
        self._partition = 0  # the current one
        self._cursor = b""
        self._question: CompareNotice | None = None
        self._expected: list[str] = []
        self._answers: dict[str, CompareNotice] = {}
        self._rows: list[tuple[bytes, bytes]] = []  # of the page in question
        self._round_began_us = 0
        self.round_us = 0  # how long the last round over all partitions led here took; 0 = none has finished
        self._next_us = 0
        self._patience = 0
        self._waiting: list[tuple[Replica, CompareNotice]] = []

    def installed(self) -> None:
        """A new view: questions and answers of the old one are void."""
        self._question = None
        self._rows = []
        self._waiting.clear()

    def due_us(self) -> int:
        """Return when the next comparison is due, NEVER when there is no other replica."""
        if self.context.solo or not self.context.config.digest_us:
            return NEVER
        return self._next_us

    def step(self) -> None:
        """Ask about the next page."""
        context = self.context
        if self.due_us() > context.now:
            return
        self._next_us = context.now + context.config.digest_us
        if self._question is not None:
            self._patience -= 1
            if self._patience > 0:
                return
            self.passed_over += 1
            self._question = None
        for _ in range(len(self.replicas)):
            if self._ask():
                if not self._cursor:  # small partitions need not be compared all the time
                    pause_us = context.config.digest_pause_us
                    self._next_us = context.now + max(pause_us, context.config.digest_us)
                return

    def _ask(self) -> bool:
        """Ask about a page of the current partition, or go to the next; whether there was something to ask or read."""
        context = self.context
        partition = self._partition
        replica = self.replicas[partition]
        others = replica.healthy() if replica.phase == OPEN else []
        if not others or replica.durable_seq < 0:
            self._next_partition()
            return False
        seq = replica.durable_seq
        start = self._cursor or partition_start(partition)
        try:
            rows, end = read_page(context.reader, start, partition_end(partition), context.config.page_bytes)
        except CorruptStore as fault:
            replica.spoil(str(fault))
            self._next_partition()
            return True
        self._question = CompareNotice(_QUESTION, partition, start, end, seq, b"")
        self._question.upto_seq = replica.head_seq
        self._rows = rows
        self._expected = others
        self._answers = {}
        self._patience = _PATIENCE
        body = encode_compare(context.epoch, self._question)
        for node_id in others:
            context.send(node_id, DIGEST, body)
        if end == partition_end(partition):
            self._next_partition()
        else:
            self._cursor = end
        return True

    def _next_partition(self) -> None:
        self._partition = (self._partition + 1) % len(self.replicas)
        if not self._partition:
            if self._round_began_us:
                self.round_us = max(self.context.now - self._round_began_us, 1)
            self._round_began_us = self.context.now
        self._cursor = b""

    def receive(self, replica: Replica, node_id: str, notice: CompareNotice) -> None:
        """Handle a question, an answer or a verdict."""
        if notice.what == _ANSWER or notice.what == _CANNOT:
            self._answered(node_id, notice)
        elif replica.leader == node_id:
            if notice.what == _QUESTION:
                if not self._answer(replica, notice) and len(self._waiting) < _WAITING_MAX:
                    self._waiting.append((replica, notice))
            elif notice.what == _VERDICT and replica.state == COMPLETE:
                replica.spoil("rows differ from those of the other replicas")

    def _answer(self, replica: Replica, question: CompareNotice) -> bool:
        """Answer a question; False when the answer has to wait for the disk."""
        context = self.context
        notice = CompareNotice(_CANNOT, replica.number, question.start, question.end, question.seq, b"")
        newest = replica.head_seq
        # The page may show all that the leader had sent before its question; if a link lost some of it, there is no
        # answer.
        whole = replica.state == COMPLETE and not replica.copying
        if whole and newest >= question.upto_seq:
            if replica.durable_seq < question.seq:
                return False
            try:
                notice.digest = self._digest(replica, question, newest)
                notice.upto_seq = newest
                notice.what = _ANSWER if notice.digest else _CANNOT
            except CorruptStore as fault:
                replica.spoil(str(fault))
        context.send(replica.leader, DIGEST, encode_compare(context.epoch, notice))
        return True

    def _digest(self, replica: Replica, question: CompareNotice, newest: int) -> bytes:
        """Return the digest of the rows without changes since the question's position; nothing when that is unknown."""
        context = self.context
        window = window_of(replica.recent, replica.number, question.seq, newest)
        if window is None:
            return b""
        # The leader's page may hold few rows where this copy has many: rows beyond a page differ in any case.
        rows, end = read_page(context.reader, question.start, question.end, 2 * context.config.page_bytes)
        if end != question.end:
            return _LONGER if window.empty() else b""
        return sum_bytes(page_sum(rows, window))

    def written(self) -> None:
        """More is on the disk here: answer the questions that waited for it."""
        if self._waiting:
            waiting = self._waiting
            self._waiting = []
            for replica, question in waiting:
                if not self._answer(replica, question):
                    self._waiting.append((replica, question))

    def _answered(self, node_id: str, notice: CompareNotice) -> None:
        question = self._question
        if question is None or node_id not in self._expected or node_id in self._answers:
            return
        if notice.partition != question.partition or notice.start != question.start or notice.seq != question.seq:
            return
        self._answers[node_id] = notice
        if len(self._answers) == len(self._expected):
            self._question = None
            self._judge(question)
            self._rows = []

    def _own_digest(self, question: CompareNotice, upto: int) -> bytes:
        """Return this node's digest without the rows changed up to a position; nothing when that is unknown."""
        window = window_of(self.replicas[question.partition].recent, question.partition, question.seq, upto)
        return b"" if window is None else sum_bytes(page_sum(self._rows, window))

    def _judge(self, question: CompareNotice) -> None:
        context = self.context
        equal = 0
        differing: list[CompareNotice] = []
        names: list[str] = []
        own: dict[int, bytes] = {}
        for node_id in self._expected:
            answer = self._answers[node_id]
            if answer.what == _ANSWER and answer.upto_seq not in own:
                own[answer.upto_seq] = self._own_digest(question, answer.upto_seq)
            mine = own[answer.upto_seq] if answer.what == _ANSWER else b""
            if mine and mine == answer.digest:
                equal += 1
            elif mine:
                differing.append(answer)
                names.append(node_id)
        if equal or differing:
            self.compared += 1
        else:
            self.passed_over += 1
        if not differing:
            return
        self.different += 1
        if context.planted.deaf_digests:
            return
        if not equal and len(differing) > 1 and self._agree(question, differing):
            self.replicas[question.partition].spoil("rows differ from those of all other replicas")
            return
        verdict = CompareNotice(_VERDICT, question.partition, question.start, question.end, question.seq, b"")
        for node_id in names:
            context.send(node_id, DIGEST, encode_compare(context.epoch, verdict))

    def _agree(self, question: CompareNotice, answers: list[CompareNotice]) -> bool:
        """Whether several answers, of different positions, describe equal rows: then this node is the one that differs.

        Rows that the later answers leave out are subtracted from the earlier ones, with the values of this node.
        """
        latest = max([answer.upto_seq for answer in answers])
        left_out = window_of(self.replicas[question.partition].recent, question.partition, question.seq, latest)
        found: dict[bytes, bool] = {}
        for answer in answers:
            window = window_of(
                self.replicas[question.partition].recent, question.partition, question.seq, answer.upto_seq
            )
            if window is None or left_out is None:
                return False
            total = int.from_bytes(answer.digest, "little")
            if answer.digest != _LONGER:
                for key, value in self._rows:
                    if left_out.has(key) and not window.has(key):
                        total -= row_sum(key, value)
            found[sum_bytes(total)] = True
        return len(found) == 1
