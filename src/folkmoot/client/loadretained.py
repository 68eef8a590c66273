"""Load by retained messages: one wildcard subscription to very many of them, while another pair has traffic.

Owns the run: store the messages, measure a pair, subscribe to all messages, measure the pair meanwhile, remove them.
It checks topics, not numbers: every topic must have arrived.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Final

from folkmoot.client.loadloop import Faults, LoadLoop
from folkmoot.client.loadpeer import Peer
from folkmoot.client.loadresult import LoadResult
from folkmoot.client.loadrun import SECOND_NS, TURN_S
from folkmoot.client.loadtraffic import TrafficRun
from folkmoot.client.packetrun import MALFORMED, find_packet_end, measure_run, reply_to_ids
from folkmoot.client.template import ACK_BYTES, PUBACK, MessageLayout, retained_messages, subscribe_packet
from folkmoot.client.workload import Target

__all__ = ["RetainedRun"]

STORE_WINDOW: Final = 1000
STORE_S: Final = 120.0
COLLECT_S: Final = 60.0
RETAINED_DEFAULT: Final = 100_000
SUBACK: Final = 0x90
REFUSED: Final = 0x80
AFTER_S: Final = 0.5


class Keeper(Peer):
    """Publishes a list of packets with QoS 1 and counts their acknowledgements."""

    def __init__(self, loop: LoadLoop, target: Target, version: int, connect: bytes, faults: Faults) -> None:
        super().__init__(loop, target, version, connect, faults)
        self.messages: list[bytes] = []
        self.sent = 0
        self.acked = 0

    def on_accepted(self) -> None:
        """Wait for messages."""
        self.receive = self._read_acks

    def publish(self, messages: list[bytes]) -> None:
        """Publish messages."""
        self.messages, self.sent, self.acked = messages, 0, 0
        self._fill()

    def _fill(self) -> None:
        until = min(self.acked + min(STORE_WINDOW, self.receive_max), len(self.messages))
        if until > self.sent:
            self.send(b"".join(self.messages[self.sent : until]))
            self.sent = until

    def _read_acks(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        while at < len(data) and not self.closed:
            count = measure_run(data, at, ACK_BYTES, PUBACK)
            self.acked += count
            at += count * ACK_BYTES
            if count:
                continue
            end = find_packet_end(data, at)
            if end == 0:
                break
            # MQTT 5.0 returns 0x10 if there is no subscriber: the message is stored nevertheless.
            if end == MALFORMED or data[at] != PUBACK[0] or (end > at + ACK_BYTES and data[at + 4] >= REFUSED):
                self.unexpected(data[at:])
                return
            self.acked += 1
            at = end
        self._rest = data[at:]
        self._fill()


class Collector(Peer):
    """Subscribes to a wildcard and collects the messages."""

    def __init__(
        self, loop: LoadLoop, target: Target, connect: bytes, faults: Faults, layout: MessageLayout, topic_filter: bytes
    ) -> None:
        super().__init__(loop, target, layout.version, connect, faults)
        self.layout = layout
        self.topic_filter = topic_filter
        self.received = 0
        self.chunks: list[bytes] = []

    def on_accepted(self) -> None:
        """Subscribe."""
        self.receive = self._read
        self.send(subscribe_packet(self.version, 1, self.topic_filter, self.layout.qos))

    def _read(self, data: bytes) -> None:
        layout = self.layout
        data = self._rest + data
        at = 0
        while at < len(data) and not self.closed:
            count = measure_run(data, at, layout.stride, layout.head)
            end = at + count * layout.stride
            if count:
                if layout.qos:
                    self.send(reply_to_ids(PUBACK, data, at, layout.id_at, count, layout.stride))
                self.chunks.append(data[at:end])
                self.received += count
            else:
                # The SUBACK may arrive before, between or after the messages (MQTT 5.0 section 3.8.4).
                end = find_packet_end(data, at)
                if end == 0:
                    break
                if end == MALFORMED or data[at] != SUBACK or data[end - 1] >= REFUSED:
                    self.unexpected(data[at:])
                    return
            at = end
        self._rest = data[at:]

    def topics(self) -> set[bytes]:
        """Return the received topics, as the bytes of their numbers."""
        every = b"".join(self.chunks)
        start, stride = len(self.layout.head) + 2 + len(self.topic_filter) - 1, self.layout.stride
        return {every[at : at + 6] for at in range(start, len(every), stride)}


class RetainedRun(TrafficRun):
    """`messages` retained messages (default 100,000), a subscription to all of them, and a pair at `rate` meanwhile.

    `operations` are the retained messages received, `seconds` the time from SUBSCRIBE to the last of them, `latency`
    that of the pair meanwhile. Extra: the pair's p99 before, messages stored per second, missing topics.
    """

    def perform(self, result: LoadResult) -> None:
        """Store, measure the pair, collect, remove."""
        load, clients = self.workload, self.clients
        count = self.span.messages or RETAINED_DEFAULT
        prefix = b"keep/%s/" % clients.token.encode()
        connect = clients.connect_packet("keeper", load.version, self.span.seconds)
        keeper = Keeper(self.loop, clients.target, load.version, connect, self.faults)
        clients.open_all([keeper], lambda _done: None)
        # Stored with QoS 1, so that only the QoS of the subscription determines how they are delivered.
        layout = MessageLayout(load.version, len(prefix) + 6, 1, load.payload_bytes, retain=True)
        stored_s = self._store("storing", keeper, retained_messages(layout, prefix, count))
        result.extra["stored_per_second"] = round(count / stored_s, 1)
        self.build()
        self.connect()
        self.flow("before", self.span.seconds)
        result.extra["before_p99_us"] = self.latencies()[0].p99_us
        if not self.faults.fatal:
            self._collect(result, prefix, count)
        self.drain()
        self._store("removing", keeper, retained_messages(layout, prefix, count, empty=True))

    def _store(self, phase: str, keeper: Keeper, messages: list[bytes]) -> float:
        began = perf_counter_ns()
        if not self.faults.fatal:
            keeper.publish(messages)
        while keeper.acked < len(messages) and not self.faults.fatal:
            self.loop.turn(TURN_S)
            self.show(phase, keeper.acked / len(messages), keeper.acked)
            if perf_counter_ns() - began > STORE_S * SECOND_NS:
                self.faults.add("timeout", f"{phase}: {keeper.acked} of {len(messages)} in {STORE_S:.0f} s", fatal=True)
        return (perf_counter_ns() - began) / SECOND_NS

    def _collect(self, result: LoadResult, prefix: bytes, count: int) -> None:
        load, clients = self.workload, self.clients
        layout = MessageLayout(load.version, len(prefix) + 6, load.qos, load.payload_bytes, retain=True)
        connect = clients.connect_packet("collector", load.version, self.span.seconds)
        collector = Collector(self.loop, clients.target, connect, self.faults, layout, prefix + b"+")
        clients.peers.append(collector)
        self.restart_latency()
        self.start_clock()
        collector.open(clients.family, clients.address)
        self.flow("subscribed", COLLECT_S, until=lambda: collector.received >= count)
        self.stop_clock(result, collector.received)
        # Messages of the pair from meanwhile may still be in flight; those that are published from now on do not count.
        for subscriber in self.subscribers:
            subscriber.until_ns = perf_counter_ns()
        self.flow("after", AFTER_S)
        result.latency = self.latencies()[0]
        missing = count - len(collector.topics())
        result.extra["topics_missing"] = missing
        if missing or collector.received != count:
            text = f"{collector.received} messages were received for {count} topics, {missing} topics are missing"
            self.faults.add("incomplete", text)
        collector.disconnect()
