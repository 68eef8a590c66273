"""Drawn runs as in `test_moves`, for what is not in queues: streams, replays, producers, transactions (A9, A10).

In the end every acknowledged message is in each of its streams once, in the order of its publisher and at one offset,
which it has at every copy and which every reader has seen; transactions are there as a whole; replays are complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.mqtt.packet import V5
from folkmoot.query.question import WATCH
from folkmoot.store.key import COMMITTED, LEFTOVER, OUTBOX, PACKETS, STAGED, chunk_key, end_of, kind_prefix, sequence_of
from folkmoot.store.record import Entry, is_same
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.log import StreamLog
from tests.harness.simulated_cluster import SimulatedCluster, Site
from tests.harness.soak import SOAK, seeds
from tests.simulated_cluster.drawn import AWAY, OPEN, DrawnClient, Message
from tests.simulated_cluster.drawn_reader import ALL, Calls, Place, Reader, Watch, copy_at, entries_of
from tests.simulated_cluster.drawn_streams import AskingClient, Producer, ReplayClient
from tests.simulated_cluster.drawn_writer import Writer
from tests.simulated_cluster.moving import SCARCE, SHAPES, TOPICS, Run

DRAWN = seeds(range(8), range(300))
PRESSED = seeds(range(10, 16), range(200))
ROWS = 1000
PLANTED = ["leader_alone", "outbox_forgotten", "serves_scarce", "unmarked"]
if SOAK:
    PLANTED += ["dirty_tail", "gaps", "own_tail", "unleased"]


class StreamRun(Run):
    """One drawn run with streams."""

    def __init__(
        self, seed: int, shapes: Sequence[tuple[int, int, int, int]] = SHAPES, planted: Sequence[str] = ()
    ) -> None:
        self.planted = planted
        super().__init__(seed, shapes)
        rng = self.rng
        self.restlessness = rng.choice((0, 0.1, 0.25))
        self.is_pressed = False
        self.is_powerless = rng.random() < 0.3  # all nodes may lose power at once
        cluster = self.cluster
        self.writers = [Writer(cluster, self.ledger, f"w{n}", [*TOPICS], rng) for n in range(rng.randint(0, 2))]
        self.readers = [Reader(self.watch, place, rng) for place in self.watch.ends]
        for site in cluster.sites.values():
            site.calls = Calls(site)
        cluster.look_after_turns(self.watch.look)

    def _cluster(self, *shape: int, **arguments: Any) -> SimulatedCluster:
        rng = self.rng
        streams = [StreamConfig("wide", b"t/#", rng.randint(1, 3)), StreamConfig("all", b"#", rng.randint(1, 2))]
        if rng.random() < 0.3:
            kept_us, kept_bytes = rng.choice(((SECOND, 0), (4 * SECOND, 0), (0, 300)))
            streams.append(StreamConfig("brief", b"t/#", rng.randint(1, 2), kept_us, kept_bytes))
        self.streams = [stream.name for stream in streams]
        rows = rng.choice((128, 128, 3))  # of a page
        cluster = super()._cluster(
            *shape, streams=streams, limits={"page_rows": rows}, planted=self.planted, **arguments
        )
        self.watch = Watch(cluster)
        return cluster

    def _client(self, name: str) -> DrawnClient:
        rng = self.rng
        kind = rng.choice(("plain", "producer", "producer", "replay", "replay"))
        if kind == "plain":
            return super()._client(name)
        persistent = rng.random() < 0.75
        window = rng.choice((0, 0, 1, 3))
        asks = rng.random() < 0.5
        filters = [(one, rng.choice((1, 2))) for one in rng.sample(TOPICS, rng.randint(kind == "producer", 1))]
        named: dict[str, Any] = {"version": V5, "persistent": persistent, "window": window, "asks": asks, "rng": rng}
        if kind == "producer":
            return Producer(self.cluster, self.ledger, name, filters=filters, **named)
        stream = rng.choice(self.streams)
        return ReplayClient(self.cluster, self.ledger, name, watch=self.watch, stream=stream, filters=filters, **named)

    # -- what happens -------------------------------------------------------------------------------------------------

    def act(self, client: DrawnClient) -> None:
        """Have a client, a reader or a writer do something."""
        rng = self.rng
        chance = rng.random()
        site = rng.choice(self.cluster.live())
        if "brief" in self.streams and not self.frozen and rng.random() < 0.08:
            self.note("time passes")
            self.advance(rng.choice((3, 7, 11)) * SECOND)
        elif chance < 0.5:
            self._work(site)
        else:
            super().act(client)

    def harm(self) -> None:
        """Do a fault; also let all nodes lose power at once, and come back one after the other."""
        if not self.is_powerless or self.killed or self.leaseless or self.frozen or self.rng.random() < 0.7:
            super().harm()
            return
        self.troubled = True
        sites = self.cluster.live()
        self.rng.shuffle(sites)
        self.note(f"all lose power; {sites[0].name} is back at once")
        for site in sites:
            site._end()
        self.killed = sites[-1]
        sites[0].revive()
        waits = sorted(self.rng.choice((0, 10, 300, 1200)) * MILLISECOND for _ in sites[1:])
        for site, us in zip(sites[1:], waits, strict=True):
            revive = self.revive if site is self.killed else site.revive
            self._later(us, f"{site.name} is back", revive)

    def press(self) -> None:
        """Let readers and writers go on, too."""
        self.is_pressed = True
        super().press()

    def _work(self, site: Site) -> None:
        """Have readers or a writer do something at a node."""
        if self.writers and self.rng.random() < 0.5:
            self._step(self.rng.choice(self.writers), site)
        else:
            for _ in range(3):
                self.rng.choice(self.readers).ask(site)

    def _step(self, writer: Writer, site: Site) -> None:
        """Have a writer send one request, or one after the other while there are answers at once."""
        for _ in range(self.rng.choice((1, 1, 5, 10))):
            what = writer.step(site)
            if what:
                self.note(f"{writer}: {what}")
            if self.frozen:
                return
            self.cluster.run()

    def ask(self, client: DrawnClient) -> None:
        """Have a connected client send something."""
        rng = self.rng
        if self.is_pressed and rng.random() < 0.5:
            self._work(rng.choice(self.cluster.live()))
        if isinstance(client, Producer):
            self._produce(client)
        elif isinstance(client, ReplayClient) and rng.random() < 0.4:
            if rng.random() < 0.8:
                self.note(f"{client} subscribes to {client.wish}")
                client.subscribe(client.wish)
            else:
                self.note(f"{client} unsubscribes from {client.wish}")
                client.unsubscribe(client.wish)
        else:
            super().ask(client)

    def _produce(self, client: Producer) -> None:
        rng = self.rng
        chance = rng.random()
        known = client.known()
        topic = rng.choice(TOPICS)
        if chance < 0.75:
            retain = rng.random() < 0.2
            client.produce(f"r/{client.name}" if retain else topic, retain)
            self.note(f"{client} publishes {self.ledger.messages[len(self.ledger.messages)]} as {client.last}")
        elif chance < 0.87 and known:
            message = rng.choice(known)
            self.note(f"{client} repeats {message}")
            client.repeat(message)
        elif chance < 0.92:
            client.mistake(topic)
            self.note(f"{client} makes a mistake: {self.ledger.messages[len(self.ledger.messages)]}")
        else:
            super().ask(client)

    def look(self) -> bool:
        """Have clients and readers look at what has come."""
        came = super().look()
        for reader in self.readers:
            reader.look()
        self._look_at_leases()
        return came

    def _end_faults(self) -> None:
        self._look_at_leases()
        super()._end_faults()

    def _look_at_leases(self) -> None:
        """A link that is held until the lease of a node is over is a trouble, too."""
        for site in self.cluster.live():
            held = [link for link in self.cluster.held if site.name in link]
            if held and site.node.silence(site.steady_ns()):
                self.troubled = True

    # -- the end ------------------------------------------------------------------------------------------------------

    def _return(self) -> None:
        """Producers and replays come back, too, and so do the drivers of transactions, but for some that are gone."""
        for writer in self.writers:
            writer.abandoned = not writer.idle and self.rng.random() < 0.2
        for client in self.clients:
            if isinstance(client, Producer | ReplayClient) and client.state == AWAY:
                client.hang_up()
                client.connect(self.rng.choice(list(self.cluster.sites)))
        self._rest(2)  # retention may end a replay now: its client comes back once more
        super()._return()
        for client in self.clients:
            assert not isinstance(client, Producer) or not client.unsure, f"{client} lacks {client.unsure}"
        for _ in range(200):
            active = [writer for writer in self.writers if not writer.idle and not writer.abandoned]
            if not active:
                break
            for writer in active:
                self.note(f"{writer}: {writer.send(self.rng.choice(self.cluster.live()))}")
            self._rest(1)
        else:
            raise AssertionError(f"{active} have no answers: {[writer.said for writer in active]}")
        self._rest(3)

    def _audit(self) -> None:
        self._judge_streams()
        self._judge_retained()
        self._judge_replays()
        self._judge_readers()
        for site in self.cluster.live():
            assert not (left := self._leftovers(site)), f"A13: {site.name} keeps {left}"
        super()._audit()

    def _judge_streams(self) -> None:
        for place in self.watch.ends:
            self._judge_copies(place)
        for name in self.streams:
            found: dict[int, list[tuple[int, int]]] = {}
            for place, seen in self.watch.seen.items():
                if place[0] == name:
                    entries = [seen[offset] for offset in sorted(seen)]
                    self._judge_records(place, entries)
                    for entry in entries:
                        message = self._message_of(entry)
                        found.setdefault(message.number, []).append((place[1], entry.offset))
            for message in self.ledger.messages.values():
                if _is_in(name, message):
                    self._judge_count(name, message, found.get(message.number, []))
            self._judge_transactions(name, found)

    def _judge_copies(self, place: Place) -> None:
        """All copies of a stream partition have the same records, those that could be read, and no others."""
        logs = {site.name: self._log(site, place) for site in self.cluster.live()}
        partition = logs["n1"].store_partition
        (leader,) = [site for site in self.cluster.live() if site.node.leads_stream(logs[site.name])]
        log = logs[leader.name]
        assert log.readable_end == log.next_offset == self.watch.ends[place], f"{log} at {leader.name}"
        entries = entries_of(log.read_copy(log.oldest, log.readable_end, log.oldest, log.readable_end, ALL), 0)
        assert [entry.offset for entry in entries] == list(range(log.oldest, log.readable_end))
        self.watch.compare(place, entries, leader.name)
        holders = [site for site in self.cluster.live() if site.cluster_node.fabric.holds[partition]]
        assert len(holders) == min(self.cluster.replicas, len(self.cluster.live()))
        for site in holders:
            for rows in (site.tables, site.store):
                copy = copy_at(log, rows)
                for entry in entries:
                    stored = copy.stored(entry.offset)
                    assert is_same(stored, entry), f"A9: {site.name} has {stored} instead of {entry} in {log}"
            found = site.store.scan(chunk_key(partition, place[0].encode(), place[1], 0), log._end, 1)
            first = [sequence_of(key) for key, _ in found]
            assert first == [entry.offset for entry in entries[:1]], f"A9: {log} begins at {first} at {site.name}"

    def _log(self, site: Site, place: Place) -> StreamLog:
        stream = site.node.streams.get(place[0])
        assert stream is not None
        return stream.logs[place[1]]

    def _message_of(self, entry: Entry) -> Message:
        message = self.ledger.messages.get(int(entry.record.payload))
        assert message is not None, f"A2: {entry}"
        publisher = message.client.name.encode()
        assert entry.record.topic == message.topic.encode(), f"A2: {entry} is not {message}"
        assert entry.record.publisher.endswith(publisher), f"A2: {entry} is not {message}"
        assert (entry.record.qos, entry.record.retain) == (message.qos, message.retain), f"A2: {entry} is not {message}"
        return message

    def _judge_count(self, name: str, message: Message, places: list[tuple[int, int]]) -> None:
        publisher = message.client
        most = message.sends if message.qos == 1 else 1
        if isinstance(publisher, Producer) and message.number in publisher.numbers:
            most = 0 if message.number in publisher.absurd else 1
        elif isinstance(publisher, Writer):
            most = 1 if message.sent else 0
        assert len(places) <= most, f"A9: {name} has {message} of {publisher} at {places}, {most} at most"
        if message.acked and message.qos:
            assert places, f"A9: {name} lacks {message} of {publisher}"

    def _judge_records(self, place: Place, entries: list[Entry]) -> None:
        """Messages are in the order of their publisher, as far as it is promised; so are the changes of receipts."""
        newest: dict[tuple[object, ...], int] = {}
        change = (0, 0)
        seen: set[int] = set()
        for entry in entries:
            message = self._message_of(entry)
            if message.number in seen:
                continue
            seen.add(message.number)
            publisher = message.client
            for key in self._orders(message):
                assert newest.get(key, 0) < message.number, f"A3: {place} has {message} after {newest[key]}"
                newest[key] = message.number
            if isinstance(publisher, AskingClient) and message.number in publisher.receipts:
                partition = self._log(self.cluster["n1"], place).store_partition
                mine = publisher.receipts[message.number][partition]
                assert mine >= change, f"{place} has {message} of {mine} after {change}"
                change = mine

    def _is_once(self, message: Message) -> bool:
        """Whether a message is applied once, whatever is repeated."""
        publisher = message.client
        return isinstance(publisher, Writer) or (
            isinstance(publisher, Producer) and message.number in publisher.numbers
        )

    def _orders(self, message: Message) -> list[tuple[object, ...]]:
        """Return in which orders a message has its place."""
        publisher = message.client
        found: list[tuple[object, ...]] = []
        if self._is_once(message):
            found.append((publisher.name, message.topic))
        if message.acked and not message.repeated and message.qos:
            found.append((publisher.name, message.topic, message.connection, message.qos))
        return found

    def _judge_transactions(self, name: str, found: dict[int, list[tuple[int, int]]]) -> None:
        for writer in self.writers:
            for transaction in writer.transactions:
                rows = [message for message in transaction.rows if _is_in(name, message)]
                there = [message.number for message in rows if message.number in found]
                whole = [message.number for message in rows]
                allowed = [whole] if transaction.committed else [whole, []] if transaction.committing else [[]]
                assert there in allowed, f"A10: {name} has {there} of {whole}, a transaction of {writer}"
                assert transaction.committed or writer.abandoned, f"{writer} has not committed {whole}"
            for client in self.clients:
                early = [message for message in writer.never if message.number in client.got]
                assert not early, f"A10: {client} gets {early} of a part that {writer} has not committed"

    def _judge_retained(self) -> None:
        """A8: the newest message of a producer or a transaction stays, whatever was repeated."""
        (reader,) = [client for client in self.clients if client.name == "reader"]
        expected = {writer.name: writer.retained() for writer in self.writers}
        for client in self.clients:
            if isinstance(client, Producer):
                kept = [number for number in client.numbers if self.ledger.messages[number].retain]
                expected[client.name] = {kept[-1] if kept else 0}
        for name, allowed in expected.items():
            found = reader.retained.get(f"r/{name}", 0)
            assert found in allowed, f"A8: r/{name} is {found} and not of {allowed}"

    def _judge_readers(self) -> None:
        """Each node gives out all records, and notices new ones; each tells the same of an app."""
        readers = {
            (site.name, place): Reader(self.watch, place, self.rng)
            for site in self.cluster.live()
            for place in self.watch.ends
        }
        self.readers = list(readers.values())
        for _ in range(100):
            behind = {key: one for key, one in readers.items() if one.at < self.watch.ends[one.place]}
            if not behind:
                break
            for (name, _place), reader in behind.items():
                reader.ask(self.cluster[name], whole=True)
            self._rest(3)
        assert not behind, f"A9: {list(behind)} are not read"
        for site in self.cluster.live():
            for place, end in self.watch.ends.items():
                log = self._log(site, place)
                assert site.node.stream_end(log, self.now) <= end
        self._rest(1)
        for site in self.cluster.live():
            ends = {place: site.node.stream_end(self._log(site, place), self.now) for place in self.watch.ends}
            assert ends == self.watch.ends, f"A9: {site.name} knows {ends} instead of {self.watch.ends}"
        for writer in self.writers:
            if not writer.abandoned:
                for site in self.cluster.live():
                    writer.look(site)
                    self._rest(1)
                    writer.judge()

    def _judge_replays(self) -> None:
        clients = [client for client in self.clients if isinstance(client, ReplayClient)]
        for client in clients:
            client.judge()
        lasting = [client for client in clients if client.persistent and client.state == OPEN]
        before = {client.name: len(client.replayed.arrivals) for client in lasting}
        for client in lasting:
            client.lose()
            client.connect(self.rng.choice(list(self.cluster.sites)))
        self._rest(3)
        for client in lasting:
            again = client.replayed.arrivals[before[client.name] :]
            assert not again, f"A9: {client} gets {again} once more, when it comes back"
            assert client.state == OPEN, f"{client} is {client.state}"

    def _judge_repetitions(self, client: DrawnClient) -> None:
        super()._judge_repetitions(client)
        for number, arrivals in client.got.items():
            if client.persistent and self._is_once(self.ledger.messages[number]):
                assert arrivals.count(False) <= 1, f"A4: {client} gets {self.ledger.messages[number]} {arrivals}"

    def _leftovers(self, site: Site) -> dict[str, Any]:
        """Return what a node at rest still keeps of streams, questions and transactions under way."""
        broker: Any = site.node._broker
        streams: Any = site.node.streams
        feeds = broker.feed.feeds
        logs = [log for stream in streams.streams for log in stream.logs]
        asked = list(broker.feed.inquiries._asked.values())
        found: dict[str, Any] = {
            "flushed": streams._flushed,
            "changed": streams._changed,
            "released": streams._released,
            "logs": [log for log in logs if log._pending or log._open or log._changes],
            "fresh": feeds.fresh,
            "landing": feeds.landing,
            "waiting": feeds.waiting,
            "active": len(feeds.active),
            "failures": feeds.failures,
            "asked": [inquiry for inquiry in asked if inquiry.what != WATCH],
            "watched": asked[len(logs) :],
            "transactions": broker.delivery.publications.transactions.waiting,
            "later": broker.delivery.publications._later,
            "orders": broker.report.orders._waiting,
            "scans": broker.report.answers._scans,
            "calls": broker.report.calls.ended,
        }
        kinds = {"outbox": OUTBOX, "committed": COMMITTED, "leftover": LEFTOVER}
        if not any(writer.abandoned for writer in self.writers):
            kinds |= {"staged": STAGED, "packets": PACKETS}
        for name, kind in kinds.items():
            held = [partition for partition, holds in enumerate(site.cluster_node.fabric.holds) if holds]
            prefixes = [kind_prefix(partition, kind) for partition in held]
            found[name] = [row for prefix in prefixes for row in site.tables.scan(prefix, end_of(prefix), ROWS)]
        return {name: what for name, what in found.items() if what}


def _is_in(stream: str, message: Message) -> bool:
    return stream == "all" or message.topic.startswith("t/")


@pytest.mark.parametrize("seed", DRAWN)
def test_leaderships_move_while_streams_are_written_and_read(seed: int) -> None:
    StreamRun(seed).judged(pressed=False)


@pytest.mark.parametrize("seed", PRESSED)
def test_leaderships_of_streams_are_handed_on_before_they_have_begun(seed: int) -> None:
    StreamRun(seed, SCARCE).judged(pressed=True)


def run_with(bug: str) -> None:
    """Run seeds of both kinds with a bug."""
    for seed in range(40):
        StreamRun(seed, SHAPES, [bug]).judged(pressed=False)
        StreamRun(seed, SCARCE, [bug]).judged(pressed=True)


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    with pytest.raises(AssertionError):
        run_with(bug)
