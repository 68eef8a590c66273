"""What a history says, put in order: connections, publications, subscriptions, arrivals, and the state of the network.

Nothing is judged here, and nothing is known of the broker: only what clients sent and saw, and what was done to nodes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from tests.jepsen.history import Event

__all__ = ["Arrival", "Connection", "Interval", "Ledger", "Publication", "Transaction", "World", "matches"]

FOREVER = 1 << 62

LOSSY_PERCENT = 30
"""From this loss of packets on TCP stands still for many seconds."""


@dataclass
class Connection:
    """One connection of a client id; times in microseconds, FOREVER for what did not happen."""

    number: int
    client: str
    node: str
    began: int
    clean: bool
    expiry: int
    will: dict[str, Any] | None
    accepted: int = FOREVER
    refused: bool = False
    present: bool = False
    goodbye: int | None = None  # the code of the DISCONNECT that the client sent
    ended: int = FOREVER
    by: str = ""
    heard: int = 0  # when the newest packet came
    pings: list[int] = field(default_factory=list)  # when those were sent that have no answer yet
    answered: list[tuple[int, int]] = field(default_factory=list)  # PINGREQ sent, PINGRESP came

    @property
    def lived(self) -> int:
        """Until when its node had it for certain: what was sent then was answered. A packet may have come late."""
        return max([self.began, *[asked for asked, _ in self.answered]])


@dataclass
class Publication:
    """A message of QoS 1 or 2, or a retained one, as its publisher knows it."""

    value: str
    topic: str
    qos: int
    retain: bool
    client: str
    seq: int  # in the order of the publisher's first sending
    sends: list[tuple[int, int]] = field(default_factory=list)  # time, connection
    acknowledged: int = FOREVER
    acknowledged_on: int = 0  # connection
    answered: int = FOREVER  # acknowledged or refused
    refused: bool = False

    @property
    def sent(self) -> int:
        return self.sends[0][0]

    @property
    def is_acknowledged(self) -> bool:
        return self.acknowledged < FOREVER


@dataclass
class Transaction:
    """Messages that were staged together."""

    app: str
    number: int
    messages: list[list[str]]
    staged: int
    asked: int = FOREVER  # when its commit was sent
    committed: int = FOREVER
    refused: int = FOREVER


@dataclass(frozen=True)
class Arrival:
    """A message that came; `fresh`: not the repetition of a QoS 2 packet whose PUBREL has not come yet."""

    at: int
    connection: int
    topic: str
    value: str
    qos: int
    retain: bool
    fresh: bool


@dataclass
class Interval:
    """A time in which a session had a subscription: from SUBACK until UNSUBSCRIBE was sent or its session ended."""

    client: str
    filter: str
    qos: int
    begin: int
    end: int = FOREVER


class World:
    """Which nodes were cut off from which, and which did not run, over time."""

    def __init__(self, events: list[Event], nodes: list[str]) -> None:
        self.nodes = nodes
        self.times = [0]
        self.cuts: list[set[tuple[str, str]]] = [set()]
        self.gone: list[set[str]] = [set()]
        self.muted: list[set[str]] = [set()]  # nodes whose links to clients were cut
        self.resets: list[tuple[int, bool]] = []  # when faults that answer with resets began (True) or ended
        self.losses: list[tuple[int, int]] = []  # from when on a node loses so many percent of its packets
        for event in events:
            if event["e"] == "fault" and event["name"].endswith("-reset"):
                self.resets.append((event["t"], event["do"] == "begin"))
            if event["e"] == "fault" and event["name"] == "loss":
                _, percent, _ = event["what"].split(", ")
                self.losses.append((event["t"], int(percent.split()[0]) if event["do"] == "begin" else 0))
            if event["e"] == "world":
                self.times.append(event["t"])
                self.cuts.append({(one, other) for one, other in event["cut"]})
                self.gone.append({*event["down"], *event["stopped"]})
                self.muted.append(set(event["clients"]))

    def during(self, begin: int, end: int) -> range:
        """The numbers of the states that were true at some time from `begin` to `end`."""
        return range(max(bisect_right(self.times, begin) - 1, 0), bisect_right(self.times, end))

    def cut_off(self, nodes: set[str], begin: int, end: int) -> bool:
        """Whether a link of one of the nodes was cut at some time."""
        for number in self.during(begin, end):
            for one, other in self.cuts[number]:
                if one in nodes or other in nodes:
                    return True
        return False

    def is_silent(self, node: str, begin: int, end: int) -> bool:
        """Whether clients did not reach a node at some time, or its process did not run."""
        return any(node in self.muted[number] | self.gone[number] for number in self.during(begin, end))

    def refused(self, node: str, begin: int, end: int) -> bool:
        """Whether resets began to answer for a node, between it and at least two others, at some time."""
        for number in self.during(begin, end):
            since = self.times[number]
            resets = next((begins for at, begins in reversed(self.resets) if at <= since), False)
            if since >= begin and resets:
                new = self.cuts[number] - self.cuts[number - 1]
                if len([one for one, other in new if other == node]) >= 2:
                    return True
        return False

    def unreachable(self, node: str, begin: int, end: int) -> int:
        """The largest number of others that a node could not reach at some time."""
        most = 0
        for number in self.during(begin, end):
            cuts, gone = self.cuts[number], self.gone[number]
            away = [one for one in self.nodes if one in gone or (node, one) in cuts or (one, node) in cuts]
            most = max(most, len([one for one in away if one != node]))
        return most

    def linked(self, node: str, number: int) -> list[set[str]]:
        """The largest groups of nodes that run and are all linked to each other, of those with this node."""
        cuts, gone = self.cuts[number], self.gone[number]
        near = [one for one in self.nodes if one != node and one not in gone and not {(one, node), (node, one)} & cuts]
        groups: list[set[str]] = []
        for size in range(len(near), -1, -1):
            for some in combinations(near, size):
                group = {node, *some}
                if not any(one in group and other in group for one, other in cuts):
                    if not any(group < larger for larger in groups):
                        groups.append(group)
        return groups

    def is_lossy(self, begin: int, end: int) -> bool:
        """Whether at some time a node lost so many of its packets that others may have taken it for lost."""
        before = [percent for at, percent in self.losses if at <= begin][-1:]
        percents = [*before, *(percent for at, percent in self.losses if begin < at <= end)]
        return max(percents, default=0) >= LOSSY_PERCENT

    def is_behind(self, node: str, others: set[str], begin: int, end: int) -> bool:
        """Whether a node did not run at some time, or came back from being cut off from one of the others."""
        back = False
        apart: set[str] = set()
        for number in self.during(begin, end):
            now = {one for one in others if (node, one) in self.cuts[number] or (one, node) in self.cuts[number]}
            back = back or node in self.gone[number] or bool(apart - now)
            apart = now
        return back

    def disturbed(self, begin: int, end: int) -> bool:
        """Whether anything was wrong anywhere at some time."""
        wrong = any(self.cuts[at] or self.gone[at] or self.muted[at] for at in self.during(begin, end))
        return wrong or self.is_lossy(begin, end)

    def half_gone(self, begin: int, end: int) -> bool:
        """Whether half of the nodes or more did not run at some time."""
        return any(2 * len(self.gone[number]) >= len(self.nodes) for number in self.during(begin, end))


class Ledger:
    """A history in order, by client id and by value."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.run: Event = next((event for event in events if event["e"] == "run"), {})
        self.policy: str = self.run.get("policy", "majority")
        self.replicas: int = self.run.get("replicas", 3)
        self.nodes: list[str] = self.run.get("nodes", [])
        self.world = World(events, self.nodes)
        self.connections: dict[int, Connection] = {}
        self.of_client: dict[str, list[Connection]] = {}
        self.publications: dict[str, Publication] = {}
        self.clears: list[Publication] = []
        self.wills: dict[str, Connection] = {}
        self.intervals: dict[str, list[Interval]] = {}  # by client id
        self.arrivals: dict[str, list[Arrival]] = {}  # by client id
        self.phases: dict[str, int] = {}
        self.ready: dict[str, list[Event]] = {}
        self.records: list[Event] = []
        self.transactions: dict[tuple[str, int], Transaction] = {}
        self.staged: dict[str, Transaction] = {}  # by value
        self.died: list[Event] = []
        self.unsettled: list[Event] = []
        self.subscribes: dict[int, tuple[int, list[list[Any]]]] = {}  # accepted: by connection, when and what
        self.quiet: dict[int, int] = {}
        self._pids: dict[str, dict[int, Publication]] = {}
        self._asked: dict[tuple[int, int], Event] = {}
        self._unsubscribed: dict[tuple[int, str], int] = {}  # by connection and filter: when UNSUBSCRIBE was sent last
        self._unreleased: dict[str, set[int]] = {}
        self._counts: dict[str, int] = {}
        for event in events:
            handler = getattr(self, f"_on_{event['e']}", None)
            if handler is not None:
                handler(event)

    def name(self, number: int) -> str:
        """The node of a connection; `-` for none."""
        return self.connections[number].node if number in self.connections else "-"

    # --- connections

    def _on_connect(self, event: Event) -> None:
        keys = ("clean", "expiry", "will")
        found = Connection(event["k"], event["c"], event["node"], event["t"], *(event[key] for key in keys))
        self.connections[event["k"]] = found
        self.of_client.setdefault(event["c"], []).append(found)
        if found.will is not None:
            self.wills[found.will["value"]] = found

    def _on_connack(self, event: Event) -> None:
        found = self._heard(event)
        if event["code"]:
            found.refused = True
            return
        found.accepted, found.present = event["t"], event["present"]
        if not found.present:
            self._pids[found.client] = {}
            self._unreleased[found.client] = set()
            self._end_session(found)

    def _end_session(self, found: Connection) -> None:
        """Subscriptions end with a session that its client has given up; one that the server lost is still owed."""
        before = [one for one in self.of_client[found.client] if one.accepted < found.accepted]
        if found.clean or not before or not before[-1].expiry:
            for one in self.intervals.get(found.client, []):
                one.end = min(one.end, found.began)

    def _on_close(self, event: Event) -> None:
        found = self.connections[event["k"]]
        found.ended, found.by = min(found.ended, event["t"]), event["by"]
        if not found.expiry and found.accepted < FOREVER:
            for one in self.intervals.get(found.client, []):
                one.end = min(one.end, event["t"])

    def _on_disconnect(self, event: Event) -> None:
        if event["d"] == "out":
            self.connections[event["k"]].goodbye = event["code"]
        else:
            self._heard(event)

    def _on_pingreq(self, event: Event) -> None:
        self.connections[event["k"]].pings.append(event["t"])

    def _on_pingresp(self, event: Event) -> None:
        found = self._heard(event)
        if found.pings:
            found.answered.append((found.pings.pop(0), event["t"]))

    def _heard(self, event: Event) -> Connection:
        found = self.connections[event["k"]]
        found.heard = event["t"]
        return found

    # --- messages

    def _on_publish(self, event: Event) -> None:
        if event["d"] == "in":
            self._arrive(event)
            return
        client = self.connections[event["k"]].client
        found = self._pids.setdefault(client, {}).get(event["id"]) if event["dup"] else None
        if found is None:
            seq = self._counts[client] = self._counts.get(client, 0) + 1
            found = Publication(event["value"], event["topic"], event["qos"], event["retain"], client, seq)
            if event["value"]:
                self.publications[event["value"]] = found
            else:
                self.clears.append(found)
            self._pids.setdefault(client, {})[event["id"]] = found
        found.sends.append((event["t"], event["k"]))

    def _arrive(self, event: Event) -> None:
        client = self._heard(event).client
        unreleased = self._unreleased.setdefault(client, set())
        fresh = event["qos"] < 2 or event["id"] not in unreleased
        if event["qos"] == 2:
            unreleased.add(event["id"])
        self.arrivals.setdefault(client, []).append(
            Arrival(event["t"], event["k"], event["topic"], event["value"], event["qos"], event["retain"], fresh)
        )

    def _on_puback(self, event: Event) -> None:
        if event["d"] == "in":
            self._acknowledge(event)

    def _on_pubrec(self, event: Event) -> None:
        if event["d"] == "in":
            self._acknowledge(event)

    def _acknowledge(self, event: Event) -> None:
        found = self._pids.get(self._heard(event).client, {}).get(event["id"])
        if found is None:
            return
        found.answered = min(found.answered, event["t"])
        if event["code"] >= 0x80:
            found.refused = True
        elif not found.is_acknowledged:
            found.acknowledged, found.acknowledged_on = event["t"], event["k"]

    def _on_pubcomp(self, event: Event) -> None:
        if event["d"] == "in":
            self._heard(event)

    def _on_pubrel(self, event: Event) -> None:
        if event["d"] == "in":
            self._unreleased.setdefault(self._heard(event).client, set()).discard(event["id"])

    # --- subscriptions

    def _on_subscribe(self, event: Event) -> None:
        self._asked[event["k"], event["id"]] = event

    def _on_unsubscribe(self, event: Event) -> None:
        for one in self.intervals.get(self.connections[event["k"]].client, []):
            if one.filter in event["filters"]:
                one.end = min(one.end, event["t"])
        for name in event["filters"]:
            self._unsubscribed[event["k"], name] = event["t"]

    def _on_suback(self, event: Event) -> None:
        client = self._heard(event).client
        asked = self._asked.pop((event["k"], event["id"]), None)
        if asked is None:
            return
        held = self.intervals.setdefault(client, [])
        for (name, qos), code in zip(asked["filters"], event["codes"], strict=False):
            if self._unsubscribed.get((event["k"], name), -1) > asked["t"]:
                continue  # before its SUBACK came
            if code < 0x80 and not any(one.filter == name and one.end == FOREVER for one in held):
                held.append(Interval(client, name, min(qos, code), event["t"]))
        if all(code < 0x80 for code in event["codes"]):
            self.subscribes[event["k"]] = (asked["t"], asked["filters"])

    def _on_unsuback(self, event: Event) -> None:
        self._heard(event)

    # --- the rest

    def _on_quiet(self, event: Event) -> None:
        self.quiet[event["k"]] = event["t"]

    def _on_phase(self, event: Event) -> None:
        self.phases[event["name"]] = event["t"]

    def _on_ready(self, event: Event) -> None:
        self.ready.setdefault(event["node"], []).append(event)

    def _on_stage(self, event: Event) -> None:
        found = Transaction(event["app"], event["number"], event["messages"], event["t"])
        self.transactions[found.app, found.number] = found
        for _, value in found.messages:
            self.staged[value] = found

    def _on_commit(self, event: Event) -> None:
        self.transactions[event["app"], event["number"]].asked = event["t"]

    def _on_committed(self, event: Event) -> None:
        self.transactions[event["app"], event["number"]].committed = event["t"]

    def _on_uncommitted(self, event: Event) -> None:
        self.transactions[event["app"], event["number"]].refused = event["t"]

    def _on_died(self, event: Event) -> None:
        self.died.append(event)

    def _on_unsettled(self, event: Event) -> None:
        self.unsettled.append(event)

    def _on_records(self, event: Event) -> None:
        self.records.append(event)


def matches(name: str, topic: str) -> bool:
    """Whether a filter takes a topic (4.7); the filter of a shared subscription is what comes after the group."""
    if name.startswith("$share/"):
        name = name.split("/", 2)[2]
    levels, given = name.split("/"), topic.split("/")
    for place, level in enumerate(levels):
        if level == "#":
            return True
        if place >= len(given) or level not in ("+", given[place]):
            return False
    return len(levels) == len(given)
