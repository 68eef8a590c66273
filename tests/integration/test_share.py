"""Clients that make as much work as they can, on real sockets: others are served meanwhile (A13).

Each attack keeps a node busy for many seconds; the bystander's round trips are a small part of that on any machine.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import (
    PUBACK,
    V5,
    Ack,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
)
from tests.integration.serving import RawClient, Serving

ANY = "127.0.0.1:0"

ROUND_TRIP_S = 3.0
"""The longest one, on a machine that is twenty times as slow as the one on which it took 150 ms."""


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("node") / "data", "--mqtt", ANY) as node:
        yield node
        assert node.stop() == 0, node.log()


class Attack:
    """A client that sends `data` as fast as the node takes it, then a ping, and reads all answers meanwhile."""

    def __init__(self, serving: Serving, name: str, data: bytes) -> None:
        self.client = RawClient(serving)
        self.client.connect(name, clean=True, session_s=0)
        self.data = data
        self.answers: list[Packet] = []
        self.over = threading.Event()
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._read)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        with contextlib.suppress(OSError):
            self.client.socket.settimeout(120)
            self.client.socket.sendall(self.data + encode(Pingreq(), V5))

    def _read(self) -> None:
        while (packet := self.client.receive(120)) is not None:
            self.answers.append(packet)
            if isinstance(packet, Pingresp):
                break
        self.over.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        self.client.socket.close()


def properties() -> list[bytes]:
    """Four megabytes of PUBLISH with one property each, by four clients."""
    made = Properties()
    made.payload_format = 0
    one = encode(Publish(b"a/b", b"", properties=made), V5)
    return [one * (1_000_000 // len(one))] * 4


def wide_tree() -> list[bytes]:
    """8,192 filters of which each topic matches as many as the node grants, and 11 KB of publications to new topics."""
    filters = ["/".join(part).encode() + b"/#" for part in itertools.product("a+", repeat=13)]
    packets: list[Packet] = [Subscribe(1, [(name, 0) for name in filters])]
    packets += [Publish(b"a/" * 13 + b"%d" % number, b"") for number in range(340)]
    return [b"".join([encode(packet, V5) for packet in packets])]


def wide_trees() -> list[bytes]:
    """The same by ten clients."""
    return wide_tree() * 10


def subscriptions() -> list[bytes]:
    """10,000 filters in one packet, removed by the next, again and again, by four clients."""
    filters = [b"s/%d/+/x/y/z" % number for number in range(10_000)]
    packets: list[Packet] = [Subscribe(1, [(name, 0) for name in filters]), Unsubscribe(2, filters)] * 2
    return [b"".join([encode(packet, V5) for packet in packets])] * 4


def small_packets() -> list[bytes]:
    """Pings and acknowledgements."""
    return [encode(Pingreq(), V5) * 500_000, encode(Ack(PUBACK, 7), V5) * 500_000]


ATTACKS: list[Callable[[], list[bytes]]] = [properties, wide_tree, wide_trees, subscriptions, small_packets]


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.__name__ for attack in ATTACKS])
def test_others_are_served_during_an_attack(serving: Serving, attack: Callable[[], list[bytes]]) -> None:
    with RawClient(serving) as bystander:
        bystander.connect("bystander", clean=True, session_s=0)
        bystander.subscribe(b"own", 0)
        attacks = [Attack(serving, f"{attack.__name__}{number}", data) for number, data in enumerate(attack())]
        times: list[float] = []
        end = time.monotonic() + 20
        while time.monotonic() < end and (len(times) < 20 or not all(one.over.is_set() for one in attacks)):
            begun = time.monotonic()
            bystander.send(Publish(b"own", b"%d" % len(times), 1, packet_id=1))
            kinds = {type(bystander.receive(60)), type(bystander.receive(60))}
            assert kinds == {Publish, Ack}
            times.append(time.monotonic() - begun)
            time.sleep(0.01)
        assert max(times) < ROUND_TRIP_S
        for one in attacks:
            one.join()
            assert isinstance(one.answers[-1], Pingresp), "the attack was not handled"
            for answer in one.answers:
                if isinstance(answer, Suback):
                    assert len(answer.codes) in (8192, 10_000)


def test_what_was_refused_says_why(serving: Serving) -> None:
    with RawClient(serving) as client:
        client.connect("wide", clean=True, session_s=0)
        filters = ["/".join(part).encode() for part in itertools.product("a+", repeat=10)]
        client.send(Subscribe(1, [(name, 0) for name in filters]))
        answer = client.receive()
        assert isinstance(answer, Suback)
        assert answer.codes.count(0) == 513  # with one filter without +
        assert answer.codes.count(0x97) == 511
        assert answer.properties is not None
        assert "512 different sets of levels" in (answer.properties.reason or "")
