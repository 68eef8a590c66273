"""The node stops as an operator asks: clients are told, and all that was accepted is there at the next start."""

from __future__ import annotations

from folkmoot.mqtt.packet import Publish, Will
from tests.harness.box import Box
from tests.harness.version import ALL


@ALL
def test_clients_are_told_and_closed(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.resume()
    box.stop()
    peer.expect_close(0x8B)


@ALL
def test_nobody_comes_in_while_the_node_stops(box: Box, version: int) -> None:
    box.stop()
    peer = box.client("a", version)
    peer.connect(code=None)
    assert peer.closed
    assert peer.close_code in ((0x88, 0x8B) if version == 5 else (3,))


def test_what_is_on_its_way_to_the_disk_is_finished(box: Box) -> None:
    sleeper, peer = box.client("z"), box.client("a", acks=False)
    sleeper.resume()
    sleeper.subscribe("t", qos=1)
    sleeper.lose()
    peer.connect()
    box.hold_writes()
    peer.send(Publish(b"t", b"m", 1, packet_id=1))
    box.node.stop(box.now)
    box.release_writes()
    peer.expect_close(0x8B)
    box.crash()
    sleeper.resume()
    assert sleeper.payloads() == [b"m"]


def test_sessions_and_wills_are_treated_as_at_any_close(box: Box) -> None:
    watcher, peer = box.client("w"), box.client("a")
    watcher.resume()
    watcher.subscribe("will", qos=1)
    peer.resume(will=Will(b"will", b"gone", 1))
    box.restart()
    assert watcher.resume().session_present
    assert watcher.payloads() == [b"gone"]
    assert peer.resume().session_present


def test_stopping_twice_is_stopping_once(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    box.stop()
    box.stop()
    peer.expect_close(0x8B)
