"""The position to begin or end at in a stream: `earliest`, `latest`, an offset, or a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from folkmoot.client.streams import StreamClient, StreamInfo

__all__ = ["EARLIEST", "LATEST", "OFFSET", "TIME", "Position", "parse_time"]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
OFFSET: Final = "offset"
TIME: Final = "time"


def parse_time(text: str) -> int:
    """Return an RFC 3339 time (`2026-03-01T12:00:00Z`; a date alone is its midnight in UTC) in microseconds since 1970.

    Raises ValueError. A time without a zone is refused, because the zone of the reader is not that of the stream.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: write it as 2026-03-01T12:00:00Z or 2026-03-01") from None
    if found.tzinfo is None:
        if len(text) > 10:
            raise ValueError(f"{text!r} has no time zone: add Z for UTC, or +01:00 and the like")
        found = found.replace(tzinfo=UTC)
    return (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class Position:
    """A position: its kind, and the offset or the time in microseconds."""

    def __init__(self, kind: str, number: int = 0) -> None:
        self.kind = kind
        self.number = number

    @classmethod
    def parse(cls, text: str) -> Position:
        """Return the position in `text`; raises ValueError with the valid forms."""
        word = text.strip()
        if word in (EARLIEST, LATEST):
            return cls(word)
        if word.isascii() and word.isdigit():
            return cls(OFFSET, int(word))
        try:
            return cls(TIME, parse_time(word))
        except ValueError as error:
            raise ValueError(f"{error}; or use earliest, latest, or an offset") from None

    def resolve(self, client: StreamClient, info: StreamInfo) -> dict[int, int]:
        """Return the offset of this position in each stream partition of `info`."""
        if self.kind == EARLIEST:
            return {part.partition: part.oldest for part in info.ranges}
        if self.kind == LATEST:
            return {part.partition: part.next for part in info.ranges}
        if self.kind == OFFSET:
            return {part.partition: self.number for part in info.ranges}
        return client.offsets(info.name, self.number)
