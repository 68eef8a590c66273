"""A writer of transactions: stages rows at any node, commits them, is killed in between and does it again.

Owns its next step. Its messages are in the ledger like all others, and are judged like them: sent when a commit is
asked for the first time, acknowledged when a node answers it, and applied once, whatever is repeated.
"""

from __future__ import annotations

from typing import Any, Final

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, Publish
from folkmoot.query.question import ABORT, COMMIT, CONFLICT, FAULT, FOUND, STAGE, TOO_LARGE, Answer
from folkmoot.report.call import Call
from folkmoot.report.order import encode_chunk, encode_commit
from folkmoot.sim.fact import Message
from folkmoot.sim.host import Host
from folkmoot.sim.network import Caller, Link, Network
from folkmoot.sim.oracle import Oracle
from folkmoot.sim.site import ROAMING, Site
from folkmoot.sim.swarm import Swarm
from folkmoot.store.transaction import PUBLISHER_PREFIX, home_of

__all__ = ["Committer", "committers"]

_OWN: Final = 0x7472616E73
"""Gives transactions their own randomness: all other draws of a run are the same with and without them."""

_PATIENCE_US: Final = 2 * SECOND
_PAUSE_US: Final = 100 * MILLISECOND
_LATENCY_US: Final = 2 * MILLISECOND


def committers(network: Network, site: Site, oracle: Oracle, topics: list[bytes], swarm: Swarm) -> list[Committer]:
    """Return the writers of a run."""
    rng = Rng(oracle.world.seed ^ _OWN)
    return [Committer(rng.fork(), network, site, oracle, app, topics, swarm.partitions) for app in ("app0", "app1")]


class _Order:
    """A request to a node; `numbers` behind the partition."""

    def __init__(self, committer: Committer, what: int, numbers: list[int], key: bytes) -> None:
        self.committer = committer
        self.what = what
        self.numbers = numbers
        self.key = key


class _Try:
    """One sending of a request to a host: the handle that the node knows it by."""

    def __init__(self, order: _Order, host: Host) -> None:
        self.order = order
        self.host = host

    def ended(self, call: Call) -> None:
        """The node's call for it has ended."""
        self.order.committer.answer(self, call.answer)


class Committer(Caller):
    """One app. `idle` when no transaction is unfinished."""

    def __init__(
        self, rng: Rng, network: Network, site: Site, oracle: Oracle, app: str, topics: list[bytes], partitions: int
    ) -> None:
        self.rng = rng
        self.network = network
        self.site = site
        self.oracle = oracle
        self.world = oracle.world
        self.app = app
        self.topics = topics
        self.home = home_of(app.encode(), partitions)
        self.number = 0
        self.hasty = False
        self._rows: list[Message] = []  # of the current transaction, in order
        self._orders: list[_Order] = []  # its remaining requests
        self._parts: list[str] = []  # named by this driver
        self._committing = False  # a commit of it has been sent, by this driver or an earlier one
        self._driver = 0
        self._tries = 0
        self._out: _Try | None = None
        self._last: Host | None = None
        self._links: dict[str, Link] = {}

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to do."""
        return not self._orders

    # -- actions ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Begin a transaction, or die and begin it again."""
        if self.idle:
            self._begin()
        elif self.rng.chance(1, 3):
            self._die()

    def _begin(self) -> None:
        rng = self.rng
        self._committing = False
        self._rows = [self._row("r") for _ in range(rng.between(0, 6))]
        self._start()

    def _row(self, what: str) -> Message:
        rng = self.rng
        ledger = self.oracle.ledger
        topic = self.topics[rng.below(len(self.topics))]
        payload = b"m%d %s %s%d" % (len(ledger.messages), self.app.encode(), what.encode(), self.number)
        packet = Publish(topic, payload, rng.between(0, 2))
        return ledger.publish(PUBLISHER_PREFIX + self.app, packet, once=True)

    def _start(self) -> None:
        """Start a driver: it stages the rows in parts and chunks, and some that do not win, then commits."""
        rng = self.rng
        self._driver += 1
        self._orders = []
        parts: list[tuple[bytes, int]] = []
        cut = rng.below(len(self._rows) + 1)
        for place, rows in enumerate((self._rows[:cut], self._rows[cut:])):
            name = f"{place}-{self._driver}"
            chunks = 0
            while rows:
                count = rng.between(1, 3)
                self._stage(name, chunks, rows[:count])
                rows = rows[count:]
                chunks += 1
            parts.append((name.encode(), chunks))
        if rng.chance(1, 3):
            self._stage(f"lost-{self._driver}", 0, [self._row("never")])
        self._parts = [order.key[2 : 2 + order.key[1]].decode() for order in self._orders]
        self._orders.append(_Order(self, COMMIT, [self.number], encode_commit(parts)))
        self._send()

    def _stage(self, part: str, chunk: int, rows: list[Message]) -> None:
        packets = [
            encode(Publish(row.topic, row.payload, row.qos, False, False, 1 if row.qos else 0), V5) for row in rows
        ]
        key = encode_chunk(part.encode(), b"".join(packets))
        self._orders.append(_Order(self, STAGE, [self.number, chunk, len(rows)], key))

    def _die(self) -> None:
        """Kill the driver; the next one does the same again, perhaps after Spark has aborted for the first."""
        self.world.mark("driver killed")
        self._out = None
        if self.rng.chance(1, 2):
            for part in self._parts:
                self._try(_Order(self, ABORT, [self.number], part.encode()), self._pick(failed=False))
        self._start()

    # -- sending ------------------------------------------------------------------------------------------------------

    def _pick(self, *, failed: bool) -> Host:
        self._last = self.site.pick(self.rng, ROAMING, self._last, failed=failed)
        return self._last

    def _send(self, *, failed: bool = False) -> None:
        """Send the next request to some node, and wait for a bounded time."""
        order = self._orders[0]
        host = self._pick(failed=failed)
        if order.what == COMMIT:
            self._committing = True
            for row in self._rows:
                self.oracle.sent(row, self._link(host))
        self._out = self._try(order, host)
        self._tries += 1
        self.world.later(_PATIENCE_US, self._late, self._out)

    def _try(self, order: _Order, host: Host) -> _Try:
        sent = _Try(order, host)
        self.world.after(self.rng.below(_LATENCY_US), self._arrive, sent, host)
        return sent

    def _arrive(self, sent: _Try, host: Host) -> None:
        if not host.dark and not host.off:
            host.tell(self._do, sent, host)

    def _do(self, sent: _Try, host: Host) -> None:
        node: Any = host.node
        order = sent.order
        numbers = [self.home, *order.numbers]
        found = node.ask_home(sent, self.home, order.what, self.app.encode(), numbers, order.key, host.clock())
        host.set_turn()
        if not isinstance(found, Call):
            self.answer(sent, found)

    def answer(self, sent: _Try, answer: Answer | None) -> None:
        """Take the answer of a node; None: no node can answer now. Without a lease the node does not answer (503)."""
        node: Any = sent.host.node
        if node is not None and node.silence(sent.host.steady_ns()):
            answer = None
        self.world.after(self.rng.below(_LATENCY_US), self._heard, sent, answer)

    def _late(self, sent: _Try) -> None:
        if sent is self._out:
            self._send(failed=True)

    def _heard(self, sent: _Try, answer: Answer | None) -> None:
        if sent is not self._out:
            return
        self.world.note(self.app, f"transaction {self.number} hears", answer)
        if answer is None or answer.status not in (FOUND, CONFLICT, TOO_LARGE, FAULT):
            self.world.mark("transaction put off")
            self._out = None
            self.world.later(_PAUSE_US, self._again, self._tries)
            return
        if answer.status != FOUND:
            self._refused(answer)
            return
        done = self._orders.pop(0)
        if answer.numbers[0] and not self._committing:
            self.world.violate("A4", f"{self.app}: nobody has committed {self.number}, and it is called a repetition")
        if done.what == COMMIT:
            self._committed()
        else:
            self._send()

    def _again(self, tries: int) -> None:
        if self._out is None and tries == self._tries and self._orders:
            self._send(failed=True)

    def _refused(self, answer: Answer) -> None:
        """The staged rows are gone, as is allowed when too much was lost: the driver begins anew."""
        if not self.oracle.ledger.judge.staged_lost():
            self.world.violate("A1", f"{self.app}: transaction {self.number}: {answer.text}")
            return
        self.world.mark("transaction begins anew")
        self._out = None
        self._start()

    def _committed(self) -> None:
        self._out = None
        for row in self._rows:
            self.oracle.answered(row, 0)
            self.oracle.settled(row)
        self.world.mark("transaction committed")
        self.number += 1
        self._rows = []

    # -- the caller of links without bytes ----------------------------------------------------------------------------

    def _link(self, host: Host) -> Link:
        link = self._links.get(host.name)
        if link is None:
            link = Link(self.network, 0, self, host, 0)
            self._links[host.name] = link
        return link

    def link_data(self, link: Link, data: bytes) -> None:
        """Nothing comes."""

    def link_closed(self, link: Link) -> None:
        """Nothing was open."""
