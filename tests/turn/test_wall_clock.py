"""A step of the wall clock is no passing of time: nothing is late, silent, overloaded, or over because of it."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import HOUR, SECOND
from folkmoot.mqtt.packet import Publish, Will
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.peer import properties

DAY = 24 * HOUR
STEPS = pytest.mark.parametrize("step_us", [DAY, -DAY, 3650 * DAY])


def set_wall(box: Box, step_us: int) -> None:
    """Set the wall clock to so much before or after the right time."""
    box.node.set_wall(box.now + step_us, box.now)
    box.run()


def shown(packet: Publish) -> int | None:
    """The message expiry interval of a message that came."""
    assert packet.properties is not None
    return packet.properties.message_expiry


@STEPS
def test_connections_and_load_do_not_notice(box: Box, step_us: int) -> None:
    silent = box.client("silent")
    silent.connect(keep_alive_s=10, will=Will(b"w", b"gone"))
    late = box.client("late")
    box.advance(5 * SECOND)
    box.hold_writes()
    publisher = box.client("publisher")
    publisher.connect()
    publisher.publish("t", b"x", qos=1)
    set_wall(box, step_us)
    assert not silent.closed
    assert box.node.counters.overload == 0
    assert "woke_late" not in box.kinds()
    box.release_writes()
    box.advance(9 * SECOND)
    assert not silent.closed
    box.advance(2 * SECOND)
    assert silent.closed, "fifteen seconds of silence"
    assert not late.closed


@STEPS
def test_sessions_and_wills_last_as_long_as_they_should(box: Box, step_us: int) -> None:
    peer = box.client("a")
    peer.connect(clean_start=False, session_expiry=60, will=Will(b"w", b"gone", properties=properties(will_delay=30)))
    peer.lose()
    box.advance(SECOND)
    set_wall(box, step_us)
    box.advance(28 * SECOND)
    assert box.node.counters.wills_published == 0
    box.advance(2 * SECOND)
    assert box.node.counters.wills_published == 1
    box.advance(28 * SECOND)
    assert box.node.counters.sessions_expired == 0
    box.advance(2 * SECOND)
    assert box.node.counters.sessions_expired == 1


@pytest.mark.parametrize("step_us", [DAY, 3650 * DAY])
def test_stored_messages_expire_at_double_speed_at_most(box: Box, step_us: int) -> None:
    subscriber = box.client("s")
    subscriber.connect(clean_start=False, session_expiry=HOUR // SECOND)
    subscriber.subscribe("t", qos=1)
    subscriber.lose()
    publisher = box.client("p")
    publisher.connect()
    publisher.publish("t", b"short", qos=1, message_expiry=60)
    publisher.publish("t", b"long", qos=1, message_expiry=600)
    set_wall(box, step_us)
    box.advance(31 * SECOND)
    subscriber.connect(clean_start=False, session_expiry=HOUR // SECOND)
    assert [packet.payload for packet in subscriber.publishes()] == [b"long"]


def test_a_message_never_shows_more_than_its_interval(box: Box) -> None:
    """It was dated by a clock that was ahead [MQTT-3.3.2-6]."""
    set_wall(box, DAY)
    subscriber = box.client("s")
    subscriber.connect(clean_start=False, session_expiry=HOUR // SECOND)
    subscriber.subscribe("t", qos=1)
    subscriber.lose()
    publisher = box.client("p")
    publisher.connect()
    publisher.publish("t", b"x", qos=1, message_expiry=60)
    set_wall(box, 0)
    subscriber.connect(clean_start=False, session_expiry=HOUR // SECOND)
    assert [shown(packet) for packet in subscriber.publishes()] == [60]


def test_retention_does_not_empty_a_stream() -> None:
    box = Box(streams=[StreamConfig("s", b"t", 1, HOUR, 0)])
    publisher = box.client("p")
    publisher.connect()
    for number in range(3):
        publisher.publish("t", b"%d" % number, qos=1)
    set_wall(box, 3650 * DAY)
    box.advance(60 * SECOND)
    log = box.node.streams.streams[0].logs[0]
    assert (log.oldest, log.next_offset) == (0, 3)
    publisher.publish("t", b"new", qos=1)
    assert log.latest_time_us == box.now + 3650 * DAY
    box.advance(HOUR)
    assert log.oldest > 0, "an hour has passed after all"


def test_a_stored_end_is_never_further_away_than_the_interval(box: Box) -> None:
    """The clock was a day ahead when the client left, and is right when the node starts again."""
    set_wall(box, DAY)
    peer = box.client("a")
    peer.connect(clean_start=False, session_expiry=60)
    peer.lose()
    box.crash()
    box.advance(59 * SECOND)
    assert box.node.counters.sessions_expired == 0
    box.advance(2 * SECOND)
    assert box.node.counters.sessions_expired == 1


def test_a_step_of_a_node_without_a_cluster_is_reported(box: Box) -> None:
    set_wall(box, SECOND)
    assert "time_set" not in box.kinds()
    set_wall(box, DAY)
    assert [event.fields["by_us"] for event in box.events if event.kind == "time_set"] == [DAY - SECOND]
    assert box.node.counters.clock_offset_us == 0, "it follows"
