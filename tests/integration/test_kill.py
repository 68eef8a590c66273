"""kill -9 at any moment: after the restart all that was acknowledged is there, and flows go on where they were."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Publish, Will
from tests.integration.serving import RawClient, Serving, await_true

ANY = "127.0.0.1:0"
# Where the disk is fast, publishers that never stop bring a queue to its default limit of 100,000 messages. What comes
# then is acknowledged, dropped and counted (docs/limits.md, "A full queue"), so it would look like a loss.
CONFIG = "[limits]\nqueue_messages_max = 10_000_000\n"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path / "data", "--mqtt", ANY, "--admin", ANY, "--stream", "kept=kept/#", config=CONFIG) as node:
        yield node


def drain(client: RawClient, quiet_s: float = 0.5) -> list[Publish]:
    """Receive and acknowledge until nothing comes for a while."""
    found = []
    while (packet := client.receive(quiet_s)) is not None:
        if isinstance(packet, Publish):
            found.append(packet)
            if packet.qos:
                client.send(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id))
        elif isinstance(packet, Ack) and packet.kind == PUBREL:
            client.send(Ack(PUBCOMP, packet.packet_id))
    return found


def test_acknowledged_messages_and_subscriptions_survive(serving: Serving) -> None:
    with RawClient(serving) as subscriber:
        assert not subscriber.connect("sub").session_present
        subscriber.subscribe(b"a/#")
    with RawClient(serving) as publisher:
        publisher.connect("pub")
        for number in range(1, 51):
            publisher.send(Publish(b"a/%d" % (number % 3), b"%d" % number, 1, False, False, number))
        for number in range(1, 51):
            assert publisher.expect_ack(PUBACK).packet_id == number
        publisher.send(Publish(b"a/kept", b"retained", 1, True, False, 51))
        publisher.expect_ack(PUBACK)
    serving.restart()
    with RawClient(serving) as subscriber:
        assert subscriber.connect("sub").session_present
        found = drain(subscriber)
        assert [int(packet.payload) for packet in found[:50]] == list(range(1, 51))
        assert [packet.payload for packet in found[50:]] == [b"retained"]
        assert not any(packet.dup for packet in found), "none was sent before"
    with RawClient(serving) as other:
        other.connect("other")
        other.subscribe(b"a/+")
        packet = other.expect_publish()
        assert (packet.topic, packet.payload, packet.retain) == (b"a/kept", b"retained", True)


def test_a_publisher_that_never_stops_loses_nothing_that_was_acknowledged(serving: Serving) -> None:
    with RawClient(serving) as subscriber:
        subscriber.connect("sub")
        subscriber.subscribe(b"load/#", 1)
    acknowledged: list[int] = []
    for round_number in range(3):
        stop = threading.Event()

        def publish(base: int, stop: threading.Event = stop) -> None:
            with RawClient(serving) as client:
                client.connect(f"pub{base}", clean=True, session_s=0)
                sent = 0
                while not stop.is_set():
                    try:
                        client.send(*[
                            Publish(b"load/x", b"%d" % (base + sent + at), 1, False, False, (sent + at) % 60_000 + 1)
                            for at in range(20)
                        ])  # fmt: skip
                    except OSError:
                        return
                    for at in range(20):
                        packet = client.receive(5)
                        if packet is None:
                            return
                        assert isinstance(packet, Ack)
                        assert (packet.kind, packet.packet_id, packet.code) == (PUBACK, (sent + at) % 60_000 + 1, 0)
                        acknowledged.append(base + sent + at)
                    sent += 20

        threads = [threading.Thread(target=publish, args=((round_number * 3 + at) * 1_000_000,)) for at in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.4)
        serving.kill()
        stop.set()
        for thread in threads:
            thread.join()
        serving.start()
    assert len(acknowledged) > 300
    with RawClient(serving) as subscriber:
        assert subscriber.connect("sub").session_present
        found = [int(packet.payload) for packet in drain(subscriber, 1.5)]
    assert set(acknowledged) <= set(found), "an acknowledged message is gone"
    assert len(set(found)) == len(found), "a message came twice"
    for base in range(9):
        of_one = [number for number in found if number // 1_000_000 == base]
        assert of_one == sorted(of_one), "the order of one publisher is lost"


def test_an_unacknowledged_delivery_is_repeated_with_its_packet_id(serving: Serving) -> None:
    with RawClient(serving) as client:
        client.connect("c")
        client.subscribe(b"q/#")
        client.send(Publish(b"q/1", b"one", 1, False, False, 10), Publish(b"q/2", b"two", 2, False, False, 11))
        found = [packet for _ in range(4) if isinstance(packet := client.receive(), Publish)]
        assert [packet.payload for packet in found] == [b"one", b"two"]
    serving.restart()
    with RawClient(serving) as client:
        assert client.connect("c").session_present
        again = [client.expect_publish(), client.expect_publish()]
        assert [(p.packet_id, p.payload, p.qos, p.dup) for p in again] == [
            (p.packet_id, p.payload, p.qos, True) for p in found
        ]


def test_qos_2_in_mid_flight_goes_on_as_sender(serving: Serving) -> None:
    """PUBREC came, then kill: the broker goes on with PUBREL and does not repeat the message."""
    with RawClient(serving) as client:
        client.connect("c")
        client.subscribe(b"q")
        with RawClient(serving) as publisher:
            publisher.connect("p")
            publisher.send(Publish(b"q", b"exactly once", 2, False, False, 1))
            publisher.expect_ack(PUBREC)
            publisher.send(Ack(PUBREL, 1))
            publisher.expect_ack(PUBCOMP)
        packet = client.expect_publish()
        client.send(Ack(PUBREC, packet.packet_id))
        assert client.expect_ack(PUBREL).packet_id == packet.packet_id
    serving.restart()
    with RawClient(serving) as client:
        assert client.connect("c").session_present
        assert client.expect_ack(PUBREL).packet_id == packet.packet_id
        client.send(Ack(PUBCOMP, packet.packet_id))
        assert client.receive(0.3) is None
    serving.restart()
    with RawClient(serving) as client:
        client.connect("c")
        assert client.receive(0.3) is None, "the flow has ended for good"


def test_qos_2_in_mid_flight_goes_on_as_receiver(serving: Serving) -> None:
    """PUBREC was sent, then kill: the same packet id is no second message."""
    with RawClient(serving) as subscriber:
        subscriber.connect("s")
        subscriber.subscribe(b"q")
    with RawClient(serving) as publisher:
        publisher.connect("p")
        publisher.send(Publish(b"q", b"exactly once", 2, False, False, 9))
        publisher.expect_ack(PUBREC)
    serving.restart()
    with RawClient(serving) as publisher:
        assert publisher.connect("p").session_present
        publisher.send(Publish(b"q", b"exactly once", 2, False, True, 9))
        publisher.expect_ack(PUBREC)
        publisher.send(Ack(PUBREL, 9))
        publisher.expect_ack(PUBCOMP)
    with RawClient(serving) as subscriber:
        subscriber.connect("s")
        assert [packet.payload for packet in drain(subscriber)] == [b"exactly once"]


def test_a_will_survives_and_is_sent_once(serving: Serving) -> None:
    with RawClient(serving) as watcher:
        watcher.connect("w")
        watcher.subscribe(b"wills/#", 1)
    dying = RawClient(serving)
    dying.connect("d", session_s=0, clean=True, will=Will(b"wills/transient", b"gone", 1, False, None))
    keeping = RawClient(serving)
    keeping.connect("k", session_s=1, will=Will(b"wills/persistent", b"gone too", 1, False, None))
    serving.restart()
    dying.socket.close()
    keeping.socket.close()
    with RawClient(serving) as watcher:
        assert watcher.connect("w").session_present
        found = sorted(packet.payload for packet in drain(watcher, 3.0))
        assert b"gone too" in found
        assert len(found) == len(set(found))
    serving.restart()
    with RawClient(serving) as watcher:
        watcher.connect("w")
        assert drain(watcher, 2.0) == [], "a will came twice"


def test_a_session_begun_anew_and_a_cleared_retained_message_stay_gone(serving: Serving) -> None:
    with RawClient(serving) as client:
        client.connect("c")
        client.subscribe(b"r", 1)
        client.send(Publish(b"r", b"old", 1, True, False, 1), Publish(b"r", b"", 1, True, False, 2))
        acknowledged = [packet for _ in range(4) if isinstance(packet := client.receive(), Ack)]
        assert [packet.packet_id for packet in acknowledged] == [1, 2]
    with RawClient(serving) as client:
        client.connect("c", clean=True)
    serving.restart()
    with RawClient(serving) as client:
        client.connect("c", session_s=0)
        assert client.receive(0.3) is None, "a subscription or message of the session before"
        client.subscribe(b"r", 1)
        assert client.receive(0.3) is None, "a retained message that was cleared"


def test_stream_records_survive_with_their_offsets(serving: Serving) -> None:
    def stored() -> list[str]:
        place = f"http://127.0.0.1:{serving.port('admin')}/api/v1/streams/kept/partitions"
        lines = []
        for partition in range(8):
            request = urllib.request.Request(
                f"{place}/{partition}/records?from=0", headers={"accept": "application/x-ndjson"}
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                lines += response.read().decode().splitlines()
        return lines

    with RawClient(serving) as client:
        client.connect("p")
        for number in range(1, 31):
            client.send(Publish(b"kept/%d" % (number % 5), b"%d" % number, 1, False, False, number))
        for _ in range(30):
            client.expect_ack(PUBACK)
    before = stored()
    assert len(before) == 30
    serving.restart()
    assert stored() == before
    with RawClient(serving) as client:
        client.connect("p")
        client.send(Publish(b"kept/1", b"31", 1, False, False, 1))
        client.expect_ack(PUBACK)
    await_true(lambda: len(stored()) == 31)
    assert set(before) < set(stored())


def test_a_session_that_a_clean_start_ended_stays_ended(serving: Serving) -> None:
    """The CONNACK of the clean start tells that the old session is gone: it waits until that is on disk."""
    with RawClient(serving) as client:
        client.connect("c")
        client.subscribe(b"x", 1)
    with RawClient(serving) as client:
        client.connect("c", clean=True, session_s=0)
        serving.kill()
    serving.start()
    with RawClient(serving) as client:
        assert not client.connect("c").session_present
