"""What a drawn run does to the network, and what clients must see of it.

With `majority` a client is owed everything that it is owed without cuts. With `available` the sides of a split cannot
know everything of each other, and nothing is excused but this (docs/limits.md, "When the network splits"):

- A side need not know of a session or subscription that was begun in a split, unless it was begun there, and nothing
  has changed since. Once all was whole, everybody knows of it. (A1)
- A message with QoS 2 that its publisher has sent again in a split may come twice; so may one to a client that was at
  another node since it got the message first, or whose node reaches others now. (A4)
- PUBREL comes once more over one connection when a merge has ended: its client may wait for it.
- The packet id of a flow that a client has not ended may be used by another side. (A4)
- A message with QoS 2 whose packet id its publisher has used for another one, of which the flow went on in a split, may
  be taken for a repetition of that one, but where that flow has ended. So may any at a node that need not know of its
  session, and has one of that name. (A1, A8)
- A request that was not answered may be carried out later, by another side. (A1, A8)
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from folkmoot.mqtt.kind import PUBCOMP, PUBREC
from folkmoot.mqtt.packet import Ack, Publish, Suback, Will
from tests.simulated_cluster.drawn import ASKED, OPEN, REFUSED, DrawnClient, Ledger, Message, Wish

__all__ = ["CutClient", "CutLedger", "Network", "topology"]

STABLE_US = 10_000_000
"""Nodes that have reached each other, and the same others, for so long are one side."""

Ways = set[tuple[str, str]]


def topology(rng: random.Random, names: Sequence[str]) -> tuple[str, Ways]:
    """Draw which ways between nodes are cut, each in one direction, and name how."""
    kinds = [*4 * ["sides"], *2 * ["alone"], "deaf", "unheard", "one way", "partial", "ways"]
    if len(names) > 2:
        kinds += ["sides", "alone", "three sides", "bridge", "single link", "chain", "star", "ring", "link"]
    kind = rng.choice(kinds)
    order = list(names)
    rng.shuffle(order)
    place = {name: number for number, name in enumerate(order)}
    pairs = [(one, other) for one in order for other in order if one != other]
    middle = rng.randint(1, len(order) - 1)
    if kind == "sides":
        return kind, {(one, other) for one, other in pairs if (place[one] < middle) != (place[other] < middle)}
    if kind == "three sides":
        return kind, {(one, other) for one, other in pairs if place[one] % 3 != place[other] % 3}
    if kind == "alone":
        return kind, {pair for pair in pairs if order[0] in pair}
    if kind == "deaf":
        return kind, {(one, other) for one, other in pairs if other == order[0]}
    if kind == "unheard":
        return kind, {(one, other) for one, other in pairs if one == order[0]}
    if kind == "one way":
        return kind, {(one, other) for one, other in pairs if place[one] < middle <= place[other]}
    if kind == "bridge":
        return kind, {(one, other) for one, other in pairs if order[0] not in (one, other)} & {
            (one, other) for one, other in pairs if place[one] % 2 != place[other] % 2
        }
    if kind == "single link":
        kept = {order[0], order[-1]}
        sides = {(one, other) for one, other in pairs if (place[one] < middle) != (place[other] < middle)}
        return kind, {pair for pair in sides if set(pair) != kept}
    if kind == "chain":
        return kind, {(one, other) for one, other in pairs if abs(place[one] - place[other]) != 1}
    if kind == "star":
        return kind, {pair for pair in pairs if order[0] not in pair}
    if kind == "ring":
        far = len(order) - 1
        return kind, {(one, other) for one, other in pairs if abs(place[one] - place[other]) not in (1, far)}
    if kind == "link":
        return kind, {(order[0], order[1]), (order[1], order[0])}
    share = rng.choice((0.2, 0.4, 0.6))
    if kind == "ways":
        return kind, {pair for pair in pairs if rng.random() < share}
    cut = {pair for pair in pairs if pair[0] < pair[1] and rng.random() < share}
    return kind, cut | {(other, one) for one, other in cut}


class Network:
    """What a run has done to nodes and links; moments are those of the ledger."""

    def __init__(self, forks: bool, names: Sequence[str]) -> None:
        self.forks = forks
        self.names = list(names)
        self.ways: Ways = set()  # that are cut
        self.change = 0  # grows with everything that happens to nodes and links
        self.changed_us = 0  # when that was last
        self.is_whole = True  # nothing has happened since all was whole
        self.has_killed = False  # since all was whole
        self.killed = 0  # the moment in which a node was last killed while not all was whole
        self.troubled: dict[str, int] = {}  # by node, when something last happened to it
        self.acked: dict[int, tuple[str, int]] = {}  # by message: the node that has acknowledged it, and the change
        self.sent: dict[int, int] = {}  # by message: the change
        self.sites: dict[int, set[str]] = {}  # by message: the nodes to which it was sent
        self.mistaken: dict[int, None] = {}  # messages that may have been taken for the repetition of another one

    def happens(self, now: int, names: Sequence[str], *, kills: bool = False) -> None:
        """Something happens to nodes."""
        self.change += 1
        self.changed_us = now
        self.is_whole = False
        self.has_killed = self.has_killed or kills
        for name in names:
            self.troubled[name] = now

    def cut(self, now: int, ways: Ways) -> None:
        """These ways are cut now, and no others."""
        concerned = {name for way in ways ^ self.ways for name in way}
        self.ways = set(ways)
        self.happens(now, sorted(concerned))

    def becomes_whole(self) -> None:
        """All nodes are one cluster, with nothing left to merge."""
        self.is_whole = True
        self.has_killed = False

    def is_troubled(self, name: str, since_us: int) -> bool:
        """Whether something has happened to a node since then, or its links are cut."""
        return self.troubled.get(name, since_us - 1) >= since_us or any(name in way for way in self.ways)

    def neighbours(self, name: str) -> frozenset[str]:
        """Return the nodes that a node reaches in both directions, and itself."""
        found = [one for one in self.names if (one, name) not in self.ways and (name, one) not in self.ways]
        return frozenset(found)

    def side(self, name: str, now: int) -> frozenset[str]:
        """Return the nodes that are certainly of one side with a node."""
        if self.is_whole:
            return frozenset(self.names)
        if now - self.changed_us < STABLE_US:
            return frozenset([name])
        reached = self.neighbours(name)
        return frozenset([one for one in reached if self.neighbours(one) == reached])


class CutLedger(Ledger):
    """What clients know of messages of which one side may have got the first sending, and another one the next."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def values(self, topic: str) -> set[int]:
        """Return which message may be the retained one: also one that was sent again, and one before a mistaken one."""
        found = [one for one in self.messages.values() if one.topic == topic and one.retain]
        unsure = {message.number for message in found if message.repeated}
        certain = [one.number for one in found if one.acked and one.number not in self.network.mistaken]
        since = certain[-1] if certain else 0
        return super().values(topic) | unsure | {since} | {one.number for one in found if one.number > since}


class Known:
    """Who knows of something that began: everybody from moment `since` on; until then `side`, if nothing changes."""

    def __init__(self, side: frozenset[str], change: int, since: int) -> None:
        self.side = side
        self.change = change
        self.since = since


class WillOf:
    """The will of a connection: how this ended ("" if it has not), and when."""

    def __init__(self, site: str, began_us: int) -> None:
        self.site = site
        self.began_us = began_us
        self.ended = ""
        self.ended_us = 0


class CutClient(DrawnClient):
    """A client of a cluster whose links are cut; `home`: the node to which it prefers to connect, "": any."""

    def __init__(self, network: Network, cluster: object, ledger: Ledger, name: str, **settings: object) -> None:
        super().__init__(cluster, ledger, name, **settings)  # type: ignore[arg-type]
        self.network = network
        self.home = ""
        self.has_will = False
        self.will: WillOf | None = None
        self.wills: dict[int, WillOf] = {}  # by message
        self.known: dict[Wish, Known] = {}
        self.known_session: Known | None = None
        self.doubt: set[str] = set()  # filters of which it cannot know before all is whole whether its session has them
        self.torn: dict[int, str] = {}  # packet ids of flows that went on in a split: where they have ended
        self.others: set[str] = set()  # nodes that may have an earlier session in place of its own
        self.foreign: set[int] = set()  # packet ids of flows that another side may not know
        self.sites: set[str] = set()  # where it was connected since all was whole
        self.roamed = 0  # the moment in which it was last at a second node while not all was whole
        self.first_at: dict[int, int] = {}  # by message: the moment in which it came first
        self.first_with: dict[int, frozenset[str]] = {}  # and the nodes that its node reached then
        self.since_us = 0  # since when it waits for the same
        self.waited = ""

    @property
    def now(self) -> int:
        """The time."""
        return self.cluster.now

    # -- what is known where ------------------------------------------------------------------------------------------

    def all_is_whole(self) -> None:
        """From now on everybody knows everything of this client."""
        now = self.ledger.tick()
        for wish, known in self.known.items():
            if not wish.until and not known.since:
                known.since = now
        if self.known_session is not None and not self.known_session.since:
            self.known_session.since = now
        self.doubt.clear()
        # Flows go on as at the side where the client was last, which need not know that they ended at another one.
        self.torn = {packet_id: "" for packet_id, site in self.torn.items() if site != self.site}
        self.others.clear()
        self.sites = {self.site} if self.state == OPEN else set()

    def _begun(self) -> Known:
        network = self.network
        return Known(network.side(self.site, self.now), network.change, self.ledger.tick() if network.is_whole else 0)

    def _is_known(self, known: Known | None, site: str, change: int, moment: int) -> bool:
        if known is None:
            return False
        if known.since and known.since <= moment:
            return True
        return known.change == change and site in known.side

    def _lost_session(self) -> None:
        if not self.network.forks or self._is_known(
            self.known_session, self.site, self.network.change, self.ledger.moment
        ):
            super()._lost_session()
        self._cannot_know()

    def _cannot_know(self) -> None:
        """More than one session may have its name now."""
        self.doubt.update(self.filters)
        self.foreign.update(self.held)
        for name in self.filters:
            self._stop(name)

    # -- connections --------------------------------------------------------------------------------------------------

    def _will(self) -> Will | None:
        if not self.has_will:
            self.will = None
            return None
        message = self.ledger.publish(self, f"w/{self.name}", 2, False)
        self.network.sent[message.number] = self.network.change
        self.will = WillOf(self.site, self.now)
        self.wills[message.number] = self.will
        return Will(message.topic.encode(), b"%d" % message.number, 2)

    def disconnect(self, code: int = 0) -> None:
        """Send DISCONNECT."""
        self._end_will("DISCONNECT")
        super().disconnect(code)

    def _end_will(self, how: str) -> None:
        if self.will is not None and not self.will.ended:
            self.will.ended = how
            self.will.ended_us = self.now

    def _forget(self) -> None:
        self._end_will("its end")
        if self.network.forks:
            self.doubt.update(self.subacks.values())
            self.doubt.update(self.unsubacks.values())
            if self.state == ASKED and self.anew:
                self._cannot_know()
                self.known_session = None
        super()._forget()

    def _accepted(self, present: bool) -> None:
        assert not (self.anew and present), f"{self} has asked for a clean start"
        sessions = self.sessions
        super()._accepted(present)
        self.sites.add(self.site)
        if not present:
            self.foreign.clear()
            self.known_session = self._begun()
            assert self.sessions > sessions
        elif self.network.forks:
            if not self._is_known(self.known_session, self.site, self.network.change, self.ledger.moment):
                self._cannot_know()  # this may be another session, which began before
                self.others.add(self.site)
            if len(self.sites) > 1 and not self.network.is_whole:
                self.roamed = self.ledger.tick()
            if len(self.sites) > 1 or self.network.has_killed:
                self.foreign.update(self.held)
        for packet_id in self.foreign:
            self.early.pop(packet_id, None)
        for name in self.doubt:
            self.sure.pop(name, None)
        for packet_id, message in self.flows.items():
            self._sent(message, packet_id)

    def _subscribed(self, packet: Suback) -> None:
        before = len(self.wishes)
        super()._subscribed(packet)
        if len(self.wishes) > before:
            self.known[self.wishes[-1]] = self._begun()

    def _learn(self, packet_id: int, name: str, has: bool) -> bool:
        learnt = super()._learn(packet_id, name, has)
        if name in self.doubt:
            self.sure.pop(name, None)
            return False
        return learnt

    # -- messages -----------------------------------------------------------------------------------------------------

    def publish(self, topic: str, qos: int, retain: bool, expiry_s: int = 0) -> None:
        """Publish the next message."""
        number = len(self.ledger.messages) + 1
        self.network.sent[number] = self.network.change
        super().publish(topic, qos, retain, expiry_s)
        for packet_id, message in self.flows.items():
            if message.number == number:
                self._sent(message, packet_id)

    def _sent(self, message: Message, packet_id: int) -> None:
        self.network.sites.setdefault(message.number, set()).add(self.site)
        is_torn = self.torn.get(packet_id, self.site) != self.site
        if message.qos == 2 and not message.acked and (is_torn or self.site in self.others):
            self.network.mistaken[message.number] = None

    def _acknowledged(self, packet: Ack) -> None:
        message = self.flows.get(packet.packet_id)
        before = 0 if message is None else message.acked
        super()._acknowledged(packet)
        if message is None:
            return
        if message.acked != before:
            self.network.acked[message.number] = (self.site, self.network.change)
        if packet.kind != PUBCOMP and not (packet.kind == PUBREC and packet.code >= REFUSED):
            return
        # A way may have been cut in one direction: then the other side may have heard of the flow, and not of its end.
        is_torn = not self.network.is_whole or self.network.sent[message.number] != self.network.change
        if is_torn or self.network.sites[message.number] != {self.site}:
            self.torn[packet.packet_id] = self.site
        else:
            self.torn.pop(packet.packet_id, None)

    def _arrives(self, packet: Publish) -> None:
        number = int(packet.payload)
        message = self.ledger.messages.get(number)
        is_first = number not in self.got
        super()._arrives(packet)
        if message is not None and is_first:
            self.first_at[number] = self.ledger.tick()
            self.first_with[number] = self.network.neighbours(self.site)
            if message.topic.startswith("w/"):
                self._will_arrives(message)

    def _will_arrives(self, message: Message) -> None:
        assert isinstance(message.client, CutClient)
        will = message.client.wills[message.number]
        peer = message.client.peer
        if will is message.client.will and peer is not None and peer.connection is None:
            return  # the node has ended the connection, and its client has not looked yet
        if will.ended in ("", "DISCONNECT") and not message.client.is_hasty:
            is_troubled = self.network.is_troubled(will.site, will.began_us - STABLE_US)
            assert is_troubled, f"A7: {self} gets the will {message} of {will.site}, which has ended by '{will.ended}'"

    def _mistaken(self, packet: Publish, what: int) -> None:
        if not self.network.forks or packet.packet_id not in self.foreign:
            super()._mistaken(packet, what)
        self.foreign.discard(packet.packet_id)

    def _ends_again(self, packet_id: int) -> None:
        if not self.network.forks or self.network.is_whole:
            super()._ends_again(packet_id)

    def _arrives_again(self, message: Message) -> None:
        network = self.network
        first = self.first_at[message.number]
        sent_again = network.sent[message.number] != network.change or len(network.sites.get(message.number, ())) > 1
        sent_again = sent_again and message.repeated
        went_over = first < max(self.roamed, network.killed)
        went_over = went_over or self.first_with[message.number] != network.neighbours(self.site)
        if not network.forks or not (sent_again or went_over):
            super()._arrives_again(message)

    def lacks(self, message: Message, strict: bool) -> bool:
        """Whether it must have got an acknowledged message and has not."""
        if not self.network.forks or not super().lacks(message, strict):
            return super().lacks(message, strict)
        if message.number in self.network.mistaken:
            return False
        site, change = self.network.acked[message.number]
        for wish in self.wishes:
            if wish.covers(message) and wish.session == self.sessions and self.persistent:
                if self._is_known(self.known.get(wish), site, change, message.sent):
                    if self.known[wish].since or self.network.sent[message.number] == change:
                        return True
        return False
