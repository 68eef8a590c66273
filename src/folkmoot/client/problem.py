"""The errors of the HTTP API as exceptions, whose texts say what to do."""

from __future__ import annotations

from folkmoot.kernel.errors import FolkmootError

__all__ = [
    "BadAnswer",
    "BadQuestion",
    "NoSuchApp",
    "NoSuchStream",
    "NotAuthorised",
    "NotPossible",
    "NoSuchNode",
    "OffsetAhead",
    "OffsetGone",
    "StreamProblem",
    "Unreachable",
]


class StreamProblem(FolkmootError):
    """Base class of the errors between a client and the HTTP API of a node."""


class Unreachable(StreamProblem):
    """No node answered within the time limit of the client."""


class NotAuthorised(StreamProblem):
    """The node refuses the credentials (401, 403)."""


class NoSuchStream(StreamProblem):
    """The node has no stream, or no stream partition, of that name (404)."""


class NoSuchApp(StreamProblem):
    """No app of that name has transactions (404)."""


class NoSuchNode(StreamProblem):
    """The cluster has no node of that id (404)."""


class NotPossible(StreamProblem):
    """The cluster refuses a command (409); the text says why."""


class BadQuestion(StreamProblem):
    """A parameter is invalid (400); the text names it."""


class BadAnswer(StreamProblem):
    """The answer violates the API: damaged chunks, missing records, another service on that port."""


class OffsetGone(StreamProblem):
    """Retention has removed the offset (410); `oldest` is the first remaining one."""

    def __init__(self, text: str, oldest: int) -> None:
        super().__init__(text)
        self.oldest = oldest


class OffsetAhead(StreamProblem):
    """The offset is beyond the end (416); `next` is the offset of the next record."""

    def __init__(self, text: str, next: int) -> None:  # noqa: A002 - the word of the API
        super().__init__(text)
        self.next = next
