"""The flows of load clients against a broker in memory: complete, in order, in the window, and honest about faults."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, Ack, Publish
from tests.client.loyal import Bench


@given(
    qos=st.integers(0, 2),
    version=st.sampled_from([4, 5]),
    publishers=st.integers(1, 3),
    subscribers=st.integers(1, 3),
    window=st.integers(1, 40),
    messages=st.integers(0, 300),
    bytes_max=st.sampled_from([1, 3, 50, 333, 100_000]),
)
@settings(max_examples=60)
def test_every_message_arrives_once_and_nothing_is_left(
    qos: int, version: int, publishers: int, subscribers: int, window: int, messages: int, bytes_max: int
) -> None:
    bench = Bench(qos=qos, version=version, publishers=publishers, subscribers=subscribers, window=window)
    bench.start(messages)
    bench.serve(bytes_max)
    assert bench.faults.counts == {}
    assert [publisher.sent for publisher in bench.publishers] == [messages] * publishers
    assert [subscriber.received for subscriber in bench.subscribers] == [messages * publishers] * subscribers
    assert [route.outstanding for route in bench.routes] == [0] * publishers
    samples = {subscriber.latency.count for subscriber in bench.subscribers}
    assert samples == {(messages + 2) // 3 * publishers}, "one message in three is timed, from the first on"
    if qos:
        assert [publisher.acked for publisher in bench.publishers] == [messages] * publishers
        assert [publisher.ack_latency.count for publisher in bench.publishers] == [(messages + 2) // 3] * publishers


def acknowledgements(bench: Bench) -> list[int]:
    """The kinds of the packets that the subscriber has written since."""
    packets, bench.subscriber_wires[0].inbox = bench.subscriber_wires[0].inbox, []
    return [packet.kind for packet in packets if isinstance(packet, Ack)]


@pytest.mark.parametrize(("qos", "kinds"), [(0, []), (1, [PUBACK] * 4), (2, [PUBREC] * 4)])
def test_a_subscriber_answers_every_message(qos: int, kinds: list[int]) -> None:
    bench = Bench(qos=qos, window=4)
    bench.start(4)
    packets, bench.publisher_wires[0].inbox = bench.publisher_wires[0].inbox, []
    for packet in packets:
        bench.answer(bench.publisher_wires[0], packet)
    bench.subscriber_wires[0].deliver(10_000)
    assert acknowledgements(bench) == kinds


def test_a_release_is_completed() -> None:
    bench = Bench(qos=2)
    bench.subscriber_wires[0].peer.receive(b"\x62\x02\x00\x07\x62\x02\x01\x02")
    assert acknowledgements(bench) == [PUBCOMP, PUBCOMP]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_window_is_never_exceeded(qos: int) -> None:
    bench = Bench(qos=qos, window=7)
    bench.start(1000)
    assert bench.publishers[0].sent == 7
    bench.serve(10_000)
    assert bench.publishers[0].sent == 1000
    assert bench.routes[0].outstanding == 0


def test_the_slowest_subscriber_holds_the_window() -> None:
    bench = Bench(qos=0, subscribers=2, window=5)
    bench.start(100)
    wires = bench.subscriber_wires
    packets, bench.publisher_wires[0].inbox = bench.publisher_wires[0].inbox, []
    for packet in packets:
        bench.answer(bench.publisher_wires[0], packet)
    wires[0].deliver(100_000)
    assert bench.loop.deferred == []
    assert bench.routes[0].outstanding == 5
    wires[1].deliver(100_000)
    assert bench.loop.deferred == [bench.routes[0]]


def test_a_paced_message_waits_for_the_window_and_is_timed_from_when_it_was_due() -> None:
    bench = Bench(qos=0, window=2, paced=True)
    bench.start(100)
    assert bench.publishers[0].sent == 0
    bench.routes[0].due(1_000, 3)
    assert bench.publishers[0].sent == 2
    assert list(bench.routes[0].backlog) == [(1_000, 1)]
    bench.routes[0].due(2_000, 1)
    bench.serve(10_000)
    assert bench.publishers[0].sent == 4
    stamped = bench.subscribers[0].latency
    # Messages 0 and 3 carry times near the birth of the clock: nothing younger than a microsecond of it was recorded.
    assert stamped.count == 2
    assert stamped.quantile(0.0) > 10_000


class Fate:
    """Lets the `number`-th message suffer."""

    def __init__(self, number: int, outcome: str) -> None:
        self.number = number
        self.outcome = outcome
        self.seen = 0
        self.held: list[Publish] = []

    def __call__(self, publish: Publish) -> list[Publish]:
        self.seen += 1
        if self.seen == self.number:
            if self.outcome == "late":
                self.held = [publish]
            return {"lost": [], "twice": [publish, publish], "late": []}[self.outcome]
        held, self.held = self.held, []
        return [publish, *held]


@pytest.mark.parametrize(
    ("outcome", "faults"),
    [("lost", {"lost": 1}), ("twice", {"repeated": 1}), ("late", {"lost": 1, "repeated": 1})],
)
@pytest.mark.parametrize("qos", [0, 1])
def test_a_broker_that_loses_repeats_or_reorders_is_found_out(qos: int, outcome: str, faults: dict[str, int]) -> None:
    bench = Bench(qos=qos, window=20, fate=Fate(37, outcome))
    bench.start(100)
    bench.serve(777)
    assert bench.faults.counts == faults
    assert not bench.faults.fatal
    assert bench.publishers[0].sent == 100, "the run goes on: what is lost frees its place in the window"


def test_acknowledgements_out_of_order_are_counted_and_followed() -> None:
    bench = Bench(qos=1, window=4)
    bench.start(4)
    bench.publishers[0].receive(b"\x40\x02\x00\x01\x40\x02\x00\x03\x40\x02\x00\x02\x40\x02\x00\x04")
    assert bench.faults.counts == {"acknowledged out of order": 2}
    assert bench.publishers[0].acked == 4


@pytest.mark.parametrize(
    ("data", "kind"), [(b"\x40\x03\x00\x01\x10", "no subscriber"), (b"\x40\x03\x00\x01\x97", "refused message")]
)
def test_a_reason_code_is_a_fault_that_is_named(data: bytes, kind: str) -> None:
    bench = Bench(qos=1, version=5, window=4)
    bench.start(4)
    bench.publishers[0].receive(data)
    assert bench.faults.counts == {kind: 1}
    assert bench.publishers[0].acked == 1
    assert not bench.publishers[0].closed


@pytest.mark.parametrize("data", [b"\xe0\x01\x8b", b"\x00\x00", b"\x40\xff\xff\xff\xff\x01", b"\x90\x03\x00\x01\x00"])
def test_a_packet_that_nobody_asked_for_ends_the_run(data: bytes) -> None:
    bench = Bench(qos=1, version=5)
    bench.publishers[0].receive(data)
    assert bench.faults.fatal
    assert bench.publishers[0].closed


def test_a_message_marked_as_duplicate_is_a_fault() -> None:
    bench = Bench(qos=1)
    message = bytearray(bench.publishers[0].ring.slice(0, 1))
    message[0] |= 0x08
    bench.subscribers[0].receive(bytes(message))
    assert bench.faults.counts == {"marked as duplicate": 1}
    assert bench.subscribers[0].received == 1
