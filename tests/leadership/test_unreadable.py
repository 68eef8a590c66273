"""What works in the background meets rows that cannot be read: it is said, and everything else goes on."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import Publish, Will
from folkmoot.store.key import BODY, CHUNK, PRODUCER, QUEUE
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.peer import EVER, properties
from tests.harness.unreadable import Unreadable


def goes_on(box: Box) -> bool:
    """Whether the damage was told, and messages still come."""
    peer = box.client("witness")
    peer.connect()
    peer.subscribe("still", qos=1)
    peer.publish("still", b"there", qos=1)
    return "corrupt_store" in box.kinds() and peer.payloads() == [b"there"]


def test_the_queue_of_an_ended_session() -> None:
    box = Box()
    peer = box.client("c")
    peer.connect(session_expiry=EVER)
    peer.subscribe("$share/g/t", qos=1)
    peer.lose()
    source = box.client("source")
    source.connect()
    source.publish("t", b"x", qos=1)
    state = box.node._broker.state
    state.reader = Unreadable(state.reader, QUEUE)
    peer.connect(clean_start=True)
    box.advance(SECOND)
    assert goes_on(box)


def test_a_message_that_cannot_be_read_is_not_passed_over() -> None:
    """Its client is sent away each time: else it would get what is behind the message, and never the message."""
    box = Box(partitions=1)
    peers = [box.client(name) for name in "ab"]
    for peer in peers:
        peer.resume()
        peer.subscribe("t", qos=1)
        peer.lose()
    source = box.client("source")
    source.connect()
    messages = [bytes(200), b"last"]  # the large one has a row of its own, which both queues name
    for message in messages:
        source.publish("t", message, qos=1)
    state = box.node._broker.state
    reader = state.reader
    state.reader = Unreadable(reader, BODY)
    for _ in range(3):
        peers[0].resume()
        assert peers[0].closed
        assert peers[0].payloads() == []
    assert goes_on(box)
    state.reader = reader
    peers[0].resume()
    assert peers[0].payloads() == messages


def test_records_that_retention_would_remove() -> None:
    box = Box(streams=[StreamConfig("s", b"s/#", 1, retention_us=SECOND)])
    source = box.client("source")
    source.connect()
    source.publish("s/1", b"x", qos=1)
    for log in box.node._broker.streams._logs:
        log._reader = Unreadable(log._reader, CHUNK)
    box.advance(100 * SECOND)
    assert goes_on(box)


def test_producers_that_are_too_many() -> None:
    box = Box(limits={"producers_max": 4, "user_share_max": 100}, partitions=1)
    reader = box.client("reader")
    reader.connect(session_expiry=EVER)
    reader.subscribe("t", qos=1)
    source = box.client("source")
    source.connect()
    state = box.node._broker.state
    state.reader = Unreadable(state.reader, PRODUCER, gets=False)
    for number in range(8):
        named = [("folkmoot-producer", f"p{number}"), ("folkmoot-seq", "1")]
        source.publish("t", b"x", qos=1, user_properties=named)
    assert goes_on(box)


def test_a_message_whose_producer_cannot_be_read_leaves_no_receipt_open() -> None:
    box = Box(partitions=1)
    reader = box.client("reader")
    reader.connect(session_expiry=EVER)
    reader.subscribe("t", qos=1)
    source = box.client("source")
    source.connect()
    state = box.node._broker.state
    state.reader = Unreadable(state.reader, PRODUCER)
    named = [("folkmoot-producer", "p"), ("folkmoot-seq", "1"), ("folkmoot-receipt", "1")]
    source.send(Publish(b"t", b"x", 1, False, False, 1, properties(user_properties=named)))
    source.expect_close(0x80)
    assert box.node._broker.turn.receipts.current is None
    assert goes_on(box)


def test_a_will_is_not_forgotten_where_it_cannot_be_read_whether_it_was_published_before() -> None:
    box = Box(partitions=1)
    peer = box.client("c")
    named = [("folkmoot-producer", "p"), ("folkmoot-seq", "1")]
    peer.connect(session_expiry=EVER, will=Will(b"will", b"gone", 1, True))
    peer.publish("t", b"x", qos=1, user_properties=named)
    state = box.node._broker.state
    will = state.sessions["c"].will
    assert will is not None
    will.token = 7  # as in a cluster: another side of a split may have published it
    state.reader = Unreadable(state.reader, PRODUCER)
    peer.lose()
    assert "corrupt_store" in box.kinds()
    box.client("c").resume()  # which takes back no will that is due
    box.crash()
    reader = box.client("reader")
    reader.connect()
    reader.subscribe("will", qos=1)
    assert reader.payloads() == [b"gone"]
