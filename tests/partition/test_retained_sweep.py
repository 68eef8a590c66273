"""Expired retained messages leave the store and the counts of their users, also if nobody reads them."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Properties, Publish
from folkmoot.sim.check_quota import miscounted
from folkmoot.store.batch import PUT, Batch
from folkmoot.store.key import RETAINED, kind_of, plain_key
from folkmoot.store.message import decode_message
from folkmoot.store.writer import VERSION_BYTES
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer

INTERVAL_US = 60 * SECOND


def topics_in(box: Box) -> set[bytes]:
    """Return the topics that have a retained row."""
    rows = box.store.scan(b"", b"\xff" * 8, 100_000)
    rows = [row for row in rows if row[0][:2] != b"\xff\xff" and kind_of(row[0]) == RETAINED]
    return {decode_message(value, VERSION_BYTES).topic for _, value in rows}


def filler(box: Box) -> Peer:
    peer = box.client("filler")
    peer.connect()
    return peer


def fill(peer: Peer, first: int, end: int, expiry_s: int | None) -> None:
    """Retain a message on each of the topics in one turn of the node."""
    packets = []
    for number in range(first, end):
        properties = Properties()
        properties.message_expiry = expiry_s
        packets.append(Publish(b"r/%d" % number, b"12345", 0, True, properties=properties))
    peer.send(*packets)


def in_one_partition(box: Box, count: int) -> list[str]:
    """Return so many topics of one partition."""
    partitions = box.config.partitions
    names = [f"one/{number}" for number in range(count * partitions * 2)]
    return [name for name in names if hash64(name.encode()) % partitions == 0][:count]


def test_what_nobody_reads_is_gone_within_the_interval(box: Box) -> None:
    peer = filler(box)
    peer.publish("stays", b"x", qos=1, retain=True)
    peer.publish("long", b"x", qos=1, retain=True, message_expiry=1000)
    fill(peer, 0, 300, 5)
    counters = box.node.counters
    assert (counters.retained_messages, len(topics_in(box))) == (302, 302)
    box.advance(4 * SECOND)
    assert counters.retained_messages == 302
    box.advance(SECOND + INTERVAL_US)
    assert topics_in(box) == {b"stays", b"long"}
    assert counters.retained_messages == 2
    assert counters.retained_bytes == len(b"stays" + b"long") + 2
    assert counters.retained_expired == 300
    box.advance(1000 * SECOND + INTERVAL_US)
    assert topics_in(box) == {b"stays"}


def test_a_user_can_retain_again_when_what_it_had_has_expired(make: MakeBox) -> None:
    box = make(check=lambda _user, _password, _address: True, limits={"user_retained_messages_max": 2})
    ann = box.client("a")
    ann.connect(username="ann", password=b"x")
    assert [ann.publish(str(n), b"x", qos=1, retain=True, message_expiry=5) for n in range(3)] == [0x10, 0x10, 0x97]
    box.advance(5 * SECOND + INTERVAL_US)
    assert ann.publish("3", b"x", qos=1, retain=True) == 0x10


def test_new_messages_find_room_in_the_node(make: MakeBox) -> None:
    box = make(limits={"retained_messages_max": 2})
    peer = filler(box)
    codes = [peer.publish(str(n), b"x", qos=1, retain=True, message_expiry=5) for n in range(3)]
    assert codes == [0x10, 0x10, 0x97]
    box.advance(5 * SECOND + INTERVAL_US)
    assert peer.publish("3", b"x", qos=1, retain=True) == 0x10


def turns_of_an_hour(box: Box) -> int:
    box.advance(60 * SECOND)
    turns = box.node.counters.turns
    box.advance(3600 * SECOND)
    return box.node.counters.turns - turns


def test_messages_that_never_expire_cost_no_turn(box: Box) -> None:
    peer = filler(box)
    usual = turns_of_an_hour(box)
    fill(peer, 0, 500, None)
    assert turns_of_an_hour(box) == usual


def test_a_message_that_expires_later_costs_a_few_looks_and_no_reading(box: Box) -> None:
    peer = filler(box)
    usual = turns_of_an_hour(box)
    fill(peer, 0, 500, None)
    peer.publish("late", b"x", qos=1, retain=True, message_expiry=7200)
    sweep = box.node._broker.partition.retained_sweep
    assert turns_of_an_hour(box) - usual <= 60 * 16 * 2, "at each visit one turn, and one that finds the node at rest"
    assert sweep.pages == 0
    box.advance(3600 * SECOND + INTERVAL_US)
    assert sweep.pages == 1
    assert topics_in(box) == {b"r/%d" % number for number in range(500)}
    assert turns_of_an_hour(box) == usual, "nothing is left that could expire"


def test_a_replaced_message_lives_as_long_as_the_newest_says(box: Box) -> None:
    peer = filler(box)
    peer.publish("t", b"old", qos=1, retain=True, message_expiry=5)
    peer.publish("t", b"new", qos=1, retain=True, message_expiry=300)
    box.advance(5 * SECOND + 2 * INTERVAL_US)
    assert topics_in(box) == {b"t"}
    box.advance(300 * SECOND)
    assert topics_in(box) == set()
    peer.publish("t", b"old", qos=1, retain=True, message_expiry=5)
    peer.publish("t", b"for ever", qos=1, retain=True)
    box.advance(10 * INTERVAL_US)
    assert topics_in(box) == {b"t"}


def test_a_partition_with_many_messages_takes_many_short_turns(make: MakeBox) -> None:
    box = make(partitions=1, limits={"page_rows": 16})
    fill(filler(box), 0, 1000, 5)
    box.advance(4 * SECOND)
    counters = box.node.counters
    rows = counters.commit_rows
    most = 0
    end = box.now + SECOND + INTERVAL_US
    while box.now < end:
        box.advance(5_000)
        most = max(most, counters.commit_rows - rows)
        rows = counters.commit_rows
    assert counters.retained_messages == 0
    assert most == 16


def test_what_comes_while_a_partition_is_read_expires_too(make: MakeBox) -> None:
    box = make(partitions=1, limits={"page_rows": 16})
    peer = filler(box)
    fill(peer, 0, 200, 5)
    fill(peer, 200, 400, 70)
    sweep = box.node._broker.partition.retained_sweep
    while not sweep.due:
        box.advance(10_000)
    box.advance(20_000)
    assert sweep.due, "the partition is being read"
    peer.publish("a", b"x", qos=1, retain=True, message_expiry=2)  # before the position
    peer.publish("z", b"x", qos=1, retain=True, message_expiry=2)  # after it
    box.advance(2 * SECOND + INTERVAL_US)
    assert topics_in(box) & {b"a", b"z"} == set()
    box.advance(70 * SECOND)
    assert topics_in(box) == set()


def test_a_batch_that_is_not_durable_yet_is_waited_for(make: MakeBox) -> None:
    box = make(partitions=1)
    peer = filler(box)
    peer.publish("first", b"x", qos=1, retain=True, message_expiry=1)
    box.hold_writes()
    fill(peer, 0, 1, 100)
    sweep = box.node._broker.partition.retained_sweep
    box.advance(INTERVAL_US)
    assert (list(sweep.due), sweep.pages) == ([0], 0)
    box.release_writes()
    box.advance(100 * SECOND + INTERVAL_US)
    assert topics_in(box) == set(), "its time of expiry was forgotten before the store showed it"


@pytest.mark.parametrize("crash", [False, True])
def test_after_a_start_they_are_found(box: Box, crash: bool) -> None:
    fill(filler(box), 0, 100, 5)
    box.crash() if crash else box.restart()
    box.advance(5 * SECOND + INTERVAL_US)
    assert topics_in(box) == set()


def test_the_sweep_can_be_turned_off(make: MakeBox) -> None:
    box = make(limits={"retained_sweep_interval_us": 0})
    peer = filler(box)
    fill(peer, 0, 3, 5)
    box.advance(3600 * SECOND)
    assert len(topics_in(box)) == 3
    reader = box.client("reader")
    reader.connect()
    reader.subscribe("r/#")
    assert (reader.payloads(), topics_in(box)) == ([], set())


@pytest.mark.parametrize("interval_us", [1, 500, SECOND])
def test_any_interval_is_kept(make: MakeBox, interval_us: int) -> None:
    box = make(limits={"retained_sweep_interval_us": interval_us})
    fill(filler(box), 0, 20, 2)
    box.advance(2 * SECOND + max(interval_us, SECOND // 4))
    assert topics_in(box) == set()


def test_a_damaged_row_is_reported_and_stops_nothing(make: MakeBox) -> None:
    box = make(partitions=1)
    peer = filler(box)
    for topic in ("a", "b", "c"):
        peer.publish(topic, b"x", qos=1, retain=True, message_expiry=5)
    damage = Batch(0)
    damage.ops.append((PUT, plain_key(0, RETAINED, b"b"), bytes(VERSION_BYTES) + b"\0\0"))
    box.alter(damage)
    box.advance(5 * SECOND + INTERVAL_US)
    assert box.kinds().count("corrupt_store") == 1
    assert box.node.counters.retained_messages == 1
    box.advance(10 * INTERVAL_US)
    assert box.kinds().count("corrupt_store") == 1, "it is not read again and again"


@pytest.mark.parametrize("payload", [b"new", b""])
def test_a_damaged_row_is_replaced_and_its_bytes_are_counted_no_more(make: MakeBox, payload: bytes) -> None:
    box = make(partitions=1)
    peer = filler(box)
    peer.publish("a", b"x" * 1000, qos=1, retain=True)
    damage = Batch(0)
    damage.ops.append((PUT, plain_key(0, RETAINED, b"a"), bytes(VERSION_BYTES) + b"\0\0"))
    box.alter(damage)
    peer.publish("a", payload, qos=1, retain=True)
    counters = box.node.counters
    assert (counters.retained_messages, counters.retained_bytes < 100) == (len(payload) // 3, True)
    assert miscounted(box.node) == ""
    peer.publish("a", b"", qos=1, retain=True)
    assert (counters.retained_messages, counters.retained_bytes, miscounted(box.node)) == (0, 0, "")


def test_a_slow_disk_and_many_partitions_with_few_messages_do_not_hold_it_up(make: MakeBox) -> None:
    """What the sweep itself has written need not be durable before it goes on with the next partition."""
    box = make(limits={"retained_sweep_interval_us": 2 * SECOND})
    fill(filler(box), 0, 3000, 1)
    box.advance(SECOND // 2)
    end = box.now + SECOND // 2 + 2 * SECOND + 2 * SECOND
    while box.now < end:
        box.hold_writes()
        box.advance(SECOND // 20)
        box.release_writes()
    assert box.node.counters.retained_messages == 0


def test_only_the_partition_in_which_a_message_has_expired_is_read(make: MakeBox) -> None:
    box = make()
    peer = filler(box)
    fill(peer, 0, 2000, None)
    sweep = box.node._broker.partition.retained_sweep
    for _ in range(5):
        peer.publish("t", b"x", qos=1, retain=True, message_expiry=10)
        box.advance(10 * SECOND + INTERVAL_US)
    assert 0 < sweep.pages <= 5
