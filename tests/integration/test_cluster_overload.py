"""Real processes under more than they can bear, and receipts that tell where each message was stored."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.integration.cluster_rig import Rig
from tests.integration.flood import Flood, resident_bytes
from tests.integration.serving import await_true

MIB = 1 << 20
HANG_S = 0.7  # less than a lease: the others wait, and do not go on without it
FLOOD_S = 1.5
MESSAGES = 8_000  # of each publisher, at most
LIMITS = """
link_buffer_bytes_max = "8MiB"
[limits]
write_backlog_bytes_max = "4MiB"
"""
FOR_EVER = 0xFFFF_FFFF


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path, 3) as found:
        yield found


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Rig]:
    """Nodes that may keep little in memory for others."""
    with Rig(tmp_path, 3, more=LIMITS) as found:
        yield found


def properties_of(kind: int, **named: Any) -> Properties:
    made = Properties(kind)  # type: ignore[no-untyped-call]
    for name, value in named.items():
        setattr(made, name, value)
    return made


class Listener:
    """A paho client of its own thread that counts what it gets."""

    def __init__(self, place: tuple[str, int], name: str, topic: str, qos: int, expiry_s: int = 0) -> None:
        self.payloads: Counter[str] = Counter()
        self.times: list[float] = []
        self.subscribed = threading.Event()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5)
        self.client.on_connect = lambda client, *_: client.subscribe(topic, qos)
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.on_message = self._message
        made = properties_of(PacketTypes.CONNECT, SessionExpiryInterval=expiry_s)
        self.client.connect(*place, 30, clean_start=False, properties=made)
        self.client.loop_start()
        assert self.subscribed.wait(10.0)

    def _message(self, _client: object, _data: object, message: Any) -> None:
        self.payloads[" ".join(message.payload.decode().split()[:2])] += 1
        self.times.append(time.monotonic())

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class Watch:
    """Looks at the nodes ten times a second: their memory, and what those that answer tell of overload."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.memory: dict[str, int] = {}
        self.highest = 0
        self.states: set[str] = set()
        self._stop = False
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop:
            for node in self.rig.running():
                self.memory[node.name] = max(self.memory.get(node.name, 0), resident_bytes(node.pid))
            for name in ("n1", "n2"):
                status = self.rig.nodes[name].ask("/api/v1/status")
                if status is not None:
                    self.highest = max(self.highest, status["overload"])
                    self.states.add(status["state"])
            time.sleep(0.1)

    def stop(self) -> None:
        self._stop = True
        self._thread.join()


def test_a_node_that_hangs_slows_publishers_and_nothing_else(small: Rig) -> None:
    """Publishers push as fast as they can while a node stands still: memory is bounded, nothing is lost."""
    places = {name: place["mqtt"] for name, place in small.places.items()}
    Listener(places["n1"], "keeper", "flood/#", 1, FOR_EVER).close()
    live = [Listener(places[name], f"live-{name}", "live", 0) for name in ("n1", "n2")]
    before = {node.name: resident_bytes(node.pid) for node in small.running()}
    watch = Watch(small)
    stack = contextlib.ExitStack()
    floods = [
        stack.enter_context(Flood(places[name], name, f"flood/{name}", 1000, MESSAGES)) for name in ("n1", "n2", "n3")
    ]
    pulse = paho.Client(CallbackAPIVersion.VERSION2, client_id="pulse")
    pulse.connect(*places["n1"], 30)
    pulse.loop_start()
    try:
        beats = beat(pulse, FLOOD_S)
        small.freeze("n3")
        hung_s = time.monotonic()
        beats += beat(pulse, HANG_S)
        small.thaw("n3")
        beats += beat(pulse, FLOOD_S)
        end_s = time.monotonic()
        for flood in floods:
            flood.finish(60.0)
    except AssertionError as fault:
        raise AssertionError(f"{fault}\n{small.log()}") from None
    finally:
        watch.stop()
        pulse.loop_stop()
        pulse.disconnect()
        stack.close()
    small.await_whole()
    assert watch.highest >= 2, watch.highest
    assert watch.states == {"member"}
    grown = {name: (watch.memory[name] - before[name]) // MIB for name in before}
    assert max(grown.values()) < 160, grown  # 3 write buffers of the store alone take 48
    assert "peer_too_slow" not in "".join(node.log() for node in small.nodes.values())
    for listener in live:
        await_true(lambda listener=listener: len(listener.times) == beats, 10.0)
        assert [at for at in listener.times if hung_s < at < end_s], "they go on while a node hangs"
        listener.close()
    await_true(lambda: all(node.answer("/api/v1/status")["overload"] == 0 for node in small.running()), 20.0)
    keeper = Listener(places["n2"], "keeper", "flood/#", 1, FOR_EVER)
    wanted = {f"{flood.name} {number}" for flood in floods for number in range(flood.sent)}
    seen = -1
    while seen < len(keeper.payloads) < len(wanted):
        seen = len(keeper.payloads)
        with contextlib.suppress(AssertionError):
            await_true(lambda seen=seen: len(keeper.payloads) > seen, 20.0)
    keeper.close()
    assert set(keeper.payloads) == wanted
    assert all(count == 1 for count in keeper.payloads.values()), "no connection was lost, so nothing comes twice"


def beat(pulse: paho.Client, seconds: float) -> int:
    """Publish twenty times a second to live subscribers; return how often."""
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        pulse.publish("live", "beat 1", 0)
        count += 1
        time.sleep(0.05)
    return count


class Auditor:
    """A paho publisher that asks for a receipt of each message, and keeps it."""

    def __init__(self, rig: Rig) -> None:
        # By packet id, because paho's network thread and this one must not wait for each other.
        self._numbers: dict[int, int] = {}
        self._receipts: dict[int, list[tuple[str, str]]] = {}
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id="auditor", protocol=paho.MQTTv5)
        self.client.reconnect_delay_set(1, 1)
        self.client.on_publish = self._published
        made = properties_of(PacketTypes.CONNECT, SessionExpiryInterval=FOR_EVER)
        self.client.connect(rig.door.host, rig.door.port, 30, clean_start=False, properties=made)
        self.client.loop_start()

    @property
    def receipts(self) -> dict[int, list[tuple[str, str]]]:
        """The receipts by the numbers of the messages."""
        return {self._numbers[mid]: found for mid, found in self._receipts.copy().items() if mid in self._numbers}

    def publish(self, number: int, qos: int) -> None:
        made = properties_of(PacketTypes.PUBLISH, UserProperty=[("folkmoot-receipt", "1")])
        self._numbers[self.client.publish("audited", f"m {number} ", qos, properties=made).mid] = number

    def _published(self, _client: object, _data: object, mid: int, _code: object, properties: Any) -> None:
        self._receipts[mid] = list(getattr(properties, "UserProperty", []))

    def await_all(self, count: int) -> None:
        await_true(lambda: len(self.receipts) == count, 30.0)


def places_of(receipt: list[tuple[str, str]]) -> dict[int, tuple[int, int, int]]:
    """partition -> (replicas, epoch, sequence)"""
    found = {}
    for at in range(0, len(receipt), 4):
        named = dict(receipt[at : at + 4])
        found[int(named["folkmoot-partition"])] = (
            int(named["folkmoot-replicas"]),
            int(named["folkmoot-epoch"]),
            int(named["folkmoot-sequence"]),
        )
    return found


def test_receipts_say_where_and_how_often_also_after_a_kill(rig: Rig) -> None:
    keeper = Listener(rig.places["n2"]["mqtt"], "keeper", "audited", 1, FOR_EVER)
    at = rig.nodes["n1"].answer("/api/v1/where?client=keeper")["partition"]
    keeper.close()
    auditor = Auditor(rig)
    for number in range(100):
        auditor.publish(number, 1)
    auditor.await_all(100)
    assert {tuple(places_of(receipt)) for receipt in auditor.receipts.values()} == {(at,)}
    assert {places_of(receipt)[at][0] for receipt in auditor.receipts.values()} == {3}
    leader = rig.leader("keeper")
    for number in range(100, 150):
        auditor.publish(number, 1)
    rig.kill(leader)
    for number in range(150, 300):
        auditor.publish(number, 1)
    auditor.await_all(300)
    rig.await_out(leader)
    for number in range(300, 320):
        auditor.publish(number, 1)
    auditor.await_all(320)
    told = [places_of(auditor.receipts[number]) for number in range(320)]
    assert all(tuple(places) == (at,) for places in told), "each message is in the partition of its subscriber"
    assert {places[at][0] for places in told} == {2, 3}
    assert {places[at][0] for places in told[300:]} == {2}
    assert min(places[at][1] for places in told[300:]) > told[0][at][1], "another epoch has begun"
    positions = [places[at][1:] for places in told[:100]]
    assert positions == sorted(positions)
    auditor.client.disconnect()
    auditor.client.loop_stop()
    survivor = next(node.name for node in rig.running())
    keeper = Listener(rig.places[survivor]["mqtt"], "keeper", "audited", 1, FOR_EVER)
    await_true(lambda: set(keeper.payloads) == {f"m {number}" for number in range(320)}, 20.0)
    keeper.close()
