"""A8: what a new subscriber finds retained is what was written last, in some order that the clients could have seen.

A topic is a register. A value may be found unless another one was written between the end of its writing (the
acknowledgement) and the beginning of the look, both ends included in the writing of the other: then every order has
the other one later. A write without acknowledgement may have happened at any time after it was sent.

What counts is what comes first: a value that is written during the look may come as a message of the new subscription,
and not as a retained one.
"""

from __future__ import annotations

from collections import defaultdict

from tests.jepsen.excuse import Excuses
from tests.jepsen.ledger import Ledger, Publication, matches
from tests.jepsen.verdict import Verdict

__all__ = ["check_retained"]


def check_retained(ledger: Ledger, excuses: Excuses, verdict: Verdict) -> None:
    """Judge every look at retained messages."""
    writes: dict[str, list[Publication]] = defaultdict(list)
    for message in [*ledger.publications.values(), *ledger.clears]:
        if message.retain and not (message.refused and not message.is_acknowledged):
            writes[message.topic].append(message)
    last: dict[str, dict[str, str]] = defaultdict(dict)
    for number, (asked, filters) in ledger.subscribes.items():
        connection = ledger.connections[number]
        found = first_values(ledger, number)
        for topic, history in writes.items():
            if not any(matches(name, topic) for name, _ in filters):
                continue
            value, at = found.get(topic, ("", ledger.quiet.get(number, -1)))
            if at < 0:
                continue  # the connection ended before the look was over
            if not value and ledger.world.is_silent(connection.node, asked, at):
                continue  # its node did not answer for some of that time
            verdict.judge("A8")
            newer = overwritten(history, value, asked, at)
            if newer is not None:
                look = f"{connection.client} found {value or 'nothing'} on {topic} at {connection.node}, "
                look += f"asked {asked / 1e6:.3f} s; {newer.value or 'a clear'} was written "
                look += f"{newer.sent / 1e6:.3f} to {newer.acknowledged / 1e6:.3f} s"
                excuse = excuses.stale(connection.node, newer, asked, at)
                if not excuse and not value:
                    excuse = excuses.unread(connection.node, asked, at)
                verdict.find("A8", "not the latest", at, look, excuse)
            if asked > ledger.phases.get("final", asked):
                last[topic][connection.node] = value
    end = ledger.phases.get("end", 0)
    for topic, by_node in last.items():
        verdict.judge("A8")
        if len(set(by_node.values())) > 1:
            verdict.find("A8", "nodes differ", end, f"{topic} at the end: {by_node}")


def first_values(ledger: Ledger, number: int) -> dict[str, tuple[str, int]]:
    """What came first over a connection, by topic: the value and when it came."""
    found: dict[str, tuple[str, int]] = {}
    for one in ledger.arrivals.get(ledger.connections[number].client, []):
        if one.connection == number:
            found.setdefault(one.topic, (one.value, one.at))
    return found


def overwritten(history: list[Publication], value: str, asked: int, at: int) -> Publication | None:
    """A write that every legal order has after `value` and before the look; None if the value is legal.

    asked, at: when the look began, and when it found the value. An empty one is legal after a clear, and at first.
    """
    candidates = [one for one in history if one.value == value and one.sent < at]
    blocked: Publication | None = None
    ends = [one.acknowledged for one in candidates] + ([0] if not value else [])
    for end in ends:
        newer = next(
            (one for one in history if one.value != value and end < one.sent and one.acknowledged < asked), None
        )
        if newer is None:
            return None
        blocked = newer
    return blocked
