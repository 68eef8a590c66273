"""Load by messages: pairs, fan-in and fan-out.

Owns the phases of such a run: connect, warm up, measure, drain, forget. Never prints. It always terminates: every phase
has a time limit, and a stalled run is stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

from folkmoot.client.histogram import LatencyHistogram
from folkmoot.client.loadpublisher import Publisher
from folkmoot.client.loadresult import LatencyFigures, LoadResult
from folkmoot.client.loadroute import Route
from folkmoot.client.loadrun import PROGRESS_NS, SECOND_NS, TURN_S, LoadRun, Visitor
from folkmoot.client.loadsubscriber import Subscriber
from folkmoot.client.template import MessageLayout, MessageRing

__all__ = ["TrafficRun"]

DRAIN_S: Final = 10.0
# Nothing received for this long with messages outstanding: the run has stalled.
STALL_S: Final = 8.0


class TrafficRun(LoadRun):
    """Pairs, fan-in and fan-out."""

    def perform(self, result: LoadResult) -> None:
        """Connect, warm up, measure, drain, and forget persistent sessions."""
        self.build()
        self.connect()
        if self.faults.fatal:
            return
        if not self.span.messages:
            self.flow("warming up", self.span.warmup_s)
        self.measure(result)
        self.drain()
        self.clients.close()
        if self.workload.persistent and not self.faults.fatal:
            self.forget_sessions()

    def build(self) -> None:
        """Create the clients and the windows between them."""
        load = self.workload
        layout = MessageLayout(load.version, len(self.clients.topic(0)), load.qos, load.payload_bytes)
        self.publishers = [self._publisher(layout, number) for number in range(load.publishers)]
        self.subscribers = [self._subscriber(layout, number) for number in range(load.subscribers)]
        ring = self.publishers[0].ring
        if load.shape != "fan-in":
            for subscriber in self.subscribers:
                subscriber.expect(ring.size, ring.cycle)
        paced = load.rate > 0
        self.routes = [
            Route(publisher, self._subscribers_of(number), load.window, paced=paced)
            for number, publisher in enumerate(self.publishers)
        ]

    def _subscribers_of(self, number: int) -> list[Subscriber]:
        joined = self.workload.shape in {"fan-in", "fan-out"}
        return self.subscribers if joined else self.subscribers[number : number + 1]

    def _publisher(self, layout: MessageLayout, number: int) -> Publisher:
        load, clients = self.workload, self.clients
        ring = MessageRing(layout, clients.topic(number), number, load.window)
        packet = clients.connect_packet(f"p{number}", load.version, self.span.seconds)
        publisher = Publisher(self.loop, clients.target, packet, self.faults, ring, load.sample_every)
        publisher.next_sample = number % load.sample_every
        return publisher

    def _subscriber(self, layout: MessageLayout, number: int) -> Subscriber:
        load, clients = self.workload, self.clients
        joined = {"fan-in": b"bench/%s/+" % clients.token.encode(), "fan-out": clients.topic(0)}
        topic_filter = joined.get(load.shape, clients.topic(number))
        packet = clients.connect_packet(f"s{number}", load.version, self.span.seconds, persistent=load.persistent)
        return Subscriber(self.loop, clients.target, packet, self.faults, layout, topic_filter)

    def connect(self) -> None:
        """Connect the subscribers, then the publishers, so that every message has its subscribers."""
        first = len(self.subscribers)
        count = first + len(self.publishers)
        self.clients.open_all(self.subscribers, lambda done: self.show("connecting", done / count, done))
        self.clients.open_all(self.publishers, lambda done: self.show("connecting", (first + done) / count, done))
        if self.workload.qos:
            for route in self.routes:
                route.window = min(route.window, route.publisher.receive_max)

    def received(self) -> int:
        """Return how many messages the subscribers have received."""
        return sum(subscriber.received for subscriber in self.subscribers)

    def sent(self) -> int:
        """Return how many messages the publishers have sent."""
        return sum(publisher.sent for publisher in self.publishers)

    def outstanding(self) -> int:
        """Return the number of messages in flight."""
        return sum(route.outstanding for route in self.routes)

    def measure(self, result: LoadResult) -> None:
        """Measure for the duration of the run."""
        load, span = self.workload, self.span
        if span.messages:
            share, rest = divmod(span.messages, load.publishers)
            for number, publisher in enumerate(self.publishers):
                publisher.limit = share + (number < rest)
        self.start_clock()
        self.restart_latency()
        received, sent = self.received(), self.sent()
        self.flow("measuring", span.seconds, span.messages)
        self.stop_clock(result, self.received() - received)
        result.published = self.sent() - sent
        result.latency, result.ack_latency = self.latencies()

    def restart_latency(self) -> None:
        """Drop the samples so far, and those of messages in flight."""
        now = perf_counter_ns()
        for subscriber in self.subscribers:
            subscriber.since_ns, subscriber.latency = now, LatencyHistogram()
        for publisher in self.publishers:
            publisher.since_ns, publisher.ack_latency = now, LatencyHistogram()

    def latencies(self) -> tuple[LatencyFigures, LatencyFigures]:
        """Return the latencies since the last restart: until received, until acknowledged."""
        latency, acknowledged = LatencyHistogram(), LatencyHistogram()
        for subscriber in self.subscribers:
            latency.merge(subscriber.latency)
        for publisher in self.publishers:
            acknowledged.merge(publisher.ack_latency)
        return LatencyFigures.of(latency), LatencyFigures.of(acknowledged)

    def flow(self, phase: str, seconds: float, messages: int = 0, until: Callable[[], bool] | None = None) -> None:
        """Send messages for at most some seconds, or until `messages` are done, or until `until` returns true."""
        began = perf_counter_ns()
        length_ns = int(seconds * SECOND_NS)
        base = self.received()
        moved, moved_ns = -1, began
        due = 0
        for route in self.routes:
            route.fill()
        while not self.faults.fatal:
            now = perf_counter_ns()
            if self._finished() if messages else now - began >= length_ns or (until is not None and until()):
                break
            wait_s = TURN_S
            if self.workload.rate:
                due, wait_s = self._pace(due, now - began)
            self.loop.turn(wait_s)
            if now - self.shown_ns < PROGRESS_NS:
                continue
            received = self.received()
            done = (received - base) / (messages * self.workload.copies) if messages else (now - began) / length_ns
            self.show(phase, done, received)
            if received != moved:
                moved, moved_ns = received, now
            elif now - moved_ns > STALL_S * SECOND_NS and self.outstanding():
                self.faults.add("stalled", f"nothing received for {STALL_S:.0f} s", fatal=True)

    def _pace(self, before: int, elapsed_ns: int) -> tuple[int, float]:
        """Mark messages as due according to the rate; return (due in total, seconds to the next message at most)."""
        rate = self.workload.rate
        due = int(elapsed_ns * rate / SECOND_NS)
        now = perf_counter_ns()
        count = len(self.routes)
        for number in range(before, min(before + count, due)):
            self.routes[number % count].due(now, (due - number + count - 1) // count)
        return due, min(TURN_S, max((due + 1) / rate - elapsed_ns / SECOND_NS, 0.0))

    def _finished(self) -> bool:
        return all(route.publisher.sent >= route.publisher.limit and not route.outstanding for route in self.routes)

    def drain(self) -> None:
        """Stop publishing and wait for outstanding messages; those that do not arrive count as lost."""
        for route in self.routes:
            route.publisher.limit = route.publisher.sent
        began = perf_counter_ns()
        total = max(self.outstanding(), 1)
        while not self.faults.fatal and (left := self.outstanding()):
            self.loop.turn(TURN_S)
            self.show("draining", 1 - left / total, self.received())
            if perf_counter_ns() - began > DRAIN_S * SECOND_NS:
                self.faults.add("lost", f"{left} messages did not arrive in {DRAIN_S:.0f} s", left)
                return

    def forget_sessions(self) -> None:
        """Connect once more with Clean Start, so that no session is left."""
        version, clients = self.workload.version, self.clients
        peers = [
            Visitor(
                self.loop,
                clients.target,
                version,
                clients.connect_packet(f"s{number}", version, self.span.seconds),
                self.faults,
            )
            for number in range(len(self.subscribers))
        ]
        clients.open_all(peers, lambda done: self.show("cleaning up", done / len(peers), done))
