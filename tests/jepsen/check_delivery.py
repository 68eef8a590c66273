"""A1 to A5: what was acknowledged arrives, nothing else does, in order, QoS 2 once; sessions stay."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from tests.jepsen.excuse import Excuses
from tests.jepsen.ledger import FOREVER, Arrival, Interval, Ledger, Publication, matches
from tests.jepsen.verdict import Verdict

__all__ = ["check_delivery"]

BARRIER_US = 2_000_000
"""A message that was sent so soon after a SUBACK tests the subscription (A5), a later one the storage (A1)."""


def check_delivery(ledger: Ledger, excuses: Excuses, verdict: Verdict) -> None:
    """Judge all arrivals, and what did not arrive."""
    topics: dict[str, list[Publication]] = defaultdict(list)
    for message in ledger.publications.values():
        if not message.retain:
            topics[message.topic].append(message)
    sessions(ledger, excuses, verdict)
    for client, arrivals in ledger.arrivals.items():
        invented(ledger, verdict, client, arrivals)
        live = [one for one in arrivals if not one.retain and one.value in ledger.publications]
        order(ledger, excuses, verdict, client, live)
        once(ledger, excuses, verdict, client, live)
    for client, intervals in ledger.intervals.items():
        if ledger.of_client[client][0].expiry:
            owed(ledger, verdict, client, [one for one in intervals if one.qos and not is_shared(one)], topics)
    groups(ledger, excuses, verdict, topics)


def is_shared(interval: Interval) -> bool:
    return interval.filter.startswith("$share/")


def sessions(ledger: Ledger, excuses: Excuses, verdict: Verdict) -> None:
    """A1: a session that does not expire is present at each further connection."""
    for client in ledger.of_client:
        accepted = excuses.accepted(client)
        for before, after in pairwise(accepted):
            if not before.expiry or after.clean:
                continue
            verdict.judge("A1")
            if not after.present:
                text = f"{client} is told at {after.node} that there is no session; it had one at {before.node}"
                verdict.find("A1", "session lost", after.accepted, text, "")


def invented(ledger: Ledger, verdict: Verdict, client: str, arrivals: list[Arrival]) -> None:
    """A2: what arrives was published before, byte for byte, to that topic."""
    for one in arrivals:
        verdict.judge("A2")
        if not one.value:
            if not any(clear.topic == one.topic and clear.sent < one.at for clear in ledger.clears):
                verdict.find("A2", "never cleared", one.at, f"{client} got an empty message on {one.topic}")
            continue
        if one.value in ledger.staged:
            continue  # judged with its transaction
        message, will = ledger.publications.get(one.value), ledger.wills.get(one.value)
        if message is not None:
            topic, sent = message.topic, message.sent
        elif will is not None and will.will is not None:
            topic, sent = will.will["topic"], will.began
        else:
            verdict.find("A2", "never published", one.at, f"{client} got {one.value[:80]!r} on {one.topic}")
            continue
        if topic != one.topic:
            verdict.find("A2", "wrong topic", one.at, f"{client} got {one.value} on {one.topic} instead of {topic}")
        elif sent > one.at:
            verdict.find("A2", "not yet published", one.at, f"{client} got {one.value} before it was sent")


def order(ledger: Ledger, excuses: Excuses, verdict: Verdict, client: str, arrivals: list[Arrival]) -> None:
    """A3: first arrivals, per publisher, topic and QoS."""
    newest: dict[tuple[str, str, int], Publication] = {}
    seen: set[str] = set()
    for one in arrivals:
        message = ledger.publications[one.value]
        if one.value in seen or is_member(ledger, client, message.topic):
            continue  # a shared subscription has no order (4.6): others may have given a message back
        seen.add(one.value)
        key = (message.client, message.topic, message.qos)
        before = newest.get(key)
        verdict.judge("A3")
        if before is None or before.seq < message.seq:
            newest[key] = message
            continue
        text = f"{client} got {message.value} after {before.value} on {message.topic}, QoS {message.qos}"
        verdict.find("A3", "overtaken", one.at, text, excuses.order(message, before, one.at))


def is_member(ledger: Ledger, client: str, topic: str) -> bool:
    """Whether a client gets a topic through a shared subscription."""
    return any(is_shared(one) and matches(one.filter, topic) for one in ledger.intervals.get(client, []))


def once(ledger: Ledger, excuses: Excuses, verdict: Verdict, client: str, arrivals: list[Arrival]) -> None:
    """A4: a message of QoS 2 that comes with QoS 2 comes once."""
    first: dict[str, Arrival] = {}
    for one in arrivals:
        message = ledger.publications[one.value]
        if message.qos != 2 or one.qos != 2 or not one.fresh:
            continue
        before = first.setdefault(one.value, one)
        verdict.judge("A4")
        if before is not one:
            places = (before.at, before.connection), (one.at, one.connection)
            text = f"{client} got {one.value} at {ledger.name(before.connection)}, {before.at / 1e6:.3f} s, and again "
            text += f"at {ledger.name(one.connection)}; sent {sending(ledger, message)}"
            verdict.find("A4", "twice", one.at, text, excuses.twice(message, *places))


def sending(ledger: Ledger, message: Publication) -> str:
    """When and where a message was sent and acknowledged."""
    sends = ", ".join(f"{ledger.name(number)} {at / 1e6:.3f} s" for at, number in message.sends)
    if not message.is_acknowledged:
        return f"to {sends}, not acknowledged"
    return f"to {sends}, acknowledged {ledger.name(message.acknowledged_on)} {message.acknowledged / 1e6:.3f} s"


def owed(
    ledger: Ledger, verdict: Verdict, client: str, intervals: list[Interval], topics: dict[str, list[Publication]]
) -> None:
    """A1 and A5: acknowledged messages arrive at a session that was subscribed before they were sent and still is."""
    got = {one.value for one in ledger.arrivals.get(client, [])}
    for topic, messages in topics.items():
        begin = min((one.begin for one in intervals if one.end == FOREVER and matches(one.filter, topic)), default=-1)
        if begin < 0:
            continue
        missing, last = [], None
        for message in messages:
            if message.sent <= begin or not message.is_acknowledged:
                continue
            promise = "A5" if message.sent < begin + BARRIER_US else "A1"
            verdict.judge(promise)
            last = message
            if message.value not in got:
                missing.append((promise, message))
        for promise, message in missing:
            kind = "subscription lost" if last in [one for _, one in missing] else "lost"
            text = f"{client} never got {message.value} ({topic}, QoS {message.qos}); sent {sending(ledger, message)}"
            verdict.find(promise, kind, message.sent, text)


def groups(ledger: Ledger, excuses: Excuses, verdict: Verdict, topics: dict[str, list[Publication]]) -> None:
    """A1 and A4 for shared subscriptions: one member or another gets each message, QoS 2 no two of them."""
    members: dict[str, list[Interval]] = defaultdict(list)
    for intervals in ledger.intervals.values():
        for one in intervals:
            if is_shared(one):
                members[one.filter].append(one)
    for name, intervals in members.items():
        begin = min((one.begin for one in intervals if one.end == FOREVER), default=FOREVER)
        came: dict[str, list[tuple[str, Arrival]]] = defaultdict(list)
        for client in {one.client for one in intervals}:
            for arrival in ledger.arrivals.get(client, []):
                if arrival.fresh:
                    came[arrival.value].append((client, arrival))
        for topic, messages in topics.items():
            if not matches(name, topic):
                continue
            for message in messages:
                found = sorted(came.get(message.value, ()), key=lambda one: one[1].at)
                if message.is_acknowledged and message.sent > begin:
                    verdict.judge("A1")
                    if not found:
                        text = f"no member of {name} got {message.value}; sent {sending(ledger, message)}"
                        verdict.find("A1", "lost to a group", message.sent, text)
                if message.qos == 2 and len({client for client, _ in found}) > 1:
                    client, first = found[0]
                    other, second = next(two for two in found if two[0] != client)
                    text = f"{client} and {other} of {name} got {message.value}; sent {sending(ledger, message)}"
                    places = (first.at, first.connection), (second.at, second.connection)
                    verdict.find("A4", "twice in a group", second.at, text, excuses.twice(message, *places))
