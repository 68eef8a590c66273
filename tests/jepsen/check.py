"""The verdict on a history: a pure function of its events, judged by the promises of docs/limits.md and nothing else.

Every promise counts what it judged, what it excused (by the table in `excuse`) and what is broken. A promise that had
nothing to judge is not kept, it is untested, and the report says so.
"""

from __future__ import annotations

from collections import Counter

from tests.jepsen.check_delivery import check_delivery
from tests.jepsen.check_live import check_live
from tests.jepsen.check_retained import check_retained
from tests.jepsen.check_session import check_session
from tests.jepsen.check_stream import check_stream
from tests.jepsen.check_transaction import check_transactions
from tests.jepsen.excuse import Excuses
from tests.jepsen.history import Event
from tests.jepsen.ledger import Ledger
from tests.jepsen.verdict import PROMISES, Verdict

__all__ = ["check", "report"]

SHOWN = 12


def check(events: list[Event]) -> Verdict:
    """Judge a history."""
    ledger = Ledger(events)
    verdict = Verdict()
    excuses = Excuses(ledger)
    for part in (check_delivery, check_session, check_retained, check_stream, check_transactions, check_live):
        part(ledger, excuses, verdict)
    return verdict


def report(verdict: Verdict) -> str:
    """The verdict as text: a table, then what is broken."""
    lines = ["promise      judged  excused   broken"]
    for promise, text in PROMISES.items():
        judged, broken = verdict.judged[promise], len(verdict.broken(promise))
        by = Counter(one.excuse for one in verdict.findings if one.promise == promise and one.excuse)
        said = ", ".join(f"{name} {count}" for name, count in sorted(by.items()))
        lines.append(f"{promise:7} {judged:11} {by.total():8} {broken:8}  {text if not said else f'{text} ({said})'}")
    for promise in PROMISES:
        found = verdict.broken(promise)
        kinds = Counter(one.kind for one in found)
        for kind, count in kinds.items():
            lines.append(f"{promise} broken: {kind}, {count} times")
            lines += [f"    {one.at / 1e6:9.3f} s  {one.text}" for one in found if one.kind == kind][:SHOWN]
    return "\n".join(lines)
