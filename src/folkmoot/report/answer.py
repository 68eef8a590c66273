"""Answering other nodes: pages of retained messages and of tables, records of streams, of the partitions led here.

Only the leader knows what is committed, so only the leader answers, and with committed data alone (A9). The asking side
is `query.inquiry`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.channel.deferral import Deferral
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.partition.retained import Retained
from folkmoot.query.question import (
    AHEAD,
    BOUNDS,
    DEFERRED,
    FAULT,
    FOUND,
    GONE,
    READ,
    REFUSED,
    SCAN,
    SEEK,
    TABLE,
    WATCH,
    Answer,
    Question,
    Scanned,
    decode_question,
    encode_answer,
)
from folkmoot.report.table import HERE, Tables
from folkmoot.store.message import decode_message
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.streams.log import StreamLog
from folkmoot.streams.page import OffsetAhead, OffsetGone
from folkmoot.streams.table import Streams
from folkmoot.topics.name import check_filter, matches
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import QUERY_ANSWER
from folkmoot.turn.state import State

__all__ = ["Answers", "bounds_of"]

_SCAN_BYTES: Final = 262_144  # of messages in one answer, approximately: other messages to that node wait behind it
_READ_BYTES_MAX: Final = 1_048_576
_LEVELS_MAX: Final = 65_536


class _Scan:
    """A question for retained messages, until all turns before it are committed."""

    def __init__(self, token: int, node_id: str, question: Question) -> None:
        self.token = token
        self.node_id = node_id
        self.question = question


def bounds_of(log: StreamLog) -> list[int]:
    """Return the answer to BOUNDS."""
    oldest_us, latest_us = log.oldest_time_us, log.latest_time_us
    return [
        log.oldest,
        log.readable_end,
        log.bytes,
        -1 if oldest_us is None else oldest_us,
        -1 if latest_us is None else latest_us,
    ]


class Answers:
    """The answers of this node about its partitions."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        commits: Commits,
        retained: Retained,
        streams: Streams,
        tables: Tables,
        deferral: Deferral,
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.commits = commits
        self.retained = retained
        self.streams = streams
        self.tables = tables
        self.deferral = deferral
        self._scans: deque[_Scan] = deque()  # in the order of their tokens
        self._watches: dict[StreamLog, dict[str, int]] = {}  # nodes that wait for records: the number of their question

    def receive(self, node_id: str, body: bytes) -> None:
        """Handle a question; raises ValueError if it is malformed."""
        question = decode_question(body)
        if question.what == SCAN:
            scan = _Scan(self.commits.newest_token(), node_id, question)
            if scan.token <= self.commits.committed_token:
                self._scan(scan)
            else:
                self._scans.append(scan)
        elif question.what == TABLE:
            self._of_table(node_id, question)
        elif question.what == DEFERRED:
            self._send(node_id, question.number, self._deferred(question))
        else:
            self._of_stream(node_id, question)

    def _send(self, node_id: str, number: int, answer: Answer) -> None:
        if node_id in self.fabric.others:
            self.fabric.send(node_id, QUERY_ANSWER, encode_answer(number, answer))

    def _deferred(self, question: Question) -> Answer:
        """Answer how much is deferred for partitions; not before this node knows that they have a leader."""
        epoch, *partitions = question.numbers
        fabric = self.fabric
        known = [one for one in partitions if 0 <= one < self.state.partitions and fabric.leaders[one]]
        if fabric.epoch < epoch or len(known) < len(partitions):
            return Answer(REFUSED, [])
        return Answer(FOUND, [fabric.epoch, *[self.deferral.left_for(partition) for partition in partitions]])

    # -- retained messages --------------------------------------------------------------------------------------------

    def committed(self) -> None:
        """More turns are committed: the store shows the retained messages from before some questions."""
        scans = self._scans
        while scans and scans[0].token <= self.commits.committed_token:
            self._scan(scans.popleft())

    def _scan(self, scan: _Scan) -> None:
        """Answer with the matching messages of the asked partitions that this node leads, up to a page."""
        question = scan.question
        why = check_filter(question.name, _LEVELS_MAX)
        if why is not None:
            raise ValueError(f"a question for {question.name!r}: {why}")
        answer = Answer(FOUND, [])
        rows_left = self.state.limits.page_rows
        bytes_left = _SCAN_BYTES
        key = question.key
        for partition in question.numbers:
            if 0 <= partition < self.state.partitions and self.state.leads[partition]:
                try:
                    scanned, rows, size = self._page(question.name, partition, key, rows_left, bytes_left)
                except CorruptStore as corrupt:
                    self._send(scan.node_id, question.number, self._fault(corrupt))
                    return
                answer.scanned.append(scanned)
                rows_left -= rows
                bytes_left -= size
                if not scanned.done or rows_left <= 0 or bytes_left <= 0:
                    break
            key = b""
        if not answer.scanned and question.numbers:
            answer.status = REFUSED
        self._send(scan.node_id, question.number, answer)

    def _page(
        self, topic_filter: bytes, partition: int, key: bytes, rows_max: int, bytes_max: int
    ) -> tuple[Scanned, int, int]:
        """Return matching messages of one partition, the number of rows read for them, and their bytes."""
        rows = self.retained.read(partition, topic_filter, key, rows_max)
        messages: list[bytes] = []
        size = 0
        count = 0
        for row_key, value in rows:
            if size >= bytes_max:
                return Scanned(partition, False, row_key, messages), count, size
            count += 1
            message = decode_message(value, VERSION_BYTES)
            if not matches(topic_filter, message.topic):
                continue
            if self.state.has_expired(message.expires_us):  # [MQTT-3.3.2-5]
                self.retained.expire(message)
                continue
            messages.append(value[VERSION_BYTES:])
            size += len(value)
        if len(rows) == rows_max:
            return Scanned(partition, False, rows[-1][0] + b"\0", messages), count, size
        return Scanned(partition, True, b"", messages), count, size

    # -- tables -------------------------------------------------------------------------------------------------------

    def _of_table(self, node_id: str, question: Question) -> None:
        partition = question.numbers[0]
        if partition != HERE and not (0 <= partition < self.state.partitions and self.state.leads[partition]):
            answer = Answer(REFUSED, [])
        else:
            answer = self.tables.look(question.name, partition, question.numbers[1], question.key)
        self._send(node_id, question.number, answer)

    # -- streams ------------------------------------------------------------------------------------------------------

    def _of_stream(self, node_id: str, question: Question) -> None:
        numbers = question.numbers
        name = question.name.decode()
        stream = self.streams.get(name)
        index = numbers[0]
        if stream is None or not 0 <= index < len(stream.logs):
            answer = Answer(FAULT, [])
            answer.text = f"node {self.fabric.node_id} has no partition {index} of stream {name}"
            self._send(node_id, question.number, answer)
            return
        log = stream.logs[index]
        if not self.state.leads[log.store_partition]:
            self._send(node_id, question.number, Answer(REFUSED, []))
        elif question.what == WATCH and log.readable_end <= numbers[1]:
            watches = self._watches.get(log)
            if watches is None:
                watches = {}
                self._watches[log] = watches
            watches[node_id] = question.number
        else:
            self._send(node_id, question.number, self.look(log, question.what, numbers))

    def look(self, log: StreamLog, what: int, numbers: list[int]) -> Answer:
        """Return the answer to a question about a led stream partition; raises ValueError if it is malformed."""
        try:
            if what == READ:
                return self._read(log, numbers[1], numbers[2], numbers[3])
            if what == SEEK:
                return Answer(FOUND, [log.offset_at(numbers[1])])
            if what == BOUNDS or what == WATCH:
                return Answer(FOUND, [*bounds_of(log), self.fabric.epoch])
        except CorruptStore as corrupt:
            return self._fault(corrupt)
        raise ValueError(f"there is no question {what}")

    def _fault(self, corrupt: CorruptStore) -> Answer:
        self.state.event(ERROR, "unreadable", {"what": str(corrupt)})
        answer = Answer(FAULT, [])
        answer.text = str(corrupt)
        return answer

    def _read(self, log: StreamLog, start: int, end: int, bytes_max: int) -> Answer:
        page = log.read(start, end, max(1, min(bytes_max, _READ_BYTES_MAX)))
        if isinstance(page, OffsetGone):
            return Answer(GONE, [page.oldest])
        if isinstance(page, OffsetAhead):
            return Answer(AHEAD, [page.next])
        answer = Answer(FOUND, [page.next_offset, page.oldest, page.end])
        answer.chunks = page.chunks
        return answer

    def grown(self, logs: list[StreamLog]) -> None:
        """Stream partitions have new records: answer the nodes that wait for them."""
        if not self._watches:
            return
        for log in logs:
            watches = self._watches.pop(log, None)
            if watches is not None:
                for node_id, number in watches.items():
                    self._send(node_id, number, self.look(log, WATCH, []))

    # -- partitions and nodes -----------------------------------------------------------------------------------------

    def leave(self, partition: int) -> None:
        """End the leadership of the partition: nodes that wait for its records ask the new leader."""
        for log in [log for log in self._watches if log.store_partition == partition]:
            for node_id, number in self._watches.pop(log).items():
                self._send(node_id, number, Answer(REFUSED, []))

    def gone(self, node_id: str) -> None:
        """Forget the questions of a node that is no member any more."""
        self._scans = deque([scan for scan in self._scans if scan.node_id != node_id])
        for watches in self._watches.values():
            watches.pop(node_id, None)
