"""What docs/limits.md does not promise, as conditions over what clients saw and what was done to the network.

One table, `EXCUSES`. An excuse is causal: it speaks of this message, its connections, and the links of their nodes.
What a node reports about itself excuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.jepsen.ledger import FOREVER, Connection, Ledger, Publication

__all__ = ["EXCUSES", "HEAL_US", "Excuse", "Excuses"]

HEAL_US: Final = 15_000_000
"""How long two sides may still be apart after their links are back."""

NOTICE_US: Final = 500_000
"""How long a node may take to see that others refuse it, or do not answer."""


@dataclass(frozen=True)
class Excuse:
    """promise: which it qualifies; when: the condition; where: the point of docs/limits.md that documents it."""

    promise: str
    when: str
    where: str


EXCUSES: Final = {
    "given-up": Excuse(
        "A3",
        "the late message was never acknowledged, and its publisher was told that there is no session",
        "Messages of a publisher that changes nodes arrive in a different order",
    ),
    "ended-together": Excuse(
        "A3",
        "both messages were sent over a connection that ended before either was acknowledged",
        "Messages of a connection that has ended arrive in a different order",
    ),
    "two-crashes": Excuse(
        "A3",
        "QoS 1: the late message was sent over two connections, and two nodes have died meanwhile",
        "A message with QoS 1 arrives behind newer ones after two crashes in a row.",
    ),
    "two-sides-order": Excuse(
        "A3",
        "`available`: a link was cut of a node to which one of the two messages was sent",
        "Messages of the two sides arrive in a different order",
    ),
    "two-sides-twice": Excuse(
        "A4",
        "`available`: the message was sent twice, or came from two nodes, and a link of one of these nodes was cut",
        "A message with QoS 2 arrives twice.",
    ),
    "two-sides-again": Excuse(
        "A4",
        "`available`: it came over two connections to one node, and a link of that node was cut in between",
        "A QoS 2 message that a client has begun to get comes again with another packet id",
    ),
    "two-sides-will": Excuse(
        "A7",
        "`available`: a link of the node of its connection was cut before the will came",
        "A will is published by the side that does not see its client",
    ),
    "two-sides-will-again": Excuse(
        "A7",
        "`available`: its subscriber got it at two nodes, and a link of the node of its connection was cut",
        "A will is published by the side that does not see its client",
    ),
    "two-sides-transaction": Excuse(
        "A10",
        "`available`: it came from two nodes, or over two connections, and a link of one of these nodes was cut",
        "A message with QoS 2 arrives twice.",
    ),
    "two-sides-id": Excuse(
        "A6",
        "`available`: a link was cut of one of the two nodes to which the client id is connected",
        "One client id is connected on both sides.",
    ),
    "resets-id": Excuse(
        "A6",
        "half a second before, resets began to answer for the node of the older connection at two others",
        "A firewall that answers with resets looks like the end of a node",
    ),
    "two-sides-retained": Excuse(
        "A8",
        "`available`: a link was cut of the node that was read, or of a node to which the newer value was sent",
        "A side does not see what the other side has acknowledged",
    ),
    "copies-away": Excuse(
        "A8",
        "nothing was found; nodes with data did not run, or were not linked to all others, and together with those "
        "that had come back from a fault lately these are as many as there are copies",
        "Retained messages of which all copies in sync are away come when one is back",
    ),
    "lossy-retained": Excuse(
        "A8",
        "nothing was found in time, and a node lost 30 % of its packets or more meanwhile",
        "A node whose links lose packets holds up",
    ),
    "lossy": Excuse(
        "A11",
        "a node lost 30 % of its packets or more while the request waited",
        "A node whose links lose packets holds up",
    ),
    "forwarded-twice": Excuse(
        "A9",
        "`available`: a link was cut of a node to which the message was sent, or any before it was acknowledged (every "
        "node may have stored it), or half of the nodes were gone",
        "Stream records of a side that has forked get their offsets after the merge",
    ),
}


class Excuses:
    """Answers with the name of the excuse that applies, or with nothing."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.world = ledger.world
        self.splits = ledger.policy == "available"

    def order(self, late: Publication, before: Publication, arrived: int) -> str:
        """For a message that arrived after a later one of the same publisher, topic and QoS."""
        if not late.is_acknowledged and self._lost_session(late.client, late.sent):
            return "given-up"
        shared = {number for _, number in late.sends} & {number for _, number in before.sends}
        for number in shared:
            if self.ledger.connections[number].ended < min(late.acknowledged, before.acknowledged):
                return "ended-together"
        if late.qos == 1 and len({number for _, number in late.sends}) > 1 and self._deaths(late.sent, arrived) > 1:
            return "two-crashes"
        return "two-sides-order" if self._cut((late, before), late.sent, arrived) else ""

    def twice(self, message: Publication, first: tuple[int, int], second: tuple[int, int]) -> str:
        """For a message of QoS 2 that arrived twice; first, second: time and connection."""
        if not self.splits:
            return ""
        sent = {self.ledger.name(number) for _, number in message.sends}
        came = {self.ledger.name(number) for _, number in (first, second)}
        begin = message.sent - HEAL_US
        for nodes, several in ((sent, len(message.sends) > 1), (came, len(came) > 1)):
            if several and self.world.cut_off(nodes, begin, second[0]):
                return "two-sides-twice"
        return "two-sides-again" if self._moved(first, second, NOTICE_US) else ""

    def transaction_twice(self, first: tuple[int, int], second: tuple[int, int]) -> str:
        """For a message of a transaction that arrived twice; first, second: time and connection."""
        return "two-sides-transaction" if self.splits and self._moved(first, second, HEAL_US) else ""

    def _moved(self, first: tuple[int, int], second: tuple[int, int], before_us: int) -> bool:
        """Whether a client went from one connection to another while a link of either node was cut.

        before_us: so long before the first arrival a cut counts that is over.
        """
        came = {self.ledger.name(number) for _, number in (first, second)}
        return first[1] != second[1] and self.world.cut_off(came, first[0] - before_us, second[0])

    def will(self, connection: Connection, came: int) -> str:
        """For the will of a connection that came too early, or though there was to be none."""
        cut = self.splits and self.world.cut_off({connection.node}, connection.accepted, came)
        return "two-sides-will" if cut else ""

    def will_twice(self, connection: Connection, first: tuple[int, int], second: tuple[int, int]) -> str:
        """For a will that came twice; first, second: time and connection of the subscriber."""
        sides = {self.ledger.name(number) for _, number in (first, second)}
        moved = len(sides) > 1 and self.will(connection, second[0])
        return "two-sides-will-again" if moved else ""

    def two_alive(self, one: Connection, other: Connection, at: int) -> str:
        """For two connections of one client id that are both served."""
        if self.world.refused(one.node, at - NOTICE_US, at):
            return "resets-id"
        nodes = {one.node, other.node}
        return "two-sides-id" if self.splits and self.world.cut_off(nodes, one.accepted - HEAL_US, at) else ""

    def stale(self, node: str, newer: Publication | None, begin: int, end: int) -> str:
        """For a retained value, or none, that was not the latest."""
        nodes = {node} | ({self.ledger.name(number) for _, number in newer.sends} if newer else set())
        since = (newer.sent if newer else begin) - HEAL_US
        return "two-sides-retained" if self.splits and self.world.cut_off(nodes, since, end) else ""

    def unread(self, node: str, begin: int, end: int) -> str:
        """For a retained value of which nothing was found.

        Nodes go on together that are all linked to each other; others are put out, and their copies are away.
        """
        data = set(self.ledger.nodes) - set(self.ledger.run.get("witnesses", []))
        for number in self.world.during(begin, end):
            for group in self.world.linked(node, number):
                away = data - group
                behind = {one for one in data & group if self.world.is_behind(one, away, begin - HEAL_US, begin)}
                if away and len(away | behind) >= min(self.ledger.replicas, len(data)):
                    return "copies-away"
        return "lossy-retained" if self.world.is_lossy(begin, end) else ""

    def unanswered(self, begin: int, end: int) -> str:
        """For a request that was not answered in time."""
        return "lossy" if self.world.is_lossy(begin, end) else ""

    def record_twice(self, message: Publication) -> str:
        """For a message that is in a stream more often than it was published."""
        waited = min(message.acknowledged, message.sends[-1][0] + HEAL_US)
        end = waited + HEAL_US
        if self._cut((message,), message.sent, end):
            return "forwarded-twice"
        if self.splits and self.world.cut_off(set(self.ledger.nodes), message.sent - NOTICE_US, waited):
            return "forwarded-twice"
        gone = self.splits and self.world.half_gone(message.sent, end)
        return "forwarded-twice" if gone else ""

    def _cut(self, messages: Iterable[Publication], begin: int, end: int) -> bool:
        nodes = {self.ledger.name(number) for message in messages for _, number in message.sends}
        return self.splits and self.world.cut_off(nodes, begin - HEAL_US, end)

    def _lost_session(self, client: str, since: int) -> bool:
        return any(one.accepted > since and not one.present for one in self.accepted(client))

    def accepted(self, client: str) -> list[Connection]:
        """The connections of a client id that were accepted."""
        return [one for one in self.ledger.of_client.get(client, []) if one.accepted < FOREVER]

    def _deaths(self, begin: int, end: int) -> int:
        gone: set[str] = set()
        for number in self.world.during(begin, end):
            gone |= self.world.gone[number]
        return len(gone)
