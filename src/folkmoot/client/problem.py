"""What a node's HTTP API can answer instead of what was asked for, as exceptions that say what to do."""

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
    """Base of all that can go wrong between a client and the HTTP API of a node."""


class Unreachable(StreamProblem):
    """No node answered within the client's patience."""


class NotAuthorised(StreamProblem):
    """The node refuses the credentials (401, 403)."""


class NoSuchStream(StreamProblem):
    """The node has no stream, or no stream partition, of that name (404)."""


class NoSuchApp(StreamProblem):
    """No app of that name has transactions (404)."""


class NoSuchNode(StreamProblem):
    """The cluster has no node of that id (404)."""


class NotPossible(StreamProblem):
    """The cluster will not do what was asked of it (409); the text says why."""


class BadQuestion(StreamProblem):
    """A parameter is wrong (400); the text names it."""


class BadAnswer(StreamProblem):
    """What came back is not what the API promises: damaged chunks, missing records, another service on that port."""


class OffsetGone(StreamProblem):
    """Retention has removed the offset (410); `oldest` is the first that is left."""

    def __init__(self, text: str, oldest: int) -> None:
        super().__init__(text)
        self.oldest = oldest


class OffsetAhead(StreamProblem):
    """The offset lies beyond the end (416); `next` is the one that the next record will have."""

    def __init__(self, text: str, next: int) -> None:  # noqa: A002 - the word of the API
        super().__init__(text)
        self.next = next
