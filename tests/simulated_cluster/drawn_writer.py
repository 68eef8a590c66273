"""Writers of transactions in a drawn run: they die and are replaced, and ask again, and elsewhere (A10)."""

from __future__ import annotations

from random import Random

import msgspec

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, Publish
from folkmoot.query.question import ABORT, BUSY, COMMIT, CONFLICT, FORGET, FOUND, LIST, NO_ROOM, STAGE, UNKNOWN, Answer
from folkmoot.report.call import Call
from folkmoot.report.order import encode_chunk, encode_commit
from folkmoot.store.transaction import home_of
from tests.harness.simulated_cluster import SimulatedCluster, Site
from tests.simulated_cluster.drawn import Ledger, Message
from tests.simulated_cluster.drawn_reader import Asker

__all__ = ["Transaction", "Writer"]

_NAMES = {STAGE: "stage", COMMIT: "commit", ABORT: "abort", FORGET: "forget", LIST: "list"}


class Transaction:
    """The messages of a transaction, in their order. parts: those of its newest commit."""

    def __init__(self, number: int, rows: list[Message]) -> None:
        self.number = number
        self.rows = rows
        self.committing = False  # a commit of it was sent
        self.committed = False
        self.parts: list[tuple[bytes, int]] = []


class _Order(Asker):
    """A request. again: it was done before, and must say so."""

    def __init__(self, writer: Writer, what: int, numbers: list[int], key: bytes, again: bool = False) -> None:
        self.writer = writer
        self.what = what
        self.numbers = numbers
        self.key = key
        self.again = again

    def __repr__(self) -> str:
        return f"{_NAMES[self.what]} {self.numbers} {self.key[:12]!r}"

    def ended(self, site: Site, call: Call) -> None:
        """Take the answer; without a lease a node gives none."""
        self.writer.hear(self, None if site.node.silence(site.steady_ns()) else call.answer)


class Writer:
    """One app. Its driver dies and is replaced by the next one, which stages and commits the same again."""

    def __init__(self, cluster: SimulatedCluster, ledger: Ledger, name: str, topics: list[str], rng: Random) -> None:
        self.cluster = cluster
        self.ledger = ledger
        self.name = name
        self.topics = topics
        self.rng = rng
        self.home = home_of(name.encode(), cluster.partitions)
        self.connections = 0  # its drivers
        self.transactions: list[Transaction] = []
        self.never: list[Message] = []  # staged in parts that no commit names
        self.first = 0  # of its transactions since it was forgotten
        self.committed_us = 0  # when the newest one was
        self.figures: list[int] = []  # as the leader of its home told them last
        self.abandoned = False  # nobody goes on with its last transaction
        self.said: list[str] = []
        self._orders: list[_Order] = []
        self._out: _Order | None = None
        self._parts: list[bytes] = []  # what this driver has staged

    def __repr__(self) -> str:
        return self.name

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to do."""
        return not self._orders

    @property
    def waits(self) -> bool:
        """Whether a request is under way."""
        return self._out is not None

    # -- what it does -------------------------------------------------------------------------------------------------

    def step(self, site: Site) -> str:
        """Do the next thing, at this node; return what."""
        chance = self.rng.random()
        if self.idle:
            if len(self.transactions) > self.first and chance < 0.4:
                if (
                    chance < 0.06 and self.cluster.now > self.committed_us + MILLISECOND
                ):  # messages are numbered by time
                    self._orders.append(_Order(self, FORGET, [], b""))
                else:
                    self._repeat()
            else:
                self._begin()
        elif chance < 0.12:
            self._die(site)
        elif self.waits and chance < 0.5:
            return ""
        return self.send(site)

    def send(self, site: Site) -> str:
        """Send the next request to a node; an answer that has not come yet is not awaited any more."""
        if not self._orders:
            return ""
        order = self._orders[0]
        if order.what == COMMIT and not order.again:
            self._commits()
        again = _Order(self, order.what, order.numbers, order.key, order.again)
        self._out = self._orders[0] = again
        self._give(again, site)
        return f"{again} at {site.name}"

    def _give(self, order: _Order, site: Site) -> None:
        numbers = [self.home, *order.numbers]
        name = self.name.encode()
        found = site.node.ask_home(order, self.home, order.what, name, numbers, order.key, self.cluster.now)
        if not isinstance(found, Call):
            self.hear(order, None if site.node.silence(site.steady_ns()) else found)

    def _begin(self) -> None:
        known = self.transactions[self.first :]
        number = known[-1].number + self.rng.choice((1, 1, 4)) if known else 0
        rows = [self._row() for _ in range(self.rng.randint(0, 7))]
        self.transactions.append(Transaction(number, rows))
        self._start()

    def _row(self) -> Message:
        topic, retain = (f"r/{self.name}", True) if self.rng.random() < 0.2 else (self.rng.choice(self.topics), False)
        message = self.ledger.publish(self, topic, self.rng.choice((1, 2)), retain)
        message.sent = 0  # nobody may see it yet
        return message

    def _start(self) -> None:
        """The next driver stages the rows in chunks of two parts, and some that lose; then it commits."""
        self.connections += 1
        transaction = self.transactions[-1]
        self._orders = []
        self._parts = []
        parts: list[tuple[bytes, int]] = []
        cut = self.rng.randint(0, len(transaction.rows))
        for place, rows in enumerate((transaction.rows[:cut], transaction.rows[cut:])):
            part = b"%d-%d" % (place, self.connections)
            chunks = 0
            while rows:
                count = self.rng.randint(1, 3)
                self._stage(part, chunks, rows[:count])
                rows = rows[count:]
                chunks += 1
            parts.append((part, chunks))
        if self.rng.random() < 0.3:
            lost = self._row()
            self.never.append(lost)
            self._stage(b"lost-%d" % self.connections, 0, [lost])
        transaction.parts = parts
        self._orders.append(_Order(self, COMMIT, [transaction.number], encode_commit(parts)))

    def _stage(self, part: bytes, chunk: int, rows: list[Message]) -> None:
        self._parts.append(part)
        number = self.transactions[-1].number
        key = encode_chunk(part, b"".join([_packet(row) for row in rows]))
        self._orders.append(_Order(self, STAGE, [number, chunk, len(rows)], key))

    def _die(self, site: Site) -> None:
        """The driver is killed; perhaps its parts are given up before the next one stages the same rows again."""
        number = self.transactions[-1].number
        self._out = None
        if self._orders[0].again or self._orders[0].what == FORGET:
            return
        if self.rng.random() < 0.5:
            for part in self._parts:
                self._give(_Order(self, ABORT, [number], part), site)
        self._start()

    def _repeat(self) -> None:
        """Do again what was done: it must change nothing, and be told so."""
        transaction = self.rng.choice(self.transactions[self.first :])
        numbers = [transaction.number]
        what = self.rng.choice((COMMIT, COMMIT, STAGE, ABORT))
        if what == COMMIT:
            order = _Order(self, COMMIT, numbers, encode_commit(transaction.parts), again=True)
        elif what == ABORT:
            order = _Order(self, ABORT, numbers, b"0-1", again=True)
        else:
            lost = self._row()
            self.never.append(lost)
            order = _Order(self, STAGE, [*numbers, 0, 1], encode_chunk(b"0-1", _packet(lost)), again=True)
        self._orders.append(order)

    def _commits(self) -> None:
        transaction = self.transactions[-1]
        if not transaction.committing:
            transaction.committing = True
            for row in transaction.rows:
                row.sent = self.ledger.tick()

    def retained(self) -> set[int]:
        """Return which of its messages may be the retained one of its topic; 0: none."""
        found = [0]
        for transaction in self.transactions:
            mine = [row.number for row in transaction.rows if row.retain]
            if mine and transaction.committed:
                found = mine[-1:]
            elif mine and transaction.committing:
                found.append(mine[-1])
        return set(found)

    # -- what it hears ------------------------------------------------------------------------------------------------

    def hear(self, order: _Order, answer: Answer | None) -> None:
        """Take an answer; None: no node can answer now."""
        if order is not self._out:
            return
        self._out = None
        if answer is None or answer.status in (BUSY, NO_ROOM):
            return
        self.said.append(f"{order}: {answer.status} {answer.numbers}")
        if order.what in (FORGET, LIST):
            self._hear_of_all(order, answer)
            return
        transaction = self.transactions[-1]
        assert answer.status == FOUND, f"A10: {self} hears {answer} for {order}"
        known = bool(answer.numbers[0])
        assert not order.again or known, f"A10: {self}: {order} was done before, and is told to be new"
        assert transaction.committing or order.again or not known, f"A10: {self}: nobody has committed {order}"
        self._orders.pop(0)
        if order.what == COMMIT and not order.again:
            transaction.committed = True
            self.committed_us = self.cluster.now
            for row in transaction.rows:
                row.acked = self.ledger.tick()

    def _hear_of_all(self, order: _Order, answer: Answer) -> None:
        if order.what == FORGET:
            if answer.status == CONFLICT:
                return  # what was committed is to be published first
            assert answer.status in (FOUND, UNKNOWN), f"{self} hears {answer} for {order}"
            self.first = len(self.transactions)
        else:
            found = (
                msgspec.msgpack.decode(answer.chunks[0], type=tuple[bytes, list[int]]) if answer.chunks else (b"", [])
            )
            self.figures = found[1]
        self._orders.pop(0)

    def look(self, site: Site) -> None:
        """Ask for the figures of the app."""
        self._orders = [_Order(self, LIST, [], b"")]
        self.send(site)

    def judge(self) -> None:
        """The figures are right: the last number, how many messages were published, and that nothing waits."""
        known = self.transactions[self.first :]
        published = sum([len(one.rows) for one in known])
        expected = [known[-1].number, published, 0, 0, 0, 0, 0] if known else []
        figures = [self.figures[0], *self.figures[2:5], *self.figures[5:8]] if self.figures else []
        assert figures == expected, f"A10: {self}: {self.figures} instead of {expected}"


def _packet(row: Message) -> bytes:
    return encode(Publish(row.topic.encode(), b"%d" % row.number, row.qos, row.retain, packet_id=1), V5)
