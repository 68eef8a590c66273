"""What the checkers say: findings, and how much each promise was judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.jepsen.excuse import EXCUSES

__all__ = ["PROMISES", "Finding", "Verdict"]

PROMISES = {
    "A1": "acknowledged messages arrive, sessions stay",
    "A2": "nothing is invented",
    "A3": "order per publisher, topic and QoS",
    "A4": "QoS 2 exactly once",
    "A5": "nothing is missed after SUBACK",
    "A6": "one connection per client id",
    "A7": "wills exactly once",
    "A8": "retained: the latest",
    "A9": "streams: dense, never changed, complete",
    "A10": "transactions: all or nothing, once, in order",
    "A11": "a node that is ready serves",
    "A12": "all is well after the faults",
}


@dataclass(frozen=True)
class Finding:
    """A promise that was not kept; excuse: the name of the documented exception, if there is one; at: microseconds."""

    promise: str
    kind: str
    at: int
    text: str
    excuse: str = ""


class Verdict:
    """All findings, and how many obligations were judged per promise."""

    def __init__(self) -> None:
        self.judged: Counter[str] = Counter()
        self.findings: list[Finding] = []

    def judge(self, promise: str, count: int = 1) -> None:
        """Count obligations, kept or not."""
        self.judged[promise] += count

    def find(self, promise: str, kind: str, at: int, text: str, excuse: str = "") -> None:
        """Note an obligation that was not kept."""
        assert not excuse or EXCUSES[excuse].promise == promise, f"{excuse} is no excuse for {promise}"
        self.findings.append(Finding(promise, kind, at, text, excuse))

    def broken(self, promise: str = "") -> list[Finding]:
        """What no exception covers."""
        return [one for one in self.findings if not one.excuse and promise in ("", one.promise)]

    def excused(self, promise: str = "") -> list[Finding]:
        """What an exception covers."""
        return [one for one in self.findings if one.excuse and promise in ("", one.promise)]
