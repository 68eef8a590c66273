"""Which lines of the log are written, as a function of events and time: owns the limits per kind and address.

Each kind of event of each address has a bucket of its own, so that a noisy address does not hide the others. All
addresses together have another one per kind, so that many of them do not fill the disk. When that is empty, a reserve
is left for addresses that have been quiet. What is not written is counted: the next line of the same kind and address
has the count, and what has no next line is in a summary.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND

__all__ = ["BURST", "LineLimits", "Summary"]

BURST: Final = 20  # lines of one kind and address, then
REFILL_US: Final = SECOND // 5
ALL_BURST: Final = 100  # lines of one kind with addresses, then
ALL_REFILL_US: Final = SECOND // 25
ADDRESSES_MAX: Final = 4096  # kinds and addresses in memory
SUMMARY_US: Final = 10 * SECOND


class Bucket:
    """A token bucket, and how many events it has suppressed."""

    __slots__ = ("_burst", "_filled_us", "_refill_us", "left", "skipped")

    def __init__(self, burst: int, refill_us: int, now: int) -> None:
        self._burst = burst
        self._refill_us = refill_us
        self._filled_us = now
        self.left = burst
        self.skipped = 0

    def fill(self, now: int) -> int:
        """Add the tokens of the time that has passed; return how many there are."""
        if now < self._filled_us:
            self._filled_us = now  # the wall clock was set back
        elif now - self._filled_us >= self._refill_us:
            steps = (now - self._filled_us) // self._refill_us
            self.left = min(self._burst, self.left + steps)
            self._filled_us += steps * self._refill_us
        return self.left

    def is_full(self) -> bool:
        """Whether no event has come for a while."""
        return self.left == self._burst


class Summary:
    """What was suppressed of one kind: lines, the number of addresses, and the one with the most of them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.lines = 0
        self.addresses = 0
        self.most = ""
        self._most_lines = 0

    def add(self, address: str, lines: int) -> None:
        """Count the suppressed lines of an address."""
        self.lines += lines
        self.addresses += bool(address)
        if lines > self._most_lines:
            self._most_lines = lines
            self.most = address


class LineLimits:
    """Decides for each event whether its line is written."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], Bucket] = {}  # the one used last is the last
        self._all: dict[str, Bucket] = {}  # per kind
        self._reserve: dict[str, Bucket] = {}
        self._forgotten: dict[str, tuple[int, int]] = {}  # per kind: addresses that had to be forgotten, their lines
        self._since_us = 0  # of the oldest count that was not reported
        self.suppressed = 0

    def take(self, kind: str, address: str, now: int) -> int:
        """Return -1 if an event is not written, else how many of its kind and address were not written before it."""
        bucket = self._buckets.pop((kind, address), None) or self._new(now)
        self._buckets[kind, address] = bucket
        if bucket.fill(now) and (not address or self._has_room(kind, bucket.is_full(), now)):
            bucket.left -= 1
            skipped, bucket.skipped = bucket.skipped, 0
            return skipped
        bucket.skipped += 1
        self.suppressed += 1
        self._since_us = self._since_us or now
        return -1

    def _new(self, now: int) -> Bucket:
        if len(self._buckets) >= ADDRESSES_MAX:
            (kind, address) = oldest = next(iter(self._buckets))
            skipped = self._buckets.pop(oldest).skipped
            if skipped:
                addresses, lines = self._forgotten.get(kind, (0, 0))
                self._forgotten[kind] = (addresses + bool(address), lines + skipped)
        return Bucket(BURST, REFILL_US, now)

    def _has_room(self, kind: str, quiet: bool, now: int) -> bool:
        for buckets, burst, refill_us in (
            (self._all, ALL_BURST, ALL_REFILL_US),
            (self._reserve, BURST, REFILL_US),
        ):
            bucket = buckets.get(kind)
            if bucket is None:
                bucket = buckets[kind] = Bucket(burst, refill_us, now)
            if bucket.fill(now):
                bucket.left -= 1
                return True
            if not quiet:
                break
        return False

    def summaries(self, now: int, all_of_them: bool = False) -> list[Summary]:
        """Return what was suppressed and not reported by a line, once it is SUMMARY_US old."""
        if not self._since_us or (0 <= now - self._since_us < SUMMARY_US and not all_of_them):
            return []
        self._since_us = 0
        found: dict[str, Summary] = {}
        for (kind, address), bucket in self._buckets.items():
            if bucket.skipped:
                found.setdefault(kind, Summary(kind)).add(address, bucket.skipped)
                bucket.skipped = 0
        for kind, (addresses, lines) in self._forgotten.items():
            summary = found.setdefault(kind, Summary(kind))
            summary.lines += lines
            summary.addresses += addresses
        self._forgotten.clear()
        return list(found.values())
