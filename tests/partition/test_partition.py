"""The memory of led partitions: published once, dropped once, and counted from the beginning."""

from __future__ import annotations

import pytest

from folkmoot.partition.partition import Led, Partition
from tests.harness.box import Box


def test_a_partition_is_led_once() -> None:
    led = Led()
    for number in (3, 1):
        led.put(Partition(number))
    assert [partition.number for partition in led] == [1, 3]
    assert len({partition.leadership for partition in led}) == 2
    with pytest.raises(AssertionError, match="is led already"):
        led.put(Partition(3))
    before = led[3].leadership
    led.drop(3)
    assert led.get(3) is None
    with pytest.raises(AssertionError, match="is not led by this node"):
        led[3]
    led.put(Partition(3))
    assert led[3].leadership > before, "what is known from before says nothing of it"


def test_bodies_count_as_soon_as_the_partition_is_led() -> None:
    """Whatever follows in the restoration may fail, and the partition is given up then."""
    box = Box(partitions=1)
    source = box.client("s")
    source.connect()
    for name in ("a", "b"):
        peer = box.client(name)
        peer.resume()
        peer.subscribe("t", qos=1)
        peer.lose()
    source.publish("t", bytes(500), qos=1)
    broker = box.node._broker
    bodies = broker.partition.bodies
    assert len(bodies) == 1
    broker.leadership.leave(0)
    assert len(bodies) == 0
    broker.leadership.restore.load(0)
    assert len(bodies) == 1
