"""A11 and A12: a node that says it is ready serves within a bound; after the faults every node does."""

from __future__ import annotations

from itertools import pairwise

from tests.jepsen.excuse import Excuses
from tests.jepsen.history import Event
from tests.jepsen.ledger import FOREVER, Connection, Ledger, Publication
from tests.jepsen.verdict import Verdict

__all__ = ["BOUND_US", "check_live"]

BOUND_US = 10_000_000
"""For CONNACK and for PUBACK: five seconds of docs/limits.md, twice the silence that removes a node, and the change."""
APART_US = 3_000_000
"""Answers about readiness that are further apart leave it open what the node said between them."""


def check_live(ledger: Ledger, excuses: Excuses, verdict: Verdict) -> None:
    """Judge the probes of nodes that said all the time that they are ready, and the end of the run."""
    for client, connections in ledger.of_client.items():
        if not client.startswith("probe-"):
            continue
        for one in connections:
            probe(ledger, excuses, verdict, one)
    for message in ledger.publications.values():
        publication(ledger, excuses, verdict, message)
    for event in ledger.died:
        text = f"the process of {event['node']} ended by itself, status {event['status']}"
        verdict.find("A11", "ended by itself", event["t"], text)
    at_the_end(ledger, excuses, verdict)


def publication(ledger: Ledger, excuses: Excuses, verdict: Verdict, message: Publication) -> None:
    """The last sending of a message, unless the client has ended the connection before the bound."""
    asked, number = message.sends[-1]
    one = ledger.connections[number]
    answered = min(message.answered, one.ended if one.by == "peer" else FOREVER)
    if answered <= asked + BOUND_US:
        verdict.judge("A11")
    elif one.ended > asked + BOUND_US:
        judge(excuses, verdict, ledger.ready.get(one.node, []), one.node, "PUBLISH", asked, answered)


def probe(ledger: Ledger, excuses: Excuses, verdict: Verdict, one: Connection) -> None:
    """One new client at one node."""
    polls = ledger.ready.get(one.node, [])
    if one.accepted == FOREVER:
        # The client gives up before the bound; that the next one gives up too is as good as waiting on.
        after = [other for other in same_node(ledger, one) if other.began >= one.began]
        answered = min(
            (min(other.accepted, other.ended if other.by == "peer" else FOREVER) for other in after), default=0
        )
        judge(excuses, verdict, polls, one.node, "CONNECT", one.began, answered)
        return
    judge(excuses, verdict, polls, one.node, "CONNECT", one.began, one.accepted)


def same_node(ledger: Ledger, one: Connection) -> list[Connection]:
    """All connections of the prober of a node."""
    prefix = one.client.rpartition("-")[0]
    return [
        other
        for client, connections in ledger.of_client.items()
        if client.rpartition("-")[0] == prefix
        for other in connections
    ]


def judge(
    excuses: Excuses, verdict: Verdict, polls: list[Event], node: str, what: str, asked: int, answered: int
) -> None:
    """Whether an answer came within the bound; judged if the node was ready for all of that time."""
    until = min(answered, asked + BOUND_US)
    if not ready(polls, asked, until):
        return
    verdict.judge("A11")
    if answered > asked + BOUND_US:
        text = f"{node} says it is ready, and has not answered a {what} for {BOUND_US / 1e6:.0f} s"
        verdict.find("A11", "not served", asked, text, excuses.unanswered(asked, asked + BOUND_US))


def ready(polls: list[Event], begin: int, end: int) -> bool:
    """Whether a node said that it is ready before, after and at all times between, without a pause."""
    near = [one for one in polls if begin - APART_US <= one["t"] and one["sent"] <= end + APART_US]
    if not near or any(one["status"] != 200 for one in near):
        return False
    covered = near[0]["sent"] <= begin and near[-1]["t"] >= end
    return covered and all(after["t"] - before["t"] <= APART_US for before, after in pairwise(near))


def at_the_end(ledger: Ledger, excuses: Excuses, verdict: Verdict) -> None:
    """A12: at the end all nodes are ready, and every client is connected."""
    final, end = ledger.phases.get("final"), ledger.phases.get("end")
    if final is None or end is None:
        return
    witnesses = ledger.run.get("witnesses", [])
    for node in [node for node in ledger.run["nodes"] if node not in witnesses]:
        verdict.judge("A12")
        newest = next((one for one in reversed(ledger.ready.get(node, [])) if one["t"] <= end), None)
        if newest is None or newest["status"] != 200:
            verdict.find("A12", "not ready", end, f"{node} is not ready at the end: {newest and newest['status']}")
    verdict.judge("A12")
    for event in ledger.unsettled:
        text = "; ".join(f"{client} {what}" for client, what in sorted(event["busy"].items()))
        verdict.find(
            "A12", "no rest", event["t"], f"long after the last fault: {text or 'a subscriber is not connected'}"
        )
    for client, intervals in ledger.intervals.items():
        if not intervals or not ledger.of_client[client][0].expiry:
            continue
        verdict.judge("A12")
        last = excuses.accepted(client)[-1]
        if last.ended < final and all(one.ended < final for one in ledger.of_client[client]):
            verdict.find("A12", "not connected", end, f"{client} is not connected at the end")
