"""Comparing copies all the time: the leader asks its replicas for the digest of a page of rows at its own position.

A page is compared when nothing of its partition is on the way to any disk; a partition that never rests is passed over
and counted. The copy that stands alone with its digest is damaged; of two that differ it is the follower's, because
clients have seen the leader's.
"""

from __future__ import annotations

from typing import Final

from folkmoot.cluster.holding import COMPLETE
from folkmoot.cluster.kind import DIGEST
from folkmoot.cluster.lead import Lead
from folkmoot.cluster.notice import CompareNotice, encode_compare
from folkmoot.cluster.page import digest_of, read_page
from folkmoot.cluster.standing import OPEN, Standing
from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.errors import CorruptStore
from folkmoot.store.key import partition_end, partition_start

__all__ = ["Digests"]

_ASK: Final = 0
_ANSWER: Final = 1
_CANNOT: Final = 2
_VERDICT: Final = 3

_PATIENCE: Final = 50  # intervals after which an answer is not waited for any more
_WAITING_MAX: Final = 1024


class Digests:
    """One comparison at a time as a leader; questions that wait for the disk as a follower."""

    def __init__(self, standing: Standing, lead: Lead) -> None:
        self.standing = standing
        self.lead = lead
        self.compared = 0
        self.different = 0
        self.passed_over = 0
        self._partition = 0
        self._cursor = b""
        self._question: CompareNotice | None = None
        self._expected: list[str] = []
        self._answers: dict[str, bytes] = {}
        self._next_us = 0
        self._patience = 0
        self._waiting: list[tuple[str, CompareNotice]] = []

    def installed(self) -> None:
        """A new view: questions and answers of the old one are void."""
        self._question = None
        self._waiting.clear()

    def due_us(self) -> int:
        """Return when the next comparison is due, NEVER when there is nobody to compare with."""
        if self.standing.solo or not self.standing.config.digest_us:
            return NEVER
        return self._next_us

    def step(self) -> None:
        """Ask for the next page."""
        standing = self.standing
        if self.due_us() > standing.now:
            return
        self._next_us = standing.now + standing.config.digest_us
        if self._question is not None:
            self._patience -= 1
            if self._patience > 0:
                return
            self.passed_over += 1
            self._question = None
        for _ in range(standing.partitions):
            if self._ask():
                return

    def _ask(self) -> bool:
        """Ask about a page of the current partition, or go to the next; whether there was something to ask or read."""
        standing = self.standing
        partition = self._partition
        others = self.lead.healthy(partition) if standing.phases[partition] == OPEN else []
        if not others:
            self._next_partition()
            return False
        seq = standing.writer.sequence(partition)
        if standing.durable[partition] != seq:
            self.passed_over += 1
            self._next_partition()
            return True
        start = self._cursor or partition_start(partition)
        try:
            rows, end = read_page(standing.reader, start, partition_end(partition), standing.config.page_bytes)
        except CorruptStore as fault:
            standing.spoil(partition, str(fault))
            self._next_partition()
            return True
        self._question = CompareNotice(_ASK, partition, start, end, seq, digest_of(rows))
        self._expected = others
        self._answers = {}
        self._patience = _PATIENCE
        body = encode_compare(standing.epoch, self._question)
        for node_id in others:
            standing.out.append((node_id, DIGEST, body))
        if end == partition_end(partition):
            self._next_partition()
        else:
            self._cursor = end
        return True

    def _next_partition(self) -> None:
        self._partition = (self._partition + 1) % self.standing.partitions
        self._cursor = b""

    def receive(self, node_id: str, notice: CompareNotice) -> None:
        """A question, an answer or a verdict."""
        standing = self.standing
        if notice.what == _ANSWER or notice.what == _CANNOT:
            self._answered(node_id, notice)
        elif standing.leaders[notice.partition] == node_id:
            if notice.what == _ASK:
                if not self._answer(node_id, notice) and len(self._waiting) < _WAITING_MAX:
                    self._waiting.append((node_id, notice))
            elif notice.what == _VERDICT and standing.states[notice.partition] == COMPLETE:
                standing.spoil(notice.partition, "rows differ from those of the other replicas")

    def _answer(self, node_id: str, question: CompareNotice) -> bool:
        """Answer, unless that has to wait for the disk."""
        standing = self.standing
        partition = question.partition
        what = _CANNOT
        digest = b""
        newest = standing.writer.sequence(partition)
        if standing.states[partition] == COMPLETE and newest == question.seq:
            if standing.durable[partition] < newest:
                return False
            try:
                digest = self._digest(question)
                what = _ANSWER
            except CorruptStore as fault:
                standing.spoil(partition, str(fault))
        notice = CompareNotice(what, partition, question.start, question.end, question.seq, digest)
        standing.out.append((node_id, DIGEST, encode_compare(standing.epoch, notice)))
        return True

    def _digest(self, question: CompareNotice) -> bytes:
        # The leader's page may hold few rows where this copy has many: one that does not fit a page differs anyway.
        standing = self.standing
        rows, end = read_page(standing.reader, question.start, question.end, 2 * standing.config.page_bytes)
        return digest_of(rows) if end == question.end else b"longer"

    def written(self) -> None:
        """Something is on the disk here: answer what waited for it."""
        if self._waiting:
            waiting = self._waiting
            self._waiting = []
            for node_id, question in waiting:
                if not self._answer(node_id, question):
                    self._waiting.append((node_id, question))

    def _answered(self, node_id: str, notice: CompareNotice) -> None:
        question = self._question
        if question is None or node_id not in self._expected or node_id in self._answers:
            return
        if notice.partition != question.partition or notice.start != question.start or notice.seq != question.seq:
            return
        self._answers[node_id] = notice.digest if notice.what == _ANSWER else b""
        if len(self._answers) == len(self._expected):
            self._question = None
            self._judge(question)

    def _judge(self, question: CompareNotice) -> None:
        standing = self.standing
        equal = 0
        differing: list[str] = []
        found: dict[bytes, bool] = {}
        for node_id in self._expected:
            digest = self._answers[node_id]
            if digest == question.digest:
                equal += 1
            elif digest:
                differing.append(node_id)
                found[digest] = True
        if equal or differing:
            self.compared += 1
        else:
            self.passed_over += 1
        if not differing:
            return
        self.different += 1
        if standing.deaf_digests:
            return
        if not equal and len(differing) > 1 and len(found) == 1:
            standing.spoil(question.partition, "rows differ from those of all other replicas")
            return
        verdict = CompareNotice(_VERDICT, question.partition, question.start, question.end, question.seq, b"")
        for node_id in differing:
            standing.out.append((node_id, DIGEST, encode_compare(standing.epoch, verdict)))
