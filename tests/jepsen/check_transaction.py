"""A10, as far as subscribers see it: a transaction arrives whole or not at all, once, and after those before it."""

from __future__ import annotations

from collections import defaultdict

from tests.jepsen.excuse import Excuses
from tests.jepsen.ledger import FOREVER, Arrival, Ledger, Transaction, matches
from tests.jepsen.verdict import Verdict

__all__ = ["check_transactions"]


def check_transactions(ledger: Ledger, excuses: Excuses, verdict: Verdict) -> None:
    """Judge every persistent session that is subscribed to what transactions publish."""
    for client, intervals in ledger.intervals.items():
        came: dict[str, list[Arrival]] = defaultdict(list)
        for one in ledger.arrivals.get(client, []):
            if one.value in ledger.staged and one.fresh:
                came[one.value].append(one)
        for found in ledger.transactions.values():
            begin = [
                one.begin
                for one in intervals
                if one.end == FOREVER and all(matches(one.filter, topic) for topic, _ in found.messages)
            ]
            if begin and min(begin) < found.staged and ledger.of_client[client][0].expiry:
                judge(excuses, verdict, client, found, came)
        in_order(ledger, verdict, client, came)


def judge(excuses: Excuses, verdict: Verdict, client: str, found: Transaction, came: dict[str, list[Arrival]]) -> None:
    """One transaction at one subscriber."""
    verdict.judge("A10")
    what = f"transaction {found.number} of {found.app}, staged {found.staged / 1e6:.3f} s"
    there = [value for _, value in found.messages if came[value]]
    for topic, value in found.messages:
        for one in came[value][:1]:
            if one.topic != topic:
                verdict.find("A10", "wrong topic", one.at, f"{client} got {value} of {what} on {one.topic}")
        if len(came[value]) > 1:
            first, again = came[value][:2]
            text = f"{client} got {value} of {what} {len(came[value])} times"
            excuse = excuses.transaction_twice((first.at, first.connection), (again.at, again.connection))
            verdict.find("A10", "twice", again.at, text, excuse)
    if found.refused < FOREVER:
        verdict.find("A10", "refused", found.refused, f"{what}: its commit was refused, though all of it was staged")
    if there and came[there[0]][0].at < found.asked:
        verdict.find("A10", "not committed", came[there[0]][0].at, f"{client} got {there[0]} of {what}")
    elif len(there) < len(found.messages) and (there or found.committed < FOREVER):
        said = "confirmed" if found.committed < FOREVER else "not confirmed"
        lost = [value for _, value in found.messages if not came[value]]
        text = f"{client} never got {', '.join(lost)} of {what}, {said}"
        verdict.find("A10", "in part" if there else "lost", found.staged, text)


def in_order(ledger: Ledger, verdict: Verdict, client: str, came: dict[str, list[Arrival]]) -> None:
    """Per app and topic: the order of the numbers, and within a transaction that of staging."""
    newest: dict[tuple[str, str], tuple[tuple[int, int], str]] = {}
    for first in sorted((found[0] for found in came.values() if found), key=lambda one: one.at):
        found = ledger.staged[first.value]
        place = (found.number, [value for _, value in found.messages].index(first.value))
        before = newest.get((found.app, first.topic))
        if before is None or before[0] < place:
            newest[found.app, first.topic] = place, first.value
        else:
            text = f"{client} got {first.value} after {before[1]} on {first.topic}"
            verdict.find("A10", "overtaken", first.at, text)
