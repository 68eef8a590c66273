"""Questions of one node to another about what it leads, and their answers: meaning and encoding.

A question changes nothing, or the same when it is repeated, so it may be asked twice. The answering node limits the
size of its answers.
"""

from __future__ import annotations

from typing import Final

import msgspec

from folkmoot.kernel.errors import CorruptStore
from folkmoot.streams.page import OffsetAhead, OffsetGone, Page

__all__ = [
    "ABORT",
    "AHEAD",
    "BOUNDS",
    "BUSY",
    "COMMIT",
    "CONFLICT",
    "DEFERRED",
    "FAULT",
    "FORGET",
    "FOUND",
    "GONE",
    "LIST",
    "NO_ROOM",
    "READ",
    "REFUSED",
    "SCAN",
    "SEEK",
    "STAGE",
    "TOO_LARGE",
    "UNKNOWN",
    "TABLE",
    "WATCH",
    "Answer",
    "Question",
    "Scanned",
    "decode_answer",
    "decode_question",
    "encode_answer",
    "encode_question",
    "page_of",
]

# The subject of a question. Of a stream: its name, the stream partition, and
SCAN: Final = 1  # retained messages: a filter, partitions, and the key to continue at in the first of them
READ: Final = 2  # a page of records: first offset, end, bytes
BOUNDS: Final = 3  # oldest offset, readable end, bytes, time of the oldest and the latest record (-1: none), the view
WATCH: Final = 4  # the same, as soon as the readable end lies behind the given offset
SEEK: Final = 5  # the first offset with this time or a later one
# Of an app with transactions: its name, and the arguments in `report.order`
STAGE: Final = 6
COMMIT: Final = 7
ABORT: Final = 8
FORGET: Final = 9
LIST: Final = 10
# Of a table: its name, the partition (or `table.HERE`), flags, and the cursor
TABLE: Final = 11  # a page of rows
# Of partitions with a leader: the view, and their numbers
DEFERRED: Final = 12  # how many deferred messages for each are not confirmed; the view of the answer comes first

# The result in an answer
FOUND: Final = 0
GONE: Final = 1  # retention has removed the offset; with the oldest remaining one
AHEAD: Final = 2  # the offset lies beyond the end; the end
FAULT: Final = 3  # the data cannot be read, and why
REFUSED: Final = 4  # this node does not lead it
# For transactions; the text says why
CONFLICT: Final = 5  # the request contradicts the state
TOO_LARGE: Final = 6
NO_ROOM: Final = 7  # not now: existing transactions must be published first
BUSY: Final = 8  # not now; of a table: too many readers
UNKNOWN: Final = 9  # there is no such app

_Question = tuple[int, int, bytes, list[int], bytes]
_Scanned = tuple[int, bool, bytes, list[bytes]]
_Answer = tuple[int, int, list[int], str, list[bytes], list[_Scanned]]


class Question:
    """number: assigned by the asking node; the other fields depend on `what`, see above."""

    def __init__(self, number: int, what: int, name: bytes, numbers: list[int], key: bytes) -> None:
        self.number = number
        self.what = what
        self.name = name
        self.numbers = numbers
        self.key = key

    def __repr__(self) -> str:
        return f"Question({self.number} what={self.what} {self.name!r} {self.numbers})"


class Scanned:
    """Retained messages of one partition; unless it is `done`, it continues at `key`."""

    def __init__(self, partition: int, done: bool, key: bytes, messages: list[bytes]) -> None:
        self.partition = partition
        self.done = done
        self.key = key
        self.messages = messages

    def __repr__(self) -> str:
        return f"Scanned({self.partition} done={self.done} {len(self.messages)} messages)"


class Answer:
    """numbers: of a page the next offset, the oldest, the end; chunks: its chunks; scanned: of a scan."""

    def __init__(self, status: int, numbers: list[int]) -> None:
        self.status = status
        self.numbers = numbers
        self.text = ""
        self.chunks: list[bytes] = []
        self.scanned: list[Scanned] = []

    def __repr__(self) -> str:
        return f"Answer({self.status} {self.numbers} {self.text!r} {len(self.chunks)} chunks, {self.scanned!r})"


def encode_question(question: Question) -> bytes:
    """Return a question as bytes."""
    return msgspec.msgpack.encode(
        (question.number, question.what, question.name, question.numbers, question.key),
    )


def decode_question(body: bytes) -> Question:
    """Read a question; raises ValueError if it is malformed."""
    number, what, name, numbers, key = msgspec.msgpack.decode(body, type=_Question)
    return Question(number, what, name, numbers, key)


def encode_answer(number: int, answer: Answer) -> bytes:
    """Return an answer to the question `number` as bytes."""
    scanned = [(part.partition, part.done, part.key, part.messages) for part in answer.scanned]
    return msgspec.msgpack.encode((number, answer.status, answer.numbers, answer.text, answer.chunks, scanned))


def decode_answer(body: bytes) -> tuple[int, Answer]:
    """Return the number of the question and the answer; raises ValueError if it is malformed."""
    number, status, numbers, text, chunks, scanned = msgspec.msgpack.decode(body, type=_Answer)
    answer = Answer(status, numbers)
    answer.text = text
    answer.chunks = chunks
    answer.scanned = [Scanned(partition, done, key, messages) for partition, done, key, messages in scanned]
    return number, answer


def page_of(answer: Answer) -> Page | OffsetGone | OffsetAhead:
    """Return the answer to READ as `StreamLog.read` would; raises CorruptStore for a fault or malformed data."""
    numbers = answer.numbers
    if answer.status == FOUND and len(numbers) == 3:
        return Page(answer.chunks, numbers[0], numbers[1], numbers[2])
    if answer.status == GONE and len(numbers) == 1:
        return OffsetGone(numbers[0])
    if answer.status == AHEAD and len(numbers) == 1:
        return OffsetAhead(numbers[0])
    raise CorruptStore(answer.text or f"another node has answered {answer!r}")
